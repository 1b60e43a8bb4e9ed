#!/usr/bin/env python3
"""DiLoCo over the real network against an independent PyTorch program.

Trains two islands with `atoll`, then does the same with transformers' Llama, torch.optim and
torch.optim as the outer optimiser, from the checkpoint of step 0 and the rows that
numpy's own shuffle names. Largest difference of any parameter after three outer steps: 1e-5.

usage: diloco_golden.py ATOLL STORE
"""
import json
import pathlib
import sys
import tempfile

import torch
from safetensors.torch import load_file

from replica import Replica, checkpoint_folder, load_start, read_rows, train_with_atoll

STEPS, H = 6, 2
MODEL = {"model.hidden_size": 64, "model.intermediate_size": 128, "model.num_layers": 2, "model.num_heads": 4,
         "model.num_kv_heads": 2}
# What the settings say, and what torch.optim makes of it.
OUTER = {
    "nesterov": ({"outer_lr": 0.7, "outer_momentum": 0.9},
                 lambda p: torch.optim.SGD(p, lr=0.7, momentum=0.9, nesterov=True)),
    "heavy_ball": ({"outer_lr": 0.4, "outer_momentum": 0.8}, lambda p: torch.optim.SGD(p, lr=0.4, momentum=0.8)),
    "sgd": ({"outer_lr": 0.9}, lambda p: torch.optim.SGD(p, lr=0.9)),
    "adam": ({"outer_lr": 0.3, "outer_momentum": 0.9, "outer_beta2": 0.95, "outer_eps": 0.1},
             lambda p: torch.optim.Adam(p, lr=0.3, betas=(0.9, 0.95), eps=0.1)),
}


def settings_of(optimizer, lr, outer):
    return {"train.steps": STEPS, "train.optimizer": optimizer, "train.lr": lr, "sync.method": "diloco",
            "sync.sync_every": H, "sync.outer_optimizer": outer, "sync.codec": "fp32",
            **{f"sync.{key}": value for key, value in OUTER[outer][0].items()}, **MODEL}


def train_with_pytorch(start, rows, name, lr, outer_name):
    """Returns the global model after all rounds."""
    replicas = [Replica(start, name, lr, rank) for rank in range(2)]
    outer = OUTER[outer_name][1](start.parameters())
    for step in range(STEPS):
        for replica in replicas:
            replica.train_step(rows, step)
        if (step + 1) % H:
            continue
        for parameters in zip(start.parameters(), *(replica.model.parameters() for replica in replicas)):
            parameters[0].grad = sum(parameters[0].data - p.data for p in parameters[1:]) / 2
        outer.step()
        for replica in replicas:
            for p, q in zip(replica.model.parameters(), start.parameters()):
                p.data.copy_(q.data)
    return start


def check(atoll, store, name, lr, outer="nesterov"):
    with tempfile.TemporaryDirectory() as folder:
        run = pathlib.Path(folder) / "run"
        train_with_atoll(atoll, store, run, settings_of(name, lr, outer))
        start = load_start(run)
        before = {key: value.clone() for key, value in start.state_dict().items()}
        golden = train_with_pytorch(start, read_rows(store), name, lr, outer).state_dict()
        worst = moved = 0.0
        for island in range(2):
            for key, value in load_file(checkpoint_folder(run, island, STEPS) / "model.safetensors").items():
                worst = max(worst, (golden[key] - value).abs().max().item())
                moved = max(moved, (before[key] - value).abs().max().item())
    ok = worst <= 1e-5 and moved > 1e-3
    print(f"inner {name}, outer {outer}: largest difference {worst:.2e} after {STEPS // H} outer steps "
          f"(parameters moved by up to {moved:.2e}): {'ok' if ok else 'WRONG'}")
    return {"inner": name, "outer": outer, "max_difference": worst, "ok": ok}


def main():
    atoll, store = sys.argv[1:3]
    results = [check(atoll, store, "sgd", 0.5), check(atoll, store, "adamw", 1e-3),
               check(atoll, store, "muon", 1e-3)]
    results += [check(atoll, store, "sgd", 0.5, outer) for outer in ("heavy_ball", "sgd", "adam")]
    print(json.dumps({"max_difference": max(r["max_difference"] for r in results)}))
    return 0 if all(r["ok"] for r in results) else 1


if __name__ == "__main__":
    sys.exit(main())
