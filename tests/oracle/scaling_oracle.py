#!/usr/bin/env python3
"""Scaling laws and the utilisation simulator beside independent ones: numpy's least squares, a Gauss-Newton search of
the parametric forms, and the paper's graph of a step walked node by node.

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


def main():
    tables = [ROOT / "atoll" / "scaling" / "published" / "loss.csv"]
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
    print(f"scaling: {len(tables)} tables and {check_simulator()} simulated workloads are equal")


if __name__ == "__main__":
    main()
