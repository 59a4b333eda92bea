"""TRL: train on recorded rollouts.

    from trl_offline import sft_dataset, rollout_func, turnlog_reward
    SFTTrainer(model, train_dataset=sft_dataset("pretok/"), args=SFTConfig(...))       # best rollouts, say
    GRPOTrainer(model, reward_funcs=turnlog_reward, rollout_func=rollout_func, ...)    # the same groups again

sft_dataset takes a folder of profile "pretok". rollout_func takes whole groups
of num_generations rollouts from TURNLOG_SHARDS, whatever the prompts are, and
begins again at the end.
"""
import itertools
import os

import turnlog
from trl_online import turnlog_reward  # noqa: F401

COLUMNS = ["group_id", "rollout_index", "input_ids", "loss_mask", "logprobs", "reward", "branch_label", "remove_sample"]


def sft_dataset(folder):
    from datasets import load_dataset
    return load_dataset("parquet", data_dir=folder, split="train")


def groups(n):
    while True:
        rows = (r for r in turnlog.Dataset(os.environ["TURNLOG_SHARDS"]).rows(COLUMNS) if r["branch_label"] == "main")
        for _, group in itertools.groupby(rows, key=lambda r: r["group_id"]):
            yield from list({r["rollout_index"]: r for r in group}.values())[:n]


def rollout_func(prompts, trainer):
    if not hasattr(trainer, "turnlog_rows"):
        trainer.turnlog_rows = groups(trainer.num_generations)
    rows = list(itertools.islice(trainer.turnlog_rows, len(prompts)))
    prompt, response, mask, logprobs = zip(*map(turnlog.split, rows))
    return {"prompt_ids": list(prompt), "completion_ids": list(response), "logprobs": list(logprobs),
            "env_mask": list(mask), "turnlog_reward": [r["reward"] for r in rows]}
