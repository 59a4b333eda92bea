#!/usr/bin/env bash
# Build libtokenizers.a for the build tag hf from our crate, into $1 (default:
# .cache/hf of the repository), and print how to use it. Needs cargo and a C
# compiler. An archive of a daulet/tokenizers release works, too: unpack its
# libtokenizers.a there instead.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-${TURNLOG_CACHE:-$here/../../.cache}/hf}
mkdir -p "$out"
out=$(cd "$out" && pwd)
cargo build --release --locked --manifest-path "$here/crate/Cargo.toml" --target-dir "$out/target"
cp "$out/target/release/libtokenizers_c.a" "$out/libtokenizers.a"
echo "CGO_ENABLED=1 CGO_LDFLAGS=-L$out go build -tags hf ./..."
