#!/usr/bin/env python3
"""A training step of plain PyTorch, for bench/train_speed.py: waits for lines, makes a step for each, says how long it took.

  pytorch_step.py SIZE --threads N --precision fp32|tf32|autocast|bf16 [--merged] [--compile] [--device cpu]
  pytorch_step.py SIZE --threads N --peak [--device cpu]      the fastest product of matrices, in FP32 (TF32) and BF16

PyTorch is given its best: F.scaled_dot_product_attention, F.rms_norm, F.cross_entropy, the fused AdamW, gradients set to none.
autocast: FP32 weights, BF16 where LibTorch's autocast says so. bf16: weights and gradients in BF16, an FP32 master copy that
AdamW updates. The loss is taken of FP32 logits, as Atoll's and torchtitan's. --merged: query, key and value in one product,
gate and up in another. --compile: model and loss by torch.compile in its default mode. tf32 is for CUDA.
"""
import argparse
import json
import os
import pathlib
import statistics
import sys
import time

SIZES = {
    "demo": dict(hidden=256, intermediate=640, layers=4, heads=4, kv_heads=2, vocab=4096, rows=8, length=256, tied=True),
    "30m": dict(hidden=512, intermediate=1408, layers=8, heads=8, kv_heads=4, vocab=8192, rows=4, length=512, tied=True),
    "34m": dict(hidden=512, intermediate=1408, layers=8, heads=8, kv_heads=8, vocab=8192, rows=8, length=512, tied=False),
    "135m": dict(hidden=768, intermediate=2048, layers=12, heads=12, kv_heads=12, vocab=32768, rows=4, length=512, tied=False),
}
PRECISIONS = ("fp32", "tf32", "autocast", "bf16")
SHAPES = {"cpu": ((1024, 1024, 1024), (2048, 2048, 2048), (2048, 512, 2816), (2048, 768, 4096)),
          "cuda": ((4096, 4096, 4096), (8192, 8192, 8192), (16384, 2048, 8192), (16384, 4096, 4096))}


def operations_per_token(size):
    """As `atoll bench --help` counts: matrices that a token is multiplied with, and attention over what a query sees."""
    C, I, N = size["hidden"], size["intermediate"], size["hidden"] // size["heads"]
    matrices = size["layers"] * (C * N * (2 * size["heads"] + 2 * size["kv_heads"]) + 3 * C * I) + C * size["vocab"]
    return 6 * matrices + 6 * size["layers"] * size["heads"] * N * (size["length"] + 1)


def make_model(size, merged):
    import torch
    import torch.nn as nn
    import torch.nn.functional as F

    C, I, H, G, T, B, V = (size[k] for k in ("hidden", "intermediate", "heads", "kv_heads", "length", "rows", "vocab"))
    N = C // H

    def linear(inputs, outputs):
        return nn.Linear(inputs, outputs, bias=False)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention_norm, self.mlp_norm = nn.Parameter(torch.ones(C)), nn.Parameter(torch.ones(C))
            if merged:
                self.qkv, self.gate_up = linear(C, (H + 2 * G) * N), linear(C, 2 * I)
            else:
                self.q, self.k, self.v = linear(C, H * N), linear(C, G * N), linear(C, G * N)
                self.gate, self.up = linear(C, I), linear(C, I)
            self.out, self.down = linear(H * N, C), linear(I, C)

        def forward(self, x, cos, sin):
            def turned(x):
                low, high = x.chunk(2, -1)
                return torch.cat((low * cos - high * sin, high * cos + low * sin), -1)

            h = F.rms_norm(x, (C,), self.attention_norm, 1e-5)
            q, k, v = self.qkv(h).split([H * N, G * N, G * N], -1) if merged else (self.q(h), self.k(h), self.v(h))
            q, k, v = (y.view(B, T, -1, N).transpose(1, 2) for y in (q, k, v))
            a = F.scaled_dot_product_attention(turned(q), turned(k), v, is_causal=True, enable_gqa=G != H)
            x = x + self.out(a.transpose(1, 2).reshape(B, T, H * N))
            h = F.rms_norm(x, (C,), self.mlp_norm, 1e-5)
            gate, up = self.gate_up(h).chunk(2, -1) if merged else (self.gate(h), self.up(h))
            return x + self.down(F.silu(gate) * up)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(V, C)
            self.blocks = nn.ModuleList(Block() for _ in range(size["layers"]))
            self.norm = nn.Parameter(torch.ones(C))
            if not size["tied"]:
                self.head = linear(C, V)
            angles = torch.outer(torch.arange(T).float(), 10000.0 ** (-torch.arange(0, N, 2) / N))
            self.register_buffer("cos", angles.cos())
            self.register_buffer("sin", angles.sin())
            for parameter in self.parameters():
                if parameter.dim() == 2:
                    nn.init.normal_(parameter, 0, 0.02)

        def forward(self, ids, targets):
            x = self.embedding(ids)
            for block in self.blocks:
                x = block(x, self.cos, self.sin)
            head = self.embedding.weight if size["tied"] else self.head.weight
            logits = F.linear(F.rms_norm(x, (C,), self.norm, 1e-5), head)
            return F.cross_entropy(logits.view(-1, V).float(), targets)

    return Model()


class Step:
    def __init__(self, size, options):
        import torch
        self.torch, self.device, self.precision = torch, torch.device(options.device), options.precision
        torch.manual_seed(1)
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = options.precision == "tf32"
        B, T, V = size["rows"], size["length"], size["vocab"]
        self.model = make_model(size, options.merged).to(self.device)
        parameters = list(self.model.parameters())
        self.parameters = sum(p.numel() for p in parameters)
        self.masters = []
        if self.precision == "bf16":
            self.masters = [p.detach().clone() for p in parameters]
            self.model.to(torch.bfloat16)
            self.live = list(self.model.parameters())
        self.optimizer = torch.optim.AdamW(self.masters or parameters, lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
        ids = torch.randint(0, V, (B, T))
        self.ids = ids.to(self.device)
        self.targets = torch.cat([ids[:, 1:], torch.full((B, 1), -100)], 1).view(-1).to(self.device)
        self.loss_of = torch.compile(self.model) if options.compile else self.model

    def update(self):
        torch = self.torch
        if not self.masters:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            return
        for master in self.masters:
            if master.grad is None:
                master.grad = torch.empty_like(master)
        torch._foreach_copy_([master.grad for master in self.masters], [live.grad for live in self.live])
        torch.nn.utils.clip_grad_norm_(self.masters, 1.0)
        self.optimizer.step()
        with torch.no_grad():
            torch._foreach_copy_(self.live, self.masters)
        self.model.zero_grad(set_to_none=True)

    def run(self):
        torch = self.torch
        begin = time.perf_counter()
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.precision == "autocast"):
            loss = self.loss_of(self.ids, self.targets)
        loss.backward()
        self.update()
        value = loss.item()
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - begin, value

    def peak_bytes(self):
        if self.device.type == "cuda":
            return self.torch.cuda.max_memory_allocated()
        status = pathlib.Path("/proc/self/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) * 1024


def device_name(device):
    if device.startswith("cuda"):
        import torch
        return torch.cuda.get_device_name(torch.device(device))
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return os.uname().machine


def peaks(device):
    """Operations per second of the fastest product, by precision."""
    import torch

    def rate(shape, dtype):
        M, K, N = shape
        a, b = torch.randn(M, K, device=device).to(dtype), torch.randn(N, K, device=device).to(dtype)
        out = torch.empty(M, N, device=device, dtype=dtype)
        best = float("inf")
        for number in range(7):  # The first is not counted: memory and kernels are new.
            begin, count = time.perf_counter(), 0
            while time.perf_counter() - begin < 0.1:
                for _ in range(1 if device == "cpu" else 20):
                    torch.mm(a, b.t(), out=out)
                    count += 1
                if device != "cpu":
                    torch.cuda.synchronize()
            best = min(best, (time.perf_counter() - begin) / count) if number else best
        return 2.0 * M * K * N / best

    found = {}
    for name, dtype in (("fp32", torch.float32), ("tf32", torch.float32), ("bf16", torch.bfloat16)):
        if name == "tf32" and device == "cpu":
            continue
        torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
        found[name] = max(rate(shape, dtype) for shape in SHAPES["cpu" if device == "cpu" else "cuda"])
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("size", choices=SIZES)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--precision", choices=PRECISIONS, default="fp32")
    parser.add_argument("--merged", action="store_true")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--peak", action="store_true")
    options = parser.parse_args()
    import torch
    torch.set_num_threads(options.threads)
    if options.peak:
        return print(json.dumps({"name": device_name(options.device), "flops_per_s": peaks(options.device)}))
    step = Step(SIZES[options.size], options)
    seconds = []
    for _ in sys.stdin:
        took, loss = step.run()
        seconds.append(took)
        print(json.dumps({"step_ms": took * 1e3, "loss": loss}), flush=True)
    print(json.dumps({"step_ms": statistics.median(seconds) * 1e3 if seconds else 0, "parameters": step.parameters,
                      "peak_memory_bytes": step.peak_bytes(), "torch": torch.__version__, "name": device_name(options.device)}))


if __name__ == "__main__":
    main()
