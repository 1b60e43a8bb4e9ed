#!/usr/bin/env python3
"""make report-methods: every method on real text with the same tokens, three seeds -> bench/results/methods.md.

  report_methods.py [--only NAME,...] [--seeds 3] [--steps N] [--results FILE] [--tune] [--table]

Real islands (processes, loopback) on the pinned corpus. Finished runs are kept in the results (default:
bench/results/methods.json) and not repeated, so it can be stopped at any time; each method's fingerprint, the bits of
a short run, tells whether they are of this program, data and machine. --table only writes the page beside them again.
Results of another length are never overwritten: a trial with --steps needs --results. --tune fills the table from
which the outer rate was chosen, with a seed that no other run has. Between methods only the synchronisation differs:
initialisation, order of the data, batch, steps and schedule are those of the seed.
"""
import argparse
import hashlib
import json
import math
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

import corpus
import scatter

ROOT = pathlib.Path(__file__).resolve().parent.parent
ATOLL = str(ROOT / "build" / "bin" / "atoll")
RESULTS = ROOT / "bench" / "results" / "methods.json"
WORK = ROOT / "build" / "report-methods"
VOCABULARY = 2000
TEXT_BYTES = 40_000_000  # Of the corpus: more tokens than a run takes.
TEXT_KEY = hashlib.sha256(json.dumps([corpus.DIGESTS, TEXT_BYTES]).encode()).hexdigest()[:8]
FINGERPRINT_STEPS = 60  # Two periods.
STEPS = 3750  # Of 64 rows of 32 tokens: 7.7 M tokens, 20 for each of 0.38 M parameters; 125 periods of 30.
# 0.25 M parameters inside the layers, 0.13 M in the (tied) embedding. Short rows: their tokens depend less on each other,
# and half a batch is then nearer to a whole one. The rate is DiLoCo's best (TUNING), the same for all but where it is said.
COMMON = {"model.hidden_size": 64, "model.intermediate_size": 200, "model.num_layers": 5, "model.num_heads": 2,
          "model.num_kv_heads": 1, "model.max_positions": 32, "model.tie_embeddings": "true",
          "train.sequence_length": 32, "train.batch_rows": 64, "train.lr": 2e-3, "train.warmup_steps": 100,
          "train.eval_rows": 2048, "train.eval_every": 0, "train.checkpoint_every": 0, "train.log_every": 50}
OUTER = {"sync.method": "diloco", "sync.sync_every": 30, "sync.outer_lr": 0.7, "sync.outer_momentum": 0.8}
LATE = OUTER | {"sync.outer_momentum": 0.5}  # What is late leaves less room for momentum.
STREAMING = OUTER | {"sync.method": "streaming_diloco", "sync.num_fragments": 3, "sync.codec": "e3m0"}
SGD_SIGN = {"train.optimizer": "sgd", "train.grad_clip": 0}

# name: (islands, settings, whether it fine-tunes what data-parallel made of the same tokens, for half as many steps)
METHODS = {
    "data_parallel": (2, {"sync.method": "data_parallel"}, False),
    "data_parallel_lr_4e-3": (2, {"sync.method": "data_parallel", "train.lr": 4e-3}, False),
    "diloco_m1": (1, OUTER, False),
    "diloco": (2, OUTER, False),
    "diloco_m4": (4, OUTER, False),
    "diloco_h10": (2, OUTER | {"sync.sync_every": 10}, False),
    "diloco_h100": (2, OUTER | {"sync.sync_every": 100}, False),
    "diloco_e3m0": (2, OUTER | {"sync.codec": "e3m0"}, False),
    "diloco_pruned_50": (2, OUTER | {"sync.sign_pruning": 0.5}, False),
    "diloco_m4_dropped_50": (4, OUTER | {"sync.outer_dropout": 0.5}, False),
    "streaming_e3m0_tau0": (2, STREAMING | {"sync.fragment_sync_delay": 0}, False),
    "streaming_e3m0_tau1": (2, STREAMING | {"sync.fragment_sync_delay": 1}, False),
    "streaming_e3m0_tau5": (2, STREAMING | {"sync.fragment_sync_delay": 5}, False),
    "eager_diloco": (2, LATE | {"sync.method": "eager_diloco"}, False),
    "delayed_diloco": (2, LATE | {"sync.method": "delayed_diloco"}, False),
    "sparse_loco": (2, {"sync.method": "sparse_loco", "sync.sync_every": 30, "sync.outer_lr": 1.0}, False),
    "cocktail_sgd": (2, {"sync.method": "cocktail_sgd"}, False),
    "demo": (2, {"sync.method": "demo", "train.lr": 1e-3} | SGD_SIGN, False),
    "muon_data_parallel": (2, {"sync.method": "data_parallel", "train.optimizer": "muon"}, False),
    "muloco": (2, OUTER | {"train.optimizer": "muon"}, False),
    "data_parallel_pretrained": (2, {"sync.method": "data_parallel", "train.lr": 3e-4}, True),
    "data_parallel_pretrained_lr_1e-3": (2, {"sync.method": "data_parallel", "train.lr": 1e-3}, True),
    "cocktail_pretrained": (2, {"sync.method": "cocktail_sgd", "train.lr": 3e-4}, True),
}
# Before anything else was measured: settings of one run each, from which the rates were chosen.
TUNING_SEED = 100
TUNING = {f"data_parallel, lr {lr:g}": (2, {"sync.method": "data_parallel", "train.lr": lr}, False)
          for lr in (2e-3, 4e-3, 8e-3)}
TUNING |= {f"diloco, lr {lr:g}, outer lr {eta}, momentum {mu}":
           (2, OUTER | {"train.lr": lr, "sync.outer_lr": eta, "sync.outer_momentum": mu}, False)
           for lr, eta, mu in ((2e-3, 0.7, 0.6), (2e-3, 0.7, 0.8), (2e-3, 0.7, 0.9), (1e-3, 0.7, 0.8), (4e-3, 0.7, 0.8))}
TUNING |= {f"eager_diloco, lr 0.002, outer lr 0.7, momentum {mu}": (2, LATE | {"sync.method": "eager_diloco", "sync.outer_momentum": mu}, False)
           for mu in (0.3, 0.5)}
TUNING |= {f"{method}, pretrained, lr {lr:g}": (2, {"sync.method": method, "train.lr": lr}, True)
           for method in ("data_parallel", "cocktail_sgd") for lr in (1e-4, 3e-4, 1e-3)}
PLOTTED = ("data_parallel", "muon_data_parallel", "diloco", "muloco", "streaming_e3m0_tau1", "sparse_loco", "cocktail_sgd",
           "demo")
# What the papers find, as paired relative differences of the loss, the most that it should be, and why ours is above it.
COMPARISONS = [
    ("diloco / data_parallel", 0.015, "DiLoCo M=2 H=30 stays near data-parallel", ""),
    ("diloco / data_parallel_lr_4e-3", 0.015, "the same, against data-parallel at its own best inner rate",
     "an island's batch is half as large, so its best inner rate is lower"),
    ("diloco_m1 / data_parallel", 0.002, "M=1 beats data-parallel, or equals it", ""),
    ("diloco_m4 / diloco", 0.03, "loss rises slowly with M",
     "the same batch is cut in four, and 16 rows of 32 tokens are too few for a step"),
    ("diloco / diloco_h10", 0.02, "loss rises slowly with H (30 over 10)", ""),
    ("diloco_h100 / diloco", 0.03, "loss rises slowly with H (100 over 30)", ""),
    ("diloco_e3m0 / diloco", 0.002, "E3M0 costs nothing", ""),
    ("streaming_e3m0_tau1 / diloco", 0.005, "Streaming, E3M0, tau=1 costs nothing", ""),
    ("streaming_e3m0_tau5 / streaming_e3m0_tau0", 0.005, "tau up to 5 costs under 0.5 %",
     "what is learned while an exchange travels is replaced (alpha = 0): 5 steps of 30 here, of 100 in the paper"),
    ("diloco_m4_dropped_50 / diloco_m4", 0.021, "half the outer gradients dropped costs little",
     "at M=4 the seeds differ by more than that"),
    ("diloco_pruned_50 / diloco", 0.01, "sign pruning to 50 % is mild", ""),
    ("eager_diloco / diloco", 0.01, "eager updates cost little",
     "half of each update is a period old, and there are only 125 periods"),
    ("eager_diloco / delayed_diloco", 0.0, "eager beats delayed", ""),
    ("sparse_loco / diloco", 0.01, "SparseLoCo stays near DiLoCo",
     "a round sends one value in 64, so each travels twice in these 125 rounds; the paper has thousands"),
    ("muloco / muon_data_parallel", 0.015, "MuLoCo stays near data-parallel Muon", ""),
    ("cocktail_pretrained / data_parallel_pretrained", 0.01, "CocktailSGD stays near data-parallel, pretrained start", ""),
    ("cocktail_pretrained / data_parallel_pretrained_lr_1e-3", 0.01, "the same, against data-parallel at its own best inner rate",
     "a value travels once in 50 steps on average, and a large rate makes it wait far from where the others are"),
]


def atoll(*words):
    return subprocess.run([ATOLL, *map(str, words)], check=True, capture_output=True, text=True).stdout


def commit():
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def prepare():
    """The token store; made once."""
    store = WORK / f"data-{TEXT_KEY}"
    if not (store / "store.json").exists():
        WORK.mkdir(parents=True, exist_ok=True)
        text = WORK / f"text-{TEXT_KEY}"
        corpus.write(text, TEXT_BYTES)
        atoll("tokenizer", "train", text, "--vocab-size", VOCABULARY, "--out", WORK / "tokenizer.json")
        atoll("data", "pack", text, "--tokenizer", WORK / "tokenizer.json", "--out", store)
    return store


def train(folder, store, islands, seed, steps, settings, init=None):
    """One run; its summary with the peak memory of an island in MB."""
    words = [ATOLL, "train", "--islands", str(islands), "--run", str(folder), "--data", str(store), "--json"]
    if init:
        words += ["--init", str(init)]
    every = COMMON | {"train.steps": steps, "train.seed": seed, "train.threads": max(1, (os.cpu_count() or 1) // islands)}
    words += [f"--{key}={value}" for key, value in (every | settings).items()]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(words, stdout=out, stderr=errors)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0), errors.seek(0)
        if process.returncode != 0:
            raise RuntimeError(f"{' '.join(words)} failed:\n{errors.read().decode()[-2000:]}")
        summary = json.loads(out.read().decode().strip().split("\n")[-1])
    return summary | {"peak_mb": usage.ru_maxrss / 1024}


def pretrained(seed, store, steps):
    """A run of data-parallel: where fine-tuning begins. Kept for all methods of the seed and settings."""
    settings = hashlib.sha256(json.dumps([COMMON, VOCABULARY, TEXT_KEY]).encode()).hexdigest()[:8]
    folder = WORK / f"pretrained-{seed}-{steps}-{settings}"
    if not folder.exists():
        with tempfile.TemporaryDirectory(dir=WORK) as work:
            run = pathlib.Path(work) / "run"
            train(run, store, 2, seed, steps, {"sync.method": "data_parallel"})
            newest = sorted(run.glob("island-0/checkpoints/step-*"))[-1]
            os.rename(newest, folder)
    return folder


def fingerprint(name, store):
    """The digest of a short run: while it stays the same, so does what this program, data and machine give."""
    islands, settings, _ = METHODS[name]
    short = {"train.warmup_steps": 10, "train.eval_rows": 64}
    with tempfile.TemporaryDirectory(dir=WORK) as work:
        return train(pathlib.Path(work) / "run", store, islands, 0, FINGERPRINT_STEPS, settings | short)["digest"]


def drop_strangers(state, names, store):
    """Stored runs of methods that would now end otherwise do not compare with what comes."""
    for name in names:
        print(f"looking whether {name} still gives the bits that are stored", file=sys.stderr, flush=True)
        now = fingerprint(name, store)
        if state["runs"].get(name) and state["fingerprints"].get(name) != now:
            print(f"{name}: the stored runs are of another program, data or machine; it is measured again", file=sys.stderr, flush=True)
            del state["runs"][name]
        state["fingerprints"][name] = now


def measure(entry, seed, steps, store):
    islands, settings, from_pretrained = entry
    begin = time.monotonic()  # Of the pretraining too, for whoever comes first.
    init = pretrained(seed, store, steps) if from_pretrained else None
    with tempfile.TemporaryDirectory(dir=WORK) as work:
        run = pathlib.Path(work) / "run"
        if init:  # The same rows in another order.
            summary = train(run, store, islands, seed + 1000, steps // 2, settings, init)
        else:
            summary = train(run, store, islands, seed, steps, settings)
    # An island sends its part of the bytes and trains its part of the tokens.
    return {"val_loss": summary["val_loss"], "bytes_per_token": summary["bytes_sent"] / summary["tokens"],
            "bytes_received_per_token": summary["bytes_received"] / summary["tokens"], "peak_mb": summary["peak_mb"],
            "stall_share": summary["stall_share"], "tokens": summary["tokens"], "parameters": summary["num_parameters"],
            "seconds": time.monotonic() - begin}


# Two-sided 95 % quantiles of Student's t for 1, 2, ... degrees of freedom.
STUDENT = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262]


def compare(runs, pair):
    """Mean and half-width of the 95 % interval of loss(a) / loss(b) - 1 over the seeds that both have."""
    a, b = pair.split(" / ")
    seeds = sorted(set(runs.get(a, {})) & set(runs.get(b, {})))
    if not seeds:
        return None
    differences = [runs[a][seed]["val_loss"] / runs[b][seed]["val_loss"] - 1 for seed in seeds]
    half = (STUDENT[len(seeds) - 2] * statistics.stdev(differences) / math.sqrt(len(seeds))
            if 1 < len(seeds) <= len(STUDENT) + 1 else None)
    return {"mean": statistics.mean(differences), "half_width": half, "seeds": len(seeds)}


def verdict(result, limit):
    """In words. Three seeds leave wide intervals, so what is clear and what only holds on average are told apart."""
    half = result["half_width"] if result["half_width"] is not None else math.inf
    word = "confirmed" if result["mean"] <= limit else "not confirmed"
    is_clear = abs(result["mean"] - limit) > half
    return word if is_clear else word + ", on average"


def loss_of(done):
    """Mean and standard deviation (0 of one run)."""
    losses = [run["val_loss"] for run in done]
    return statistics.mean(losses), statistics.stdev(losses) if len(losses) > 1 else 0


def method_rows(runs):
    for name, (islands, _, _) in METHODS.items():
        done = list(runs.get(name, {}).values())
        if not done:
            yield f"| {name} | {islands} | not measured yet | | 0 | | | |"
            continue
        loss, deviation = loss_of(done)
        mean = {key: statistics.mean(run[key] for run in done)
                for key in ("bytes_per_token", "bytes_received_per_token", "stall_share", "peak_mb")}
        yield (f"| {name} | {islands} | {loss:.4f} | {f'{deviation:.4f}' if len(done) > 1 else '-'} | {len(done)} | "
               f"{mean['bytes_per_token']:.4g} / {mean['bytes_received_per_token']:.4g} | {mean['stall_share']:.1%} | "
               f"{mean['peak_mb']:.0f} |")


def finding_rows(runs):
    for pair, limit, finding, why in COMPARISONS:
        result = compare(runs, pair)
        if result is None:
            yield f"| {finding} | {pair} | not measured yet | {limit:+.1%} | |"
            continue
        interval = f" ± {result['half_width']:.2%}" if result["half_width"] is not None else ""
        said = verdict(result, limit)
        said += f": {why}" if result["mean"] > limit and why else ""
        yield f"| {finding} | {pair} | {result['mean']:+.2%}{interval} | {limit:+.1%} | {said} |"


def write_plot(runs, file):
    """What a method costs and what it reaches."""
    points = {}
    for name in PLOTTED:
        done = list(runs.get(name, {}).values())
        if done:
            points[name] = (statistics.mean(run["bytes_per_token"] for run in done), *loss_of(done))
    if len(points) < 2:
        return False
    file.write_text(scatter.svg(points, "bytes that an island sends for each token that it trains", "validation loss"))
    return True


def write_page(state, file):
    tuning = state["tuning"]
    lines = ["# Every method with the same tokens", "",
             f"Written by `make report-methods` from {state['steps']} steps of {COMMON['train.batch_rows']} rows of "
             f"{COMMON['train.sequence_length']} tokens of the Python standard library, vocabulary {VOCABULARY}. Loss: cross entropy of "
             "the validation part, mean and standard deviation over seeds. Bytes: sent / received by one island for each token "
             "that it trains. Stall: share of the time in which training stood still, over loopback. Peak: memory of the "
             "largest process. Same initialisation, data order, batch and schedule for all methods of a seed.", "",
             "| method | islands | loss | sd | seeds | bytes/token | stall | peak MB |", "|---|---|---|---|---|---|---|---|",
             *method_rows(state["runs"]), "",
             *([f"![Loss over bytes]({file.stem}.svg)", ""] if write_plot(state["runs"], file.with_suffix(".svg")) else []),
             "## What the papers find", "", "Relative difference of the loss, paired by seed, with its 95 % interval.", "",
             "| finding | comparison | difference | at most | |", "|---|---|---|---|---|", *finding_rows(state["runs"])]
    if tuning:
        lines += ["", "## How the rates were chosen", "", f"`report_methods.py --tune`, seed {TUNING_SEED}, which no run above has.", "",
                  "| settings | loss |", "|---|---|", *(f"| {name} | {run['val_loss']:.4f} |" for name, run in tuning.items())]
    file.with_suffix(".md").write_text("\n".join(lines) + "\n")


def read_state(file, steps):
    """What is stored for these steps and settings; runs of other settings do not compare, and are dropped."""
    settings = {name: [islands, COMMON | chosen] for name, (islands, chosen, _) in METHODS.items()}
    state = {"steps": steps, "settings": settings, "common": COMMON, "tuning": {}, "runs": {}, "fingerprints": {}}
    if not file.exists():
        return state
    old = json.loads(file.read_text())
    if old["steps"] != steps:
        sys.exit(f"{file} is of {old['steps']} steps, not {steps}; choose another --results")
    if old["common"] == COMMON:
        state["tuning"] = old["tuning"]
    state["fingerprints"] = old.get("fingerprints", {})
    state["runs"] = {name: runs for name, runs in old["runs"].items() if old["settings"].get(name) == settings.get(name)}
    return state


def write_state(state, file):
    found = {pair: compare(state["runs"], pair) for pair, *_ in COMPARISONS}
    state["comparisons"] = {pair: result for pair, result in found.items() if result}
    state |= {"command": "make report-methods", "machine": f"{os.cpu_count()} cores, {platform.machine()}"}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(state, indent=1) + "\n")
    write_page(state, file)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="names of methods, with commas between")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--results", type=pathlib.Path, default=RESULTS, help="a .json file; the page goes beside it")
    parser.add_argument("--tune", action="store_true", help="measure the table of rates instead")
    parser.add_argument("--table", action="store_true", help="measure nothing, write the page again")
    arguments = parser.parse_args()
    names = [name for name in arguments.only.split(",") if name] or list(METHODS)
    unknown = [name for name in names if name not in METHODS]
    if unknown:
        parser.error(f"unknown method {unknown[0]}; known are {', '.join(METHODS)}")
    state = read_state(arguments.results, arguments.steps)
    store = None if arguments.table else prepare()
    if not arguments.table and not arguments.tune:
        drop_strangers(state, names, store)
    if arguments.tune:
        wanted = [(state["tuning"], name, TUNING_SEED, entry, name) for name, entry in TUNING.items()]
    else:
        wanted = [(state["runs"].setdefault(name, {}), str(seed), seed, METHODS[name], f"{name}, seed {seed}")
                  for seed in range(arguments.seeds) for name in names]
    missing = [] if arguments.table else [one for one in wanted if one[1] not in one[0]]
    begin = time.monotonic()
    for done, (place, key, seed, entry, what) in enumerate(missing):
        left = (time.monotonic() - begin) / done * (len(missing) - done) / 60 if done else None
        print(f"{done}/{len(missing)} {what}" + (f", {left:.0f} min left" if left else ""), file=sys.stderr, flush=True)
        place[key] = measure(entry, seed, arguments.steps, store) | {"commit": commit()}
        write_state(state, arguments.results)
    write_state(state, arguments.results)
    print(arguments.results.with_suffix(".md").read_text())


if __name__ == "__main__":
    main()
