"""TRL: GRPO with any agent, through turnlog.

    from trl_online import rollout_func, turnlog_reward
    GRPOTrainer(model, reward_funcs=turnlog_reward, rollout_func=rollout_func, train_dataset=..., args=...)

The gateway's pool must be TRL's vLLM server. TURNLOG_URL and TURNLOG_ADMIN_KEY
name the gateway, TURNLOG_AGENT="module:function" the agent.
"""
import asyncio
import uuid

import turnlog


def rollout_func(prompts, trainer):
    n, step = trainer.num_generations, "%d-%s" % (trainer.state.global_step, uuid.uuid4().hex[:8])

    async def all_of_them():
        return await asyncio.gather(*(turnlog.rollout(
            turnlog.Client(), turnlog.agent(), prompt, run=trainer.args.run_name or "trl",
            group="%s-%d" % (step, i // n), index=i % n, group_size=n) for i, prompt in enumerate(prompts)))

    got = asyncio.run(all_of_them())
    prompt, response, mask, logprobs = zip(*(t.main.split() for t in got))
    return {"prompt_ids": list(prompt), "completion_ids": list(response), "logprobs": list(logprobs),
            "env_mask": list(mask), "turnlog_reward": [t.reward for t in got]}


def turnlog_reward(turnlog_reward, **kwargs):
    return turnlog_reward
