"""verl: train on recorded rollouts instead of new ones.

    data.train_files=<folder of profile "prompts">
    actor_rollout_ref.rollout.agent.default_agent_loop=turnlog_replay
    actor_rollout_ref.rollout.agent.agent_loop_config_path=turnlog.yaml
        # turnlog.yaml: [{name: turnlog_replay, _target_: verl_offline.ReplayAgentLoop}]

TURNLOG_SHARDS is the exporter's root. actor_rollout_ref.rollout.n must be the
group size; every epoch takes a group's rollouts in turn.
"""
import collections
import itertools
import os

import turnlog
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput, register

COLUMNS = ["group_id", "rollout_index", "input_ids", "loss_mask", "logprobs", "reward", "turn_start",
           "version_min", "version_max", "branch_label", "remove_sample"]
GROUPS = collections.defaultdict(dict)  # read once in each worker


@register("turnlog_replay")
class ReplayAgentLoop(AgentLoopBase):
    async def run(self, sampling_params, **kwargs):
        if not GROUPS:
            for row in turnlog.Dataset(os.environ["TURNLOG_SHARDS"]).rows(COLUMNS):
                if row["branch_label"] == "main":
                    GROUPS[row["group_id"]][row["rollout_index"]] = row
            GROUPS.update({group: itertools.cycle(rows.values()) for group, rows in GROUPS.items()})
        row, limit = next(GROUPS[kwargs["extra_info"]["group_id"]]), self.rollout_config.response_length
        prompt, response, mask, logprobs = turnlog.split(row)
        return AgentLoopOutput(
            prompt_ids=prompt, response_ids=response[:limit], response_mask=mask[:limit],
            response_logprobs=logprobs and logprobs[:limit], reward_score=row["reward"],
            num_turns=2 * len(row["turn_start"]), metrics={},
            extra_fields={"turn_scores": [], "tool_rewards": [],
                          "min_global_steps": row["version_min"], "max_global_steps": row["version_max"]})
