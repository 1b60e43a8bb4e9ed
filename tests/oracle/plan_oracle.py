#!/usr/bin/env python3
"""`atoll plan` beside an independent reckoning of its bytes, time, memory and loss, for several plans, and beside what
`simulate --from` says of records that its runs would leave; and its estimate of activations beside what a training step
really takes.

usage: plan_oracle.py ATOLL
"""
import csv
import heapq
import json
import math
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

ATOLL = sys.argv[1]
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BITS = {"fp32": 32, "bf16": 16, "e3m0": 4 + 8 / 128}
LOSSES = ROOT / "atoll" / "laws" / "published" / "loss.csv"


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


def rounds(plan):
    """Of each round the step it is sent after, the one it is used after, and its values; walked step by step."""
    n, steps = params(plan), plan["steps"]
    if plan["method"] == "data_parallel":
        return [(step, step, n) for step in range(1, steps + 1)]
    every = plan["sync_every"]
    if plan["method"] == "diloco":
        return [(step, step, n) for step in range(1, steps + 1) if step % every == 0 or step == steps]
    outside, layer = shapes(plan)
    parts = plan["num_fragments"]
    sizes = [outside] + [layer * len(range(p, plan["layers"], parts - 1)) for p in range(parts - 1)]
    spacing = every // parts
    due = []
    for step in range(every, steps):
        place = step % every
        if place % spacing == 0 and place // spacing < parts:
            due.append((step, min(step + plan["fragment_sync_delay"], steps), sizes[place // spacing]))
    return due + [(steps, steps, size) for size in sizes]


# --- time: events at the islands and their coordinator, as docs/scaling_from_run.md tells how a round goes ---


class Events:
    def __init__(self):
        self.now, self.coming, self.count = 0.0, [], 0

    def at(self, moment, what, *words):
        self.count += 1
        heapq.heappush(self.coming, (moment, self.count, what, words))

    def run(self):
        while self.coming:
            self.now, _, what, words = heapq.heappop(self.coming)
            what(*words)


class Line:
    """One thing behind the other."""

    def __init__(self):
        self.free = 0.0

    def carry(self, now, seconds):
        self.free = max(now, self.free) + seconds
        return self.free


class Coordinator:
    def __init__(self, events, islands):
        self.events, self.islands, self.heard = events, islands, {}

    def hear(self, what, number):
        """What all have said of a round they are told."""
        self.heard[what, number] = self.heard.get((what, number), 0) + 1
        if self.heard[what, number] < len(self.islands):
            return
        for island in self.islands:
            self.events.at(self.events.now + island.way, getattr(island, what), number)


class Island:
    def __init__(self, events, step_s, way, up, down, copies, plan):
        self.events, self.step_s, self.way = events, step_s, way
        self.up_rate, self.down_rate, self.bits = up, down, copies * BITS[plan["codec"]]
        self.up, self.down, self.scatters = Line(), Line(), not gathers(plan)
        self.step, self.waits_for, self.waited, self.blocked_since = 0, None, 0.0, 0.0
        self.committed_rounds, self.missing, self.own_means = set(), {}, {}

    # Training: to the next step at which there is something to do, and all of that.

    def begin(self, coordinator, schedule):
        self.coordinator, self.schedule = coordinator, schedule
        self.others = [island for island in coordinator.islands if island is not self]
        self.to_do = iter(self.agenda())
        self.go_on()

    def agenda(self):
        """(step, "send" or "use", round): what was sent before is used before something is sent."""
        todo = []
        for number, (sent, used, _) in enumerate(self.schedule):
            todo.append((sent, 1, "send", number))
            todo.append((used, 2 if used == sent else 0, "use", number))
        return [(step, what, number) for step, _, what, number in sorted(todo)]

    def go_on(self):
        for step, what, number in self.to_do:
            if step > self.step:
                later = (step - self.step) * self.step_s
                self.step = step
                self.events.at(self.events.now + later, self.do, what, number)
                return
            if not self.can(what, number):
                return

    def do(self, what, number):
        if self.can(what, number):
            self.go_on()

    def can(self, what, number):
        if what == "send":
            self.tell("opened", number)
        elif number not in self.committed_rounds:
            self.waits_for, self.blocked_since = number, self.events.now
            return False
        return True

    def tell(self, what, number):
        self.events.at(self.events.now + self.way, self.coordinator.hear, what, number)

    # A round, beside training.

    def opened(self, number):
        seconds = self.bits * self.schedule[number][2] / self.up_rate
        end = self.up.carry(self.events.now, seconds)
        # It has all when its line has carried it, and the last bit of each other has come.
        self.missing[number] = self.missing.get(number, 0) + 1 + len(self.others)
        for other in self.others:
            self.events.at(self.events.now + self.way + other.way, other.first_comes, number)
        if not self.scatters:
            self.events.at(end, self.has_left, number)
            return
        # Its last mean waits for the line and for the contributions of all others.
        self.own_means[number] = self.own_means.get(number, 0) + 1 + len(self.others)
        self.events.at(end, self.may_end, number)
        for other in self.others:
            self.events.at(end - seconds / 2 + self.way + other.way, other.may_end, number)

    def may_end(self, number):
        self.own_means[number] = self.own_means.get(number, 0) - 1
        if self.own_means[number] == 0:
            self.has_left(number)

    def has_left(self, number):
        for other in self.others:
            self.events.at(self.events.now + self.way + other.way, other.came, number)

    def first_comes(self, number):
        if (number, "first") in self.missing:
            return
        self.missing[number, "first"] = True
        seconds = self.bits * self.schedule[number][2] / self.down_rate
        self.events.at(self.down.carry(self.events.now, seconds), self.came, number)

    def came(self, number):
        self.missing[number] = self.missing.get(number, 0) - 1
        if self.missing[number] == 0:
            self.tell("committed", number)

    def committed(self, number):
        self.committed_rounds.add(number)
        if self.waits_for == number:
            self.waits_for = None
            self.waited += self.events.now - self.blocked_since
            self.go_on()


def waiting(plan, islands, step_s):
    """Of each island, in seconds."""
    if len(islands) == 1:
        return [0.0]
    payload = 1448 / 1526  # Of what a line carries.
    events = Events()
    sends = copies(plan, [island["up"] for island in islands])
    run = [Island(events, s, island["latency"] / 2, payload * island["up"], payload * island["down"], copy, plan)
           for island, s, copy in zip(islands, step_s, sends)]
    coordinator = Coordinator(events, run)
    schedule = rounds(plan)
    for island in run:
        island.begin(coordinator, schedule)
    events.run()
    assert all(len(island.committed_rounds) == len(schedule) for island in run)
    return [island.waited for island in run]


# --- memory ---


def state(plan, processes, shard):
    """Bytes of process 0's parameters, gradients and moments, and of moments that it has for checkpoints."""
    n, rounded = params(plan), 2 if plan["precision"] == "bf16" else 0
    if processes == 1 or shard == "none":
        return n * (16 + rounded), 0
    if shard == "zero1":
        return n * (8 + rounded + 8 / processes), 8 * n
    others = 16 / (processes - 1)
    whole = 8 if plan["method"] == "data_parallel" else 4  # A round changes process 0's gradients: it has all.
    part = max(0, (others - whole) / (16 - whole + others))
    assert part == 0 or math.isclose(whole + (16 - whole) * part, others * (1 - part))  # None has more than process 0.
    outside, layer = shapes(plan)
    gathered = 12 - whole + rounded
    return n * (whole + (16 - whole) * part) + gathered * (outside + min(2, plan["layers"]) * layer), 0


def activations(plan, rows, is_cpu):
    h, f, layers = plan["hidden"], plan["ff"], plan["layers"]
    layer = 9 * h + 2 * f + 3 * plan["heads"] + 2 if is_cpu else 16 * h + 4 * f + plan["heads"]
    kept = layers * h + 2 * layer if plan["activation_checkpointing"] else layer * (layers + 1)
    size = 2 if plan["precision"] == "bf16" else 4
    elements = 2 ** 21 if is_cpu else 2 ** 26  # Of the logits that the loss makes at a time, or 512 positions.
    positions = min(max(elements // plan["vocab"], 512), rows * plan["sequence_length"])
    copies = (1 if is_cpu else 2) + (0.5 if plan["precision"] == "bf16" else 0)
    return 4 * copies * positions * plan["vocab"] + size * rows * plan["sequence_length"] * (kept + 4 * h)


def memory(plan, rows, island, shard):
    one, m, is_cpu = 4 * params(plan), plan["replicas"], island["device"] == "cpu"
    outer = plan["method"] in ("diloco", "streaming_diloco")
    device, beside = state(plan, island["devices"], shard)
    device += activations(plan, rows, is_cpu)
    if shard != "zero3" or island["devices"] == 1:  # Else these are on the disk.
        beside += one * (3 + 2 * outer + (plan["method"] == "streaming_diloco"))
        if outer:
            device += one + (0 if is_cpu else one)
            beside += 4 * one
    if plan["method"] == "data_parallel":
        beside += 2 * one
    if plan["method"] != "single":
        bits = BITS[plan["codec"] or "fp32"]
        held = m if m == 1 or gathers(plan) else 2 + (m - 1) / m
        beside += one + bits / 32 * one * held
    return device + (beside if is_cpu else 0), 0 if is_cpu else beside


def check_memory(plan, island, one, what):
    assert one["processes"] == island["devices"], what
    assert plan["rows_per_island"] % (plan["micro_batch_rows"] * one["processes"]) == 0, what
    device, host = memory(plan, plan["micro_batch_rows"], island, one["shard"])
    close(one["memory"]["device"], device, 1e-9, f"memory of {what}")
    close(one["memory"]["host"], host, 1e-9, f"host memory of {what}")
    assert device <= 0.9 * island["memory"], what
    # No less sharding fits.
    order = ["none", "zero1", "zero3"]
    for less in order[:order.index(one["shard"])]:
        assert memory(plan, 1, island, less)[0] > 0.9 * island["memory"], f"{what}: {less} fits"


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
    sends = copies(plan, [island["up"] for island in taking_part]) if m > 1 else [0]
    sent = sum(values for _, _, values in rounds(plan)) * BITS[plan["codec"]] / 8 if m > 1 else 0
    for island, one, s, copy in zip(taking_part, plan["per_island"], step_s, sends):
        assert island["name"] == one["name"]
        close(one["step_s"], s, 1e-9, f"step of {what}")
        close(one["bytes_sent"], sent * copy, 2e-5, f"bytes of {what}")
        check_memory(plan, island, one, what)
    close(plan["bytes_sent"], sum(one["bytes_sent"] for one in plan["per_island"]), 1e-9, what)
    computed = [plan["steps"] * s for s in step_s]
    waited = waiting(plan, taking_part, step_s)
    wall_clock = max(c + w for c, w in zip(computed, waited))
    close(plan["wall_clock_s"] / wall_clock, 1, 1e-6, f"time of {what}")
    for one, c, w in zip(plan["per_island"], computed, waited):
        close(one["waiting_s"] / wall_clock, w / wall_clock, 1e-6, f"waiting of {what}")
        close(one["waiting_share"], w / (c + w), 1e-6, f"share of waiting of {what}")
    close(plan["waiting_share"], sum(waited) / (sum(computed) + sum(waited)), 1e-6, f"waiting of {what}")
    close(plan["waiting_share"], 1 - plan["utilisation"], 1e-12, what)


def write_records(folder, plan, sends):
    """Those that the planned run would leave, with nothing but what a plan knows of."""
    names = [f"island-{i}" for i in range(plan["replicas"])]
    for name, one, copy in zip(names, plan["per_island"], sends):
        (folder / name).mkdir(parents=True)
        (folder / name / "config.toml").write_text(plan["config"])
        spent = {"computing": plan["steps"] * one["step_s"], "handling": 0, "waiting": 0, "validation": 0, "checkpoints": 0}
        (folder / name / "metrics.jsonl").write_text(
            json.dumps({"step": plan["steps"], "began_at": 0, "seconds": spent}) + "\n")
        with open(folder / name / "rounds.jsonl", "w") as file:
            for number, (sent, used, values) in enumerate(rounds(plan)):
                size = values * BITS[plan["codec"]] * copy / 8
                file.write(json.dumps({"step": used, "sent": sent, "round": number, "fragment": 0, "values": values,
                                       "codec": plan["codec"], "members": names, "bytes_sent": size, "bytes_received": size,
                                       "exchange_ms": 1, "prepare_ms": 0}) + "\n")


def check_simulated(folder, islands, plan):
    """`simulate --from` says of the planned run what the plan does."""
    write_records(folder, plan, copies(plan, [island["up"] for island in islands]))
    words = []
    for island in islands:
        words += ["--island", f"up={island['up'] / 1e9!r},down={island['down'] / 1e9!r},latency={island['latency'] / 2!r}"]
    said = json.loads(subprocess.run([ATOLL, "scaling", "simulate", "--from", folder, "--gbps", "1", "--json", *words],
                                     check=True, capture_output=True, text=True).stdout)
    what = f"{plan['method']} on {plan['replicas']}, simulated from its records"
    close(said["utilisation"]["predicted"], plan["utilisation"], 1e-8, what)
    for one, island in zip(plan["per_island"], said["islands"]):
        close(island["predicted_waiting_s"] / plan["wall_clock_s"], one["waiting_s"] / plan["wall_clock_s"], 1e-8, what)


def toml(islands, goal, train=None):
    text = "[train]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in (train or {}).items())
    for island in islands:
        text += f'[[island]]\nname = "{island["name"]}"\ndevices = {island["devices"]}\ntflops = {island["tflops"]}\n'
        text += f'device = "{island["device"]}"\nmemory = "{island["memory"] / 1e9}GB"\n'
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
    ([island(name, 40, 1e6, latency=1e-4) for name in "abc"], {"time": "2h", "tokens_per_param": 2}),
    ([island(name, 40, mbit, 1, latency=1) for name, mbit in (("a", 20), ("b", 200), ("c", 200))],
     {"params": 2e8, "tokens": 1e8}),
    ([island("a", 40, 22, 1), island("b", 40, 22, 1, down=100)], {"params": 3e8, "tokens": 3e8, "vocab_size": 256000}),
    ([island("a", 40, 20, 1), island("b", 40, 20, 1)], {"params": 1e9, "tokens": 10.5e6}),
    ([island("a")], {"tokens": 3e9, "tokens_per_param": 60}),
    ([island("a"), island("b", 30)], {"loss": 2.7, "time": "5d"}),
    ([island("a"), island("b", 30)], {"params": 1e8, "tokens": 5e10}),
    ([island("a", memory=16e9), island("b", 30, memory=12e9)], {"time": "60d"}),
    ([island("a", devices=8), island("b", devices=8)], {"params": 2.8e9, "tokens": 2e9}, {"precision": "bf16"}),
    ([island("a", devices=8), island("b", devices=2, memory=200e9)], {"params": 2.5e9, "tokens": 2e9}),
    ([island("a", memory=40e9)], {"params": 2.6e9, "tokens": 1e9}, {"precision": "bf16", "activation_checkpointing": True}),
    ([island("a", 0.05, devices=4, memory=4e9, device="cpu")],
     {"params": 1.5e8, "tokens": 1e8, "vocab_size": 4096, "sequence_length": 256}),
]


def check_plans(folder):
    num = 0
    methods, simulated, shards = set(), set(), set()
    for number, (islands, *asked) in enumerate(PLANS):
        path = folder / f"{number}.toml"
        path.write_text(toml(islands, *asked))
        done = subprocess.run([ATOLL, "plan", path, "--json"], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        plan = json.loads(done.stdout)
        # Of longer runs it reads the end only.
        if plan["replicas"] > 1 and len(rounds(plan)) * plan["replicas"]**2 < 1 << 18:
            taking_part = [island for island in islands if island["name"] in plan["islands"]]
            check_simulated(folder / f"run-{number}", taking_part, plan)
            simulated.add(plan["method"])
        choices = plan["alternatives"]
        best = [choice for choice in choices if choice["recommended"]]
        assert len(best) == 1 and best[0]["loss"] == plan["loss"]
        for choice in choices:
            check(islands, choice)
            methods.add(choice["method"])
            shards |= {one["shard"] for one in choice["per_island"]}
            num += 1
            for other in choices:
                assert other is choice or not (other["loss"] <= choice["loss"] and other["bytes_sent"] <= choice["bytes_sent"]
                                               and other["wall_clock_s"] <= choice["wall_clock_s"])
    assert {"single", "diloco", "streaming_diloco", "data_parallel"} <= methods, methods
    assert {"streaming_diloco", "data_parallel"} <= simulated, simulated
    assert shards == {"none", "zero1", "zero3"}, shards
    return num


# --- activations, beside a real step ---


def peak_bytes(architecture, rows, hidden, layers):
    words = [f"--model.{key}={value}" for key, value in {
        "architecture": architecture, "hidden_size": hidden, "intermediate_size": 8 * hidden // 3 // 8 * 8 + 8,
        "num_layers": layers, "num_heads": hidden // 64, "num_kv_heads": hidden // 64, "vocab_size": 512}.items()]
    done = subprocess.run([ATOLL, "bench", "train-step", "--json", "--steps", "1", "--warmup", "1", f"--train.batch_rows={rows}",
                           "--train.sequence_length=256", "--train.threads=1", *words], check=True, capture_output=True)
    return json.loads(done.stdout)["peak_memory_bytes"]


def check_activations():
    """With norms of queries and keys, and without."""
    hidden, layers = 256, 6
    ff = 8 * hidden // 3 // 8 * 8 + 8
    ratios = []
    for architecture, vectors in (("llama", 6), ("qwen3", 9)):
        small, large = (peak_bytes(architecture, rows, hidden, layers) for rows in (8, 24))
        said = 16 * 4 * 256 * ((vectors * hidden + 2 * ff + 3 * hidden // 64 + 2) * (layers + 1) + 4 * hidden)
        real = large - small
        assert 0.88 * said < real < 1.12 * said, f"{architecture}: 16 rows more take {real / 1e6:.0f} MB, the plan says {said / 1e6:.0f} MB"
        ratios.append(real / said)
    return ratios


def main():
    with tempfile.TemporaryDirectory(prefix="atoll-plan-oracle-") as folder:
        num = check_plans(pathlib.Path(folder))
    ratios = " and ".join(f"{ratio:.2f}" for ratio in check_activations())
    print(f"{num} planned runs agree; activations are {ratios} of what is planned")


if __name__ == "__main__":
    main()
