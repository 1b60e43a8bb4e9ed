#!/usr/bin/env python3
"""`atoll plan` beside an independent reckoning of its bytes, time, memory and loss, for several plans; and its estimate
of activations beside what a training step really takes.

usage: plan_oracle.py ATOLL
"""
import csv
import json
import math
import pathlib
import resource
import subprocess
import sys
import tempfile

import numpy as np

ATOLL = sys.argv[1]
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BITS = {"fp32": 32, "bf16": 16, "e3m0": 4 + 8 / 128}
LOSSES = ROOT / "atoll" / "scaling" / "published" / "loss.csv"


# --- laws, from the table alone ---


def laws():
    lines = [line for line in LOSSES.read_text().split("\n") if line and not line.startswith("#")]
    rows = list(csv.DictReader(lines))
    n, m, y = (np.array([float(row[name]) for row in rows]) for name in ("params", "replicas", "loss"))
    dp = np.polyfit(np.log(n[m == 0]), np.log(y[m == 0]), 1)
    rows = m >= 1
    joint = np.linalg.lstsq(np.stack([np.ones(rows.sum()), np.log(n[rows]), np.log(m[rows])], 1), np.log(y[rows]),
                            rcond=None)[0]
    return dp, joint


DP, JOINT = laws()


def law(n, replicas):
    if replicas == 0:
        return math.exp(DP[1] + DP[0] * math.log(n))
    return math.exp(JOINT @ [1, math.log(n), math.log(replicas)])


def loss(n, replicas, tokens, every):
    period = math.exp(0.003466 * replicas**0.7063 * math.log(every / 30)) if replicas else 1
    return (law(n, replicas) + law(min(tokens / 20, 10 * n), replicas)) / 2 * period


# --- the model ---


def shapes(plan):
    """Sizes of the tensors: before and behind the layers, and of one layer."""
    h, f, v, heads = plan["hidden"], plan["ff"], plan["vocab"], plan["heads"]
    head = h // heads
    return v * h + h, 4 * h * h + 3 * h * f + 2 * h + 2 * head


def params(plan):
    outside, layer = shapes(plan)
    return outside + plan["layers"] * layer


# --- the exchange ---


def gathers(plan):
    return plan["method"] == "streaming_diloco" or plan["replicas"] == 2


def copies(plan, rates):
    """By filling the slowest line first: shares s with (1 + (M - 2) s) / rate equal where s > 0."""
    m = plan["replicas"]
    if gathers(plan):
        return [m - 1] * m
    low, high = 0, 1e9
    rates = np.array(rates) / max(rates)
    for _ in range(200):  # The common time t: shares sum to 1.
        t = (low + high) / 2
        shares = np.maximum((t * rates - 1) / (m - 2), 0)
        low, high = (t, high) if shares.sum() < 1 else (low, t)
    return list(1 + (m - 2) * shares)


def exchanged(plan):
    """Values that a member contributes, walked step by step."""
    n, steps = params(plan), plan["steps"]
    if plan["method"] == "data_parallel":
        return n * steps
    every = plan["sync_every"]
    if plan["method"] == "diloco":
        return n * sum(1 for step in range(1, steps + 1) if step % every == 0 or step == steps)
    outside, layer = shapes(plan)
    parts = plan["num_fragments"]
    sizes = [outside] + [layer * len(range(p, plan["layers"], parts - 1)) for p in range(parts - 1)]
    spacing = every // parts
    values = n
    for step in range(every, steps):
        place = step % every
        if place % spacing == 0 and place // spacing < parts:
            values += sizes[place // spacing]
    return values


# --- time: the paper's graph of a step, walked for the whole group ---


def utilisation(plan, step_s, rates, trips):
    layers, m = plan["layers"], plan["replicas"]
    if m == 1:
        return 1.0
    every = plan["sync_every"] or 1
    steps = 40 if plan["method"] == "data_parallel" else 3 * every + 1
    delay = plan["fragment_sync_delay"] or 0
    per_layer = BITS[plan["codec"]] * params(plan) / layers
    sends = copies(plan, rates)
    trip = (2.5 if gathers(plan) else 3) * max(trips)
    clock, line = [0.0] * m, [0.0] * m
    waiting = [[] for _ in range(layers)]
    units = [s / (3 * layers) for s in step_s]
    for step in range(1, steps + 1):
        ready = [0.0] * layers
        for i in range(m):
            now = clock[i]
            for pending in waiting:
                now = max([now] + [done for done, due in pending if due <= step]) + units[i]
            for back in range(layers - 1, -1, -1):
                now += units[i] * (2 if back else 1)
                ready[back] = max(ready[back], now)
            clock[i] = now
        for k in range(layers):
            waiting[k] = [(done, due) for done, due in waiting[k] if due > step]
        for k in range(layers - 1, -1, -1):
            if plan["method"] == "diloco" and step % every:
                continue
            if plan["method"] == "streaming_diloco":
                groups = plan["num_fragments"] - 1
                slot, rest = divmod(step % every, every // (groups + 1))
                if rest or not 1 <= slot <= groups or k % groups != slot - 1:
                    continue
            for i in range(m):
                line[i] = max(line[i], ready[k]) + per_layer * sends[i] / rates[i]
            waiting[k].append((max(line) + trip, step + 1 + delay))
    fastest = min(step_s)
    computed = steps * m * (3 * layers - 1) / (3 * layers)
    return computed / sum(1 / s for s in step_s) / max(clock) if fastest else 1.0


# --- memory ---


def memory(plan, rows, is_cpu):
    one, m = 4 * params(plan), plan["replicas"]
    outer = plan["method"] in ("diloco", "streaming_diloco")
    h, f, layers = plan["hidden"], plan["ff"], plan["layers"]
    layer = 11 * h + 3 * f + 3 * plan["heads"] + 2 if is_cpu else 16 * h + 4 * f + plan["heads"]
    activations = 4 * (8 << 20) + 4 * rows * plan["sequence_length"] * (layer * (layers + 1) + 4 * h)
    device = 4 * one + activations
    beside = one * (3 + 2 * outer + (plan["method"] == "streaming_diloco"))  # The checkpoint's copies.
    if outer:
        device += one + (0 if is_cpu else one)
        beside += 4 * one
    elif plan["method"] == "data_parallel":
        beside += 2 * one
    if plan["method"] != "single":
        bits = BITS[plan["codec"] or "fp32"]
        held = m if m == 1 or gathers(plan) else 2 + (m - 1) / m
        beside += one + bits / 32 * one * held
    return device + (beside if is_cpu else 0), 0 if is_cpu else beside


# --- the comparison ---


def close(a, b, tolerance, what):
    assert abs(a - b) <= tolerance * max(1, abs(b)), f"{what}: {a} instead of {b}"


def check(islands, plan):
    by_name = {island["name"]: island for island in islands}
    taking_part = [by_name[name] for name in plan["islands"]]
    n, m = plan["params"], plan["replicas"]
    what = f"{plan['method']} of {n:.3g} on {m}"
    assert params(plan) == plan["atoll_params"], what
    h = plan["hidden"]
    assert plan["vocab"] * h + plan["layers"] * 12 * h * h == n, what
    assert plan["batch_rows"] == m * plan["rows_per_island"] and plan["rows_per_island"] % plan["micro_batch_rows"] == 0
    tokens = plan["steps"] * plan["batch_rows"] * plan["sequence_length"]
    close(plan["tokens"], tokens, 1e-12, what)
    replicas = m if plan["method"] in ("diloco", "streaming_diloco") else 0
    close(plan["loss"], loss(n, replicas, tokens, plan["sync_every"] or 30), 1e-9, f"loss of {what}")
    assert plan["loss_range"][0] <= plan["loss"] <= plan["loss_range"][1]
    flops = 6 * plan["atoll_params"] * plan["rows_per_island"] * plan["sequence_length"]
    step_s = [flops / island["devices"] / island["tflops"] / 1e12 for island in taking_part]
    rates = [min(island["up"], island["down"]) for island in taking_part]
    sends = copies(plan, rates) if m > 1 else [0]
    sent = exchanged(plan) * BITS[plan["codec"]] / 8 if m > 1 else 0
    for island, one, s, copy in zip(taking_part, plan["per_island"], step_s, sends):
        assert island["name"] == one["name"]
        close(one["step_s"], s, 1e-9, f"step of {what}")
        close(one["bytes_sent"], sent * copy, 2e-5, f"bytes of {what}")
        device, host = memory(plan, plan["micro_batch_rows"], island.get("device") == "cpu")
        close(one["memory"]["device"], device, 1e-9, f"memory of {what}")
        close(one["memory"]["host"], host, 1e-9, f"host memory of {what}")
        assert device <= 0.9 * island["memory"], what
    close(plan["bytes_sent"], sum(one["bytes_sent"] for one in plan["per_island"]), 1e-9, what)
    share = utilisation(plan, step_s, rates, [island["latency"] for island in taking_part])
    close(plan["utilisation"], share, 1e-4, f"utilisation of {what}")
    close(plan["waiting_share"], 1 - plan["utilisation"], 1e-12, what)
    capacity = sum(1 / s for s in step_s)
    close(plan["wall_clock_s"], plan["steps"] * m / capacity / share, 2e-4, f"time of {what}")


def toml(islands, goal):
    text = ""
    for island in islands:
        text += f'[[island]]\nname = "{island["name"]}"\ndevices = {island["devices"]}\ntflops = {island["tflops"]}\n'
        text += f'device = "{island.get("device", "cuda")}"\nmemory = "{island["memory"] / 1e9}GB"\n'
        text += f'up = "{island["up"] / 1e3}kbit"\ndown = "{island["down"] / 1e3}kbit"\n'
        text += f'latency = "{island["latency"] * 1e3}ms"\n'
    return text + "[goal]\n" + "\n".join(f"{key} = {json.dumps(value)}" for key, value in goal.items())


def island(name, tflops=40, mbit=200, devices=4, memory=80e9, latency=0.03, down=None, device="cuda"):
    return {"name": name, "tflops": tflops, "devices": devices, "memory": memory, "up": mbit * 1e6,
            "down": (down or mbit) * 1e6, "latency": latency, "device": device}


PLANS = [
    ([island("a"), island("b"), island("c", 40, 50)], {"time": "2d"}),
    ([island("a", 40, 1000), island("b", 20, 300, latency=0.2), island("c", 10, 100), island("d", 40, 30)],
     {"time": "12h", "sequence_length": 1024}),
    ([island("a", 0.05, 20, 1, 16e9, device="cpu"), island("b", 0.05, 5, 1, 16e9, 0.1, 50, device="cpu")],
     {"time": "1d", "vocab_size": 4096, "sequence_length": 256}),
    ([island(f"i{i}", 40, 100 + 10 * i, 2) for i in range(10)], {"params": 4e8}),
    ([island(name, 40, 1e6, latency=1e-4) for name in "abc"], {"time": "1d"}),
    ([island("a")], {"tokens": 3e9, "tokens_per_param": 60}),
    ([island("a"), island("b", 30)], {"loss": 2.7, "time": "5d"}),
    ([island("a"), island("b", 30)], {"params": 1e8, "tokens": 5e10}),
    ([island("a", memory=16e9), island("b", 30, memory=12e9)], {"time": "60d"}),
]


def check_plans(folder):
    num = 0
    methods = set()
    for number, (islands, goal) in enumerate(PLANS):
        path = folder / f"{number}.toml"
        path.write_text(toml(islands, goal))
        done = subprocess.run([ATOLL, "plan", path, "--json"], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        plan = json.loads(done.stdout)
        choices = plan["alternatives"]
        best = [choice for choice in choices if choice["recommended"]]
        assert len(best) == 1 and best[0]["loss"] == plan["loss"]
        for choice in choices:
            check(islands, choice)
            methods.add(choice["method"])
            num += 1
            for other in choices:
                assert other is choice or not (other["loss"] <= choice["loss"] and other["bytes_sent"] <= choice["bytes_sent"]
                                               and other["wall_clock_s"] * 1.011 < choice["wall_clock_s"])
    assert {"single", "diloco", "streaming_diloco", "data_parallel"} <= methods, methods
    return num


# --- activations, beside a real step ---


def peak_bytes(rows, hidden, layers):
    """Of the largest of this program's children so far: call it with rising sizes."""
    words = [f"--model.{key}={value}" for key, value in {
        "architecture": "qwen3", "hidden_size": hidden, "intermediate_size": 8 * hidden // 3 // 8 * 8 + 8,
        "num_layers": layers, "num_heads": hidden // 64, "num_kv_heads": hidden // 64, "vocab_size": 512}.items()]
    subprocess.run([ATOLL, "bench", "train-step", "--steps", "1", "--warmup", "1", f"--train.batch_rows={rows}",
                    "--train.sequence_length=256", "--train.threads=1", *words], check=True, capture_output=True)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024


def check_activations():
    hidden, layers = 256, 6
    small, large = (peak_bytes(rows, hidden, layers) for rows in (8, 24))
    ff = 8 * hidden // 3 // 8 * 8 + 8
    said = 16 * 4 * 256 * ((11 * hidden + 3 * ff + 3 * hidden // 64 + 2) * (layers + 1) + 4 * hidden)
    real = large - small
    assert 0.75 * said < real < 1.25 * said, f"16 rows more take {real / 1e6:.0f} MB, the plan says {said / 1e6:.0f} MB"
    return real / said


def main():
    with tempfile.TemporaryDirectory(prefix="atoll-plan-oracle-") as folder:
        num = check_plans(pathlib.Path(folder))
    print(f"{num} planned runs agree; activations are {check_activations():.2f} of what is planned")


if __name__ == "__main__":
    main()
