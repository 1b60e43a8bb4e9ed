#!/usr/bin/env python3
"""Speeds of this tree beside those of an older commit, in turns, in one run.

  speed_before.py COMMIT [--turns 5] [--tree FOLDER] [--only training,exchange,codec]

Training: tokens per second of whole steps on one and two threads. Exchange: a round of two on one thread without a
network, and encoded bytes per second between two processes over loopback. Codecs: floats encoded and decoded. Each turn
runs both programs, the one that goes first changing; a ratio is this tree's speed over the commit's in the same turn.
--tree keeps the commit's build for the next time. Prints one JSON object with the medians of the ratios.
"""
import argparse
import json
import statistics
import sys

import link_speed
import old_commit

SIZE = ["--model.hidden_size=256", "--model.intermediate_size=640", "--model.num_layers=4", "--model.num_heads=4",
        "--model.num_kv_heads=2", "--model.vocab_size=4096", "--train.batch_rows=8", "--train.sequence_length=256"]
CODECS = ["fp32", "bf16", "e3m0", "int8", "int4", "sign3", "topk", "cocktail", "sparse_loco"]
SHORT = {"codec": 3}  # So many times the turns: what takes half a second is noisier.
PROGRAMS = ["atoll", "atoll-torch", "atoll-link-speed", "codec_codec_bench", "collective_exchange_bench"]


def training(programs, threads):
    told = old_commit.run([programs / "atoll", "bench", "train-step", "--json", "--steps=12", f"--train.threads={threads}", *SIZE])
    return json.loads(told)["tokens_per_s"]


def bytes_per_second(program, name):
    told = old_commit.run([program, f"--benchmark_filter=^{name}/", "--benchmark_format=json", "--benchmark_min_time=0.3"])
    (only,) = json.loads(told)["benchmarks"]
    return only["bytes_per_second"]


def loopback(programs):
    link_speed.PROGRAM = str(programs / "atoll-link-speed")
    done = link_speed.rounds(link_speed.Loopback(), 16, 6)[1:]
    return statistics.median(sum(line["bytes"]) / line["seconds"] for line in done)


def speeds():
    """kind -> name -> a function from a folder of programs to a speed."""
    return {
        "training": {f"{threads} thread(s)": lambda at, threads=threads: training(at, threads) for threads in (1, 2)},
        "exchange": {name: lambda at, name=name: bytes_per_second(at / "collective_exchange_bench", f"round_of_two/{name}")
                     for name in ("fp32_scatter", "fp32_gather", "bf16_scatter", "bf16_gather")} | {"loopback": loopback},
        "codec": {name: lambda at, name=name: bytes_per_second(at / "codec_codec_bench", f"both/{name}") for name in CODECS},
    }


def compare(before, now, turns, kinds):
    """kind -> name -> median, least and largest ratio."""
    out = {}
    for kind in kinds:
        out[kind] = {}
        for name, speed in speeds()[kind].items():
            ratios = []
            for turn in range(turns * SHORT.get(kind, 1)):
                folders = [before, now] if turn % 2 == 0 else [now, before]
                found = {folder: speed(folder) for folder in folders}
                ratios.append(found[now] / found[before])
            out[kind][name] = {"median": statistics.median(ratios), "least": min(ratios), "largest": max(ratios)}
            print(f"{kind}, {name}: {out[kind][name]['median']:.3f} of before ({min(ratios):.3f} to {max(ratios):.3f})",
                  file=sys.stderr, flush=True)
    return out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("commit")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--tree")
    parser.add_argument("--only", default="training,exchange,codec")
    args = parser.parse_args()
    with old_commit.built(args.commit, PROGRAMS, with_tests=True, tree=args.tree) as before:
        out = compare(before, old_commit.ROOT / "build" / "bin", args.turns, args.only.split(","))
    print(json.dumps({"commit": args.commit, "turns": args.turns, "ratios": out,
                      "lowest": min(one["median"] for kind in out.values() for one in kind.values())}))


if __name__ == "__main__":
    sys.exit(main())
