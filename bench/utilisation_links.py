#!/usr/bin/env python3
"""Predicted against measured utilisation: `atoll scaling simulate --from RUN` beside real runs over emulated lines.

  utilisation_links.py ATOLL STORE [--steps 90] [--links wan|link-rate] [--only diloco|streaming]

Two islands of one thread train a model of under 1 M parameters, each on a host of an emulated network (tests/wan: rate,
delay and queue of each host's line; the coordinator has a host of its own, without limits). A first run without limits says
how long a step takes; from that follow, for each method, rates at which it should compute for about 40 to 97 % of its time.
With each goes another delay. Then every one of these lines is emulated, trained on, and given to `simulate --from` as it
was emulated: the prediction knows of the run its steps, rounds and bytes, and of the line what the emulator was told. Nothing
is fitted to what came out. Where there can be no emulated network (it needs root) `--link-rate` holds the senders to the
rate instead, without delays. Prints one JSON object.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "wan"))
import wan  # noqa: E402

H = 30
FRAGMENTS = 4
DEADLINE_S = 300
SHARES = (0.4, 0.6, 0.8, 0.9, 0.97)  # Of the time that should compute,
DELAYS_MS = (0, 25, 10, 5, 2)  # and how long each line takes, one way.
MODEL = {"model.hidden_size": 128, "model.intermediate_size": 352, "model.num_layers": 3, "model.num_heads": 4,
         "model.num_kv_heads": 2, "model.max_positions": 128, "train.sequence_length": 128, "train.batch_rows": 16,
         "train.log_every": 1, "train.eval_rows": 8, "train.checkpoint_every": 0, "swarm.min_replicas": 2}
METHODS = {
    "diloco": {"sync.method": "diloco", "sync.codec": "fp32"},
    "streaming": {"sync.method": "streaming_diloco", "sync.codec": "e3m0", "sync.num_fragments": FRAGMENTS,
                  "sync.fragment_pattern": "balanced", "sync.fragment_sync_delay": 1},
}


def flags(settings):
    return [f"--{key}={value}" for key, value in settings.items()]


def train_over(network, arguments, folder, settings, before=((), ())):
    """Two islands and their coordinator, each on its host; `before` has the words before each island's command."""
    quiet = {"stderr": subprocess.DEVNULL, "text": True}
    coordinator = network.start("hub", [arguments.atoll, "coordinate", "--insecure", "--listen", network.address("hub") + ":0",
                                        *flags(settings)], stdout=subprocess.PIPE, **quiet)
    address = coordinator.stdout.readline().strip()
    islands = [network.start(host, [*words, arguments.atoll, "join", address, "--insecure", "--name", host, "--listen",
                                    network.address(host) + ":0", "--run", folder / host, "--data", arguments.store,
                                    "--train.threads=1"], stdout=subprocess.DEVNULL, **quiet)
               for host, words in zip(("island-a", "island-b"), before)]
    for process in [*islands, coordinator]:
        if process.wait(DEADLINE_S) != 0:
            raise RuntimeError(f"a process of the run in {folder} ended with {process.returncode}")
    coordinator.stdout.close()


def train(arguments, folder, settings, rate_mbit=0.0, delay_ms=0.0):
    settings = MODEL | {"train.steps": arguments.steps, "sync.sync_every": H} | settings
    if arguments.links == "wan":
        line = wan.Link(rate=rate_mbit, delay=delay_ms)
        hosts = {"hub": wan.Link(), "island-a": line, "island-b": line}
        with wan.Network(str(pathlib.Path(arguments.atoll).parent / "atoll-wan-link"), hosts) as network:
            train_over(network, arguments, folder, settings)
        return
    rate = ["--link-rate", f"{rate_mbit:.6f}mbit"] if rate_mbit else []
    subprocess.run([arguments.atoll, "train", "--islands", "2", "--run", folder, "--data", arguments.store, *rate,
                    "--train.threads=1", *flags(settings)], check=True, capture_output=True, timeout=DEADLINE_S)


def predict(arguments, folder, rate_mbit, delay_ms):
    line = ["--link-rate", f"{rate_mbit:.6f}mbit"]
    if arguments.links == "wan":
        line = ["--gbps", f"{rate_mbit / 1000:.9f}"] + 2 * ["--island", f"latency={delay_ms / 1000}"]
    return json.loads(subprocess.run([arguments.atoll, "scaling", "simulate", "--from", folder, *line, "--json"], check=True,
                                     capture_output=True, text=True).stdout)


def rate_for(method, share, step_s, parameters):
    """Mbit/s at which the method would compute for that share of its time, roughly: without delays and protocol."""
    waits_s = H * step_s * (1 / share - 1)  # In a period.
    if method == "diloco":
        return 32e-6 * parameters / waits_s
    return 4.0625e-6 * parameters / FRAGMENTS / (waits_s / FRAGMENTS + step_s)


def measure(arguments):
    """The rows of the table, one for each line that was emulated."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="atoll-utilisation-") as scratch:
        free = pathlib.Path(scratch) / "free"
        train(arguments, free, {"sync.method": "diloco", "sync.sync_every": 10 ** 6})
        said = predict(arguments, free, 1000, 0)
        step_s = sum(island["step_s"] for island in said["islands"]) / 2
        for method, settings in METHODS.items():
            if arguments.only not in (None, method):
                continue
            for number, share in enumerate(SHARES):
                rate = rate_for(method, share, step_s, said["parameters"])
                delay = DELAYS_MS[number] if arguments.links == "wan" else 0
                folder = pathlib.Path(scratch) / f"{method}-{number}"
                train(arguments, folder, settings, rate, delay)
                report = predict(arguments, folder, rate, delay)
                rows.append({"method": method, "rate_mbit": rate, "delay_ms": delay,
                             "step_s": [island["step_s"] for island in report["islands"]],
                             **report["utilisation"], "round_predicted_s": report["round"]["predicted_s"],
                             "round_measured_s": report["round"]["measured_s"],
                             "islands_points": [island["difference_points"] for island in report["islands"]]})
                print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    return rows


def main(words=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("atoll")
    parser.add_argument("store")
    parser.add_argument("--steps", type=int, default=90)
    parser.add_argument("--links", choices=["wan", "link-rate"])
    parser.add_argument("--only", choices=list(METHODS))
    arguments = parser.parse_args(words)
    why = None
    if arguments.links is None:
        why = wan.unavailable(str(pathlib.Path(arguments.atoll).parent / "atoll-wan-link"))
        arguments.links = "link-rate" if why else "wan"
    rows = measure(arguments)
    return {"links": arguments.links, "why_not_wan": why, "steps": arguments.steps, "rows": rows,
            "within_5_points": sum(abs(row["difference_points"]) <= 5 for row in rows), "lines": len(rows),
            "worst_points": max((row["difference_points"] for row in rows), key=abs)}


if __name__ == "__main__":
    print(json.dumps(main()))
