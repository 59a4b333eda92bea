#!/usr/bin/env bash
# Opens shards with the readers that trainers use and compares what they see:
# pyarrow, DuckDB, polars, pandas, HF datasets (also streaming), hyparquet and
# arrow-rs (as parquet-wasm, which is that crate in WebAssembly).
#
#   run.sh                            shards of made-up sessions, then shards
#                                     of the whole program against a mock engine
#   run.sh SHARDS EXPECTED.json       the shards below the folder SHARDS (an
#                                     exporter's root) and an independent journal
#
# EXPECTED.json says what was sampled, whoever knows that:
#
#   {
#     "sessions": {
#       "<session id>": [               every completion, in the order sampled
#         {"ids": [1, 2],               all its ids, stop token included
#          "logprobs": [3212836864],    float32 as uint32 bits, or null
#          "trained": false}            left out where it is to be trained once
#       ]
#     },
#     "must_have_rows": ["<session id>"],   optional
#     "rows": {"<row_id>": {"<column>": ...}}   optional: every column of every
#                                     row; float32 as bits, times as microseconds
#   }
#
# Every turn of every row must be one of its session's completions, ids and
# logprobs bit for bit, in order; a completion must be trained as often as said.
# Sessions without a row are not looked for unless must_have_rows says so.
#
# Packages go to $TURNLOG_CACHE/readers (default .cache/readers in the
# repository). Where the registries do not answer, checks are skipped, and it
# says so. The last line is "N passed, N failed, N skipped".
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
cache=${TURNLOG_CACHE:-$root/.cache}/readers
python_pins="pyarrow==26.0.1 duckdb==2.0.1 polars==2.1.0 pandas==3.1.1 datasets==5.2.0 numpy==2.4.6"
node_pins="hyparquet@1.33.0 hyparquet-compressors@1.1.2 parquet-wasm@0.8.0 apache-arrow@21.2.0"
trainer_pins="trl==1.16.0 verl==0.9.1 skyrl==0.4.0"
python_checks=12 node_checks=2

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
lines=$work/lines
: >"$lines"
skipped=0

note() { echo "$*" | tee -a "$lines"; }

made_up=
if [ $# -eq 2 ]; then
  shards=$1 expected=$2
elif [ $# -eq 0 ]; then
  if ! (cd "$root/tests" && go run ./readers/gen "$work/made-up"); then
    echo "0 passed, 1 failed, 0 skipped"
    exit 1
  fi
  made_up=$work/made-up shards=$work/made-up/shards expected=$work/made-up/expected.json
  python_checks=$((python_checks + 5))
else
  sed -n '2,36s/^# \{0,1\}//p' "$0"
  exit 2
fi

# installed FOLDER PINS: whether a folder holds what the pins name.
installed() { [ "$(cat "$1/.pins" 2>/dev/null)" = "$2" ]; }

install_python() {
  installed "$cache/venv" "$python_pins" && return
  rm -rf "$cache/venv" && mkdir -p "$cache" && python3 -m venv "$cache/venv" || return
  # shellcheck disable=SC2086
  "$cache/venv/bin/pip" install --quiet --disable-pip-version-check --no-input $python_pins &&
    echo "$python_pins" >"$cache/venv/.pins"
}

# The trainers' packages are unpacked to be read, not installed: they would
# bring a GPU's libraries.
install_trainers() {
  installed "$cache/trainers" "$trainer_pins" && return
  rm -rf "$cache/trainers" && mkdir -p "$cache/trainers" || return
  # shellcheck disable=SC2086
  "$cache/venv/bin/pip" download --quiet --no-input --no-deps --only-binary :all: --python-version 3.12 \
    -d "$cache/trainers" $trainer_pins &&
    (cd "$cache/trainers" && for wheel in *.whl; do "$cache/venv/bin/python" -m zipfile -e "$wheel" .; done) &&
    echo "$trainer_pins" >"$cache/trainers/.pins"
}

# python_tests NAME FOLDER MODULE: one check, by Python's unittest.
python_tests() {
  if (cd "$2" && TURNLOG_SHARDS=$shards TURNLOG_TRAINERS=$cache/trainers PYTHONDONTWRITEBYTECODE=1 \
    "$cache/venv/bin/python" -m unittest "$3" >"$work/tests.log" 2>&1); then
    note "ok    $1: $(sed -n 's/^Ran \([0-9]* tests\).*/\1/p' "$work/tests.log")"
  else
    note "FAIL  $1"
    cat "$work/tests.log"
  fi
}

install_node() {
  installed "$cache/node" "$node_pins" && return
  rm -rf "$cache/node" && mkdir -p "$cache/node" && echo '{"private":true}' >"$cache/node/package.json" || return
  # shellcheck disable=SC2086
  (cd "$cache/node" && npm install --silent --no-audit --no-fund $node_pins) &&
    echo "$node_pins" >"$cache/node/.pins"
}

if ! command -v python3 >/dev/null; then
  echo "skip  python3 is not installed"
  skipped=$((python_checks + node_checks))
elif ! install_python >"$work/pip.log" 2>&1; then
  if "$cache/venv/bin/pip" download --quiet --no-deps --no-input -d "$work" six >/dev/null 2>&1; then
    note "FAIL  the Python packages do not install: $(tail -1 "$work/pip.log")"
  else
    echo "skip  the Python index does not answer"
    skipped=$((python_checks + node_checks))
  fi
else
  "$cache/venv/bin/python" "$here/check.py" "$shards" "$expected" "$work/reference.json" $made_up | tee -a "$lines"
  if [ -z "$made_up" ]; then
    python_checks=$((python_checks - 2))
  elif python_tests "turnlog.py" "$root/exporter/python" test_turnlog && install_trainers >"$work/pip.log" 2>&1; then
    python_tests "recipes" "$root/exporter/recipes" test_recipes
  else
    note "FAIL  the trainers' packages do not download: $(tail -1 "$work/pip.log")"
  fi
  if ! [ -s "$work/reference.json" ]; then
    note "FAIL  pyarrow could not read the shards"
  elif ! command -v node >/dev/null || ! command -v npm >/dev/null; then
    echo "skip  node is not installed"
    skipped=$node_checks
  elif ! install_node >"$work/npm.log" 2>&1; then
    if npm view hyparquet version >/dev/null 2>&1; then
      note "FAIL  the npm packages do not install: $(tail -1 "$work/npm.log")"
    else
      echo "skip  the npm registry does not answer"
      skipped=$node_checks
    fi
  else
    TURNLOG_READERS_NODE=$cache/node node "$here/check.mjs" "$shards" "$work/reference.json" | tee -a "$lines"
  fi
fi

passed=$(grep -c '^ok ' "$lines")
failed=$(grep -c '^FAIL ' "$lines")
if [ "$skipped" -eq 0 ] && [ "$failed" -eq 0 ] && [ "$passed" -ne $((python_checks + node_checks)) ]; then
  # Without expected rows there is one check less.
  if [ $# -eq 0 ] || [ "$passed" -ne $((python_checks + node_checks - 1)) ]; then
    echo "FAIL  $passed checks ran of $((python_checks + node_checks))"
    failed=1
  fi
fi
if [ $# -eq 0 ] && [ "$skipped" -eq 0 ]; then
  echo "shards of the whole program:"
  if (cd "$root/tests" && go run ./readers/stack "$work/stack"); then
    "$here/run.sh" "$work/stack/shards" "$work/stack/expected.json" | tee "$work/second" | sed '$d'
    read -r p _ f _ s _ < <(tail -n 1 "$work/second")
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
  else
    echo "FAIL  the whole program made no shards"
    failed=$((failed + 1))
  fi
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
