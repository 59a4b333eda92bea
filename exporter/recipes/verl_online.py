"""verl: roll out with any agent, through turnlog.

    actor_rollout_ref.rollout.mode=async
    actor_rollout_ref.rollout.agent.default_agent_loop=turnlog
    actor_rollout_ref.rollout.agent.agent_loop_config_path=turnlog.yaml
        # turnlog.yaml: [{name: turnlog, _target_: verl_online.TurnlogAgentLoop}]

The gateway's pool must be verl's rollout servers. TURNLOG_URL and
TURNLOG_ADMIN_KEY name the gateway, TURNLOG_AGENT="module:function" the agent.
"""
import uuid

import turnlog
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput, register


@register("turnlog")
class TurnlogAgentLoop(AgentLoopBase):
    async def run(self, sampling_params, **kwargs):
        got = await turnlog.rollout(
            turnlog.Client(), turnlog.agent(), list(kwargs["raw_prompt"]),
            run=self.config.trainer.experiment_name, group=str(kwargs.get("uid") or uuid.uuid4().hex),
            sampling={"override": {k: sampling_params[k] for k in ("temperature", "top_p") if k in sampling_params}})
        branch, limit = got.main, self.rollout_config.response_length
        prompt, response, mask, logprobs = branch.split()
        versions = [v for v in branch.versions if v >= 0]
        return AgentLoopOutput(
            prompt_ids=prompt, response_ids=response[:limit], response_mask=mask[:limit],
            response_logprobs=logprobs and logprobs[:limit], reward_score=got.reward,
            num_turns=2 * len(branch.turns), metrics={},
            extra_fields={"turn_scores": [], "tool_rewards": [],
                          "min_global_steps": min(versions, default=-1), "max_global_steps": max(versions, default=-1)})
