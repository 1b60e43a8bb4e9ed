"""One island as an independent program: transformers' Llama and torch.optim, on the rows that numpy's shuffle names.

What the oracle tests of the synchronisation methods share: the tiny model, a run of `atoll` with it, and Replica.
"""
import copy
import json
import pathlib
import subprocess

import numpy as np
import torch
from transformers import AutoModelForCausalLM
from transformers.utils import logging

logging.disable_progress_bar()
torch.set_num_threads(1)  # Of so small a model more are slower.

ROWS, LENGTH, SEED = 8, 32, 5
Z_LOSS, CLIP, DECAY, BETAS, EPS = 1e-4, 1.0, 0.1, (0.9, 0.95), 1e-5
SETTINGS = {
    "train.batch_rows": ROWS, "train.sequence_length": LENGTH, "train.seed": SEED, "train.schedule": "constant",
    "train.warmup_steps": 0, "train.z_loss": Z_LOSS, "train.grad_clip": CLIP,
    "train.weight_decay": DECAY, "train.checkpoint_every": 0, "train.keep_checkpoints": 0, "train.eval_rows": 1,
    "train.threads": 1, "model.max_positions": 64,
}


def train_with_atoll(atoll, store, folder, settings):
    """Two islands on this machine; `settings` come on top of SETTINGS."""
    command = [atoll, "train", "--islands", "2", "--run", str(folder), "--data", str(store), "--json"]
    if settings.get("train.optimizer") != "sgd":
        settings = {"train.eps": EPS, **settings}
    command += [f"--{name}={value}" for name, value in {**SETTINGS, **settings}.items()]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"
    return json.loads(done.stdout)


def checkpoint_folder(run, island, step):
    return pathlib.Path(run) / f"island-{island}" / "checkpoints" / f"step-{step:08}"


def load_start(run):
    """The model of the checkpoint of step 0, ready to train."""
    model = AutoModelForCausalLM.from_pretrained(checkpoint_folder(run, 0, 0), dtype=torch.float32)
    return model.train()


def read_rows(store):
    """(rows, LENGTH), in the order of the first pass."""
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
        self.adamw = adamw(rest, lr)
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
            buffer.mul_(self.momentum).add_((1 - self.momentum) * p.grad)
            update = self.orthogonal((1 - self.momentum) * p.grad + self.momentum * buffer)
            scale = 0.2 * max(p.shape) ** 0.5
            p.mul_(1 - self.lr * DECAY).sub_(self.lr * scale * update)
        self.adamw.step()


class Sgd:
    """Decoupled decay by hand: torch's SGD couples it."""

    def __init__(self, parameters, lr):
        self.lr, self.decayed = lr, [p for p in parameters if p.dim() > 1]
        self.sgd = torch.optim.SGD(parameters, lr=lr)

    @torch.no_grad()
    def step(self):
        for p in self.decayed:
            p.mul_(1 - self.lr * DECAY)
        self.sgd.step()


def adamw(parameters, lr):
    groups = [{"params": [p for p in parameters if p.dim() > 1], "weight_decay": DECAY},
              {"params": [p for p in parameters if p.dim() == 1], "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=lr, betas=BETAS, eps=EPS)


def inner_optimizer(model, name, lr):
    parameters = list(model.parameters())
    return {"muon": lambda: Muon(model, lr), "sgd": lambda: Sgd(parameters, lr),
            "adamw": lambda: adamw(parameters, lr)}[name]()


class Replica:
    """Island `rank` of two."""

    def __init__(self, start, optimizer, lr, rank):
        self.model = copy.deepcopy(start)
        self.optimizer = inner_optimizer(self.model, optimizer, lr)
        self.rank = rank

    def train_step(self, rows, step):
        """Inner step `step`, from 0."""
        self.compute_gradient(rows, step)
        self.update()

    def compute_gradient(self, rows, step):
        """Of this replica's half of the step's global batch."""
        begin = step * ROWS + self.rank * ROWS // 2
        self.model.zero_grad()
        loss_of(self.model, rows[begin : begin + ROWS // 2]).backward()

    def update(self):
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
        self.optimizer.step()
