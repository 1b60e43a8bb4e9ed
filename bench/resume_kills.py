#!/usr/bin/env python3
"""Kills in lock-step runs of two islands (swarm.min_replicas = 2): the run must end with the bits of one that was left alone.

usage: resume_kills.py --store STORE --out FILE [--count 200] [--first-seed 0] [--atoll build/bin/atoll]

Each seed is a run of its own: a method, whom to kill (one island, or both), after which commit and how long after it. Rounds are
more frequent than checkpoints. It goes on where it stopped (FILE, which another program begins anew), prints a summary, and exits
with 1 where an end was another.
"""
import argparse
import collections
import hashlib
import json
import pathlib
import random
import re
import shutil
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "processes"))
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


def in_folder(work):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="atoll-resume-kills-"))
    runs = []
    try:
        return work(folder / "run", runs)
    finally:
        for run in runs:
            run.kill_all()
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
    commit, delay = chance.randrange(1, rounds - 4), chance.random() * chance.choice([0.01, 0.1, 0.3])

    def work(folder, runs):
        run = start(args, folder, method)
        runs.append(run)
        run.wait_commits(commit, after=0)
        time.sleep(delay)
        for name in victims:
            run.kill(name)
        marks = {name: run.mark(name) for name in victims}
        wait_for(lambda: all(f"island '{name}' was lost" in run.log() for name in victims), "the coordinator to miss them")
        for name in victims:
            run.join(name)
        end = end_of(run)
        again = [int(number) for name in victims for number in AGAIN.findall(run.log(name)[marks[name]:])]
        return {"seed": seed, "method": method, "victims": "".join(victims), "commit": commit, "delay": round(delay, 4),
                "steps_again": again, "is_same": end == expected[method], **end}
    return in_folder(work)


def fingerprint(atoll):
    program = pathlib.Path(atoll).with_name("atoll-torch")
    words = json.dumps([METHODS, RUN, ROUNDS], sort_keys=True).encode()
    return hashlib.sha256(program.read_bytes() + words).hexdigest()


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
    program = fingerprint(args.atoll)
    found = json.loads(args.out.read_text()) if args.out.exists() else {}
    if found.get("program") != program:
        found = {"program": program, "expected": {}, "kills": []}

    def save():
        partial = args.out.with_name(args.out.name + ".tmp")
        partial.write_text(json.dumps(found, indent=1))
        partial.replace(args.out)

    for seed in range(args.first_seed, args.first_seed + args.count):
        if seed in {kill["seed"] for kill in found["kills"]}:
            continue
        method = sorted(METHODS)[seed % len(METHODS)]
        if method not in found["expected"]:
            found["expected"][method] = undisturbed(args, method)
        kill = killed(args, seed, found["expected"])
        found["kills"].append(kill)
        save()
        print(f"seed {seed}: {kill['method']}, {kill['victims']} killed after commit {kill['commit']} + {kill['delay']} s, "
              f"{kill['steps_again']} steps again: {'the same' if kill['is_same'] else 'OTHER BITS'}", flush=True)
    print(summary(found))
    return 0 if all(kill["is_same"] for kill in found["kills"]) else 1


if __name__ == "__main__":
    sys.exit(main())
