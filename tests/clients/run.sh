#!/usr/bin/env bash
# Real agents and the official SDKs, from npm, through a turnlog of their own:
# asserts what the record says. The last line is "N passed, N failed, N skipped".
#
#   tests/clients/run.sh [client or case name]...
#
# TURNLOG_CACHE            where clients are installed (default .cache)
# TURNLOG_CLIENTS_SECONDS  when to stop beginning new cases (default 420, what
#                          installing took included)
set -euo pipefail
cd "$(dirname "$0")/../.."
cache=${TURNLOG_CACHE:-$PWD/.cache}/clients

# One npm project each, at the versions that the cases were written against.
packages=(
  openai@6.49.0
  @anthropic-ai/sdk@1.14.0
  opencode-ai@1.18.33
  @mariozechner/pi-coding-agent@0.73.1
  @anthropic-ai/claude-code@2.1.197
  @anthropic-ai/claude-agent-sdk@0.3.332
  @openai/codex@0.171.0
  @qwen-code/qwen-code@0.15.10
)

skip() {
  echo "skipped clients: $1"
  echo "0 passed, 0 failed, 1 skipped"
  exit 0
}

command -v node >/dev/null && command -v npm >/dev/null || skip "node and npm are not installed"

folder() { tr '/@' '__' <<<"${1#@}"; }
installed() { [ -e "$cache/$(folder "$1")/.installed" ]; }

missing=()
for p in "${packages[@]}"; do installed "$p" || missing+=("$p"); done
if [ ${#missing[@]} -gt 0 ]; then
  timeout 60 npm view "${missing[0]}" version >/dev/null 2>&1 || skip "no npm registry answers, and ${missing[0]} is not in $cache"
fi
for p in ${missing[@]+"${missing[@]}"}; do
  dir=$cache/$(folder "$p")
  mkdir -p "$dir"
  echo '{"private":true}' >"$dir/package.json"
  echo "installing $p"
  if (cd "$dir" && timeout 300 npm install --no-audit --no-fund --loglevel=error "$p" >install.log 2>&1); then
    touch "$dir/.installed"
  else
    echo "could not install $p; see $dir/install.log"
  fi
done

# One SDK more comes from the Python index. Without python3 or an index that
# answers it is not tried, and this says so.
python=$cache/python-openai_3.57.0
if [ ! -e "$python/.installed" ]; then
  mkdir -p "$python"
  if timeout 300 python3 -m pip install --quiet --disable-pip-version-check --target "$python" openai==3.57.0 >"$python/install.log" 2>&1; then
    touch "$python/.installed"
  else
    echo "note: the Python SDK is not tried: python3 could not install it; see $python/install.log"
  fi
fi

run=$(mktemp -d)
go build -o bin/turnlog ./deploy/cmd/turnlog
go build -o "$run/rows" ./tests/clients/rows
status=0
export TURNLOG_CLIENTS_SECONDS=${TURNLOG_CLIENTS_SECONDS:-$((420 - SECONDS))}
node tests/clients/main.mjs bin/turnlog "$run/rows" "$cache" "$run" "$@" || status=$?
# What was recorded is worth a look only where something failed.
if [ "$status" -eq 0 ]; then rm -rf "$run"; else echo "logs are in $run" >&2; fi
exit "$status"
