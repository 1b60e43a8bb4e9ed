#!/usr/bin/env python3
"""lm-evaluation-harness on tasks whose data are lines of Python's own source: choices, last words, whole pages, and lines that are written freely.

  local_tasks.py TASKS OUT.json MODEL [URL]

With a URL the model is asked there, as local-completions, with the tokenizer that the harness finds there; else transformers reads MODEL. Nothing
is downloaded. TASKS is a folder of write().
"""
import json
import os
import pathlib
import random
import sys
import time

READ = ["choices", "words", "pages"]  # What atoll eval can ask, too.
TASKS = [*READ, "lines"]
BASE = """
dataset_path: json
dataset_kwargs: {{data_files: {{test: {folder}/{name}.jsonl}}}}
test_split: test
metadata: {{version: 1.0}}
task: {name}
"""
FILES = {
    "choices": "output_type: multiple_choice\ndoc_to_text: before\ndoc_to_choice: lines\ndoc_to_target: right\ntarget_delimiter: \"\\n\"\n"
               "metric_list: [{metric: acc}, {metric: acc_norm}]\n",
    # A text that another task has too would take the other's score in transformers' half of the harness.
    "words": "output_type: loglikelihood\ndoc_to_text: \"Text: {{before}}\"\ndoc_to_target: word\ntarget_delimiter: \" \"\n"
             "metric_list: [{metric: perplexity, aggregation: perplexity, higher_is_better: false}, {metric: acc}]\n",
    "pages": "output_type: loglikelihood_rolling\ndoc_to_text: \"\"\ndoc_to_target: page\n"
             "metric_list: [{metric: word_perplexity}, {metric: byte_perplexity}, {metric: bits_per_byte}]\n",
    "lines": "output_type: generate_until\ndoc_to_text: \"{{before}}\\n\"\ndoc_to_target: line\n"
             "generation_kwargs: {until: [\"\\n\"], do_sample: false, max_gen_toks: 16}\n"
             "metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]\n",
}


def documents(text, count):
    """Of each task."""
    draw, lines = random.Random(1), [line for line in text.splitlines() if len(line) > 20]
    found = {"choices": [], "words": [], "lines": [], "pages": [{"page": text[1500 * i : 1500 * i + 1500 + 4000 * (i == 1)]} for i in range(count // 4)]}
    for number in range(count):
        at = draw.randrange(4, len(lines) - 1)
        before = "\n".join(lines[at - 4 : at])
        others = draw.sample(lines, 3)
        right = number % 4
        found["choices"].append({"before": before, "lines": [*others[:right], lines[at], *others[right:]], "right": right})
        found["words"].append(dict(zip(("before", "word"), f"{before}\n{lines[at]}".rsplit(" ", 1))))
        found["lines"].append({"before": before, "line": lines[at]})
    return found


def write(folder, text, count):
    folder.mkdir()
    for name, rows in documents(text, count).items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (folder / f"{name}.yaml").write_text(BASE.format(folder=folder, name=name) + FILES[name])


def main():
    folder, out, model, *url = sys.argv[1:]
    os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "TQDM_DISABLE": "1", "LMEVAL_LOG_LEVEL": "ERROR",
                   "HF_HOME": f"{folder}/hugging-face",
                   # Else its threads wait for each other by turning, which on a busy machine takes twenty times as long.
                   "OMP_WAIT_POLICY": "PASSIVE"}
    import lm_eval
    from lm_eval.models.huggingface import HFLM
    from lm_eval.models.openai_completions import LocalCompletionsAPI
    from lm_eval.tasks import TaskManager
    if url:
        asked = LocalCompletionsAPI(model="mine", base_url=f"{url[0]}/v1/completions", num_concurrent=4, max_length=2048)
    else:
        asked = HFLM(pretrained=model, device="cpu", dtype="float32", batch_size=1)
    tasks = TaskManager(include_path=folder, include_defaults=False).load(TASKS)
    begin = time.monotonic()
    found = lm_eval.evaluate(asked, tasks, bootstrap_iters=0, log_samples=True)
    scores = {task: {key: value for key, value in found["results"][task].items() if isinstance(value, float) and "stderr" not in key} for task in TASKS}
    said = {task: [row["filtered_resps"] for row in sorted(found["samples"][task], key=lambda row: row["doc_id"])] for task in TASKS}
    pathlib.Path(out).write_text(json.dumps({"seconds": time.monotonic() - begin, "scores": scores, "said": said}))


if __name__ == "__main__":
    main()
