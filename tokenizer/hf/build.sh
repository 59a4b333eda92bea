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
if ! command -v cargo >/dev/null || ! command -v cc >/dev/null; then
  cat >&2 <<TEXT
cargo and a C compiler build the library, and one of them is missing. Instead,
unpack libtokenizers.a of a daulet/tokenizers release (the version in
tokenizer/go.mod) to $out/libtokenizers.a
and use: CGO_ENABLED=1 CGO_LDFLAGS=-L$out go build -tags hf ./...
That one cuts text at U+0000; texts that hold it are refused.
TEXT
  exit 1
fi
cargo build --release --locked --manifest-path "$here/crate/Cargo.toml" --target-dir "$out/target"
cp "$out/target/release/libtokenizers_c.a" "$out/libtokenizers.a"
echo "CGO_ENABLED=1 CGO_LDFLAGS=-L$out go build -tags hf ./..."
