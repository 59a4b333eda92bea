"""SkyRL: generate with any agent, through turnlog.

    class Exp(BasePPOExp):
        def get_generator(self, cfg, tokenizer, inference_engine_client):
            return TurnlogGenerator()

The gateway's pool must be SkyRL's inference engines. TURNLOG_URL and
TURNLOG_ADMIN_KEY name the gateway, TURNLOG_AGENT="module:function" the agent.
"""
import asyncio

import turnlog
from skyrl.train.generators.base import GeneratorInterface


class TurnlogGenerator(GeneratorInterface):
    async def generate(self, input_batch):
        ids, meta = input_batch["trajectory_ids"], input_batch.get("batch_metadata")
        step = "%s-%d" % (meta.training_phase, meta.global_step) if meta else "step"
        got = await asyncio.gather(*(turnlog.rollout(
            turnlog.Client(), turnlog.agent(), prompt, run="skyrl", group="%s-%s" % (step, id.instance_id),
            index=id.repetition_id) for id, prompt in zip(ids, input_batch["prompts"])))
        prompt, response, mask, logprobs = zip(*(t.main.split() for t in got))
        return {"prompt_token_ids": list(prompt), "response_ids": list(response), "loss_masks": list(mask),
                "rollout_logprobs": None if None in logprobs else list(logprobs),
                "rewards": [t.reward or 0.0 for t in got], "trajectory_ids": ids, "rollout_metrics": {},
                "stop_reasons": ["length" if t.status == "truncated" else "stop" for t in got]}
