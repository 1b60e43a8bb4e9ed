#!/usr/bin/env bash
# Two islands that share nothing but a network connection train one model on Python's own sources,
# then complete Python functions. One of them is killed on the way and comes back. Everything lands
# in runs/demo (DEMO_DIR changes that).
set -euo pipefail
cd "$(dirname "$0")/.."
atoll=build/bin/atoll
folder=${DEMO_DIR:-runs/demo}
data=${DATA:-}
victim=$folder/run/island-1
kill_at=160 # Of the 480 steps.
if [ -n "${DEMO_DIR:-}" ] && [ -e "$folder" ] && [ ! -e "$folder/.demo" ] && [ -n "$(ls -A "$folder")" ]; then
  echo "demo: '$folder' has what no demo put there; name another folder with DEMO_DIR" >&2
  exit 2
fi
rm -rf "$folder/run" "$folder/data" "$folder/tokenizer.json"
mkdir -p "$folder"
touch "$folder/.demo"

say() { printf '\n\033[1m%s\033[0m\n' "$*" >&2; }

step_of() { sed -n '$s/.*"step":\([0-9]*\),.*/\1/p' "$1/metrics.jsonl" 2>/dev/null; }

# By the folder that stands in its command line. Others that end meanwhile are no failure.
process_of() { { grep -lzxF -f <(printf '%s' "$1") /proc/[0-9]*/cmdline 2>/dev/null || true; } | cut -d/ -f3; }

kill_one_island() {
  local step
  until step=$(step_of "$victim") && [ "${step:-0}" -ge "$kill_at" ]; do sleep 0.5; done
  local process
  process=$(process_of "$victim")
  say "kill -9 $process   # That is island-1."
  printf '\n\n' >&2 # The two lines of progress are drawn over these.
  kill -9 "$process"
}

say "1. Tokenizer and data: ${data:-the Python standard library found on this machine}"
# Without a path both commands find the Python sources of this machine.
$atoll tokenizer train ${data:+"$data"} --vocab-size 2048 --out "$folder/tokenizer.json"
$atoll data pack ${data:+"$data"} --tokenizer "$folder/tokenizer.json" --out "$folder/data"

say "2. Two islands and a coordinator; each island sends at 20 Mbit/s"
cat >&2 <<'TEXT'
Neither waits for the other, or for its line: what they learn travels in 4 bits, beside training.
At a third of the run island-1 is killed. The other goes on; island-1 is started again, gets the
state from it, and trains on with it. In the end both must hold the same bits.

TEXT
kill_one_island &
killer=$!
trap 'kill $killer 2>/dev/null || true' EXIT
$atoll train configs/demo.toml --run "$folder/run" --data "$folder/data" --link-rate 20mbit

say "3. The model completes Python functions"
for prompt in 'def read_file(path):' 'class Queue:
    def __init__(self' 'def add(self, key, value):'; do
  printf '\033[2m%s\033[0m' "$prompt"
  $atoll generate "$folder/run" --prompt "$prompt" --max-tokens 60 --temperature 0.6 --top-k 40 --seed 1
  printf '\n\n'
done
say "The trained model is a Hugging Face folder: $(ls -d "$folder"/run/island-0/checkpoints/step-* | tail -1)"
