"""Tests of turnlog.py: python3 -m unittest test_turnlog

The tests of Dataset and Sampler need pyarrow, and shards in $TURNLOG_SHARDS.
"""

import collections
import http.server
import json
import os
import shutil
import tempfile
import threading
import unittest

import turnlog

SHARDS = os.environ.get("TURNLOG_SHARDS")


class Gateway(http.server.BaseHTTPRequestHandler):
    """Answers what the test put into `answers`, and notes what it was asked."""

    answers: "collections.deque" = collections.deque()
    asked: list = []

    def do(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.asked.append((self.command, self.path, json.loads(body) if body else None, self.headers["Authorization"]))
        status, answer, headers = self.answers.popleft()
        raw = json.dumps(answer).encode()
        self.send_response(status)
        for k, v in headers.items():
            self.send_header(k, v)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    do_GET = do_POST = do_DELETE = do

    def log_message(self, *args):
        pass


class ClientTest(unittest.TestCase):
    def setUp(self):
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Gateway)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        Gateway.answers.clear()
        Gateway.asked.clear()
        self.client = turnlog.Client("http://127.0.0.1:%d/" % self.server.server_port, "admin")

    def answer(self, status, body, **headers):
        Gateway.answers.append((status, body, headers))

    def open(self):
        self.answer(201, {"session": "s1", "run": "r", "key": "k", "base_url": "http://h/sessions/s1/v1", "created": True})
        return self.client.open_session(run="r", group="g", index=2, group_size=8)

    def test_a_session_is_opened_rewarded_and_closed(self):
        session = self.open()
        self.assertEqual(session.env()["OPENAI_API_KEY"], "k")
        self.assertEqual(session.env()["ANTHROPIC_BASE_URL"], "http://h/sessions/s1")
        self.answer(200, {})
        self.answer(200, {})
        with session:
            session.reward(0.5, {"tests": 1})
        self.assertEqual(Gateway.asked, [
            ("POST", "/sessions", {"run": "r", "group": "g", "index": 2, "group_size": 8}, "Bearer admin"),
            ("POST", "/sessions/s1/reward", {"reward": 0.5, "components": {"tests": 1}}, "Bearer admin"),
            ("POST", "/sessions/s1/close", {"reason": "completed"}, "Bearer admin"),
        ])

    def test_an_exception_closes_the_session_as_failed(self):
        session = self.open()
        self.answer(200, {})
        with self.assertRaises(ZeroDivisionError), session:
            1 / 0
        self.assertEqual(Gateway.asked[-1][2], {"reason": "failed", "detail": "ZeroDivisionError"})

    def test_errors_have_types_and_the_gateways_words(self):
        for status, cls in {400: turnlog.Invalid, 401: turnlog.Unauthorized, 404: turnlog.NotFound,
                            409: turnlog.Conflict, 410: turnlog.Closed, 503: turnlog.Unavailable, 418: turnlog.TurnlogError}.items():
            self.answer(status, {"error": {"message": "because", "type": "x"}})
            with self.assertRaises(cls) as caught:
                self.client.request("GET", "/x", patience=0)
            self.assertEqual((str(caught.exception), caught.exception.status), ("because", status))
        self.answer(500, "no object")
        with self.assertRaises(turnlog.Unavailable):
            self.client.request("GET", "/x", patience=0)

    def test_a_gateway_that_is_away_is_asked_again(self):
        self.answer(503, {"error": {"message": "log away"}}, **{"Retry-After": "0"})
        self.answer(200, {"ok": 1})
        self.assertEqual(self.client.request("GET", "/x"), {"ok": 1})
        with self.assertRaises(turnlog.Unreachable):
            turnlog.Client("http://127.0.0.1:1", "k").request("GET", "/x", patience=0)

    def test_a_trajectory_masks_what_another_branch_trains(self):
        branch = {"label": "main", "grade": "A", "turns": ["a", "b"], "ids": [1, 2, 3, 4], "mask": [0, 1, 0, 1],
                  "logprobs": [0, -1, 0, -2], "versions": [-1, 1, -1, 1], "branch": "b0", "shared": ["a"], "segments": [
                      {"start": 0, "end": 1, "source": "user", "turn": "a"}, {"start": 1, "end": 2, "source": "sampled", "turn": "a"},
                      {"start": 2, "end": 3, "source": "user", "turn": "b"}, {"start": 3, "end": 4, "source": "sampled", "turn": "b"}]}
        self.answer(200, {"session": "s1", "state": "sealed", "status": "completed", "reward": 1, "branches": [branch]})
        got = self.client.session("s1").trajectory()
        self.assertEqual(got.main.mask, [0, 0, 0, 1])
        self.assertEqual(got.main.split(), ([1, 2, 3], [4], [1], [-2]))
        self.answer(202, {"state": "recording"})
        with self.assertRaises(turnlog.NotReady):
            self.client.session("s1").trajectory(wait=0)


@unittest.skipUnless(SHARDS, "no shards")
class DatasetTest(unittest.TestCase):
    def setUp(self):
        self.data = turnlog.Dataset(SHARDS)

    def ids(self, **kw):
        return [r["row_id"] for r in turnlog.Sampler(self.data, columns=["row_id"], **kw)]

    def test_rows_are_those_of_the_manifest(self):
        rows = list(self.data.rows(["row_id", "input_ids"]))
        self.assertEqual(len(rows), len(self.data))
        self.assertEqual(len({r["row_id"] for r in rows}), len(rows))
        self.assertEqual(sum(len(r["input_ids"]) for r in rows), sum(f.tokens for f in self.data.files))

    def test_ranks_share_a_pass_equally_and_once(self):
        for world in (1, 3, 8):
            shares = [self.ids(rank=r, world=world, seed=5) for r in range(world)]
            self.assertEqual({len(s) for s in shares}, {len(self.data) // world})
            self.assertEqual(len(set().union(*shares)), len(self.data) // world * world)
        self.assertEqual(self.ids(seed=5), self.ids(seed=5))
        self.assertNotEqual(self.ids(seed=5), self.ids(seed=6))
        self.assertNotEqual(self.ids(seed=5), self.ids(seed=5, epoch=1))
        self.assertEqual(self.ids(shuffle=False), [r["row_id"] for r in self.data.rows(["row_id"])])

    def test_a_pass_goes_on_where_it_was(self):
        whole = self.ids(rank=1, world=3, seed=2)
        for stop in (0, 1, len(whole) // 2, len(whole) - 1, len(whole)):
            first = turnlog.Sampler(self.data, 1, 3, seed=2, columns=["row_id"])
            it = iter(first)
            begun = [next(it)["row_id"] for _ in range(stop)]
            second = turnlog.Sampler(self.data, 1, 3, seed=2, columns=["row_id"])
            second.load_state_dict(json.loads(json.dumps(first.state_dict())))
            self.assertEqual(len(second), len(whole) - stop)
            self.assertEqual(begun + [r["row_id"] for r in second], whole)
        with self.assertRaises(turnlog.StateError):
            turnlog.Sampler(self.data, 1, 4, seed=2).load_state_dict(first.state_dict())

    def test_manifests_that_are_not_understood_are_refused(self):
        with self.assertRaises(turnlog.FormatError):
            turnlog.Dataset(SHARDS, manifest=10**6)
        self.assertEqual(len(turnlog.Dataset(SHARDS, manifest=0)), 0)
        self.assertEqual(len(turnlog.Dataset(tempfile.gettempdir() + "/none")), 0)
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(os.path.join(SHARDS, "schema=traj.v1", ".turnlog"), os.path.join(folder, "schema=traj.v1", ".turnlog"))
            path = os.path.join(folder, "schema=traj.v1", ".turnlog", "m-000000000001.json")
            with open(path) as f:
                text = f.read()
            with open(path, "w") as f:
                f.write(text.replace("turnlog.manifest.v1", "turnlog.manifest.v2"))
            with self.assertRaises(turnlog.FormatError):
                turnlog.Dataset(folder)

    def test_runs_are_told_apart(self):
        self.assertEqual(len(turnlog.Dataset(SHARDS, run="no such run")), 0)
        self.assertEqual(turnlog.Dataset(SHARDS, run="no such run").late_rewards(), {})

    def test_what_came_later_is_put_in_its_place(self):
        with open(os.path.join(os.path.dirname(SHARDS), "expected.json")) as f:
            late = json.load(f)["late"]
        self.assertTrue(late)
        columns = ["session_id", "reward", "advantage", "remove_sample"]
        now, then = [list(turnlog.Dataset(SHARDS, late=late_too).rows(columns)) for late_too in (True, False)]
        whole = list(self.data.rows())
        changed = 0
        for new, old, full in zip(now, then, whole, strict=True):
            self.assertEqual(list(new), columns)
            self.assertEqual(new, {c: full[c] for c in columns})
            if new["session_id"] in late:
                changed += 1
                self.assertEqual((new["reward"], new["advantage"]), (late[new["session_id"]], late[new["session_id"]]))
                self.assertEqual(self.data.annotations("judge")[full["row_id"], -1], {"score": late[new["session_id"]]})
                self.assertNotEqual(old["advantage"], new["advantage"])
            else:
                self.assertEqual(new, old)
        self.assertEqual(len(self.data.late_rewards()), changed)
        self.assertEqual(self.data.blobs("routed_experts"), {})

    def test_a_row_that_is_to_be_removed_trains_nothing(self):
        row = {"input_ids": [1, 2, 3], "loss_mask": [0, 1, 1], "logprobs": None, "remove_sample": True}
        self.assertEqual(turnlog.split(row), ([1], [2, 3], [0, 0], None))

    def test_an_advantage_that_is_no_number_is_none(self):
        for value, want in (("2", 2.0), ("true", None), ('"2"', None), ("null", None)):
            row = {"row_id": "r", "advantage": 1.0}
            turnlog._amend(row, {}, {("r", -1, "advantage"): (1, value)})
            self.assertEqual(row["advantage"], want, value)

    def test_a_shard_that_was_collected_says_so(self):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(os.path.join(SHARDS, "schema=traj.v1", ".turnlog"), os.path.join(folder, "schema=traj.v1", ".turnlog"))
            data = turnlog.Dataset(folder, late=False)
            with self.assertRaisesRegex(turnlog.FormatError, "collect_after"):
                list(data.rows())


if __name__ == "__main__":
    unittest.main()
