#!/usr/bin/env bash
# Two islands that share nothing but a network connection train one model on Python's own sources,
# then complete Python functions. Everything lands in runs/demo (DEMO_DIR changes that).
set -euo pipefail
cd "$(dirname "$0")/.."
atoll=build/bin/atoll
folder=${DEMO_DIR:-runs/demo}
data=${DATA:-}
rm -rf "$folder/run" "$folder/data" "$folder/tokenizer.json"
mkdir -p "$folder"

say() { printf '\n\033[1m%s\033[0m\n' "$*" >&2; }

say "1. Tokenizer and data: ${data:-the Python standard library found on this machine}"
# Without a path both commands find the Python sources of this machine.
$atoll tokenizer train ${data:+"$data"} --vocab-size 2048 --out "$folder/tokenizer.json"
$atoll data pack ${data:+"$data"} --tokenizer "$folder/tokenizer.json" --out "$folder/data"
$atoll data info "$folder/data"

say "2. Two islands and a coordinator; each island sends at 20 Mbit/s"
$atoll train configs/demo.toml --run "$folder/run" --data "$folder/data" --link-rate 20mbit

say "3. The model completes Python functions"
for prompt in 'def read_file(path):' 'class Queue:
    def __init__(self' 'def add(self, key, value):'; do
  printf '\033[2m%s\033[0m' "$prompt"
  $atoll generate "$folder/run" --prompt "$prompt" --max-tokens 60 --temperature 0.6 --top-k 40 --seed 1
  printf '\n\n'
done
say "The trained model is a Hugging Face folder: $(ls -d "$folder"/run/island-0/checkpoints/step-* | tail -1)"
