#!/usr/bin/env bash
# Gives made-up shards to the trainers' own code, on a CPU: SkyRL's and verl's
# loaders and base classes, and training steps of TRL. The packages take 6 GB,
# since torch of the Python index brings a GPU's libraries: this is run by hand.
#
# Packages go to $TURNLOG_CACHE/trainers (default .cache/trainers in the
# repository); $PYTHON names the interpreter. The last line is "N passed, N
# failed, N skipped".
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
venv=${TURNLOG_CACHE:-$root/.cache}/trainers
pins="torch==2.13.0 transformers==5.16.1 trl==1.16.0 accelerate==1.15.0 datasets==5.2.0 pyarrow==26.0.1"
# What verl and SkyRL import; with all that they ask for they would need a GPU.
imports="omegaconf hydra-core pillow loguru tensordict pandas peft torchdata codetiming ray==2.57.0 orjson cloudpathlib cachetools uvicorn fastapi aiohttp pybase64"
trainers="verl==0.9.1 skyrl==0.4.0 skyrl-gym==0.4.0"
checks=9

python=
for name in "${PYTHON:-python3.12}" python3.13 python3.14; do
  if "$name" -c '' 2>/dev/null; then
    python=$name
    break
  fi
done
if [ -z "$python" ]; then
  echo "skip  SkyRL needs Python 3.12 or later, which is not installed"
  echo "0 passed, 0 failed, $checks skipped"
  exit 0
fi
if [ "$(cat "$venv/.pins" 2>/dev/null)" != "$pins $trainers" ]; then
  rm -rf "$venv"
  # shellcheck disable=SC2086
  if ! { "$python" -m venv "$venv" && "$venv/bin/pip" install --quiet --no-input --disable-pip-version-check $pins $imports &&
    "$venv/bin/pip" install --quiet --no-input --disable-pip-version-check --no-deps $trainers; }; then
    echo "0 passed, 1 failed, 0 skipped"
    exit 1
  fi
  echo "$pins $trainers" >"$venv/.pins"
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if ! (cd "$root/tests" && go run ./readers/gen "$work/made-up"); then
  echo "0 passed, 1 failed, 0 skipped"
  exit 1
fi
PYTHONDONTWRITEBYTECODE=1 "$venv/bin/python" "$here/trainers.py" "$work/made-up" >"$work/out" 2>"$work/err"
grep -E '^(ok|FAIL) ' "$work/out"
passed=$(grep -c '^ok ' "$work/out")
failed=$(grep -c '^FAIL ' "$work/out")
if [ $((passed + failed)) -ne $checks ]; then
  echo "FAIL  $((passed + failed)) checks ran of $checks"
  failed=$((failed + 1))
fi
[ "$failed" -eq 0 ] || tail -40 "$work/err"
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
