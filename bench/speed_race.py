#!/usr/bin/env python3
"""The race over a slow line, Atoll's part: two islands of one core, and the share of their own speed without a line that they keep.

  speed_race.py ATOLL STORE [--steps 160] [--rounds 5] [--links 100/20,10/80,1/200]     (Mbit/s, round trip in ms; needs root, see tests/wan)

A model of 3.2 M parameters, H = 20, batches of 4 x 128 tokens an island, as the peers' in the table of design (torchft, hivemind); over
1 Mbit/s by SparseLoCo at an elastic pace (training goes on while a round travels), else streaming DiLoCo in 4 bits. A host's line has
the rate both ways and a quarter of the round trip one way, and a queue of what is then on its way; the coordinator has none. An
island's own speed is that of the same two, side by side, without a line or an exchange; it is measured before and after each race,
and the mean counts; of some short races the median, as shared machines change their speed within a minute. Steps before the third
round, and those after the last but one, are left out. Each island has a core of its own, as on machines of their own. Products are
the usual library's (ATOLL_PRODUCTS): AMX, which tiles use, is as fast as neighbours let it be, which changes by 2.4 within seconds.
Prints one JSON object.
"""
import argparse
import json
import os
import pathlib
import statistics
import sys
import tempfile

import utilisation_links
from utilisation_links import flags, wan

H = 20
MODEL = {"model.hidden_size": 256, "model.intermediate_size": 688, "model.num_layers": 4, "model.num_heads": 4, "model.num_kv_heads": 4,
         "model.max_positions": 128, "train.sequence_length": 128, "train.batch_rows": 8, "train.log_every": 1, "train.eval_rows": 8,
         "train.checkpoint_every": 0, "swarm.min_replicas": 2}
# A fragment of each layer, and one of what is outside: pieces alike, so that the line always carries one.
STREAMING = {"sync.method": "streaming_diloco", "sync.codec": "e3m0", "sync.sync_every": H, "sync.num_fragments": 5,
             "sync.fragment_sync_delay": H // 2, "sync.outer_lr": 0.7, "sync.outer_momentum": 0.9}
SPARSE = {"sync.method": "sparse_loco", "sync.sync_every": H, "swarm.pace": "elastic"}
ALONE = {"sync.method": "diloco", "sync.sync_every": 10 ** 6}


def link(rate, round_trip_ms):
    on_the_way_kib = max(64, rate * 1e6 / 8 * round_trip_ms / 1e3 / 1024)
    return wan.Link(rate=rate, delay=round_trip_ms / 4, queue=on_the_way_kib)


def lines_of(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


def steps_per_s(folder):
    """Of an island, from the end of one step to that of another. At an elastic pace one may have some steps less than the other."""
    times = {line["step"]: line["time"] for line in lines_of(folder / "metrics.jsonl")}
    counted = [step for step in times if 3 * H <= step < max(times) - H]
    first, last = min(counted), max(counted)
    return (last - first) / (times[last] - times[first])


def steps_a_round(folder):
    """Between snapshots of the same fragment, on average."""
    sent = [line["sent"] for line in lines_of(folder / "rounds.jsonl") if line["fragment"] == 0]
    if len(sent) < 6:
        raise RuntimeError(f"'{folder}': {len(sent)} rounds, where at least 6 are needed: they took too long for so few steps")
    return (sent[-2] - sent[2]) / (len(sent) - 4)


def before_islands():
    """What gives each its core and the usual library."""
    cores = sorted(os.sched_getaffinity(0))
    on_core = [("taskset", "--cpu-list", str(core)) for core in cores[:2]] if len(cores) > 1 else [(), ()]
    return [("env", "ATOLL_PRODUCTS=usual", *words) for words in on_core]


def race(arguments, method, line=None):
    """Steps per second, and steps for each round; the means of both islands."""
    settings = MODEL | method | {"train.steps": arguments.steps}
    hosts = {"hub": wan.Link(), "island-a": line or wan.Link(), "island-b": line or wan.Link()}
    with tempfile.TemporaryDirectory(prefix="atoll-race-") as scratch:
        folder = pathlib.Path(scratch)
        with wan.Network(str(pathlib.Path(arguments.atoll).parent / "atoll-wan-link"), hosts) as network:
            utilisation_links.train_over(network, arguments, folder, settings, before_islands())
        islands = [folder / island for island in ("island-a", "island-b")]
        rounds = None if method is ALONE else statistics.mean(map(steps_a_round, islands))
        return statistics.mean(map(steps_per_s, islands)), rounds


def measure(arguments):
    reason = wan.unavailable(str(pathlib.Path(arguments.atoll).parent / "atoll-wan-link"))
    if reason:
        raise RuntimeError(f"no emulated network here: {reason}")
    found = {}
    alone = [race(arguments, ALONE)[0]]
    for words in arguments.links.split(","):
        mbit, round_trip_ms = map(float, words.split("/"))
        method = SPARSE if mbit <= 1 else STREAMING
        there, rounds, shares, alone = [], [], [], alone[-1:]
        for _ in range(arguments.rounds):
            one, steps = race(arguments, method, link(mbit, round_trip_ms))
            there, rounds = [*there, one], [*rounds, steps]
            alone.append(race(arguments, ALONE)[0])
            shares.append(2 * one / sum(alone[-2:]))
        found[words] = {"method": method["sync.method"], "steps_a_round": statistics.mean(rounds), "steps_per_s": there, "alone": alone,
                        "shares": shares, "share": statistics.median(shares)}
        print(json.dumps({words: found[words]}), file=sys.stderr, flush=True)
    return found


def main(words=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("atoll")
    parser.add_argument("store")
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--rounds", type=int, default=5, help="races over each line")
    parser.add_argument("--links", default="100/20,10/80,1/200")
    arguments = parser.parse_args(words)
    if arguments.steps < 8 * H:
        parser.error(f"--steps {arguments.steps}: at least {8 * H}, since rounds at the beginning and the end are left out")
    return measure(arguments)


if __name__ == "__main__":
    print(json.dumps(main()))
