#!/usr/bin/env python3
"""make report-scaling: DiLoCo's laws at small sizes, put to the test -> bench/results/scaling.md.

  report_scaling.py [--page]

Trains what bench/scaling_study.toml asks for (some two hours on 2 quiet cores) and goes on where it was stopped, on
another machine too: finished points are lines of bench/results/scaling-points.jsonl. Then the best model of each size
and number of replicas is trained once more, which has to give the same loss, and asked what its validation loss may
not show: which of four continuations is the true one. --page trains nothing and writes the page again.
"""
import argparse
import csv
import hashlib
import json
import math
import os
import pathlib
import platform
import random
import statistics
import subprocess
import sys
import tempfile

import numpy

ROOT = pathlib.Path(__file__).resolve().parent.parent
ATOLL = str(ROOT / "build" / "bin" / "atoll")
STUDY = ROOT / "bench" / "scaling_study.toml"
WORK = ROOT / "build" / "scaling-study"
RESULTS = ROOT / "bench" / "results"
POINTS = RESULTS / "scaling-points.jsonl"
ANSWERS = RESULTS / "scaling-answers.json"
NUM_QUESTIONS, CONTEXT_TOKENS, ANSWER_TOKENS, NUM_CHOICES, TASK_SEED = 4000, 20, 8, 4, 7
NAMES = {0: "data-parallel", 1: "M = 1", 2: "M = 2", 4: "M = 4"}


def atoll(*words, text=None):
    done = subprocess.run([ATOLL, *map(str, words)], input=text, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"atoll {' '.join(map(str, words))}: exit {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout


def sweep(*words):
    known = ["--import", POINTS] if POINTS.exists() else []
    command = [ATOLL, "scaling", "sweep", STUDY, "--folder", WORK, *known, "--export", POINTS, "--json", *words]
    done = subprocess.run([*map(str, command)], stdout=subprocess.PIPE, text=True)  # Its progress is shown.
    if done.returncode != 0:
        sys.exit(done.returncode)
    return json.loads(done.stdout)


# --- which of four continuations is the true one ---


def decode(tokens):
    lines = "".join(json.dumps({"ids": ids.tolist()}) + "\n" for ids in tokens)
    out = atoll("tokenizer", "decode", "--tokenizer", WORK / "data" / "tokenizer.json", "--ids", "-", "--jsonl", text=lines)
    return [json.loads(line)["text"] for line in out.splitlines()]


def write_task(folder):
    """Pieces of the validation text that nobody trained on; the wrong answers are pieces from elsewhere in it."""
    tokens = numpy.fromfile(WORK / "data" / "tokens-validation.npy", numpy.uint16)
    draw = random.Random(TASK_SEED)
    length = CONTEXT_TOKENS + ANSWER_TOKENS

    def pieces(count, size):
        starts = [draw.randrange(len(tokens) - size) for _ in range(count)]
        return [tokens[start : start + size] for start in starts]

    true = pieces(NUM_QUESTIONS, length)
    contexts = decode([piece[:CONTEXT_TOKENS] for piece in true])
    answers = decode([piece[CONTEXT_TOKENS:] for piece in true])
    others = decode(pieces(NUM_QUESTIONS * (NUM_CHOICES - 1), ANSWER_TOKENS))
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
    return folder / "continuations.json"


def train_again(point, folder):
    """The point's run; its loss must come out as it did."""
    settings = {name: value.strip("'") for name, value in point["settings"].items() if not name.startswith("data.")}
    islands = int(settings.get("swarm.replicas", "1"))
    words = ["train", "--run", folder, "--data", WORK / "data", "--json"]
    words += [f"--{name}={value}" for name, value in settings.items()]
    done = json.loads(atoll(*words))
    if done["val_loss"] != point["loss"]:
        print(f"{point['key'][:12]}: the loss is {done['val_loss']} and was {point['loss']}: another machine or program",
              file=sys.stderr)
    return folder / "island-0" if islands > 1 else folder


def answer(best, points):
    """The share of right answers of each cell's best model, by the point's key; kept in ANSWERS."""
    known = json.loads(ANSWERS.read_text()) if ANSWERS.exists() else {}
    with tempfile.TemporaryDirectory(dir=WORK) as work:
        work = pathlib.Path(work)
        task = write_task(work)
        asked = hashlib.sha256((work / "continuations.jsonl").read_bytes()).hexdigest()[:16]
        for number, cell in enumerate(best):
            key = cell["best"]["key"]
            if known.get(key, {}).get("task") == asked:
                continue
            print(f"asking model {number + 1} of {len(best)}: {cell['size']}, {NAMES[cell['replicas']]}", file=sys.stderr, flush=True)
            run = train_again(points[key], work / f"run-{number}")
            scores = json.loads(atoll("eval", run, "--tasks", task, "--json"))["results"]["continuations"]
            known[key] = {"task": asked, "accuracy": scores["acc,none"], "error": scores["acc_stderr,none"]}
            ANSWERS.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
    return known


# --- what the papers find ---


class Study:
    """The sweep's cells by grid, and all points on all tokens."""

    def __init__(self, result):
        self.result = result
        self.cells = {}
        for cell in result["cells"]:
            key = (cell["grid"], cell["size"], cell["replicas"], cell.get("sync_every", 0), cell["tokens_factor"])
            self.cells[key] = cell
        self.params = {cell["size"]: cell["params"] for cell in result["cells"]}
        self.sizes = sorted(self.params, key=self.params.get)
        with open(WORK / "results.csv") as file:
            lines = [line for line in file if not line.startswith("#")]
        self.rows = [{name: float(value) for name, value in row.items() if value and name != "method"}
                     for row in csv.DictReader(lines)]

    def best(self, grid, size, replicas, factor=1):
        """The best place of the H = 30 cell, or the data-parallel one; nothing where it is missing."""
        cell = self.cells.get((grid, size, replicas, 30 if replicas else 0, factor))
        return cell and cell["best"]

    def loss(self, size, replicas):
        """Over the seeds."""
        return self.best("seeds", size, replicas)["loss"]

    def gap(self, size, replicas):
        """To data-parallel, relative."""
        return self.loss(size, replicas) / self.loss(size, 0) - 1

    def by_batch(self, size, replicas):
        """The best loss at each batch, seed 1."""
        found = {}
        for row in self.rows:
            if row["params"] == self.params[size] and row["replicas"] == replicas and row.get("seed", 1) == 1:
                found[row["batch"]] = min(row["loss"], found.get(row["batch"], math.inf))
        return dict(sorted(found.items()))


def rank_correlation(pairs):
    def ranks(values):
        return [sorted(values).index(value) for value in values]
    return statistics.correlation(*map(ranks, zip(*pairs)))


def batch_optimum(losses):
    """Log2 of the minimum of the parabola through the best batch and its neighbours; nothing at a border."""
    batches = list(losses)
    place = batches.index(min(batches, key=losses.get))
    if not 0 < place < len(batches) - 1:
        return None
    near = batches[place - 1 : place + 2]
    square, slope, _ = numpy.polyfit(numpy.log2(near), [losses[batch] for batch in near], 2)
    return -slope / (2 * square)


def percent(value):
    return f"{100 * value:+.2f} %"


def findings(study, answers):
    """(what the papers say, figures, whether they hold here)."""
    sizes, replicas = study.sizes, (1, 2, 4)
    gaps = {m: [study.gap(size, m) for size in sizes] for m in replicas}
    said = {m: ", ".join(percent(gap) for gap in gaps[m]) for m in replicas}
    yield ("One replica with an outer step is better than data-parallel, at every size", f"M = 1: {said[1]}",
           all(gap < 0 for gap in gaps[1]))
    yield ("The loss rises with the number of replicas", f"M = 2: {said[2]}; M = 4: {said[4]}",
           all(a < b < c for a, b, c in zip(*gaps.values())))
    slopes = {m: numpy.polyfit(numpy.log([study.params[size] for size in sizes]), gaps[m], 1)[0] for m in (2, 4)}
    yield ("The gap to data-parallel shrinks with the size",
           "; ".join(f"M = {m}: {percent(slope)} for each unit of ln N" for m, slope in slopes.items()),
           all(slope < 0 for slope in slopes.values()))
    rates = {m: [study.best("rates", size, m)["outer_lr"] for size in sizes] for m in replicas}
    means = {m: statistics.mean(rates[m]) for m in replicas}
    yield ("The best outer rate grows with the number of replicas",
           "; ".join(f"M = {m}: {', '.join(f'{rate:g}' for rate in rates[m])}" for m in replicas),
           means[1] <= means[2] <= means[4] and means[1] < means[4])
    yield ("and not with the size: within one step of the grid, 0.2", "as above",
           all(max(rates[m]) - min(rates[m]) <= 0.2 + 1e-9 for m in replicas))
    swept = [size for size in sizes if study.best("batch", size, 0)]
    curves = {m: [study.by_batch(size, m) for size in swept] for m in (0, 1, 2)}
    optima = {m: [batch_optimum(losses) for losses in curves[m]] for m in curves}
    complete = all(value is not None for values in optima.values() for value in values)
    shown = "; ".join(f"{NAMES[m]}: " + ", ".join("at the border" if v is None else f"2^{v:.1f}" for v in optima[m]) for m in optima)
    yield ("The best batch, of all replicas together, grows with their number", f"tokens, by size: {shown}",
           complete and statistics.mean(optima[0]) < statistics.mean(optima[1]) < statistics.mean(optima[2]))
    rises = {m: [losses[4096] / losses[2048] - 1 for losses in curves[m]] for m in (0, 1)}
    yield ("One replica bears a doubled batch better than data-parallel", "2,048 to 4,096 tokens: " + "; ".join(
        f"{NAMES[m]}: {', '.join(map(percent, rises[m]))}" for m in rises), all(b < a for a, b in zip(rises[0], rises[1])))
    period = {(m, h): cell["best"]["loss"] for (grid, _, m, h, _), cell in study.cells.items() if grid == "period"}
    yield ("The loss rises slowly with H: under 1 % from 10 to 100",
           "; ".join(f"M = {m}: " + ", ".join(f"H {h} {period[m, h]:.4f}" for h in (1, 10, 30, 100)) for m in replicas),
           all(0 <= period[m, 100] / period[m, 10] - 1 < 0.01 for m in replicas))
    yield ("H = 1 is worse than H = 30", "as above", all(period[m, 1] > period[m, 30] for m in replicas))
    (size,) = {key[1] for key in study.cells if key[0] == "overtraining"}
    over = {f: {m: study.best("overtraining", size, m, f)["loss"] for m in (0, *replicas)} for f in (1, 4)}
    ratios = {f: {m: over[f][m] / over[f][0] - 1 for m in replicas} for f in over}
    yield ("With four times the tokens and the same settings the gaps do not widen",
           "; ".join(f"M = {m}: {percent(ratios[1][m])}, then {percent(ratios[4][m])}" for m in replicas),
           all(ratios[4][m] <= ratios[1][m] for m in replicas))
    asked = {(cell["size"], cell["replicas"]): (cell["best"]["loss"], answers[cell["best"]["key"]])
             for cell in study.result["cells"] if cell["grid"] == "seeds"}
    correlation = rank_correlation([(loss, answer["accuracy"]) for loss, answer in asked.values()])
    yield ("What a loss of validation says holds for another task: answers follow it",
           f"rank correlation of loss and share of right answers, {len(asked)} models: {correlation:.2f}", correlation <= -0.8)


def held_out(study):
    return study.result["families"][0]["held_out"]


def page(study, answers):
    sizes, all_replicas = study.sizes, (0, 1, 2, 4)
    family = study.result["families"][0]
    fit = family["fit"]
    yield from ["# The laws at small sizes", "",
                f"Written by `make report-scaling`: {study.result['points']} training runs, {study.result['tokens'] / 1e6:.0f} M tokens, "
                f"{study.result['core_seconds'] / 3600:.1f} core-hours. `bench/scaling_study.toml` says what was trained: Python's standard "
                "library, vocabulary 1,024, rows of 32 tokens, 20 tokens for each parameter, H = 30; inner and outer rate are swept "
                "until the best is interior, then two more seeds. N counts all parameters.", "",
                "| size | N | " + " | ".join(NAMES[m] for m in all_replicas) + " |", "|---|---|" + "---|" * len(all_replicas)]
    for size in sizes:
        row = [f"{best['loss']:.4f} ± {best['deviation']:.4f}" for best in (study.best("seeds", size, m) for m in all_replicas)]
        yield f"| {size} | {study.params[size]:,.0f} | {' | '.join(row)} |"
    yield from ["", "Loss: nats for each validation token, mean and standard deviation over three seeds.", "",
                "![loss over size](scaling.svg)", "", "## The largest size, predicted", "",
                "| | trained | independent law | | joint law | |", "|---|---|---|---|---|---|"]
    for one in held_out(study):
        cells = [f"{one['trained']:.4f}"]
        for law in ("independent", "joint"):
            cells += [f"{one[law]:.4f}", percent(one[law] / one["trained"] - 1)] if one[law] else ["-", "-"]
        yield f"| {NAMES[one['replicas']]} | {' | '.join(cells)} |"
    yield from ["", f"Laws of the {len(sizes) - 1} smaller sizes. All five:", "", "| | A | alpha | beta |", "|---|---|---|---|"]
    laws = [(NAMES[law["replicas"]], law) for law in fit["independent"]] + ([("joint", fit["joint"])] if fit["joint"] else [])
    for name, law in laws:
        cells = [f"{law[c]:.4g} [{law[c + '_interval'][0]:.4g}, {law[c + '_interval'][1]:.4g}]" if c in law else "" for c in ("A", "alpha", "beta")]
        yield f"| {name} | {' | '.join(cells)} |"
    if fit["parametric"]:
        yield from ["", "| form | residual at the largest size |", "|---|---|"]
        yield from (f"| `{form['form']}` | {form['residual']:.4f} |" for form in fit["parametric"])
    yield from ["", "## What the papers find", "", "| finding | here, by rising size | |", "|---|---|---|"]
    for finding, figures, holds in findings(study, answers):
        yield f"| {finding} | {figures} | {'confirmed' if holds else '**not confirmed**'} |"
    border = [cell for cell in study.result["cells"] for end in cell["axes"].values() if end["end"] not in ("interior",)]
    names = sorted({f"{cell['grid']}, {cell['size']}, {NAMES[cell['replicas']]}" for cell in border})
    yield from ["", f"{len(names)} of {len(study.result['cells'])} cells have their best setting at a border of what was tried"
                + (": " + "; ".join(names) if names else "") + ".", "", "## Which continuation is the true one", "",
                f"{NUM_QUESTIONS:,} questions: {CONTEXT_TOKENS} tokens of the validation text, then {NUM_CHOICES} continuations of "
                f"{ANSWER_TOKENS}, three of them from elsewhere. Share of right answers of the first seed's models; a guess is right in "
                "a quarter.", "", "| size | " + " | ".join(NAMES[m] for m in all_replicas) + " |", "|---|" + "---|" * len(all_replicas)]
    for size in sizes:
        found = [answers[study.best("seeds", size, m)["key"]] for m in all_replicas]
        yield f"| {size} | " + " | ".join(f"{100 * one['accuracy']:.1f} ± {100 * one['error']:.1f} %" for one in found) + " |"
    yield from ["", "## How far this carries", "",
                "Five sizes within a factor of sixteen (inside the layers), and models in which the embedding is a third and more of N: "
                "the exponents are those of this text, vocabulary and range, not of large models. Rows of 32 tokens and batches of 64 rows "
                "make a replica's share of a batch small, so that many replicas cost more here than in the papers. What does carry is the "
                "way: the same command, with larger sizes and a user's own text, says what these numbers say."]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--page", action="store_true", help="train nothing, write the page again")
    arguments = parser.parse_args()
    result = sweep(*(["--report"] if arguments.page else []))
    points = {point["key"]: point for point in map(json.loads, POINTS.read_text().splitlines())}
    best = [cell for cell in result["cells"] if cell["grid"] == "seeds" and cell["best"]]
    answers = json.loads(ANSWERS.read_text()) if arguments.page else answer(best, points)
    study = Study(result)
    (RESULTS / "scaling.svg").write_bytes((WORK / "loss.svg").read_bytes())
    (RESULTS / "scaling.md").write_text("\n".join(page(study, answers)) + "\n")
    stored = {"command": "make report-scaling", "machine": f"{os.cpu_count()} cores, {platform.machine()}",
              "core_hours": result["core_seconds"] / 3600, "held_out": held_out(study),
              "findings": [{"finding": finding, "confirmed": bool(holds)} for finding, _, holds in findings(study, answers)]}
    (RESULTS / "scaling.json").write_text(json.dumps(stored, indent=1) + "\n")
    print(RESULTS / "scaling.md")


if __name__ == "__main__":
    main()
