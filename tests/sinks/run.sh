#!/usr/bin/env bash
# Runs the promises of a sink against an S3 server that is a program of its own:
# versitygw. (The test takes a MinIO binary too, in TURNLOG_TEST_MINIO.) The last
# line is "N passed, N failed, N skipped"; one server is one check.
#
# Servers are built from the Go module proxy, outside the workspace, into
# $TURNLOG_CACHE/servers (default .cache/servers in the repository).
set -uo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
cache=${TURNLOG_CACHE:-$root/.cache}/servers
passed=0 failed=0 skipped=0

# check NAME VARIABLE MODULE@VERSION
check() {
  local name=$1 variable=$2 module=$3 binary=$cache/${3//\//_}
  if ! [ -x "$binary" ]; then
    mkdir -p "$binary.new"
    if ! GOWORK=off GOBIN=$binary.new go install "$module" >"$binary.log" 2>&1; then
      if (cd "$root" && go list -m -versions github.com/minio/minio-go/v7 >/dev/null 2>&1); then
        echo "FAIL  $name does not build: $(tail -1 "$binary.log")"
        failed=$((failed + 1))
      else
        echo "skip  $name: the Go module proxy does not answer"
        skipped=$((skipped + 1))
      fi
      return
    fi
    mv "$binary.new"/* "$binary" && rmdir "$binary.new"
  fi
  if output=$(cd "$root" && env "$variable=$binary" go test -count=1 -tags servers -run "ServersKeepThePromises/$name" ./exporter/sink/s3 2>&1); then
    echo "ok    $name: $(tail -1 <<<"$output")"
    passed=$((passed + 1))
  else
    echo "FAIL  $name"
    echo "$output"
    failed=$((failed + 1))
  fi
}

check versitygw TURNLOG_TEST_VERSITYGW github.com/versity/versitygw/cmd/versitygw@v1.8.0

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
