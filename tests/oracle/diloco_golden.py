#!/usr/bin/env python3
"""DiLoCo over the real network against an independent PyTorch program.

Trains two islands with `atoll`, then does the same with transformers' Llama, torch.optim and
torch.optim as the outer optimiser, from the checkpoint of step 0 and the rows that
numpy's own shuffle names. Largest difference of any parameter after three outer steps: 1e-5.

usage: diloco_golden.py ATOLL STORE
"""
import copy
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

STEPS, H, ROWS, LENGTH, SEED = 6, 2, 8, 32, 5
# What the settings say, and what torch.optim makes of it.
OUTER = {
    "nesterov": ({"outer_lr": 0.7, "outer_momentum": 0.9},
                 lambda p: torch.optim.SGD(p, lr=0.7, momentum=0.9, nesterov=True)),
    "heavy_ball": ({"outer_lr": 0.4, "outer_momentum": 0.8}, lambda p: torch.optim.SGD(p, lr=0.4, momentum=0.8)),
    "sgd": ({"outer_lr": 0.9}, lambda p: torch.optim.SGD(p, lr=0.9)),
    "adam": ({"outer_lr": 0.3, "outer_momentum": 0.9, "outer_beta2": 0.95, "outer_eps": 0.1},
             lambda p: torch.optim.Adam(p, lr=0.3, betas=(0.9, 0.95), eps=0.1)),
}
Z_LOSS, CLIP, DECAY = 1e-4, 1.0, 0.1


def train_with_atoll(atoll, store, folder, optimizer, lr, outer):
    settings = {
        "train.steps": STEPS, "train.batch_rows": ROWS, "train.sequence_length": LENGTH, "train.seed": SEED,
        "train.optimizer": optimizer, "train.lr": lr, "train.schedule": "constant", "train.warmup_steps": 0,
        "train.eps": 1e-5, "train.z_loss": Z_LOSS, "train.grad_clip": CLIP, "train.weight_decay": DECAY,
        "train.checkpoint_every": 0, "train.keep_checkpoints": 0, "train.eval_rows": 1, "train.threads": 1,
        "sync.method": "diloco", "sync.sync_every": H, "sync.outer_optimizer": outer,
        "sync.codec": "fp32", **{f"sync.{key}": value for key, value in OUTER[outer][0].items()},
        "model.hidden_size": 64, "model.intermediate_size": 128, "model.num_layers": 2, "model.num_heads": 4,
        "model.num_kv_heads": 2, "model.max_positions": 64,
    }
    command = [atoll, "train", "--islands", "2", "--run", str(folder), "--data", store, "--json"]
    command += [f"--{name}={value}" for name, value in settings.items()]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def read_rows(store):
    info = json.loads((pathlib.Path(store) / "store.json").read_text())
    dtype = np.uint16 if info["dtype"] in ("u16", "uint16") else np.uint32
    tokens = np.fromfile(pathlib.Path(store) / "tokens-train.npy", dtype=dtype)
    rows = tokens[: len(tokens) // LENGTH * LENGTH].reshape(-1, LENGTH).astype(np.int64)
    order = np.arange(len(rows), dtype=np.uint32)
    np.random.Generator(np.random.PCG64(SEED + 1)).shuffle(order)
    return torch.from_numpy(rows[order])


def loss_of(model, rows):
    logits = model(rows).logits[:, :-1].float()
    log_z = logits.logsumexp(-1)
    chosen = logits.gather(-1, rows[:, 1:, None]).squeeze(-1)
    return (log_z - chosen).mean() + Z_LOSS * (log_z**2).mean()


class Muon:
    """Jordan et al. 2024 from its equations, scaled as Liu et al. 2025 do, in FP32, for the matrices of the layers;
    AdamW for embedding, head and vectors."""

    def __init__(self, model, lr):
        self.lr, self.momentum = lr, 0.95
        inside = {name for name, p in model.named_parameters() if ".layers." in name and p.dim() == 2}
        self.matrices = [p for name, p in model.named_parameters() if name in inside]
        rest = [p for name, p in model.named_parameters() if name not in inside]
        groups = [{"params": [p for p in rest if p.dim() > 1], "weight_decay": DECAY},
                  {"params": [p for p in rest if p.dim() == 1], "weight_decay": 0.0}]
        self.adamw = torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95), eps=1e-5)
        self.buffers = [torch.zeros_like(p) for p in self.matrices]

    @staticmethod
    def orthogonal(x):
        x = x / (x.norm() + 1e-7)
        for _ in range(5):
            gram = x.T @ x if x.shape[0] > x.shape[1] else x @ x.T
            poly = -4.7750 * gram + 2.0315 * gram @ gram
            x = 3.4445 * x + (x @ poly if x.shape[0] > x.shape[1] else poly @ x)
        return x

    @torch.no_grad()
    def step(self):
        for p, buffer in zip(self.matrices, self.buffers):
            buffer.mul_(self.momentum).add_(p.grad)  # The plain sum: a constant factor is lost in orthogonal().
            update = self.orthogonal(p.grad + self.momentum * buffer)
            scale = 0.2 * max(p.shape) ** 0.5
            p.mul_(1 - self.lr * DECAY).sub_(self.lr * scale * update)
        self.adamw.step()

    def zero_grad(self):
        for p in self.matrices:
            p.grad = None
        self.adamw.zero_grad()


def inner_optimizer(model, name, lr):
    if name == "muon":
        return Muon(model, lr), []
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() == 1]
    if name == "sgd":  # Decoupled decay by hand: torch's SGD couples it.
        return torch.optim.SGD(model.parameters(), lr=lr), matrices
    groups = [{"params": matrices, "weight_decay": DECAY}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95), eps=1e-5), []


def train_with_pytorch(start, rows, name, lr, outer_name):
    """Returns the global model after all rounds."""
    replicas = [copy.deepcopy(start) for _ in range(2)]
    inner = [inner_optimizer(replica, name, lr) for replica in replicas]
    outer = OUTER[outer_name][1](start.parameters())
    for step in range(STEPS):
        batch = rows[step * ROWS : (step + 1) * ROWS]
        for i, (replica, (optimizer, decayed)) in enumerate(zip(replicas, inner)):
            optimizer.zero_grad()
            loss_of(replica, batch[i * ROWS // 2 : (i + 1) * ROWS // 2]).backward()
            torch.nn.utils.clip_grad_norm_(replica.parameters(), CLIP)
            for p in decayed:
                p.data.mul_(1 - lr * DECAY)
            optimizer.step()
        if (step + 1) % H:
            continue
        for parameters in zip(start.parameters(), *(replica.parameters() for replica in replicas)):
            parameters[0].grad = sum(parameters[0].data - p.data for p in parameters[1:]) / 2
        outer.step()
        for replica in replicas:
            for p, q in zip(replica.parameters(), start.parameters()):
                p.data.copy_(q.data)
    return start


def check(atoll, store, name, lr, outer="nesterov"):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder) / "run"
        train_with_atoll(atoll, store, folder, name, lr, outer)
        checkpoints = folder / "island-0" / "checkpoints"
        start = AutoModelForCausalLM.from_pretrained(checkpoints / "step-00000000", dtype=torch.float32)
        start.train()
        before = {key: value.clone() for key, value in start.state_dict().items()}
        golden = train_with_pytorch(start, read_rows(store), name, lr, outer).state_dict()
        worst = moved = 0.0
        for island in ("island-0", "island-1"):
            ours = load_file(folder / island / "checkpoints" / f"step-{STEPS:08}" / "model.safetensors")
            for key, value in ours.items():
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
