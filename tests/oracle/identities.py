#!/usr/bin/env python3
"""Identities of DiLoCo on the real model, with the real command over the real network.

1. H = 1, inner SGD, outer SGD(1.0) is data-parallel SGD.
2. One replica with outer SGD(1.0) is local training.
3. Two replicas on the same data are one.
Each: largest difference of any parameter at most 1e-6.

usage: identities.py ATOLL STORE
"""
import json
import pathlib
import subprocess
import sys
import tempfile

from safetensors.torch import load_file

STEPS = 5
MODEL = {"model.hidden_size": 64, "model.intermediate_size": 128, "model.num_layers": 2, "model.num_heads": 4,
         "model.num_kv_heads": 2, "model.max_positions": 64}
TRAIN = {"train.steps": STEPS, "train.batch_rows": 4, "train.sequence_length": 32, "train.lr": 0.3,
         "train.schedule": "constant", "train.warmup_steps": 0, "train.eval_rows": 1, "train.threads": 1,
         "train.optimizer": "sgd", "train.grad_clip": 0}
PLAIN_OUTER = {"sync.method": "diloco", "sync.outer_lr": 1, "sync.outer_momentum": 0}


def train(atoll, store, folder, islands, **settings):
    """The final published parameters."""
    command = [atoll, "train", "--run", str(folder), "--data", str(store)]
    command += ["--islands", str(islands)] if islands > 1 else []
    settings = {key.replace("__", "."): value for key, value in settings.items()}
    command += [f"--{key}={value}" for key, value in {**MODEL, **TRAIN, **settings}.items()]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    run = folder / "island-0" if islands > 1 else folder
    return load_file(run / "checkpoints" / f"step-{STEPS:08}" / "model.safetensors")


def difference(a, b):
    assert a.keys() == b.keys()
    return max((a[name] - b[name]).abs().max().item() for name in a)


def equal_rows_store(atoll, store, folder):
    """A store whose training rows are all equal, and the row length that makes them so."""
    tokenizer = pathlib.Path(store) / "tokenizer.json"
    for number in range(100):  # Documents are dealt by hash: try until one of each part is there.
        documents = [f"def f{number}(x):\n    return x + {number}\n", f"# note {number}: validation\n" * 20]
        lines = [json.dumps({"text": documents[0]})] * 200 + [json.dumps({"text": documents[1]})] * 20
        (folder / "rows.jsonl").write_text("\n".join(lines))
        packed = folder / f"store-{number}"
        subprocess.run([atoll, "data", "pack", str(folder / "rows.jsonl"), "--tokenizer", str(tokenizer), "--out",
                        str(packed), "--validation-share", "0.5"], stderr=subprocess.DEVNULL)
        if not (packed / "store.json").exists():  # Nothing to train on: refused.
            continue
        info = json.loads((packed / "store.json").read_text())
        if info["train"]["documents"] == 200:
            return packed, info["train"]["tokens"] // 200
    raise AssertionError("no split found")


def main():
    atoll, store = sys.argv[1:3]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        results = {}
        diloco = train(atoll, store, folder / "a", 2, sync__sync_every=1, **as_words(PLAIN_OUTER))
        parallel = train(atoll, store, folder / "b", 2, sync__method="data_parallel")
        results["H=1 with plain SGD is data-parallel"] = difference(diloco, parallel)

        alone = train(atoll, store, folder / "c", 1, sync__sync_every=2, **as_words(PLAIN_OUTER))
        local = train(atoll, store, folder / "d", 1, sync__method="single")
        results["one replica with outer SGD(1.0) is local training"] = difference(alone, local)

        equal, length = equal_rows_store(atoll, store, folder)
        both = {"train__sequence_length": length, "sync__method": "diloco", "sync__sync_every": 2}
        two = train(atoll, equal, folder / "e", 2, **both)
        one = train(atoll, equal, folder / "f", 1, **{**both, "train__batch_rows": 2})
        results["two replicas on equal data are one"] = difference(two, one)
    for what, worst in results.items():
        print(f"{what}: largest difference {worst:.2e}: {'ok' if worst <= 1e-6 else 'WRONG'}")
    print(json.dumps({"max_difference": max(results.values())}))
    return 0 if max(results.values()) <= 1e-6 else 1


def as_words(settings):
    return {key.replace(".", "__"): value for key, value in settings.items()}


if __name__ == "__main__":
    sys.exit(main())
