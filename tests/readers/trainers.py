"""Gives shards to the trainers' own code, without a GPU: see trainers.sh.

    trainers.py DIR      DIR is what gen writes

One line a check; exit code 0 always: trainers.sh counts the lines.
"""

import asyncio
import glob
import os
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "..", "exporter", part) for part in ("python", "recipes")]
os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TOKENIZERS_PARALLELISM="false", CUDA_VISIBLE_DEVICES="",
                  TRL_EXPERIMENTAL_SILENCE="1", HF_DATASETS_DISABLE_PROGRESS_BARS="1")

import turnlog  # noqa: E402
from check import check  # noqa: E402

VOCABULARY = 151_000
TEMPLATE = ("{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>{% endfor %}"
            "{% if add_generation_prompt %}<assistant>{% endif %}")


def tokenizer():
    """Bytes as tokens, and a template that renders every message alike."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    t = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(["<pad>", "<eos>", *letters])}, merges=[]))
    t.pre_tokenizer, t.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=t, pad_token="<pad>", eos_token="<eos>", chat_template=TEMPLATE)


def model():
    from transformers import LlamaConfig, LlamaForCausalLM
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=65536))


def main(made_up):
    shards = os.environ["TURNLOG_SHARDS"] = os.path.join(made_up, "shards")
    pretok, chat, prompts = [os.path.join(made_up, p) for p in ("pretok", "chat", "prompts")]
    files = {p: sorted(glob.glob(os.path.join(p, "*.parquet"))) for p in (pretok, chat, prompts)}
    rows = list(turnlog.Dataset(shards).rows())
    by_ids = {tuple(r["input_ids"]): r for r in rows}
    groups = {r["group_id"] for r in rows}

    @check("SkyRL SFT: its loader takes the pretok folder, every row and mask")
    def _():
        from skyrl.train.dataset.pretokenized import load_from_pretokenized
        data = load_from_pretokenized(pretok)
        assert len(data) == len(rows)
        for i in range(len(data)):
            got = data[i]
            row = by_ids[tuple(got["input_ids"])]
            first = row["prompt_length"]
            assert got["num_actions"] == row["length"] - first and list(got["loss_mask"]) == row["loss_mask"][first:]

    @check("SkyRL RL: its loader takes the prompts")
    def _():
        from skyrl.train.dataset import PromptDataset
        data = PromptDataset(files[prompts], tokenizer(), 4096, num_workers=1)
        assert len(data) == len(groups)
        messages, env_class, extra, _ = data[0]
        assert messages[0]["role"] == "user" and env_class == "demo" and extra["extra_info"]["group_id"] in groups

    @check("SkyRL RL: the generators are its own, and give what it takes")
    def _():
        import skyrl_offline
        from skyrl.train.generators.base import GeneratorInterface, TrajectoryID
        from skyrl.train.generators.utils import get_rollout_metrics
        generator = skyrl_offline.ReplayGenerator(shards)
        assert isinstance(generator, GeneratorInterface)
        group = next(r["group_id"] for r in rows if r["logprobs"] is not None)
        ids = [TrajectoryID("0", i) for i in range(4)]
        out = asyncio.run(generator.generate({"prompts": [[]] * 4, "trajectory_ids": ids,
                                              "env_extras": [{"extra_info": {"group_id": group}}] * 4}))
        get_rollout_metrics(out["response_ids"], out["rewards"])
        for p, r, m in zip(out["prompt_token_ids"], out["response_ids"], out["loss_masks"]):
            assert [0] * len(p) + m == by_ids[tuple(p + r)]["loss_mask"]

    @check("verl RL: RLHFDataset takes the prompts")
    def _():
        from omegaconf import OmegaConf
        from verl.utils.dataset.rl_dataset import RLHFDataset
        data = RLHFDataset(files[prompts], tokenizer(), OmegaConf.create({
            "max_prompt_length": 4096, "filter_overlong_prompts_workers": 1, "return_raw_chat": True}))
        assert len(data) == len(groups)
        item = data[0]
        assert item["raw_prompt"][0]["role"] == "user" and item["data_source"] and item["extra_info"]["group_id"] in groups
        assert {data[i]["index"] for i in range(len(data))} == set(range(len(groups)))

    @check("verl SFT: the recorded tokens, through its trainer's own factory")
    def _():
        from omegaconf import OmegaConf
        from verl.trainer.sft_trainer import create_sft_dataset
        recipe = os.path.join(HERE, "..", "..", "exporter", "recipes", "verl_sft.py")
        for pad in ("no_padding", "right"):
            data = create_sft_dataset(files[pretok], OmegaConf.create({
                "custom_cls": {"path": recipe, "name": "RecordedDataset"}, "pad_mode": pad, "max_length": 8192}), tokenizer(), None)
            assert len(data) == len(rows)
            for i in range(0, len(data), 50):
                item = data[i]
                n = int(item["attention_mask"].sum()) if pad == "right" else len(item["input_ids"])
                row = by_ids[tuple(item["input_ids"][:n].tolist())]
                assert item["loss_mask"].tolist() == row["loss_mask"] + [0] * (len(item["loss_mask"]) - n)
                assert item["position_ids"][:n].tolist() == list(range(n))

    @check("verl SFT: MultiTurnSFTDataset takes the chats, without tools")
    def _():
        from omegaconf import OmegaConf
        from verl.utils.dataset.multiturn_sft_dataset import MultiTurnSFTDataset
        data = MultiTurnSFTDataset(files[chat], tokenizer(), OmegaConf.create({
            "max_length": 4096, "truncation": "right", "tools_key": "none"}))
        assert len(data) == len({(r["session_id"], r["branch_id"]) for r in rows})
        item = data[0]
        assert item["loss_mask"].sum() > 0 and item["input_ids"].shape == item["loss_mask"].shape

    @check("verl RL: the agent loop is its own, and its output passes its validation")
    def _():
        import types

        import verl_offline
        from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput
        assert issubclass(verl_offline.ReplayAgentLoop, AgentLoopBase)
        loop = object.__new__(verl_offline.ReplayAgentLoop)
        loop.rollout_config = types.SimpleNamespace(response_length=10**6)
        group = next(r["group_id"] for r in rows if r["logprobs"] is not None)
        out = asyncio.run(loop.run({}, extra_info={"group_id": group}))
        assert isinstance(out, AgentLoopOutput)
        row = by_ids[tuple(out.prompt_ids + out.response_ids)]
        assert out.response_mask == row["loss_mask"][row["prompt_length"]:] and out.reward_score == row["reward"]

    @check("TRL SFT: a step on the pretok folder; labels are ours")
    def _():
        import torch
        from trl import SFTConfig, SFTTrainer
        from trl_offline import sft_dataset
        with tempfile.TemporaryDirectory() as out:
            data = sft_dataset(pretok).filter(lambda r: len(r["input_ids"]) < 256)
            trainer = SFTTrainer(model(), train_dataset=data, processing_class=tokenizer(), args=SFTConfig(
                output_dir=out, max_steps=1, per_device_train_batch_size=4, use_cpu=True, report_to=[], max_length=None,
                save_strategy="no", bf16=False, gradient_checkpointing=False, disable_tqdm=True))
            batch = next(iter(trainer.get_train_dataloader()))
            for ids, labels, attention in zip(batch["input_ids"], batch["labels"], batch["attention_mask"]):
                n = int(attention.sum())
                row = by_ids[tuple(ids[:n].tolist())]
                want = torch.tensor([x if m else -100 for x, m in zip(row["input_ids"], row["loss_mask"])])
                assert torch.equal(labels[:n].cpu(), want) and (labels[n:] == -100).all()
            loss = trainer.train().training_loss
            assert 0 < loss < 100, loss

    @check("TRL GRPO: a step on recorded groups")
    def _():
        import trl_offline
        from datasets import Dataset
        from trl import GRPOConfig, GRPOTrainer

        # Rows of the made-up data without log probabilities cannot be trained.
        groups = trl_offline.groups
        short = {r["group_id"] for r in rows} - {r["group_id"] for r in rows if r["logprobs"] is None or r["length"] > 512}
        trl_offline.groups = lambda n: (r for r in groups(n) if r["group_id"] in short)
        with tempfile.TemporaryDirectory() as out:
            trainer = GRPOTrainer(
                model(), reward_funcs=trl_offline.turnlog_reward, rollout_func=trl_offline.rollout_func,
                train_dataset=Dataset.from_list([{"prompt": "p"}] * 4), processing_class=tokenizer(), args=GRPOConfig(
                    output_dir=out, max_steps=1, per_device_train_batch_size=4, num_generations=4, use_cpu=True, report_to=[],
                    save_strategy="no", bf16=False, gradient_checkpointing=False, max_completion_length=512, disable_tqdm=True))
            trainer.train()
            log = {k: v for entry in trainer.state.log_history for k, v in entry.items()}
            assert log["rewards/turnlog_reward/mean"] == log["rewards/turnlog_reward/mean"], log


if __name__ == "__main__":
    main(sys.argv[1])
