#!/usr/bin/env bash
# Compares tokenizer/parse with the parsers of sglang and vLLM. Their packages
# come from the Python index (330 MB, once) into $TURNLOG_CACHE, by default
# .cache in the repository; of vLLM and sglang only the Python sources are
# unpacked, and nothing of them is run but their parsers. Where a package cannot
# be had, the comparison with it is skipped.
#
# usage: run.sh [-v]
set -euo pipefail
cd "$(dirname "$0")/.."
cache=${TURNLOG_CACHE:-$(cd .. && pwd)/.cache}/parsers
declare -A version=([sglang]=0.5.23 [vllm]=0.33.0)
mkdir -p "$cache"

python=$cache/venv/bin/python
if ! [ -e "$cache/venv/ready" ]; then
	echo "parsers: making a Python environment in $cache" >&2
	if ! { python3 -m venv "$cache/venv" &&
		"$python" -m pip install --quiet pydantic==2.* orjson==3.* partial-json-parser==0.2.* regex msgspec==0.*; }; then
		echo "parsers: no Python environment, nothing to compare with" >&2
		echo "0 passed, 0 failed, 1 skipped"
		exit 0
	fi
	touch "$cache/venv/ready"
fi

engines=()
missing=0
for name in sglang vllm; do
	folder=$cache/$name-${version[$name]}
	if ! [ -d "$folder" ]; then
		echo "parsers: fetching $name ${version[$name]}" >&2
		tmp=$(mktemp -d "$cache/fetch.XXXXXX")
		if "$python" -m pip download --quiet --no-deps --only-binary :all: --dest "$tmp" "$name==${version[$name]}" &&
			"$python" - "$tmp" <<-'PYTHON'
				import glob, sys, zipfile
				wheel = zipfile.ZipFile(glob.glob(sys.argv[1] + "/*.whl")[0])
				wheel.extractall(sys.argv[1] + "/src", [n for n in wheel.namelist() if n.endswith(".py")])
			PYTHON
		then
			mv "$tmp/src" "$folder"
		else
			echo "parsers: $name cannot be had, skipped" >&2
		fi
		rm -rf "$tmp"
	fi
	if [ -d "$folder" ]; then
		engines+=("$name=$folder")
	else
		missing=$((missing + 1))
	fi
done
if [ ${#engines[@]} = 0 ]; then
	echo "0 passed, 0 failed, $missing skipped"
	exit 0
fi
exec go run ./parsers -python "$python" "$@" "${engines[@]}"
