#!/usr/bin/env python3
"""Scaling laws and the utilisation simulators beside independent ones: numpy's least squares, a Gauss-Newton search of
the parametric forms, the paper's graph of a step walked node by node, and made-up runs walked step by step.

usage: scaling_oracle.py ATOLL
"""
import itertools
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import numpy as np

ATOLL = sys.argv[1]
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DELTA = 1e-3


def atoll(*words):
    done = subprocess.run([ATOLL, "scaling", *map(str, words), "--json"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


# --- laws ---


def ols(columns, y):
    return np.linalg.lstsq(np.stack(columns, 1), np.log(y), rcond=None)[0]


def close(a, b, tolerance, what):
    assert abs(a - b) <= tolerance * max(1, abs(b)), f"{what}: {a} instead of {b}"


def check_power_laws(table, fit):
    n, m, y = table.T
    for law in fit["independent"]:
        rows = m == law["replicas"]
        c = ols([np.ones(rows.sum()), np.log(n[rows])], y[rows])
        close(law["A"], np.exp(c[0]), 1e-8, "A")
        close(law["alpha"], c[1], 1e-10, "alpha")
    rows = m >= 1
    c = ols([np.ones(rows.sum()), np.log(n[rows]), np.log(m[rows])], y[rows])
    for name, value in zip(("A", "alpha", "beta"), (np.exp(c[0]), c[1], c[2])):
        close(fit["joint"][name], value, 1e-8, name)
    largest = n[rows].max()
    kept = rows & (n < largest)
    c = ols([np.ones(kept.sum()), np.log(n[kept]), np.log(m[kept])], y[kept])
    for entry in fit["leave_one_out"]["joint"]:
        out = rows & (n == largest) & (m == entry["replicas"])
        said = c @ [1, np.log(largest), np.log(entry["replicas"])]
        close(entry["residual"], abs(np.log(y[out][0]) - said), 1e-9, "leave-one-out residual")


# --- which runs compare ---


def grouped(ratios):
    """Each ratio's group, as the largest set within 5 % of its least; of as large ones, that of the lowest. Then the rest."""
    left, groups = sorted(ratios), {}
    while left:
        sets = [[r for r in left if low <= r <= 1.05 * low] for low in left]
        best = max(sets, key=len)  # The first of as many.
        for r in best:
            groups[r] = best[0]
        below, above = [r for r in left if r < best[0]], [r for r in left if r > best[-1]]
        groups |= grouped(below) | grouped(above)
        left = []
    return groups


def lines_left_out(rows):
    """Of rows (params, replicas, tokens, sync_every, method), from line 2 on; None: no kind has most."""
    groups = grouped([tokens / params for params, _, tokens, _, _ in rows])
    kinds = [(groups[t / n], h, method) if m else (groups[t / n],) for n, m, t, h, method in rows]
    tokens_with_replicas = {kind[0] for kind in kinds if len(kind) > 1}
    weights = {}
    for kind in set(kinds):
        if len(kind) > 1 or kind[0] not in tokens_with_replicas:
            own = [row for row, other in zip(rows, kinds) if other == kind]
            weights[kind] = (len({row[0] for row in own}), len(own))
    best = [kind for kind in weights if weights[kind] == max(weights.values())]
    if len(best) > 1:
        return None
    return [line for line, kind in enumerate(kinds, 2) if kind != best[0] and kind != best[0][:1]]


def check_comparable(folder):
    generator = random.Random(3)
    outcomes = {"refused": 0, "all": 0, "some left out": 0}
    for number in range(60):
        rows = set()
        for _ in range(generator.choice([8, 14, 25])):
            n, m = generator.choice([1e6, 2e6, 4e6, 8e6]), generator.choice([0, 1, 2])
            tokens = round(n * generator.choice([20, 20, 20, 20.4, 19.7, generator.choice([80, 21.2])]))
            rows.add((n, m, tokens, 30 if generator.random() < 0.9 else 1, "b" if generator.random() < 0.05 else "a"))
        rows = sorted(rows, key=lambda row: generator.random())
        rows += [(2.0 ** i * 1e6, m, 20 * 2 ** i * 10 ** 6, 30, "a") for i in (5, 6, 7) for m in (1, 2)] * (number % 3 > 0)
        if number % 6 == 0:  # Two kinds of as many.
            rows = [(n, 2, 20 * n, h, "a") for n in (1e6, 2e6, 4e6) for h in (1, 30)] + [(1e6, 0, 20e6, 30, "a")]
        file = folder / f"mixed-{number}.csv"
        file.write_text("params,replicas,tokens,sync_every,method,loss\n" + "".join(
            f"{n},{m},{t},{h if m else ''},{method if m else ''},{30 * n ** -0.1 + 0.001 * i}\n"
            for i, (n, m, t, h, method) in enumerate(rows)))
        try:
            theirs = lines_left_out(rows)
            done = subprocess.run([ATOLL, "scaling", "fit", file, "--bootstrap", "0", "--starts", "1", "--json"],
                                  capture_output=True, text=True)
            if theirs is None:
                assert done.returncode == 1 and "do not compare" in done.stderr, done
                outcomes["refused"] += 1
            elif done.returncode == 1:
                assert "too few points" in done.stderr or "same row" in done.stderr or "contradicts" in done.stderr, done
            else:
                ours = sorted(line for entry in json.loads(done.stdout)["left_out"] for line in entry["lines"])
                assert ours == theirs, f"{file.read_text()}: {ours} instead of {theirs}"
                outcomes["some left out" if theirs else "all"] += 1
        except AssertionError:
            print(file.read_text(), file=sys.stderr)
            raise
    assert outcomes["some left out"] > 20 and outcomes["refused"] > 0, outcomes
    return sum(outcomes.values())


# --- parametric forms: iteratively reweighted Levenberg-Marquardt from many starts ---

FORMS = {
    "A*N^a*M^b": (("A", "a", "b"), lambda p, n, m: np.exp(p[0]) * n ** p[1] * m ** p[2]),
    "A*N^a*M^b+C": (("A", "a", "b", "C"), lambda p, n, m: np.exp(p[0]) * n ** p[1] * m ** p[2] + np.exp(p[3])),
    "A*N^(a+b*M)+C": (("A", "a", "b", "C"), lambda p, n, m: np.exp(p[0]) * n ** (p[1] + p[2] * m) + np.exp(p[3])),
    "A*N^a+B*M^b+C": (("A", "a", "B", "b", "C"),
                      lambda p, n, m: np.exp(p[0]) * n ** p[1] + np.exp(p[2]) * m ** p[3] + np.exp(p[4])),
}


def huber(residuals):
    size = np.abs(residuals) / DELTA
    return np.where(size <= 1, size**2 / 2, size - 0.5).sum()


def best_objective(form, n, m, y, starts):
    """The smallest sum of Huber losses that a search finds; the gradient is taken numerically."""
    names, f = FORMS[form]

    def residuals(p):
        with np.errstate(all="ignore"):
            return np.log(f(p, n, m)) - np.log(y)

    best = np.inf
    for start in starts:
        p, damping = np.array(start), 1e-2
        value = huber(residuals(p))
        for _ in range(400):
            r = residuals(p)
            steps = 1e-6 * np.maximum(1e-3, np.abs(p))
            jacobian = np.stack([(residuals(p + s * e) - r) / s for s, e in zip(steps, np.eye(len(p)))], 1)
            weights = 1 / np.maximum(np.abs(r), DELTA)
            normal = jacobian.T * weights @ jacobian
            step = np.linalg.lstsq(normal + damping * np.diag(np.diag(normal) + 1e-12), -(jacobian.T * weights) @ r, rcond=None)[0]
            next_value = huber(residuals(p + step))
            if next_value < value:
                p, gain, value, damping = p + step, value - next_value, next_value, damping / 3
                if gain < 1e-10 * value:
                    break
            else:
                damping *= 4
                if damping > 1e12:
                    break
        best = min(best, value)
    return best


def check_forms(table, fit):
    n, m, y = table[table[:, 1] >= 1].T
    kept = n < n.max()
    generator = random.Random(1)
    for result in fit["parametric"]:
        form = result["form"]
        names, f = FORMS[form]
        c = result["coefficients"]
        p = np.array([np.log(c[name]) if name.isupper() else c[name] for name in names])
        ours = huber(np.log(f(p, n[kept], m[kept])) - np.log(y[kept]))
        mean = np.abs(np.log(f(p, n[~kept], m[~kept])) - np.log(y[~kept])).mean()
        close(result["residual"], mean, 1e-8, f"{form}: residual")
        spread = {"A": (2.5, 4), "B": (-5, -1), "C": (-1, 0.7), "a": (-0.2, -0.08), "b": (0, 0.02)}
        if form.startswith("A*N^a+"):
            spread["b"] = (0.2, 1.2)
        starts = [[generator.uniform(*spread[name]) for name in names] for _ in range(12)]
        theirs = best_objective(form, n[kept], m[kept], y[kept], starts)
        assert ours <= theirs * (1 + 1e-4), f"{form}: objective {ours}, and {theirs} can be had"


# --- the simulator: the graph of a step, node by node ---


def utilisation(layers, step_s, bits, gbps, method, sync_every, fragments, delay):
    unit, now, net, computed = step_s / (3 * layers), 0.0, 0.0, 0.0
    pending = {}
    for step in range(1, (40 if method == "data_parallel" else 10 * sync_every + 1) + 1):
        for layer in range(layers):
            waiting = pending.setdefault(layer, [])
            for done, needed in waiting:
                if needed <= step:
                    now = max(now, done)
            pending[layer] = [entry for entry in waiting if entry[1] > step]
            now, computed = now + unit, computed + unit
        for layer in reversed(range(layers)):
            units = 2 if layer > 0 else 1
            now, computed = now + units * unit, computed + units * unit
            place = step % sync_every
            spacing = sync_every // (fragments + 1)
            if method == "data_parallel":
                sends = True
            elif method == "diloco":
                sends = place == 0
            else:
                sends = any(place == slot * spacing and layer % fragments == slot - 1 for slot in range(1, fragments + 1))
            if sends:
                net = max(now, net) + bits / layers / (gbps * 1e9)
                pending[layer].append((net, step + 1 + delay))
    return computed / now


def check_simulator():
    num = 0
    cases = [("data_parallel", 1, 1, 0), ("diloco", 30, 1, 0), ("streaming_diloco", 50, 4, 0),
             ("streaming_diloco", 50, 4, 1), ("streaming_diloco", 47, 5, 3)]
    for (method, sync_every, fragments, delay), (layers, bits) in itertools.product(cases, ((7, 16), (24, 4))):
        gbps = 2.0 if method != "data_parallel" else 60
        words = ["--sync-every", sync_every, "--fragments", fragments, "--delay", delay, "--bits", bits]
        ours = atoll("simulate", "--params", 3e8, "--layers", layers, "--step-time", 0.05, "--method", method, *words,
                     "--gbps", gbps, "--calibration", "none", "--targets", "0.5,0.9,1")
        theirs = utilisation(layers, 0.05, bits * 3e8, gbps, method, sync_every, fragments, delay)
        close(ours["at"]["utilisation"], theirs, 1e-9, f"{method} {words}")
        for target, index in zip(ours["targets"], ours["grid_index"]):
            at = {k: utilisation(layers, 0.05, bits * 3e8, 10 ** (-1 + 4 * k / 49), method, sync_every, fragments, delay)
                  for k in (range(50) if index is None else (index - 1, index)) if k >= 0}
            if index is None:
                assert max(at.values()) < target - 1e-9, (method, words, target)
            else:
                assert at[index] >= target - 1e-9 > at.get(index - 1, 0), (method, words, target)
        num += 1
    return num


# --- runs that were recorded: every island walked step by step ---


def made_up_run(folder, generator, num_islands, scatters):
    """Writes the records; returns what a walk needs."""
    log_every, steps, period, delay = 5, 60, generator.choice([10, 15]), 0 if scatters else generator.choice([0, 2, 7])
    names = [f"island-{i}" for i in range(num_islands)]
    islands = []
    for name in names:
        times = [[generator.uniform(0.05, 0.1)] * log_every for _ in range(steps // log_every)]
        islands.append({"step_s": sum(times, []), "pause_s": [0.2 if s % 20 == 19 else 0 for s in range(steps)],
                        "handling_s": [0.01 if s % log_every == 0 else 0 for s in range(steps)],
                        "prepare_s": generator.uniform(0, 0.05)})
    rounds = [{"sent": s, "step": min(s + delay, steps), "bytes": generator.uniform(2e5, 1e6)}
              for s in range(period, steps + 1, period)]
    method = 'method = "diloco"' if scatters else 'method = "streaming_diloco"\nnum_fragments = 1'
    for name, island in zip(names, islands):
        path = folder / name
        path.mkdir(parents=True)
        (path / "config.toml").write_text(f"[sync]\n{method}\nsync_every = {period}\n[swarm]\nmin_replicas = {num_islands}\n")
        with (path / "metrics.jsonl").open("w") as file:
            for step in range(log_every, steps + 1, log_every):
                spent = {"computing": sum(island["step_s"][:step]), "handling": sum(island["handling_s"][:step]), "waiting": step,
                         "validation": sum(island["pause_s"][:step]), "checkpoints": 0}
                file.write(json.dumps({"step": step, "began_at": 0, "seconds": spent}) + "\n")
        with (path / "rounds.jsonl").open("w") as file:
            for number, r in enumerate(rounds):
                file.write(json.dumps({"step": r["step"], "sent": r["sent"], "round": number, "fragment": 0, "members": names,
                                       "values": 1, "codec": "fp32" if scatters else "e3m0", "bytes_sent": r["bytes"],
                                       "bytes_received": r["bytes"], "exchange_ms": 1, "prepare_ms": 1000 * island["prepare_s"]}) + "\n")
        # Between two lines all steps are alike.
        for field in "pause_s", "handling_s":
            island[field] = [sum(island[field][s // log_every * log_every:(s // log_every + 1) * log_every]) / log_every
                             for s in range(steps)]
    return islands, rounds


def walk(islands, rounds, lines, rate, scatters):
    """Each island's computing and waiting seconds. `lines`: (up, down, latency) of each."""
    everybody = range(len(islands))
    clock, computed, waited, handled = ([0.0] * len(islands) for _ in range(4))
    up_free, down_free = [0.0] * len(islands), [0.0] * len(islands)
    committed = {}

    def wait(number, i):
        waited[i] += max(0, committed[number][i] - clock[i])
        clock[i] = max(clock[i], committed[number][i])

    def exchange(number, size):
        begun = max(clock[i] + lines[i][2] for i in everybody)
        hears = [begun + lines[i][2] for i in everybody]
        sent, contributed = [], []
        for i in everybody:
            first = max(hears[i], up_free[i])
            up_free[i] = first + 8 * size / (rate * lines[i][0])
            sent.append(up_free[i])
            contributed.append((first + up_free[i]) / 2)
        if scatters:
            sent = [max(sent[i], max(contributed[j] + lines[i][2] + lines[j][2] for j in everybody if j != i)) for i in everybody]
        ready = []
        for i in everybody:
            others = [j for j in everybody if j != i]
            first = min(hears[j] + lines[i][2] + lines[j][2] for j in others)
            down_free[i] = max(first, down_free[i]) + 8 * size / (rate * lines[i][1])
            done = max([down_free[i]] + [sent[j] + lines[i][2] + lines[j][2] for j in others])
            ready.append(done + islands[i]["prepare_s"] + lines[i][2])
        committed[number] = [max(ready) + lines[i][2] for i in everybody]

    for s in range(len(islands[0]["step_s"])):
        for i in everybody:
            island = islands[i]
            computed[i] += island["step_s"][s]
            handled[i] += island["handling_s"][s]
            clock[i] += island["step_s"][s] + island["handling_s"][s] + island["pause_s"][s]
        for number, r in enumerate(rounds):
            if r["step"] == s + 1 and r["sent"] < s + 1:
                [wait(number, i) for i in everybody]
        for number, r in enumerate(rounds):
            if r["sent"] == s + 1:
                exchange(number, r["bytes"])
                if r["step"] == s + 1:
                    [wait(number, i) for i in everybody]
    return [(c, w, h) for c, w, h in zip(computed, waited, handled)]


def check_recorded_runs(folder):
    generator = random.Random(2)
    payload = 1448 / 1526
    num = 0
    for number in range(12):
        scatters = number % 3 == 0
        run = folder / f"run-{number}"
        islands, rounds = made_up_run(run, generator, 3 if scatters else generator.choice([2, 3]), scatters)
        lines = [(generator.uniform(0.2, 1), generator.uniform(0.2, 1), generator.uniform(0, 0.1)) for _ in islands]
        words = [f"--island=up={up:.6f},down={down:.6f},latency={latency:.6f}" for up, down, latency in lines]
        lines = [tuple(round(x, 6) for x in line) for line in lines]
        said = atoll("simulate", "--from", run, "--gbps", 0.02, *words)
        theirs = walk(islands, rounds, lines, 0.02e9 * payload, scatters)
        for island, (computed, waited, handled) in zip(said["islands"], theirs):
            close(island["predicted_waiting_s"], waited, 1e-9, f"run {number}: waiting")
            close(island["predicted"], computed / (computed + waited + handled), 1e-9, f"run {number}: utilisation")
        num += 1
    return num


def main():
    tables = [ROOT / "atoll" / "laws" / "published" / "loss.csv"]
    folder = tempfile.TemporaryDirectory(prefix="atoll-scaling-")
    generator = np.random.default_rng(1)
    made = pathlib.Path(folder.name) / "made.csv"
    rows = [(n, m, (30 * n**-0.15 * m**0.02 + 1) * np.exp(0.003 * generator.standard_normal()))
            for m in (1, 2, 3, 8) for n in (1.5e4, 3e4, 6e4, 1.2e5, 2.5e5)]
    made.write_text("params,replicas,loss\n" + "".join(f"{n},{m},{y}\n" for n, m, y in rows))
    tables.append(made)
    for file in tables:
        lines = [line.split(",")[:3] for line in file.read_text().splitlines() if line and not line.startswith("#")]
        table = np.array(lines[1:], dtype=float)
        fit = atoll("fit", file, "--bootstrap", 0)
        check_power_laws(table, fit)
        check_forms(table, fit)
    print(f"scaling: {len(tables)} tables, {check_comparable(pathlib.Path(folder.name))} mixed tables, "
          f"{check_simulator()} simulated workloads and "
          f"{check_recorded_runs(pathlib.Path(folder.name))} recorded runs are equal")


if __name__ == "__main__":
    main()
