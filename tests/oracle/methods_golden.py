#!/usr/bin/env python3
"""Every synchronisation method over the real network against its paper's equations (methods.py).

Two islands train with `atoll` and write a checkpoint after each inner step; Replica and methods.py do the same from the
checkpoint of step 0. After each step the published parameters and both islands' live ones are compared, over six outer
steps: largest difference 1e-5. The root mean square of the differences must also be below a tenth of the distance to
every other configuration, and to equations with one mistake (IMPOSTORS).

Codecs that round or choose turn the last bit of a gradient into a whole step where two choices are nearly equal, so no
two programs agree there. Hence small inner steps with them: such a step is then below 1e-5, and what finds a missing
codec or residual is the distance. Masks and chunks divide 1024, so that where the values are cut into shares, at
multiples of 1024, does not matter.

usage: methods_golden.py ATOLL STORE
"""
import json
import pathlib
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import torch
from safetensors.torch import load_file

import codec_golden
import methods
from replica import Replica, checkpoint_folder, load_start, read_rows, train_with_atoll

MODEL = {"model.hidden_size": 32, "model.intermediate_size": 64, "model.num_layers": 4, "model.num_heads": 4,
         "model.num_kv_heads": 2}
H, ETA, MU = 2, 0.7, 0.9
STEPS = 6 * H
QUANTISED_LR = 3e-4
TOLERANCE = 1e-5


def bf16(values, sequence):
    return values.bfloat16().float()


def from_numpy(encode):
    return lambda values, sequence: torch.from_numpy(encode(values.numpy(), sequence)[1])


def masked(*stages):
    return from_numpy(codec_golden.compose(*stages, form=codec_golden.fp32))


CODECS = {
    "fp32": methods.exact,
    "bf16": bf16,
    "rolling(0.25)+fp32": masked(codec_golden.rolling(4)),
    "rolling(0.25)+chunk_topk(128/256)+int4": from_numpy(
        codec_golden.compose(codec_golden.rolling(4), codec_golden.chunk_topk(128, 256), form=codec_golden.int4)),
    "chunk_topk(64/256)+bf16": lambda values, sequence: bf16(
        masked(codec_golden.chunk_topk(64, 256))(values, sequence), sequence),
    "sparse_loco": from_numpy(codec_golden.COMPOSITIONS["sparse_loco"]),
}


@dataclass
class Configuration:
    name: str
    settings: dict  # Of `sync`.
    method: object  # (replicas, steps) -> a method of methods.py
    steps: int = STEPS
    optimizer: str = "sgd"
    lr: float = 0.1
    published: list = field(default_factory=list)  # After each step, as the equations say.


def data_parallel(codec, feedback=True, note="", **rest):
    return Configuration(f"data_parallel, {codec}{note}", {"method": "data_parallel", "codec": codec},
                         lambda replicas, steps: methods.DataParallel(replicas, steps, CODECS[codec], feedback), **rest)


def diloco(name, codec="fp32", mean_codec="fp32", nesterov=True, **rest):
    settings = {"method": "diloco", "sync_every": H, "outer_lr": ETA, "outer_momentum": MU, "codec": codec}
    return Configuration(name, settings, lambda replicas, steps: methods.DiLoCo(
        replicas, steps, H, CODECS[codec], CODECS[mean_codec], lr=ETA, momentum=MU, nesterov=nesterov), **rest)


def streaming(tau, alpha, pattern="strided"):
    every, fragments = 4, 3
    settings = {"method": "streaming_diloco", "sync_every": every, "outer_lr": ETA, "outer_momentum": MU,
                "num_fragments": fragments, "fragment_pattern": pattern, "fragment_sync_delay": tau,
                "fragment_update_alpha": alpha, "codec": "fp32"}
    return Configuration(
        f"streaming_diloco, {pattern}, tau {tau}, alpha {alpha}", settings,
        lambda replicas, steps: methods.StreamingDiLoCo(
            replicas, steps, every, fragments, tau, alpha, pattern, lr=ETA, momentum=MU),
        steps=6 * every + fragments - 1)  # The last fragment's sixth turn.


def overlapped(name, eager):
    settings = {"method": name, "sync_every": H, "outer_lr": 0.4, "outer_momentum": 0.6, "codec": "fp32"}
    return Configuration(name, settings, lambda replicas, steps: methods.EagerDiLoCo(
        replicas, steps, H, eager, lr=0.4, momentum=0.6))


def sparse_loco(codec, decay=0.9, note="", **rest):
    settings = {"method": "sparse_loco", "sync_every": H, "outer_lr": 0.8, "error_feedback_decay": decay,
                "codec": codec}
    return Configuration(f"sparse_loco, {codec}{note}", settings, lambda replicas, steps: methods.SparseLoCo(
        replicas, steps, H, CODECS[codec], decay, lr=0.8), **rest)


def cocktail(codec, delay, owner_residual=True, note="", **rest):
    settings = {"method": "cocktail_sgd", "fragment_sync_delay": delay, "codec": codec}
    name = f"cocktail_sgd, {codec}, delay {delay}{note}"
    return Configuration(name, settings, lambda replicas, steps: methods.CocktailSgd(
        replicas, steps, CODECS[codec], delay, owner_residual), **rest)


INT4, CHUNKS = "rolling(0.25)+chunk_topk(128/256)+int4", "chunk_topk(64/256)+bf16"
CONFIGURATIONS = [
    data_parallel("rolling(0.25)+fp32"),
    data_parallel(CHUNKS, lr=QUANTISED_LR),
    diloco("diloco"),
    diloco("diloco, inner adamw", optimizer="adamw", lr=1e-3),
    diloco("diloco, inner muon", optimizer="muon", lr=1e-3),
    diloco("diloco, inner adamw, bf16", "bf16", optimizer="adamw", lr=1e-4),
    *(streaming(tau, alpha) for tau in (0, 1, 3) for alpha in (0, 0.5)),
    streaming(1, 0, "sequential"),
    overlapped("eager_diloco", eager=True),
    overlapped("delayed_diloco", eager=False),
    sparse_loco("rolling(0.25)+fp32"),
    sparse_loco(CHUNKS, lr=QUANTISED_LR),
    sparse_loco("sparse_loco", lr=QUANTISED_LR),
    *(cocktail(codec, delay) for codec in ("fp32", "rolling(0.25)+fp32") for delay in (0, 1)),
    cocktail(INT4, 1, lr=QUANTISED_LR),
]
# Equations with one mistake each; `atoll` does not run them.
IMPOSTORS = [
    data_parallel("rolling(0.25)+fp32", feedback=False, note=", e = 0"),
    data_parallel(CHUNKS, feedback=False, note=", e = 0", lr=QUANTISED_LR),
    diloco("heavy ball", nesterov=False),
    diloco("no bf16", optimizer="adamw", lr=1e-4),
    diloco("bf16 twice", "bf16", "bf16", optimizer="adamw", lr=1e-4),
    sparse_loco("rolling(0.25)+fp32", decay=0, note=", beta 0"),
    *(sparse_loco(codec, decay=decay, note=f", beta {decay}", lr=QUANTISED_LR)
      for codec in (CHUNKS, "sparse_loco") for decay in (0, 1)),
    cocktail(INT4, 1, owner_residual=False, note=", e = 0", lr=QUANTISED_LR),
    cocktail(INT4, 0, lr=QUANTISED_LR),
]


def follow_equations(configuration, start, rows):
    """Fills configuration.published; yields (step, published, [live, live]) after each step."""
    replicas = [Replica(start, configuration.optimizer, configuration.lr, rank) for rank in range(2)]
    flat = [methods.FlatReplica(replica.model) for replica in replicas]
    method = configuration.method(flat, configuration.steps)
    for step in range(1, configuration.steps + 1):
        for replica in replicas:
            replica.compute_gradient(rows, step - 1)
        if hasattr(method, "reduce_gradients"):
            method.reduce_gradients(step)
        for replica in replicas:
            replica.update()
        method.after_step(step)
        configuration.published.append(method.published)
        yield step, method.published, [replica.get() for replica in flat]


def run_atoll(atoll, store, run, configuration):
    sync = {f"sync.{key}": value for key, value in configuration.settings.items()}
    train_with_atoll(atoll, store, run, {**MODEL, **sync, "train.steps": configuration.steps,
                                         "train.optimizer": configuration.optimizer, "train.lr": configuration.lr,
                                         "train.checkpoint_every": 1})


def read_checkpoint(run, island, step, names):
    """Published and live parameters, flat."""
    folder = checkpoint_folder(run, island, step)
    published, rest = load_file(folder / "model.safetensors"), load_file(folder / "optimizer.safetensors")
    live = {name: rest.get(f"live.{name}", published[name]) for name in names}
    return [torch.cat([tensors[name].flatten() for name in names]) for tensors in (published, live)]


def rms(vectors):
    return torch.cat(vectors).square().mean().sqrt().item()


def compare(run, start, rows, configuration):
    """What is printed of it."""
    flat = methods.FlatReplica(start)
    largest, differences = 0.0, []
    for step, published, live in follow_equations(configuration, start, rows):
        for island in range(2):
            ours = read_checkpoint(run, island, step, flat.names)
            differences.append(ours[0] - published)
            largest = max(largest, *((a - b).abs().max().item() for a, b in zip(ours, [published, live[island]])))
    moved = (configuration.published[-1] - flat.get()).abs().max().item()
    return {"name": configuration.name, "max_difference": largest, "rms": rms(differences), "moved": moved}


def distance(a, b):
    return rms([x - y for x, y in zip(a.published, b.published)])


def main():
    atoll, store = sys.argv[1:3]
    rows, results = read_rows(store), []
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(1) as ahead:  # `atoll` runs beside the equations.
        folders = [pathlib.Path(folder) / str(i) for i in range(len(CONFIGURATIONS))]
        runs = [ahead.submit(run_atoll, atoll, store, *pair) for pair in zip(folders, CONFIGURATIONS)]
        for configuration, run, done in zip(CONFIGURATIONS, folders, runs):
            done.result()
            results.append(compare(run, load_start(run), rows, configuration))
        start = load_start(folders[0])  # All runs begin with the same model.
        for impostor in IMPOSTORS:
            list(follow_equations(impostor, start, rows))
    for configuration, result in zip(CONFIGURATIONS, results):
        others = [other for other in CONFIGURATIONS + IMPOSTORS if other is not configuration]
        result["nearest"], nearest = min((distance(configuration, other), other.name) for other in others)
        result["ok"] = result["max_difference"] <= TOLERANCE and result["rms"] < 0.1 * result["nearest"]
        print(f"{result['name']}: largest difference {result['max_difference']:.1e} (root mean square "
              f"{result['rms']:.1e}, to '{nearest}' {result['nearest']:.1e}; parameters moved by up to "
              f"{result['moved']:.1e}): {'ok' if result['ok'] else 'WRONG'}")
    print(json.dumps({"max_difference": max(result["max_difference"] for result in results)}))
    return 0 if all(result["ok"] for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
