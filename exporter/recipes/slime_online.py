"""slime and miles: generate with any agent, through turnlog.

    --custom-generate-function-path slime_online.generate

The gateway's pool must be slime's sglang router or engines. TURNLOG_URL and
TURNLOG_ADMIN_KEY name the gateway, TURNLOG_AGENT="module:function" the agent.
The reward is the agent's: no reward model is asked.
"""
import turnlog
from slime.utils.types import Sample


async def generate(args, sample, sampling_params):
    got = await turnlog.rollout(
        turnlog.Client(), turnlog.agent(), sample.prompt,
        run=getattr(args, "wandb_group", None) or "slime", group=str(sample.group_index),
        index=sample.index % args.n_samples_per_prompt, group_size=args.n_samples_per_prompt,
        metadata={"label": sample.label},
        sampling={"override": {k: sampling_params[k] for k in ("temperature", "top_p") if k in sampling_params}})
    branch = got.main
    _, response, mask, logprobs = branch.split()
    sample.tokens, sample.response_length = branch.ids, len(response)
    sample.loss_mask, sample.rollout_log_probs = mask, logprobs
    sample.weight_versions = [str(v) for v in sorted({v for v in branch.versions if v >= 0})]
    sample.reward, sample.session_id = got.reward, got.session
    sample.status = Sample.Status(got.status or "completed")
    return sample
