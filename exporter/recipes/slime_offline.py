"""slime and miles: train on recorded rollouts instead of new ones.

    --rollout-function-path slime_offline.generate_rollout

TURNLOG_SHARDS is the exporter's root. Each step takes rollout_batch_size whole
groups, in the order of the shards, and begins again at the end. Several rows of
one rollout (sub-agents, cut histories) share its rollout_id.
"""
import itertools
import os

import turnlog
from slime.rollout.base_types import RolloutFnTrainOutput
from slime.utils.types import Sample

COLUMNS = ["group_id", "rollout_index", "rollout_id", "input_ids", "loss_mask", "logprobs", "reward",
           "status", "remove_sample", "versions", "messages_json"]


def groups():
    while True:
        rows = turnlog.Dataset(os.environ["TURNLOG_SHARDS"]).rows(COLUMNS)
        for number, (_, rollouts) in enumerate(itertools.groupby(rows, key=lambda r: r["group_id"])):
            yield [sample(row, number) for row in rollouts]


def sample(row, group):
    _, response, mask, logprobs = turnlog.split(row)
    s = Sample(group_index=group, index=row["rollout_index"], prompt=row["messages_json"] or "",
               tokens=row["input_ids"], response_length=len(response), loss_mask=mask, rollout_log_probs=logprobs,
               reward=row["reward"], status=Sample.Status(row["status"]), remove_sample=row["remove_sample"],
               weight_versions=[str(v) for v in sorted({v for v in row["versions"] or () if v >= 0})])
    s.rollout_id = row["rollout_id"]
    return s


def generate_rollout(args, rollout_id, data_source, evaluation=False, source=groups()):
    return RolloutFnTrainOutput(samples=list(itertools.islice(source, args.rollout_batch_size)))
