"""Checks of the recipes against the trainers' contracts: python3 -m unittest test_recipes

The recipes run with stand-ins for the trainers' classes, an agent that plays
itself, and shards in $TURNLOG_SHARDS (pyarrow is needed). What the stand-ins
say is compared with the trainers' published packages, which are unpacked, not
imported, in $TURNLOG_TRAINERS.
"""

import ast
import asyncio
import dataclasses
import enum
import glob
import inspect
import os
import sys
import types
import typing
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "python")]
SHARDS, TRAINERS = os.environ.get("TURNLOG_SHARDS"), os.environ.get("TURNLOG_TRAINERS")

import turnlog  # noqa: E402


def module(name, **members):
    for i in range(1, name.count(".") + 1):
        sys.modules.setdefault(".".join(name.split(".")[:i]), types.ModuleType("x"))
    sys.modules[name] = types.ModuleType(name)
    vars(sys.modules[name]).update(members)


@dataclasses.dataclass
class AgentLoopOutput:
    prompt_ids: list
    response_ids: list
    response_mask: list
    metrics: dict
    response_logprobs: typing.Optional[list] = None
    reward_score: typing.Optional[float] = None
    num_turns: int = 0
    extra_fields: dict = dataclasses.field(default_factory=dict)


class AgentLoopBase:
    def __init__(self):
        self.config = types.SimpleNamespace(trainer=types.SimpleNamespace(experiment_name="e"))
        self.rollout_config = types.SimpleNamespace(response_length=5000)


@dataclasses.dataclass
class Sample:
    group_index: typing.Optional[int] = None
    index: typing.Optional[int] = None
    prompt: object = ""
    tokens: list = dataclasses.field(default_factory=list)
    response_length: int = 0
    label: typing.Optional[str] = None
    reward: object = None
    loss_mask: typing.Optional[list] = None
    weight_versions: list = dataclasses.field(default_factory=list)
    rollout_log_probs: typing.Optional[list] = None
    remove_sample: bool = False
    session_id: typing.Optional[str] = None

    class Status(enum.Enum):
        PENDING, COMPLETED, TRUNCATED, ABORTED, FAILED = "pending", "completed", "truncated", "aborted", "failed"

    status: Status = Status.PENDING


@dataclasses.dataclass
class RolloutFnTrainOutput:
    samples: list


@dataclasses.dataclass
class TrajectoryID:
    instance_id: str
    repetition_id: int


GENERATOR_OUTPUT = {"prompt_token_ids", "response_ids", "rewards", "loss_masks", "stop_reasons", "rollout_metrics",
                    "rollout_logprobs", "trajectory_ids"}

module("verl.experimental.agent_loop.agent_loop", AgentLoopBase=AgentLoopBase, AgentLoopOutput=AgentLoopOutput,
       register=lambda name: lambda cls: cls)
module("slime.utils.types", Sample=Sample)
module("slime.rollout.base_types", RolloutFnTrainOutput=RolloutFnTrainOutput)
module("skyrl.train.generators.base", GeneratorInterface=object)


class FakeClient:
    """A gateway at which every session has one branch of seven tokens."""

    opened: list = []

    def open_session(self, **properties):
        self.opened.append(properties)
        return FakeSession(len(self.opened))


class FakeSession:
    def __init__(self, n):
        self.id, self.reward, self.reason = "s%d" % n, None, None

    def close(self, reason="completed", reward=None, detail=None):
        self.reason, self.reward = reason, reward

    def trajectory(self):
        branch = turnlog.Branch("b0", "main", "A", ["a", "b"], [1, 2, 3, 10, 11, 4, 12], [0, 0, 0, 1, 1, 0, 1],
                                [0, 0, 0, -1.0, -2.0, 0, -3.0], [-1, -1, -1, 7, 7, -1, 8])
        return turnlog.Trajectory(self.id, "sealed", "completed", self.reward, [branch])


async def agent(session, task):
    return 0.5


class RecipesTest(unittest.TestCase):
    def setUp(self):
        FakeClient.opened.clear()
        turnlog.Client, turnlog.agent = FakeClient, lambda: agent

    def check(self, prompt, response, mask, logprobs):
        self.assertEqual((prompt, response, mask, logprobs), ([1, 2, 3], [10, 11, 4, 12], [1, 1, 0, 1], [-1.0, -2.0, 0, -3.0]))

    def test_every_recipe_is_short(self):
        for path in glob.glob(os.path.join(HERE, "*_o*line.py")):
            with open(path) as f:
                self.assertLess(len(f.readlines()), 40, path)

    def test_verl_online(self):
        import verl_online
        out = asyncio.run(verl_online.TurnlogAgentLoop().run({"temperature": 1.0, "logprobs": True}, raw_prompt=["hi"], uid="u"))
        self.check(out.prompt_ids, out.response_ids, out.response_mask, out.response_logprobs)
        self.assertEqual((out.reward_score, out.extra_fields["min_global_steps"], out.extra_fields["max_global_steps"]), (0.5, 7, 8))
        self.assertEqual(FakeClient.opened[0]["sampling"], {"override": {"temperature": 1.0}})

    def test_slime_online(self):
        import slime_online
        args = types.SimpleNamespace(n_samples_per_prompt=8)
        sample = asyncio.run(slime_online.generate(args, Sample(group_index=3, index=27, prompt="hi"), {"top_p": 1}))
        self.check(sample.tokens[:-sample.response_length], sample.tokens[-sample.response_length:], sample.loss_mask, sample.rollout_log_probs)
        self.assertEqual((sample.status, sample.weight_versions), (Sample.Status.COMPLETED, ["7", "8"]))
        self.assertEqual((FakeClient.opened[0]["group"], FakeClient.opened[0]["index"]), ("3", 3))

    def test_trl_online(self):
        import trl_online
        trainer = types.SimpleNamespace(num_generations=2, state=types.SimpleNamespace(global_step=4), args=types.SimpleNamespace(run_name=None))
        out = trl_online.rollout_func(["p", "p", "q", "q"], trainer)
        for row in zip(out["prompt_ids"], out["completion_ids"], out["env_mask"], out["logprobs"]):
            self.check(*row)
        self.assertEqual(trl_online.turnlog_reward(**out), [0.5] * 4)
        self.assertEqual(sorted(o["index"] for o in FakeClient.opened), [0, 0, 1, 1])
        self.assertEqual(len({o["group"] for o in FakeClient.opened}), 2)

    def test_skyrl_online(self):
        import skyrl_online
        ids = [TrajectoryID("a", 0), TrajectoryID("a", 1)]
        out = asyncio.run(skyrl_online.TurnlogGenerator().generate({"prompts": ["p", "p"], "trajectory_ids": ids}))
        for row in zip(out["prompt_token_ids"], out["response_ids"], out["loss_masks"], out["rollout_logprobs"]):
            self.check(*row)
        self.assertLessEqual(set(out), GENERATOR_OUTPUT)
        self.assertEqual(out["trajectory_ids"], ids)

    def test_an_agent_that_fails_closes_its_session(self):
        session = FakeSession(1)
        client = types.SimpleNamespace(open_session=lambda **p: session)

        def fails(session, task):
            raise KeyError("x")

        with self.assertRaises(KeyError):
            asyncio.run(turnlog.rollout(client, fails, "task"))
        self.assertEqual(session.reason, "failed")


@unittest.skipUnless(SHARDS, "no shards")
class OfflineTest(unittest.TestCase):
    def setUp(self):
        rows = turnlog.Dataset(SHARDS).rows()
        self.rows = {tuple(r["input_ids"]): r for r in rows if r["branch_label"] == "main"}

    def check(self, prompt, response, mask, logprobs):
        row = self.rows[tuple(prompt) + tuple(response)]
        self.assertEqual([0] * len(prompt) + list(mask), row["loss_mask"])
        self.assertEqual(mask[0], 1)
        self.assertEqual(logprobs, None if row["logprobs"] is None else row["logprobs"][len(prompt):])
        return row

    def test_verl_offline(self):
        import verl_offline
        group = next(iter(self.rows.values()))["group_id"]
        loop = verl_offline.ReplayAgentLoop()
        outs = [asyncio.run(loop.run({}, extra_info={"group_id": group})) for _ in range(4)]
        got = [self.check(o.prompt_ids, o.response_ids, o.response_mask, o.response_logprobs) for o in outs]
        self.assertEqual({r["group_id"] for r in got}, {group})

    def test_slime_offline(self):
        import slime_offline
        out = slime_offline.generate_rollout(types.SimpleNamespace(rollout_batch_size=3), 0, None)
        self.assertEqual(len(out.samples), 3)
        for group in out.samples:
            self.assertEqual(len({s.group_index for s in group}), 1)
            self.assertEqual({s.rollout_id for s in group}, {s.rollout_id for s in group if s.rollout_id})
            for s in group:
                self.assertEqual(len(s.loss_mask), s.response_length)

    def test_trl_offline(self):
        import trl_offline
        trainer = types.SimpleNamespace(num_generations=2)
        out = trl_offline.rollout_func(["p"] * 6, trainer)
        got = [self.check(*row) for row in zip(out["prompt_ids"], out["completion_ids"], out["env_mask"], out["logprobs"])]
        self.assertEqual([got[i]["group_id"] == got[i + 1]["group_id"] for i in (0, 2, 4)], [True] * 3)

    def test_skyrl_offline(self):
        import skyrl_offline
        group = next(iter(self.rows.values()))["group_id"]
        ids = [TrajectoryID("0", i) for i in range(3)]
        out = asyncio.run(skyrl_offline.ReplayGenerator(SHARDS).generate(
            {"prompts": [[]] * 3, "trajectory_ids": ids, "env_extras": [{"extra_info": {"group_id": group}}] * 3}))
        logprobs = out["rollout_logprobs"] or [None] * 3
        for row in zip(out["prompt_token_ids"], out["response_ids"], out["loss_masks"], logprobs):
            self.check(*row)
        self.assertLessEqual(set(out), GENERATOR_OUTPUT)


@unittest.skipUnless(TRAINERS, "no packages of trainers")
class ContractTest(unittest.TestCase):
    """The stand-ins above say nothing that the published packages do not."""

    def fields(self, path, cls):
        with open(os.path.join(TRAINERS, path)) as f:
            text = f.read()
        node = next(n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.ClassDef) and n.name == cls)
        return {n.target.id for n in node.body if isinstance(n, ast.AnnAssign)}, node, text

    def test_verl(self):
        path = "verl/experimental/agent_loop/agent_loop.py"
        fields, _, _ = self.fields(path, "AgentLoopOutput")
        self.assertLessEqual({f.name for f in dataclasses.fields(AgentLoopOutput)}, fields)
        _, base, text = self.fields(path, "AgentLoopBase")
        run = next(n for n in base.body if isinstance(n, ast.AsyncFunctionDef) and n.name == "run")
        self.assertEqual([a.arg for a in run.args.args], ["self", "sampling_params"])
        self.assertIsNotNone(run.args.kwarg)
        for name in ("self.config = ", "self.rollout_config = ", "def register("):
            self.assertIn(name, text)

    def test_verl_sft(self):
        with open(os.path.join(TRAINERS, "verl/trainer/sft_trainer.py")) as f:
            text = f.read()
        self.assertIn("parquet_files=data_paths, tokenizer=tokenizer, config=data_config, processor=processor, max_samples=max_samples", text)
        with open(os.path.join(HERE, "verl_sft.py")) as f:
            tree = ast.parse(f.read())
        init = next(n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == "__init__")
        self.assertEqual([a.arg for a in init.args.args], ["self", "parquet_files", "tokenizer", "config", "processor", "max_samples"])

    def test_every_recipe_is_under_forty_lines(self):
        for path in glob.glob(os.path.join(HERE, "*_o*line.py")) + [os.path.join(HERE, "verl_sft.py")]:
            with open(path) as f:
                self.assertLess(len(f.readlines()), 40, path)

    def test_skyrl(self):
        path = "skyrl/train/generators/base.py"
        self.assertLessEqual(GENERATOR_OUTPUT, self.fields(path, "GeneratorOutput")[0])
        self.assertLessEqual({"prompts", "env_extras", "trajectory_ids", "batch_metadata"}, self.fields(path, "GeneratorInput")[0])
        self.assertEqual(self.fields(path, "TrajectoryID")[0], {f.name for f in dataclasses.fields(TrajectoryID)})

    def test_trl(self):
        import trl_online
        with open(os.path.join(TRAINERS, "trl/trainer/grpo_trainer.py")) as f:
            text = f.read()
        for words in ('output = self.rollout_func(prompts, self)', 'required_keys = {"prompt_ids", "completion_ids", "logprobs"}',
                      'extra_fields.pop("env_mask", None)', "self.num_generations = "):
            self.assertIn(words, text)
        self.assertEqual(list(inspect.signature(trl_online.rollout_func).parameters), ["prompts", "trainer"])


if __name__ == "__main__":
    unittest.main()
