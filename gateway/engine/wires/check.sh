#!/usr/bin/env bash
# Compares the adapters' and the mock's wires with the engines' own packages from
# the Python index, and forced calls with what their grammar engine allows. The
# engines are unpacked and read, never installed. Files go to $TURNLOG_CACHE/wires
# (default .cache/wires in the repository), 450 MB the first time.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
cache=${TURNLOG_CACHE:-$root/.cache}/wires
mkdir -p "$cache"

# unpacked FOLDER REQUIREMENT PIP-OPTIONS...
unpacked() {
  local folder=$cache/$1
  shift
  [ -d "$folder" ] && return
  rm -rf "$folder.part"
  mkdir "$folder.part"
  python3 -m pip download --quiet --no-deps --dest "$folder.part" "$@"
  for file in "$folder.part"/*; do
    case $file in
    *.whl) python3 -m zipfile -e "$file" "$folder.part" ;;
    *.tar.gz) tar xzf "$file" -C "$folder.part" --strip-components=1 ;;
    esac
    rm "$file"
  done
  mv "$folder.part" "$folder"
}

unpacked sglang sglang==0.5.23
unpacked vllm vllm==0.33.0
unpacked llamacpp llama-cpp-python==0.3.36 --no-binary llama-cpp-python
unpacked xgrammar xgrammar==0.2.8
if [ ! -d "$cache/ffi" ]; then
  python3 -m pip install --quiet --target "$cache/ffi.part" apache-tvm-ffi==0.1.15.post2 numpy==2.4.6 pydantic==2.14.4 typing-extensions==4.16.0
  mv "$cache/ffi.part" "$cache/ffi"
fi

cd "$root/gateway"
go run ./engine/wires >"$cache/exchanges.jsonl"
go run ./engine/wires tags >"$cache/tags.jsonl"
PYTHONPATH=$cache/ffi python3 "$here/grammars.py" "$cache/xgrammar" <"$cache/tags.jsonl" >"$cache/samples.jsonl"
go run ./engine/wires read <"$cache/samples.jsonl"
python3 "$here/check.py" "$cache/exchanges.jsonl" "$cache/sglang" "$cache/vllm" "$cache/llamacpp/vendor/llama.cpp"
