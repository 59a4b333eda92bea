"""Reads shards with Python's readers and compares them.

    check.py SHARDS EXPECTED.json REFERENCE.json [DIR]

pyarrow checks the schema, the invariants of every row and the journal (see
run.sh), and writes its digest of every row to REFERENCE.json, which check.mjs
compares too. The other readers must come to the same digests. DIR has the
materialised profiles of made-up shards. One line a check; exit code 0 always:
run.sh counts the lines.
"""

import glob
import json
import os
import struct
import sys
import traceback

import pyarrow as pa
import pyarrow.parquet as pq

FLOAT, I32, I64, STR, BOOL = pa.float32(), pa.int32(), pa.int64(), pa.string(), pa.bool_()
TIME = pa.timestamp("us", tz="UTC")
# name, type, nullable: turnlog.traj.v1
SCHEMA = [
    ("row_id", STR, 0), ("run_id", STR, 0), ("session_id", STR, 0), ("branch_id", STR, 0),
    ("branch_label", STR, 0), ("class", STR, 0),
    ("segment_index", I32, 0), ("segment_count", I32, 0), ("is_last_segment", BOOL, 0),
    ("rollout_id", STR, 0), ("group_id", STR, 0), ("rollout_index", I32, 0), ("group_size", I32, 1),
    ("attempt", I32, 0), ("task", STR, 1), ("data_source", STR, 1), ("split", STR, 1),
    ("input_ids", [I32], 0), ("loss_mask", [pa.int8()], 0), ("logprobs", [FLOAT], 1), ("versions", [I32], 1),
    ("length", I32, 0), ("prompt_length", I32, 0), ("response_length", I32, 0), ("trainable_tokens", I32, 0),
    ("turn_start", [I32], 0), ("turn_end", [I32], 0), ("turn_finish", [STR], 1), ("turn_seq", [I64], 1),
    ("turn_reward", [FLOAT], 1), ("reward", FLOAT, 1), ("rewards_json", STR, 1), ("advantage", FLOAT, 1),
    ("status", STR, 0), ("stop_reason", STR, 0), ("remove_sample", BOOL, 0),
    ("grade", STR, 0), ("grade_reasons", [STR], 0), ("logprob_kind", STR, 0),
    ("model", STR, 0), ("version_min", I64, 1), ("version_max", I64, 1),
    ("temperature", FLOAT, 1), ("top_p", FLOAT, 1), ("sampling", STR, 1),
    ("tokenizer_sha256", STR, 0), ("template_sha256", STR, 0), ("engine", STR, 0), ("prefix_stable", BOOL, 0),
    ("stream", STR, 0), ("seq_first", I64, 0), ("seq_last", I64, 0),
    ("started_at", TIME, 1), ("finished_at", TIME, 1), ("gen_time_s", pa.float64(), 1),
    ("messages_json", STR, 1), ("tools_json", STR, 1), ("metadata_json", STR, 1),
]


def bits(x):
    return None if x is None else struct.unpack("<I", struct.pack("<f", x))[0]


def digest(ids, mask, logprobs, reward, session):
    """What every reader must agree on, exactly: integers, and float32 as bits."""
    return [
        session, len(ids), sum(ids), sum((i + 1) * int(x) for i, x in enumerate(ids)),
        sum(int(m) for m in mask), sum((i + 1) * int(m) for i, m in enumerate(mask)),
        None if logprobs is None else sum(((i % 1000) + 1) * bits(float(x)) for i, x in enumerate(logprobs)),
        bits(reward),
    ]


def check(name):
    """Runs a function at once and prints its verdict."""
    def run(f):
        try:
            f()
            print("ok   ", name, flush=True)
        except Exception as e:
            print("FAIL ", name, "-", repr(e)[:500], flush=True)
            if not isinstance(e, AssertionError):
                traceback.print_exc()
    return run


def main(shards, expected, reference, made_up):
    files = sorted(glob.glob(os.path.join(shards, "**", "part-*.parquet"), recursive=True))
    with open(expected) as f:
        expected = json.load(f)
    want = {}

    @check("pyarrow: schema and encodings of %d shards" % len(files))
    def _():
        assert files, "no shard"
        for path in files:
            f = pq.ParquetFile(path)
            got = [(x.name, [x.type.value_type] if pa.types.is_list(x.type) else x.type, int(x.nullable))
                   for x in f.schema_arrow]
            for g, w in zip(got, SCHEMA, strict=True):
                assert g == w, (path, g, w)
            for x in f.schema_arrow:
                assert not pa.types.is_list(x.type) or not x.type.value_field.nullable, x
            assert f.metadata.created_by.startswith("turnlog"), f.metadata.created_by
            keys = {k.decode(): v.decode() for k, v in f.metadata.metadata.items()}
            assert keys["turnlog.schema"] == "turnlog.traj.v1", keys
            assert keys["turnlog.plan"] and keys["turnlog.plan_sha256"], keys
            for g in range(f.metadata.num_row_groups):
                for c in range(f.metadata.num_columns):
                    col = f.metadata.row_group(g).column(c)
                    assert col.compression == "ZSTD", col
                    lossless = "BYTE_STREAM_SPLIT" if col.path_in_schema.startswith("logprobs.") else "PLAIN"
                    assert lossless in col.encodings and not any("DICT" in e for e in col.encodings), col

    rows = [row for path in files for row in pq.ParquetFile(path).read().to_pylist()]

    @check("pyarrow: invariants of %d rows" % len(rows))
    def _():
        assert len({r["row_id"] for r in rows}) == len(rows), "a row stands twice"
        where = {}
        for path in files:
            f = pq.ParquetFile(path)
            for g in range(f.num_row_groups):
                for group in set(f.read_row_group(g, columns=["group_id"])["group_id"].to_pylist()):
                    where.setdefault(group, set()).add((path, g))
        assert all(len(places) == 1 for places in where.values()), "a group stands in two row groups"
        for r in rows:
            n = r["length"]
            assert len(r["input_ids"]) == len(r["loss_mask"]) == n and set(r["loss_mask"]) <= {0, 1}
            for column in ("logprobs", "versions"):
                assert r[column] is None or len(r[column]) == n
            assert r["prompt_length"] == r["loss_mask"].index(1) and n == r["prompt_length"] + r["response_length"]
            assert r["trainable_tokens"] == sum(r["loss_mask"])
            turn = [False] * n
            for start, end in zip(r["turn_start"], r["turn_end"], strict=True):
                assert 0 < start < end <= n
                turn[start:end] = [True] * (end - start)
            for i in range(n):
                assert turn[i] or not r["loss_mask"][i]
            assert r["grade"] in "ABCD"
            for column in ("messages_json", "tools_json", "metadata_json", "sampling"):
                assert r[column] is None or json.loads(r[column]) is not None

    @check("pyarrow: sampled ids and logprobs equal the journal's")
    def _():
        by_session = {}
        for r in rows:
            by_session.setdefault(r["session_id"], []).append(r)
        for session, list_ in by_session.items():
            assert session in expected["sessions"], "session %s is not in the journal" % session
            completions = expected["sessions"][session]
            trained = [0] * len(completions)
            for r in list_:
                last = -1
                for start, end in zip(r["turn_start"], r["turn_end"]):
                    ids = r["input_ids"][start:end]
                    lps = None if r["logprobs"] is None else [bits(x) for x in r["logprobs"][start:end]]
                    cut = not r["prefix_stable"]
                    at = next((i for i in range(last + 1, len(completions)) if same(completions[i], ids, lps, cut)), None)
                    assert at is not None, "session %s, row %s: %d ids from %d on are in the journal no more" % (
                        session, r["row_id"], end - start, start)
                    last = at
                    trained[at] += 1 in r["loss_mask"][start:end]
            for i, c in enumerate(completions):
                times = 1 if c.get("trained", True) else 0
                twins = [j for j, o in enumerate(completions) if o["ids"] == c["ids"] and o["logprobs"] == c["logprobs"]]
                if len(twins) == 1:
                    assert trained[i] == times, "session %s: completion %d is trained %d times" % (session, i, trained[i])
        for session in expected.get("must_have_rows", []):
            assert session in by_session, "session %s has no row" % session

    if "rows" in expected:
        @check("pyarrow: every column of every row is what was written")
        def _():
            assert {r["row_id"] for r in rows} == set(expected["rows"])
            for r in rows:
                for name, type_, _ in SCHEMA:
                    got, w = plain(r[name], type_), expected["rows"][r["row_id"]][name]
                    assert got == w, (r["row_id"], name, got, w)

    if expected.get("late"):
        @check("pyarrow: what came later stands beside the rows")
        def _():
            import pyarrow.dataset as ds
            session = {r["row_id"]: r["session_id"] for r in rows}
            for aux, column, values in (("rewards", "reward", {s: float(v) for s, v in expected["late"].items()}),
                                        ("annotations", "value_json", {s: str(v) for s, v in expected["late"].items()})):
                t = ds.dataset(os.path.join(shards, "aux=" + aux), format="parquet", partitioning="hive").to_table().to_pylist()
                got = {session[r["row_id"]]: r[column] for r in t if r.get("name", "advantage") == "advantage"}
                assert {s: v for s, v in got.items() if s in values} == values and set(got) <= set(values), (aux, got)

    for r in rows:
        want[r["row_id"]] = digest(r["input_ids"], r["loss_mask"], r["logprobs"], r["reward"], r["session_id"])
    with open(reference, "w") as f:
        json.dump(want, f)

    def agree(got):
        assert set(got) == set(want), "%d rows of %d" % (len(got), len(want))
        for row_id, d in got.items():
            assert d == want[row_id], (row_id, d, want[row_id])

    def to_digests(records):
        return {r["row_id"]: digest(r["input_ids"], r["loss_mask"], r["logprobs"], r["reward"], r["session_id"])
                for r in records}

    pattern = os.path.join(shards, "schema=traj.v1", "**", "*.parquet")
    columns = ["row_id", "session_id", "input_ids", "loss_mask", "logprobs", "reward"]

    @check("pyarrow: dataset over the folder, hive partitions")
    def _():
        import pyarrow.dataset as ds
        d = ds.dataset(os.path.join(shards, "schema=traj.v1"), format="parquet", partitioning="hive")
        assert {"run", "dt"} <= set(d.schema.names)
        agree(to_digests(d.to_table(columns=columns).to_pylist()))

    @check("DuckDB: digests, statistics, hive partitions")
    def _():
        import duckdb
        con = duckdb.connect()
        got = con.sql("select %s from read_parquet('%s', hive_partitioning=true)" % (", ".join(columns), pattern))
        agree(to_digests(dict(zip(columns, row)) for row in got.fetchall()))
        n, tokens, run = con.sql(
            "select count(*), sum(len(input_ids)), max(run) from read_parquet('%s', hive_partitioning=true)" % pattern).fetchall()[0]
        assert n == len(want) and tokens == sum(d[1] for d in want.values()) and run

    @check("polars: digests")
    def _():
        import polars
        frame = polars.read_parquet(files, columns=columns, hive_partitioning=False)
        agree(to_digests(frame.to_dicts()))
        assert frame.schema["input_ids"] == polars.List(polars.Int32) and frame.schema["loss_mask"] == polars.List(polars.Int8)

    @check("pandas: digests")
    def _():
        import pandas
        got = {}
        for path in files:
            frame = pandas.read_parquet(path, dtype_backend="pyarrow", columns=columns, partitioning=None)
            for r in frame.to_dict("records"):
                reward = None if pandas.isna(r["reward"]) else r["reward"]
                lps = r["logprobs"]
                lps = None if lps is None or lps is pandas.NA else lps
                got[r["row_id"]] = digest(list(r["input_ids"]), list(r["loss_mask"]), lps, reward, r["session_id"])
        agree(got)

    os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", HF_DATASETS_DISABLE_PROGRESS_BARS="1")

    @check("HF datasets: load, no column lost")
    def _():
        import datasets
        d = datasets.load_dataset("parquet", data_files=files, split="train", cache_dir=os.path.join(os.path.dirname(reference), "hf"))
        assert d.column_names == [name for name, _, _ in SCHEMA]
        agree(to_digests(d.select_columns(columns)))

    @check("HF datasets: streaming, shards and columns")
    def _():
        import datasets
        d = datasets.load_dataset("parquet", data_files=files, split="train", streaming=True, columns=columns)
        assert d.num_shards == len(files)
        agree(to_digests(d))

    if made_up:
        profiles(made_up, rows)


def same(completion, ids, lps, cut):
    n = len(ids)
    if (completion["ids"][:n] if cut else completion["ids"]) != ids:
        return False
    if lps is None or completion["logprobs"] is None:
        return True
    return completion["logprobs"][:n] == lps


def plain(v, type_):
    if v is None:
        return None
    if isinstance(v, list):
        return [plain(x, type_[0]) for x in v]
    if type_ == FLOAT:
        return bits(v)
    if type_ == TIME:
        import calendar
        return calendar.timegm(v.utctimetuple()) * 1_000_000 + v.microsecond
    return v


def profiles(made_up, rows):
    """The contracts of the loaders that a profile is made for."""
    import pyarrow.dataset as ds

    def table(name):
        folder = os.path.join(made_up, name)
        kinds = {os.path.splitext(f)[1] for _, _, fs in os.walk(folder) for f in fs if not f.startswith(".")}
        assert kinds == {".parquet"}, kinds
        return ds.dataset(folder, format="parquet").to_table()

    @check("pretok: what SkyRL, TRL and axolotl look for")
    def _():
        t = table("pretok")
        assert t.column_names == ["input_ids", "attention_mask", "labels", "loss_mask"], t.column_names
        assert t.num_rows == len(rows)
        for got, r in zip(sorted(t.to_pylist(), key=str), sorted(
                ({"input_ids": r["input_ids"], "loss_mask": r["loss_mask"]} for r in rows),
                key=lambda r: str({"input_ids": r["input_ids"]})), strict=True):
            assert got["input_ids"] == r["input_ids"] and got["loss_mask"] == r["loss_mask"]
            assert set(got["attention_mask"]) == {1} and len(got["attention_mask"]) == len(got["input_ids"])
            assert got["labels"] == [x if m else -100 for x, m in zip(got["input_ids"], got["loss_mask"])]

    @check("chat: messages as OpenAI writes them, arguments as text")
    def _():
        t = table("chat")
        message = t.schema.field("messages").type.value_type
        assert [f.name for f in message] == [
            "role", "content", "reasoning_content", "tool_calls", "tool_call_id", "name"], message
        for r in t.to_pylist():
            assert r["messages"] and r["messages"][-1]["role"] == "assistant"

    @check("prompts: one row a group, as verl and slime look for")
    def _():
        t = table("prompts")
        assert t.num_rows == len({r["group_id"] for r in rows})
        assert sorted(r["extra_info"]["index"] for r in t.to_pylist()) == list(range(t.num_rows))
        for r in t.to_pylist():
            assert r["prompt"] and all(m["role"] != "assistant" for m in r["prompt"][-1:])
            assert r["data_source"] and "ground_truth" in r["reward_model"] and r["extra_info"]["group_id"]

    @check("HF datasets: pretok folder")
    def _():
        import datasets
        d = datasets.load_dataset("parquet", data_dir=os.path.join(made_up, "pretok"), split="train",
                                  cache_dir=os.path.join(made_up, "hf"))
        assert d.column_names == ["input_ids", "attention_mask", "labels", "loss_mask"] and len(d) == len(rows)


if __name__ == "__main__":
    main(*sys.argv[1:4], sys.argv[4] if len(sys.argv) > 4 else None)
