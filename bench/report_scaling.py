#!/usr/bin/env python3
"""make report-scaling: DiLoCo's laws at small sizes, put to the test -> bench/results/scaling.md.

Trains what bench/scaling_study.toml asks for (two to three hours on 2 quiet cores) and goes on where it was stopped, on
another machine too where Python's library is the same: finished points are lines of bench/results/scaling-points.jsonl.
Then the best model of each size and number of replicas is asked what its validation loss may not show: which of four
continuations is the true one. Where it was trained on another machine it is trained once more, which has to end with the
same loss; on a processor of another kind, whose sums differ in their last bits, within what seeds make of it. With all
points there the page is written again in a minute.
"""
import hashlib
import json
import os
import pathlib
import platform
import random
import subprocess
import sys
import tempfile
import time

import numpy

import scaling_page
from claims import ATOLL, RESULTS, ROOT, run

STUDY = ROOT / "bench" / "scaling_study.toml"
WORK = ROOT / "build" / "scaling-study"
POINTS, ANSWERS, SUMMARY = (RESULTS / f"scaling{end}" for end in ("-points.jsonl", "-answers.json", ".json"))
CONTEXT_TOKENS, ANSWER_TOKENS, NUM_CHOICES, TASK_SEED = 20, 8, 4, 7
SPREAD = 0.03  # Of a loss, relative: last bits that differ grow to what another seed makes, some 1 %.
CORES = 2  # Of the machine whose hours the page tells.


def sweep():
    known = ["--import", POINTS] if POINTS.exists() else []
    command = [ATOLL, "scaling", "sweep", STUDY, "--folder", WORK, "--keep", "--cores", CORES, *known, "--export", POINTS, "--json"]
    done = subprocess.run([*map(str, command)], stdout=subprocess.PIPE, text=True)  # Its progress is shown.
    if done.returncode != 0:
        sys.exit(done.returncode)
    return json.loads(done.stdout)


def read_points():
    with open(POINTS) as lines:
        return {point["key"]: point for point in map(json.loads, lines)}


def is_again(loss, point):
    return abs(loss / point["loss"] - 1) <= SPREAD


def train_again(point, folder, data):
    """(loss, run folder) of the point's settings; `data`: options that name its text."""
    settings = {name: value.strip("'") for name, value in point["settings"].items() if not name.startswith("data.")}
    words = ["train", "--run", folder, *data, "--json", *(f"--{name}={value}" for name, value in settings.items())]
    done = json.loads(run([ATOLL, *map(str, words)]))
    return done["val_loss"], folder / "island-0" if int(settings.get("swarm.replicas", "1")) > 1 else folder


def model_of(point, folder):
    """(loss, run folder): what the sweep kept, or trained again where that was on another machine."""
    kept = WORK / "points" / point["key"][:16]
    result = kept / "result.json"
    if result.exists() and json.loads(result.read_text()).get("summary", {}).get("val_loss") == point["loss"]:
        islands = kept / "run" / "island-0"
        return point["loss"], islands if islands.exists() else kept / "run"
    return train_again(point, folder, ["--data", WORK / "data"])


# --- which of four continuations is the true one ---


def decode(tokens):
    lines = "".join(json.dumps({"ids": ids.tolist()}) + "\n" for ids in tokens)
    command = [ATOLL, "tokenizer", "decode", "--tokenizer", WORK / "data" / "tokenizer.json", "--ids", "-", "--jsonl"]
    return [json.loads(line)["text"] for line in run([*map(str, command)], input=lines).split("\n") if line]


def write_task(folder):
    """Pieces of the validation text, which nobody trained on, each used once; wrong answers are from elsewhere in it."""
    tokens = numpy.fromfile(WORK / "data" / "tokens-validation.npy", numpy.uint16)
    draw = random.Random(TASK_SEED)
    length = CONTEXT_TOKENS + ANSWER_TOKENS
    true = [tokens[start : start + length] for start in range(0, len(tokens) - length + 1, length)]
    starts = [draw.randrange(len(tokens) - ANSWER_TOKENS) for _ in range(len(true) * (NUM_CHOICES - 1))]
    contexts = decode([piece[:CONTEXT_TOKENS] for piece in true])
    answers = decode([piece[CONTEXT_TOKENS:] for piece in true])
    others = decode([tokens[start : start + ANSWER_TOKENS] for start in starts])
    with open(folder / "continuations.jsonl", "w") as out:
        for i, (context, answer) in enumerate(zip(contexts, answers)):
            choices = others[i * (NUM_CHOICES - 1) : (i + 1) * (NUM_CHOICES - 1)]
            place = draw.randrange(NUM_CHOICES)
            choices.insert(place, answer)
            out.write(json.dumps({"context": context, "choices": choices, "answer": place}) + "\n")
    task = {"task": "continuations", "dataset_path": "json", "dataset_kwargs": {"data_files": {"test": "continuations.jsonl"}},
            "test_split": "test", "output_type": "multiple_choice", "doc_to_text": "{{context}}",
            "doc_to_choice": "{{choices}}", "doc_to_target": "answer", "target_delimiter": "",
            "metric_list": [{"metric": "acc"}], "metadata": {"version": 1}}
    (folder / "continuations.json").write_text(json.dumps(task))
    return folder / "continuations.json", len(true)


def answer(best, points):
    """(the share of right answers of each cell's best model, by the point's key and kept in ANSWERS; number of questions)."""
    known = json.loads(ANSWERS.read_text()) if ANSWERS.exists() else {}
    with tempfile.TemporaryDirectory(dir=WORK) as work:
        work = pathlib.Path(work)
        task, num_questions = write_task(work)
        asked = hashlib.sha256((work / "continuations.jsonl").read_bytes()).hexdigest()[:16]
        for number, cell in enumerate(best):
            key = cell["best"]["key"]
            if known.get(key, {}).get("task") == asked:
                continue
            print(f"asking model {number + 1} of {len(best)}: {scaling_page.cell_name(cell)}", file=sys.stderr, flush=True)
            loss, folder = model_of(points[key], work / f"run-{number}")
            if not is_again(loss, points[key]):
                sys.exit(f"point {key[:12]}: its loss is {loss} now and was {points[key]['loss']}: the stored points are of another "
                         f"program; to train them all again, move {POINTS} away")
            if loss != points[key]["loss"]:
                print(f"point {key[:12]}: its loss is {loss} now and was {points[key]['loss']}, on a processor of another kind",
                      file=sys.stderr)
            scores = json.loads(run([ATOLL, "eval", str(folder), "--tasks", str(task), "--json"]))["results"]["continuations"]
            known[key] = {"task": asked, "loss": loss, "accuracy": scores["acc,none"], "error": scores["acc_stderr,none"]}
            ANSWERS.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
    return known, num_questions


def main():
    result = sweep()
    points = read_points()
    best = [cell for cell in result["cells"] if cell["grid"] == "seeds" and cell["best"]]
    answers, num_questions = answer(best, points)
    study = scaling_page.Study(result, WORK / "results.csv", points, answers)
    questions = (f"{num_questions:,} questions, the whole validation text: {CONTEXT_TOKENS} tokens, then {NUM_CHOICES} continuations of "
                 f"{ANSWER_TOKENS}, three of them from elsewhere in it. Share of right answers of the first seed's models; a guess is "
                 "right in a quarter.")
    # As if nothing but the study had run: points of fewer cores share the machine.
    hours = result["core_seconds"] / CORES / 3600
    (RESULTS / "scaling.svg").write_bytes((WORK / "loss.svg").read_bytes())
    (RESULTS / "scaling.md").write_text("\n".join(scaling_page.page(study, hours, questions)) + "\n")
    stored = {"command": "make report-scaling", "commit": run(["git", "rev-parse", "--short", "HEAD"]).strip(),
              "machine": f"{os.cpu_count()} cores, {platform.machine()}", "date": time.strftime("%Y-%m-%d"),
              "machine_hours": hours, "held_out": result["families"][0]["held_out"],
              "best_runs_off": {scaling_page.NAMES[m]: off for m, (_, off) in scaling_page.of_best_runs(study).items()},
              "forms": {form["form"]: form["residual"] for form in result["families"][0]["fit"]["parametric"]},
              # One that is quick to train: claims-scaling looks whether the program still gives its loss.
              "fingerprint": study.best("seeds", study.sizes[0], 0)["key"],
              "findings": [{"finding": finding, "verdict": said.strip("*")} for finding, _, said in scaling_page.findings(study)]}
    SUMMARY.write_text(json.dumps(stored, indent=1) + "\n")
    print(RESULTS / "scaling.md")


if __name__ == "__main__":
    main()
