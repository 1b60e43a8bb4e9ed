#!/usr/bin/env python3
"""Evaluation beside other work: two threads on two cores, alone and beside two busy processes.

  busy_evaluation.py ATOLL [--rounds 3] [--text-bytes 1500000]

Everything is held to the same two cores, whatever the machine has. Four threads that share two cores fairly take twice
as long; what is above that, the evaluation wastes by waiting for itself. Alone and busy in turns; prints one JSON object
with medians.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import corpus

SHAPE = {"model.hidden_size": 256, "model.intermediate_size": 640, "model.num_layers": 4, "model.num_heads": 4,
         "model.num_kv_heads": 2, "model.max_positions": 512}
TRAINING = {"train.steps": 1, "train.batch_rows": 2, "train.sequence_length": 64, "train.eval_rows": 2, "train.threads": 1,
            "data.vocab_size": 2048}


def run(words):
    done = subprocess.run([*map(str, words)], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, words))} failed: {done.stderr[-2000:]}")
    return done.stdout


def evaluate(atoll, model, text):
    """Seconds, and the loss."""
    begin = time.monotonic()
    said = json.loads(run([atoll, "eval", model, "--text", text, "--threads", 2, "--json"]))
    return time.monotonic() - begin, said["loss"]


def beside_busy_processes(measure):
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        return measure()
    finally:
        for process in busy:
            process.kill()
            process.wait()


def measure(atoll, rounds=3, text_bytes=1_500_000):
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    with tempfile.TemporaryDirectory(prefix="atoll-busy-") as scratch:
        folder = pathlib.Path(scratch)
        text = folder / "text.txt"
        text.write_bytes("".join(corpus.texts(text_bytes)).encode())
        model = folder / "run"
        settings = (f"--{name}={value}" for name, value in (SHAPE | TRAINING).items())
        run([atoll, "train", "--run", model, "--data", text, *settings])
        alone, busy, losses = [], [], set()
        for _ in range(rounds):
            for times, how in ((alone, lambda measure: measure()), (busy, beside_busy_processes)):
                seconds, loss = how(lambda: evaluate(atoll, model, text))
                times.append(seconds)
                losses.add(loss)
            print(f"alone {alone[-1]:.1f} s, busy {busy[-1]:.1f} s", file=sys.stderr)
    assert len(losses) == 1, losses
    return {"alone_s": statistics.median(alone), "busy_s": statistics.median(busy),
            "ratio": statistics.median(b / a for a, b in zip(alone, busy)), "rounds": rounds}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("atoll")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--text-bytes", type=int, default=1_500_000)
    arguments = parser.parse_args()
    print(json.dumps(measure(arguments.atoll, arguments.rounds, arguments.text_bytes)))


if __name__ == "__main__":
    main()
