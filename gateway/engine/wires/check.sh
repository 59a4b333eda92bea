#!/usr/bin/env bash
# Compares the adapters' and the mock's wires with the engines' own packages from
# the Python index, and forced calls with what their grammar engine allows. The
# engines are unpacked and read, never installed. Files go to $TURNLOG_CACHE/wires
# (default .cache/wires in the repository), 450 MB the first time.
#
# "check.sh older" compares the wires with older releases instead, of which 2.5 GB
# are fetched and 200 MB kept: what does not fit has to be what older.txt says.
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

# sources ENGINE VERSION: the same, of which only the Python code is kept.
sources() {
  local folder=$cache/$1-$2
  [ -d "$folder" ] && return
  unpacked "$1-$2.part" "$1==$2"
  find "$folder.part" -type f ! -name '*.py' -delete
  mv "$folder.part" "$folder"
}

llama=$cache/llamacpp/vendor/llama.cpp
older() {
  local engine=$1 version
  shift
  for version; do
    sources "$engine" "$version"
    local of=("$cache/sglang" "$cache/vllm")
    [ "$engine" = sglang ] && of[0]=$cache/sglang-$version || of[1]=$cache/vllm-$version
    echo "$engine $version"
    python3 "$here/check.py" "$cache/exchanges.jsonl" "${of[@]}" "$llama" | sed -n "s/^$engine/  $engine/p" || true
  done
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
if [ "${1:-}" = older ]; then
  {
    older sglang 0.5.20 0.5.16 0.5.13 0.5.9
    older vllm 0.32.0 0.31.0 0.29.0 0.24.0 0.16.0
  } >"$cache/older.txt"
  diff -u "$here/older.txt" "$cache/older.txt"
  echo "the older releases differ as older.txt says"
  exit
fi
go run ./engine/wires tags >"$cache/tags.jsonl"
PYTHONPATH=$cache/ffi python3 "$here/grammars.py" "$cache/xgrammar" <"$cache/tags.jsonl" >"$cache/samples.jsonl"
go run ./engine/wires read <"$cache/samples.jsonl"
python3 "$here/check.py" "$cache/exchanges.jsonl" "$cache/sglang" "$cache/vllm" "$llama"
