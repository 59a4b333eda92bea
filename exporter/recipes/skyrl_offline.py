"""SkyRL: train on recorded rollouts. For SFT no code is needed: give
`pretokenized_dataset_paths` a folder of profile "pretok".

    data.train_data=<folder of profile "prompts">, and
    class Exp(BasePPOExp):
        def get_generator(self, cfg, tokenizer, inference_engine_client):
            return ReplayGenerator("data/shards")
"""
import collections

import turnlog
from skyrl.train.generators.base import GeneratorInterface

COLUMNS = ["group_id", "rollout_index", "input_ids", "loss_mask", "logprobs", "reward", "status", "branch_label",
           "remove_sample"]


class ReplayGenerator(GeneratorInterface):
    def __init__(self, shards, manifest=None):
        self.groups = collections.defaultdict(dict)
        for row in turnlog.Dataset(shards, manifest).rows(COLUMNS):
            if row["branch_label"] == "main":
                self.groups[row["group_id"]][row["rollout_index"]] = row

    async def generate(self, input_batch):
        ids, extras = input_batch["trajectory_ids"], input_batch["env_extras"]
        rows = []
        for id, extra in zip(ids, extras):
            group = self.groups[extra["extra_info"]["group_id"]]
            rows.append(list(group.values())[id.repetition_id % len(group)])
        prompt, response, mask, logprobs = zip(*map(turnlog.split, rows))
        return {"prompt_token_ids": list(prompt), "response_ids": list(response), "loss_masks": list(mask),
                "rollout_logprobs": None if None in logprobs else list(logprobs),
                "rewards": [r["reward"] or 0.0 for r in rows], "trajectory_ids": ids, "rollout_metrics": {},
                "stop_reasons": ["length" if r["status"] == "truncated" else "stop" for r in rows]}
