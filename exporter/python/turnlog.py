"""Talk to a turnlog gateway and read its shards: one file, no dependencies.

Collect:

    import turnlog
    client = turnlog.Client("http://127.0.0.1:8420", admin_key)
    with client.open_session(run="r1", group="task-7", index=0, group_size=8) as session:
        run_agent(base_url=session.base_url, api_key=session.key)   # any OpenAI client
        session.reward(1.0, {"tests": 1.0})
    trajectory = session.trajectory()                # ids, mask, logprobs per branch

Train:

    data = turnlog.Dataset("data/shards")            # the last manifest; pin one with manifest=N
    for row in turnlog.Sampler(data, rank=0, world=8, seed=1):
        ids, mask, logprobs = row["input_ids"], row["loss_mask"], row["logprobs"]

Rows need pyarrow; everything else is the standard library. Python 3.9 or later.
"""

from __future__ import annotations

import asyncio
import dataclasses
import importlib
import inspect
import json
import os
import random
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Callable, Iterator, Optional

__all__ = [
    "Client", "Session", "Trajectory", "Branch", "Dataset", "File", "Sampler", "rollout", "agent", "split",
    "TurnlogError", "Unauthorized", "Invalid", "NotFound", "Conflict", "Closed", "Unavailable", "Unreachable",
    "NotReady", "FormatError", "StateError",
]


class TurnlogError(Exception):
    """Anything that went wrong here. status is the HTTP status, or None."""

    status: Optional[int] = None

    def __init__(self, message: str, status: Optional[int] = None):
        super().__init__(message)
        self.status = status


class Unauthorized(TurnlogError):
    """The key is missing, wrong, or not for this (401, 403)."""


class Invalid(TurnlogError):
    """The gateway does not accept what was sent (400, 413, 422)."""


class NotFound(TurnlogError):
    """No such session, turn or route (404, 405)."""


class Conflict(TurnlogError):
    """The session exists with other properties (409)."""


class Closed(TurnlogError):
    """The session is closed (410)."""


class Unavailable(TurnlogError):
    """The gateway cannot take it now (429, 5xx). retry_after is in seconds."""

    retry_after: float = 1.0


class Unreachable(TurnlogError):
    """No answer came. Whether the request was carried out is unknown."""


class NotReady(TurnlogError):
    """The recorder has not caught up with the session."""


class FormatError(TurnlogError):
    """A manifest is missing, or of a format that this file does not read."""


class StateError(TurnlogError):
    """A sampler's state belongs to another data set, seed or number of ranks."""


_ERRORS = {400: Invalid, 401: Unauthorized, 403: Unauthorized, 404: NotFound, 405: NotFound,
           409: Conflict, 410: Closed, 413: Invalid, 422: Invalid}


class Client:
    """A gateway, as an administrator sees it.

    url and admin_key default to TURNLOG_URL and TURNLOG_ADMIN_KEY. Requests that
    fail because the gateway is away are repeated for up to `patience` seconds:
    all of them can be repeated safely.
    """

    def __init__(self, url: Optional[str] = None, admin_key: Optional[str] = None,
                 timeout: float = 60.0, patience: float = 60.0):
        self.url = (url or os.environ.get("TURNLOG_URL", "http://127.0.0.1:8420")).rstrip("/")
        self.timeout, self.patience = timeout, patience
        self._key = admin_key or os.environ.get("TURNLOG_ADMIN_KEY", "")

    def open_session(self, run: Optional[str] = None, **properties: Any) -> "Session":
        """Open a session. Properties: session (its id), group, index, attempt,
        group_size, task, data_source, split, metadata, model, sampling, limits.
        Opening the same id, or the same group, index and attempt, again returns
        the session that exists."""
        body = {"run": run, **properties}
        got = self.request("POST", "/sessions", {k: v for k, v in body.items() if v is not None})
        return Session(self, got["session"], got.get("run", ""), got.get("key", ""),
                       got.get("base_url") or "%s/sessions/%s/v1" % (self.url, got["session"]))

    def session(self, id: str, key: str = "") -> "Session":
        """A session that was opened before."""
        return Session(self, id, "", key, "%s/sessions/%s/v1" % (self.url, id))

    def request(self, method: str, path: str, body: Any = None, patience: Optional[float] = None) -> Any:
        """Send one request as an administrator and return its JSON."""
        deadline = time.monotonic() + (self.patience if patience is None else patience)
        wait = 0.2
        while True:
            try:
                return self._once(method, path, body)
            except (Unavailable, Unreachable) as e:
                pause = max(wait, getattr(e, "retry_after", 0.0))
                if time.monotonic() + pause > deadline:
                    raise
                time.sleep(pause)
                wait = min(2 * wait, 5.0)

    def _once(self, method: str, path: str, body: Any) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, method=method, headers={
            "Authorization": "Bearer " + self._key, "Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=self.timeout) as response:
                raw, status = response.read(), response.status
        except urllib.error.HTTPError as e:
            raise _error(e.code, e.read(), e.headers) from None
        except (urllib.error.URLError, OSError) as e:
            raise Unreachable("%s %s: %s" % (method, self.url + path, getattr(e, "reason", e))) from e
        if status == 202:
            raise NotReady("the recorder has not caught up", status)
        return json.loads(raw) if raw.strip() else None


def _error(status: int, raw: bytes, headers: Any) -> TurnlogError:
    try:
        error = json.loads(raw)["error"]
        message = error["message"] if isinstance(error, dict) else str(error)
    except (ValueError, KeyError, TypeError):
        message = raw[:200].decode("utf-8", "replace") or "HTTP status %d" % status
    cls = _ERRORS.get(status, Unavailable if status == 429 or status >= 500 else TurnlogError)
    e = cls(message, status)
    if isinstance(e, Unavailable):
        try:
            e.retry_after = float(headers.get("Retry-After", 1))
        except ValueError:
            pass
    return e


@dataclasses.dataclass
class Session:
    """One execution of an agent on one task. As a context manager it is closed
    at the end: completed, or failed after an exception."""

    client: Client
    id: str
    run: str
    key: str
    base_url: str
    _closed: bool = dataclasses.field(default=False, repr=False)

    def env(self) -> dict:
        """What agents read from their environment to talk to this session."""
        return {"OPENAI_BASE_URL": self.base_url, "OPENAI_API_KEY": self.key,
                "ANTHROPIC_BASE_URL": self.base_url[:-len("/v1")], "ANTHROPIC_API_KEY": self.key}

    def reward(self, reward: float, components: Optional[dict] = None, turn: Optional[str] = None,
               revision: Optional[int] = None, source: Optional[str] = None) -> None:
        """Assign a reward to the session, or to one turn. The highest revision counts."""
        body = {"reward": reward, "components": components, "turn": turn, "revision": revision, "source": source}
        self._post("reward", body)

    def close(self, reason: str = "completed", reward: Optional[float] = None,
              components: Optional[dict] = None, detail: Optional[str] = None) -> None:
        """Close: completed, truncated, aborted or failed."""
        self._post("close", {"reason": reason, "reward": reward, "components": components, "detail": detail})
        self._closed = True

    def trajectory(self, branch: Optional[str] = None, wait: float = 30.0) -> "Trajectory":
        """What was recorded. Waits for the recorder; raises NotReady if it does
        not catch up in time."""
        query = {"wait": "%g" % wait}
        if branch:
            query["branch"] = branch
        path = "/sessions/%s/trajectory?%s" % (self.id, urllib.parse.urlencode(query))
        return Trajectory.from_json(self.client.request("GET", path))

    def _post(self, action: str, body: dict) -> None:
        self.client.request("POST", "/sessions/%s/%s" % (self.id, action), {k: v for k, v in body.items() if v is not None})

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        if not self._closed:
            self.close("completed" if kind is None else "failed", detail=None if kind is None else kind.__name__)


@dataclasses.dataclass
class Branch:
    """One root-to-leaf path as one token sequence of T ids. mask, logprobs and
    versions have T elements, aligned to the token itself: mask is 1 where the
    token was sampled and is to be trained on this branch; logprobs (natural log,
    0.0 on context) is None when the engine left any out; versions are weight
    versions, -1 on context or where nobody knows."""

    id: str
    label: str
    grade: str
    turns: list
    ids: list
    mask: list
    logprobs: Optional[list]
    versions: list

    def split(self) -> "tuple[list, list, list, Optional[list]]":
        """Prompt ids, response ids, response mask, response logprobs."""
        return split({"input_ids": self.ids, "loss_mask": self.mask, "logprobs": self.logprobs})


@dataclasses.dataclass
class Trajectory:
    """What was recorded of a session: its branches, root first, and the reward
    of the session as a whole, None without one. state is open or sealed; status
    (completed, truncated, aborted or failed) is None while it is open."""

    session: str
    state: str
    status: Optional[str]
    reward: Optional[float]
    branches: "list[Branch]"

    @property
    def main(self) -> Optional[Branch]:
        """The branch of the agent's own conversation: the first that is labelled so."""
        return next((b for b in self.branches if b.label == "main"), self.branches[0] if self.branches else None)

    @classmethod
    def from_json(cls, got: dict) -> "Trajectory":
        branches = []
        for b in got["branches"]:
            mask, shared = list(b["mask"]), set(b.get("shared", ()))
            for s in b["segments"]:
                if s["turn"] in shared:
                    end = min(s["end"], len(mask))
                    mask[s["start"]:end] = [0] * max(0, end - s["start"])
            branches.append(Branch(b["branch"], b["label"], b["grade"], b["turns"], b["ids"], mask, b["logprobs"], b["versions"]))
        return cls(got["session"], got["state"], got.get("status"), got.get("reward"), branches)


async def rollout(client: Client, agent: Callable, task: Any, **properties: Any) -> Trajectory:
    """Let an agent work on a task in a session of its own, and return what was
    recorded. agent(session, task) returns the reward, or None; it may be a
    coroutine function, else it runs in a thread. Properties are those of
    Client.open_session."""
    session = await asyncio.to_thread(client.open_session, **properties)
    try:
        if inspect.iscoroutinefunction(agent):
            reward = await agent(session, task)
        else:
            reward = await asyncio.to_thread(agent, session, task)
    except BaseException as e:
        await asyncio.to_thread(session.close, "failed", detail=type(e).__name__)
        raise
    await asyncio.to_thread(session.close, reward=reward)
    return await asyncio.to_thread(session.trajectory)


def agent(name: Optional[str] = None) -> Callable:
    """The agent that "module:function" names; TURNLOG_AGENT when name is None."""
    module, _, function = (name or os.environ["TURNLOG_AGENT"]).partition(":")
    return getattr(importlib.import_module(module), function)


def split(row: dict) -> "tuple[list, list, list, Optional[list]]":
    """A row's prompt ids (P), response ids, response mask and response logprobs
    (T-P each; logprobs None without any): the response begins with the first
    token that is trained. Of a row that is to be removed no token is."""
    ids, mask, logprobs = row["input_ids"], row["loss_mask"], row.get("logprobs")
    p = mask.index(1) if 1 in mask else len(mask)
    if row.get("remove_sample"):
        mask = [0] * len(mask)
    return ids[:p], ids[p:], mask[p:], None if logprobs is None else logprobs[p:]


@dataclasses.dataclass(frozen=True)
class File:
    """One shard. row_groups are the numbers of rows of its row groups."""

    path: str
    profile: str
    run: str
    rows: int
    tokens: int
    row_groups: "tuple[int, ...]"
    sha256: str


class Dataset:
    """The shards below an exporter's root, a folder, at one manifest; the last one
    when manifest is None. run limits it to one run. See MANIFEST.md.

    A row is a dict of the columns of turnlog.traj.v1. With T = row["length"]:
    input_ids, loss_mask (1: sampled, to be trained) and, where the engine gave
    them, logprobs (natural log, 0.0 on context; else None) and versions (-1 on
    context; else None) are lists of T, aligned to the token itself. turn_start
    and turn_end are the half open spans of what each turn sampled.

    Rewards, advantages and remove_sample that came after a row was written are
    put in its place; late=False gives rows as they stand in the shards.
    """

    def __init__(self, root: str, manifest: Optional[int] = None, run: Optional[str] = None, late: bool = True):
        self.root, self.run, self.late = root, run, late
        self.manifest, self._files = _fold(root, manifest)
        self._amendments: Optional[tuple] = None

    @property
    def files(self) -> "list[File]":
        """The shards, in the order in which they were added."""
        return [f for f in self._files if f.profile == "traj" and (self.run is None or f.run == self.run)]

    def refresh(self) -> "list[File]":
        """Go to the last manifest and return the shards that are new."""
        old = {f.path for f in self.files}
        self.manifest, self._files = _fold(self.root, None)
        self._amendments = None
        return [f for f in self.files if f.path not in old]

    def __len__(self) -> int:
        return sum(f.rows for f in self.files)

    def rows(self, columns: Optional[list] = None) -> Iterator[dict]:
        """All rows, in order, or some of their columns. Needs pyarrow."""
        for f in self.files:
            for g in range(len(f.row_groups)):
                yield from self.row_group(f, g, columns)

    def row_group(self, f: File, number: int, columns: Optional[list] = None) -> "list[dict]":
        """The rows of one row group of a shard: whole groups."""
        import pyarrow.parquet
        rewards, notes = self._read_late() if self.late else ({}, {})
        read = columns
        if columns is not None and (rewards or notes):
            read = list(dict.fromkeys([*columns, "row_id", "status", "turn_finish"]))
        try:
            with pyarrow.parquet.ParquetFile(os.path.join(self.root, f.path)) as file:
                rows = file.read_row_group(number, columns=read).to_pylist()
        except FileNotFoundError as e:
            raise FormatError("%s is gone: manifest %d is older than the exporter's collect_after; take the last one" % (
                f.path, self.manifest)) from e
        if rewards or notes:
            for row in rows:
                _amend(row, rewards, notes)
        return rows if read is columns else [{c: row[c] for c in columns} for row in rows]

    def annotations(self, name: str) -> "dict[tuple, Any]":
        """The annotations of a name that no column holds, by (row_id, turn
        index), -1 for the row as a whole: the value of the highest revision,
        decoded from JSON. Needs pyarrow."""
        return {(row, turn): json.loads(value) for (row, turn, n), (_, value) in self._read_late()[1].items() if n == name}

    def blobs(self, kind: str) -> "dict[tuple, dict]":
        """Where arrays of a kind are, such as routed_experts, by (row_id, turn
        index): token_start, token_count, dtype, shape, uri, codec, bytes,
        sha256. A turn that is not there has none. Needs pyarrow."""
        return {(r["row_id"], r["turn_index"]): r for r in self._beside("blobs") if r["kind"] == kind}

    def _beside(self, profile: str) -> Iterator[dict]:
        for f in self._files:
            if f.profile == profile and (self.run is None or f.run == self.run):
                import pyarrow.parquet
                with pyarrow.parquet.ParquetFile(os.path.join(self.root, f.path)) as file:
                    yield from file.read().to_pylist()

    def _read_late(self) -> tuple:
        """Rewards by (row, turn) and annotations by (row, turn, name), each with
        its revision."""
        if self._amendments is None:
            rewards: dict = {}
            notes: dict = {}
            for into, profile, column in ((rewards, "rewards", "reward"), (notes, "annotations", "value_json")):
                for r in self._beside(profile):
                    key = (r["row_id"], r["turn_index"]) + ((r["name"],) if "name" in r else ())
                    if key not in into or r["revision"] >= into[key][0]:
                        into[key] = (r["revision"], r[column]) + ((r["rewards_json"],) if "rewards_json" in r else ())
            self._amendments = rewards, notes
        return self._amendments

    def late_rewards(self) -> "dict[str, float]":
        """Rewards of rows (by row_id) that came after the rows were written:
        those of the session, the highest revision. Needs pyarrow."""
        return {row: late[1] for (row, turn), late in self._read_late()[0].items() if turn < 0}


def _amend(row: dict, rewards: dict, notes: dict) -> None:
    """Put what came later into the columns that a row has."""
    id = row["row_id"]
    if (id, -1) in rewards:
        for column, value in zip(("reward", "rewards_json"), rewards[id, -1][1:]):
            if column in row:
                row[column] = value
    for i in range(len(row["turn_finish"] or ()) if "turn_reward" in row else 0):
        if (id, i) in rewards:
            row["turn_reward"] = row["turn_reward"] or [float("nan")] * len(row["turn_finish"])
            row["turn_reward"][i] = rewards[id, i][1]
    if (id, -1, "advantage") in notes and "advantage" in row:
        value = json.loads(notes[id, -1, "advantage"][1])
        row["advantage"] = float(value) if type(value) in (int, float) else None
    if (id, -1, "remove_sample") in notes and "remove_sample" in row:
        row["remove_sample"] = row["status"] == "aborted" or notes[id, -1, "remove_sample"][1] == "true"


def _fold(root: str, upto: Optional[int]) -> "tuple[int, list[File]]":
    folder = os.path.join(root, "schema=traj.v1", ".turnlog")
    names = os.listdir(folder) if os.path.isdir(folder) else []
    numbers: dict = {"m": [], "snap": []}
    for name in names:
        match = re.fullmatch(r"(m|snap)-(\d{12,})\.json", name)
        if match and (upto is None or int(match[2]) <= upto):
            numbers[match[1]].append(int(match[2]))
    last, at = max(numbers["m"], default=0), max(numbers["snap"], default=0)
    if upto is not None and last < upto:
        raise FormatError("%s: there is no manifest %d; the last one is %d" % (folder, upto, last))
    files = {f.path: f for f in _files(_load(folder, "snap", at, "turnlog.snapshot.v1"))} if at else {}
    while at < last:
        at += 1
        manifest = _load(folder, "m", at, "turnlog.manifest.v1")
        for path in manifest.get("removed", ()):
            files.pop(path)
        files.update((f.path, f) for f in _files(manifest))
    return last, list(files.values())


def _files(manifest: dict) -> "list[File]":
    return [File(f["path"], f["profile"], f["run"], f["rows"], f.get("tokens", 0), tuple(f["row_groups"]), f["sha256"])
            for f in manifest.get("files") or ()]


def _load(folder: str, kind: str, number: int, format: str) -> dict:
    path = os.path.join(folder, "%s-%012d.json" % (kind, number))
    try:
        with open(path, encoding="utf-8") as f:
            got = json.load(f)
    except (OSError, ValueError) as e:
        raise FormatError("%s: %s" % (path, e)) from e
    if got.get("format") != format:
        raise FormatError("%s is %r; this file reads %r" % (path, got.get("format"), format))
    return got


class Sampler:
    """A shuffled pass over a data set, shared by `world` ranks.

    Every rank gets the same number of rows (the last len % world of the shuffled
    order are left out), each row goes to one rank, and each rank reads only the
    row groups that hold its rows. Row groups are shuffled, and the rows in each;
    shuffle=False keeps the order of the shards. The order depends on the pinned
    manifest, seed and epoch alone: state_dict() after any row, loaded into a new
    sampler, goes on with the next one.
    """

    def __init__(self, data: Dataset, rank: int = 0, world: int = 1, seed: int = 0, epoch: int = 0,
                 shuffle: bool = True, columns: Optional[list] = None):
        if not 0 <= rank < world:
            raise ValueError("rank %d of %d" % (rank, world))
        self.data, self.rank, self.world = data, rank, world
        self.seed, self.epoch, self.shuffle, self.columns = seed, epoch, shuffle, columns
        self.position = 0

    def __len__(self) -> int:
        """Rows that are left for this rank."""
        return len(self.data) // self.world - self.position

    def __iter__(self) -> Iterator[dict]:
        share = len(self.data) // self.world
        groups = [(f, g) for f in self.data.files for g in range(len(f.row_groups))]
        if self.shuffle:
            self._random("groups").shuffle(groups)
        start = 0  # of the group, in the shuffled order of all rows
        for f, g in groups:
            n = f.row_groups[g]
            first = self.rank * share + self.position
            if start + n > first and self.position < share:
                rows = self.data.row_group(f, g, self.columns)
                order = list(range(n))
                if self.shuffle:
                    self._random("%s %d" % (f.path, g)).shuffle(order)
                for i in order[first - start:]:
                    if self.position == share:
                        return
                    self.position += 1
                    yield rows[i]
            start += n

    def _random(self, what: str) -> random.Random:
        return random.Random("%d %d %s" % (self.seed, self.epoch, what))

    def state_dict(self) -> dict:
        return {"manifest": self.data.manifest, "run": self.data.run, "seed": self.seed, "epoch": self.epoch,
                "world": self.world, "shuffle": self.shuffle, "position": self.position}

    def load_state_dict(self, state: dict) -> None:
        """Go on where another sampler was. The position is the same on every
        rank that took as many rows."""
        mine = self.state_dict()
        for key in ("manifest", "run", "seed", "world", "shuffle"):
            if state[key] != mine[key]:
                raise StateError("%s is %r here and %r in the state" % (key, mine[key], state[key]))
        self.epoch, self.position = state["epoch"], state["position"]
