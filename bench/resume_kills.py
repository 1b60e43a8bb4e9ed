#!/usr/bin/env python3
"""Kills in lock-step runs of two islands (swarm.min_replicas = 2): the run must end with the bits of one that was left alone.

usage: resume_kills.py --store STORE --out FILE [--count 200] [--first-seed 0] [--atoll build/bin/atoll]

Each seed is a run of its own: a method, whom to kill (one island, or both), after which commit and how long after it. Rounds are
more frequent than checkpoints. FILE has each seed's end with its commit: it goes on where it stopped, and makes those again whose
code has changed. What a run left whose end was another is kept beside FILE. It prints a summary, and exits with 1 if there was one.
"""
import argparse
import collections
import json
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "processes"))
from claims import NO_TESTS, code_hash  # noqa: E402
from swarm_run import SwarmRun, wait_for  # noqa: E402

ROUNDS = 12
RUN = {"swarm.min_replicas": 2, "train.log_every": 1}
METHODS = {
    "diloco": {"sync.method": "diloco", "sync.sync_every": 20, "train.checkpoint_every": 70},
    "streaming_diloco": {"sync.method": "streaming_diloco", "sync.sync_every": 20, "sync.num_fragments": 3,
                         "sync.fragment_sync_delay": 5, "sync.fragment_update_alpha": 0.5, "train.checkpoint_every": 37},
    "streaming_diloco int4": {"sync.method": "streaming_diloco", "sync.sync_every": 20, "sync.num_fragments": 2,
                              "sync.fragment_sync_delay": 11, "sync.codec": "int4", "train.checkpoint_every": 0},
    "sparse_loco": {"sync.method": "sparse_loco", "sync.sync_every": 20, "train.checkpoint_every": 90},
}
# What the ends depend on.
CODE = ("atoll", "bench/resume_kills.py", "tests/processes/swarm_run.py", *NO_TESTS)
VICTIMS = (["a"], ["b"], ["a", "b"])
AGAIN = re.compile(r"computing (\d+) steps after checkpoint")


def settings(method):
    return {**RUN, **METHODS[method], "train.steps": 20 * ROUNDS}


def start(args, folder, method):
    run = SwarmRun(args.atoll, args.store, folder, settings(method))
    run.coordinate()
    for name in "ab":
        run.join(name)
    return run


def end_of(run):
    (digest,) = {summary["digest"] for summary in run.finished().values()}
    losses = {name: run.metrics(name)[-1]["loss"] for name in "ab"}  # Of the live parameters, which the digest is not of.
    return {"digest": digest, "losses": losses}


def in_folder(work, kept=None):
    """What `work` finds; its folder is moved to `kept` where that is not `is_same`."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="atoll-resume-kills-"))
    runs = []
    is_same = False
    try:
        found = work(folder / "run", runs)
        is_same = found is None or found.get("is_same", True)
        return found
    finally:
        for run in runs:
            run.kill_all()
        if kept and not is_same:
            shutil.rmtree(kept, ignore_errors=True)
            shutil.move(folder / "run", kept)
        shutil.rmtree(folder, ignore_errors=True)


def undisturbed(args, method):
    def work(folder, runs):
        runs.append(start(args, folder, method))
        return end_of(runs[0])
    return in_folder(work)


def killed(args, seed, expected):
    chance = random.Random(seed)
    method = sorted(METHODS)[seed % len(METHODS)]
    victims = VICTIMS[chance.randrange(3)]
    rounds = ROUNDS * METHODS[method].get("sync.num_fragments", 1)
    last = rounds - 4 * METHODS[method].get("sync.num_fragments", 1)
    commit, delay = chance.randrange(1, last), chance.random() * chance.choice([0.01, 0.1, 0.3])

    def work(folder, runs, commit):
        run = start(args, folder, method)
        runs.append(run)
        run.wait_commits(commit, after=0)
        time.sleep(delay)
        for name in victims:
            run.kill(name)
        if run.commits()[-1]["step"] >= run.settings["train.steps"]:
            return None  # Too late: the run may be over without them.
        marks = {name: run.mark(name) for name in victims}
        wait_for(lambda: all(f"island '{name}' was lost" in run.log() for name in victims), "the coordinator to miss them")
        for name in victims:
            run.join(name)
        end = end_of(run)
        again = [int(number) for name in victims for number in AGAIN.findall(run.log(name)[marks[name]:])]
        return {"seed": seed, "method": method, "victims": "".join(victims), "commit": commit, "delay": round(delay, 4),
                "steps_again": again, "is_same": end == expected[method], **end}
    kept = args.out.with_name(f"{args.out.stem}-seed-{seed}")
    return in_folder(lambda *where: work(*where, commit), kept) or in_folder(lambda *where: work(*where, 1), kept)


def summary(found):
    kills = found["kills"]
    by_victims = collections.Counter("both" if len(kill["victims"]) == 2 else "one" for kill in kills)
    steps = sum(sum(kill["steps_again"]) for kill in kills)
    others = [kill["seed"] for kill in kills if not kill["is_same"]]
    lines = [f"{len(kills)} kills ({by_victims['one']} of one island, {by_victims['both']} of both): "
             f"{len(kills) - len(others)} ended with the same bits; {steps} steps were computed again"]
    for method in sorted(METHODS):
        own = [kill for kill in kills if kill["method"] == method]
        lines.append(f"  {method}: {sum(kill['is_same'] for kill in own)} of {len(own)}")
    if others:
        lines.append(f"  other bits: seeds {others}")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", required=True, help="packed data")
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--count", type=int, default=200, help="kills in all")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--atoll", default=str(ROOT / "build" / "bin" / "atoll"))
    args = parser.parse_args()
    found = json.loads(args.out.read_text()) if args.out.exists() else {"kills": []}
    of_now = code_hash(CODE)
    if found.get("code") != of_now:
        found = {"code": of_now, "expected": {}, "kills": found["kills"]}
    revision = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    def save():
        partial = args.out.with_name(args.out.name + ".tmp")
        lines = ",\n".join(json.dumps(kill) for kill in found["kills"])
        partial.write_text(json.dumps({**found, "kills": []})[:-2] + "\n" + lines + "]}\n")
        partial.replace(args.out)

    for seed in range(args.first_seed, args.first_seed + args.count):
        if any(kill["seed"] == seed and kill["code"] == of_now for kill in found["kills"]):
            continue
        method = sorted(METHODS)[seed % len(METHODS)]
        if method not in found["expected"]:
            found["expected"][method] = undisturbed(args, method)
        kill = {**killed(args, seed, found["expected"]), "revision": revision, "code": of_now}
        found["kills"] = sorted([one for one in found["kills"] if one["seed"] != seed] + [kill], key=lambda one: one["seed"])
        save()
        print(f"seed {seed}: {kill['method']}, {kill['victims']} killed after commit {kill['commit']} + {kill['delay']} s, "
              f"{kill['steps_again']} steps again: {'the same' if kill['is_same'] else 'OTHER BITS'}", flush=True)
    found["kills"] = [kill for kill in found["kills"] if kill["code"] == of_now]
    print(summary(found))
    return 0 if all(kill["is_same"] for kill in found["kills"]) else 1


if __name__ == "__main__":
    sys.exit(main())
