#!/usr/bin/env python3
"""Training speed of Atoll and of plain PyTorch: same model, batch and threads, in turns, in one run.

  train_speed.py ATOLL [--rounds 3] [--steps 8] [--threads 1,2] [--size demo|30m]

Each round starts both programs afresh, one after the other. PyTorch is given its best: eager mode with
F.scaled_dot_product_attention, F.rms_norm, F.cross_entropy and the fused AdamW, once with separate and
once with merged projections; the faster of the two counts. Prints one JSON object with the medians.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

SIZES = {
    "demo": dict(hidden=256, intermediate=640, layers=4, heads=4, kv_heads=2, vocab=4096, rows=8, length=256),
    "30m": dict(hidden=512, intermediate=1408, layers=8, heads=8, kv_heads=4, vocab=8192, rows=4, length=512),
}


def pytorch_step(size, threads, steps, merged):
    import torch
    import torch.nn as nn
    import torch.nn.functional as F

    torch.set_num_threads(threads)
    torch.manual_seed(1)
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
            angles = torch.outer(torch.arange(T).float(), 10000.0 ** (-torch.arange(0, N, 2) / N))
            self.cos, self.sin = angles.cos(), angles.sin()
            for parameter in self.parameters():
                if parameter.dim() == 2:
                    nn.init.normal_(parameter, 0, 0.02)

        def forward(self, ids):
            x = self.embedding(ids)
            for block in self.blocks:
                x = block(x, self.cos, self.sin)
            return F.linear(F.rms_norm(x, (C,), self.norm, 1e-5), self.embedding.weight)

    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    ids = torch.randint(0, V, (B, T))
    targets = torch.cat([ids[:, 1:], torch.full((B, 1), -100)], 1).view(-1)
    seconds = []
    for step in range(3 + steps):
        begin = time.perf_counter()
        loss = F.cross_entropy(model(ids).view(-1, V), targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
        if step >= 3:
            seconds.append(time.perf_counter() - begin)
    count = sum(p.numel() for p in model.parameters())
    print(json.dumps({"tokens_per_s": B * T / statistics.median(seconds), "parameters": count}))


def run(command, environment=None):
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.stderr}")
    return json.loads(done.stdout)


def measure(atoll, name, threads, steps):
    size = SIZES[name]
    keys = {"hidden": "model.hidden_size", "intermediate": "model.intermediate_size", "layers": "model.num_layers",
            "heads": "model.num_heads", "kv_heads": "model.num_kv_heads", "vocab": "model.vocab_size",
            "rows": "train.batch_rows", "length": "train.sequence_length"}
    settings = [f"--{keys[key]}={value}" for key, value in size.items()]
    ours = run([atoll, "bench", "train-step", "--json", f"--steps={steps}", f"--train.threads={threads}", *settings])
    theirs = {}
    for merged in ("separate", "merged"):
        theirs[merged] = run([sys.executable, __file__, "--worker", merged, "--size", name, "--threads", str(threads),
                              "--steps", str(steps)], os.environ | {"OMP_NUM_THREADS": str(threads)})
        assert theirs[merged]["parameters"] == ours["parameters"], "the two models differ"
    return ours, theirs


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("atoll", nargs="?")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--size", choices=SIZES, default="demo")
    parser.add_argument("--worker", choices=["separate", "merged"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        return pytorch_step(SIZES[arguments.size], int(arguments.threads), arguments.steps,
                            arguments.worker == "merged")
    results = {"size": arguments.size, "rounds": arguments.rounds, "threads": {}}
    for threads in map(int, arguments.threads.split(",")):
        ours, theirs, ratios = [], {"separate": [], "merged": []}, []
        for number in range(arguments.rounds):
            us, them = measure(arguments.atoll, arguments.size, threads, arguments.steps)
            ours.append(us["tokens_per_s"])
            for variant, result in them.items():
                theirs[variant].append(result["tokens_per_s"])
            ratios.append(ours[-1] / max(values[-1] for values in theirs.values()))
            print(f"{threads} thread(s), round {number + 1}: atoll {ours[-1]:.0f}, pytorch "
                  f"{theirs['separate'][-1]:.0f} / {theirs['merged'][-1]:.0f} tokens/s, ratio {ratios[-1]:.2f}",
                  file=sys.stderr)
        results["threads"][threads] = {
            "atoll_tokens_per_s": statistics.median(ours),
            "pytorch_tokens_per_s": max(statistics.median(values) for values in theirs.values()),
            "ratio_median": statistics.median(ratios), "ratio_min": min(ratios), "ratio_max": max(ratios)}
    results["ratio"] = min(entry["ratio_median"] for entry in results["threads"].values())
    print(json.dumps(results))


if __name__ == "__main__":
    main()
