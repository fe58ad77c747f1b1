#!/usr/bin/env bash
# Runs every fuzzer of a build folder for some seconds. An input that fails is left beside the programs.
#
#   tests/fuzz/run.sh BUILD_DIR SECONDS [NAME...]
set -euo pipefail

if (($# < 2)); then
  sed -n '2,4s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
build=$1 seconds=$2
shift 2
here=$(dirname "$0")
declare -A seeds=( # folders whose files are the first inputs
  [gguf]=$here/../data/tokenizers
  [jinja]=$here/templates
  [model]=$build/corpus/model-seeds
  [safetensors]=$here/../data/quant
  [tokenizer_json]=$here/../data/tokenizers/hf
)

# A folder as fuzz-model takes it: its config.json, a zero byte, its tensors. GGUF files are what they are.
mkdir -p "$build/corpus/model-seeds"
for folder in "$here"/../data/architectures/*/; do
  name=$(basename "$folder")
  { cat "$folder/config.json" && printf '\0' && cat "$folder/model.safetensors"; } >"$build/corpus/model-seeds/$name"
  if [[ -f $folder/model.gguf ]]; then cp "$folder/model.gguf" "$build/corpus/model-seeds/$name.gguf"; fi
done

failed=0
for program in "$build"/fuzz-*; do
  name=${program#"$build"/fuzz-}
  if (($# > 0)) && [[ " $* " != *" $name "* ]]; then continue; fi
  corpus=$build/corpus/$name
  mkdir -p "$corpus"
  options=(-max_total_time="$seconds" -timeout=60 -rss_limit_mb=4096 -max_len=65536
    -artifact_prefix="$build/failed-$name-")
  [[ -f $here/$name.dict ]] && options+=("-dict=$here/$name.dict")
  if "$program" "${options[@]}" "$corpus" ${seeds[$name]:+"${seeds[$name]}"} &>"$corpus.log"; then
    echo "fuzz-$name: $(tail -n 1 "$corpus.log"), nothing found"
  else
    tail -n 40 "$corpus.log"
    echo "fuzz-$name: failed"
    failed=1
  fi
done
exit $failed
