#!/usr/bin/env python3
"""The bits that small runs end with, against a table of this kind of machine: a change that means to change no bits changes none.

usage: digests.py [--atoll build/bin/atoll] [--record COMMIT]

Each method, codec, pace of sending, optimiser and outer optimiser of the table CONFIGURATIONS trains a few steps (two islands, or one)
on text that is made here. bench/results/digests.json has what came of them, by CPU, kernels and LibTorch; where it does not have this
machine, the commit that it is of is built and run beside. --record keeps what ATOLL gives as that of COMMIT. Prints a JSON object.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import old_commit
from old_commit import ROOT, run

TABLE = ROOT / "bench" / "results" / "digests.json"
TINY = {
    "model.hidden_size": 32, "model.intermediate_size": 64, "model.num_layers": 3, "model.num_heads": 2, "model.num_kv_heads": 1,
    "model.max_positions": 64, "train.sequence_length": 32, "train.batch_rows": 4, "train.warmup_steps": 2, "train.eval_rows": 2,
    "train.steps": 24, "train.threads": 1, "train.checkpoint_every": 10, "data.vocab_size": 384,
}
STREAMING = {"sync.method": "streaming_diloco", "sync.sync_every": 6, "sync.num_fragments": 3, "sync.fragment_sync_delay": 3}
DILOCO = {"sync.method": "diloco", "sync.sync_every": 6}
CONFIGURATIONS = {  # Islands, and settings.
    "single": (1, {"sync.method": "single"}),
    "single, two threads": (1, {"sync.method": "single", "train.threads": 2}),
    "single, micro-batches": (1, {"sync.method": "single", "train.micro_batch_rows": 2}),
    "single, muon": (1, {"sync.method": "single", "train.optimizer": "muon"}),
    "data_parallel": (2, {"sync.method": "data_parallel"}),
    "data_parallel, three islands": (3, {"sync.method": "data_parallel", "train.batch_rows": 6}),
    "data_parallel, top-k": (2, {"sync.method": "data_parallel", "sync.codec": "topk(0.1)+fp32"}),
    "diloco": (2, DILOCO),
    "diloco, muon": (2, DILOCO | {"train.optimizer": "muon"}),
    "diloco, adam outside": (2, DILOCO | {"sync.outer_optimizer": "adam"}),
    "diloco, radial": (2, DILOCO | {"sync.outer_mean": "radial"}),
    "diloco, dropout and pruning": (2, DILOCO | {"sync.outer_dropout": 0.3, "sync.sign_pruning": 0.3}),
    "streaming_diloco": (2, STREAMING),
    "streaming_diloco, mixed, int4": (2, STREAMING | {"sync.fragment_update_alpha": 0.5, "sync.codec": "int4"}),
    "streaming_diloco, e3m0, three islands": (3, STREAMING | {"sync.codec": "e3m0", "train.batch_rows": 6}),
    "streaming_diloco, at once": (2, STREAMING | {"sync.fragment_sync_delay": 0, "sync.num_fragments": 2}),
    "eager_diloco": (2, {"sync.method": "eager_diloco", "sync.sync_every": 5}),
    "delayed_diloco": (2, {"sync.method": "delayed_diloco", "sync.sync_every": 5}),
    "sparse_loco": (2, {"sync.method": "sparse_loco", "sync.sync_every": 5}),
    "cocktail_sgd": (2, {"sync.method": "cocktail_sgd", "sync.fragment_sync_delay": 0}),
    "cocktail_sgd, late": (2, {"sync.method": "cocktail_sgd", "sync.fragment_sync_delay": 1}),
    "demo": (2, {"sync.method": "demo", "train.optimizer": "sgd", "train.grad_clip": 0}),
}


def machine(atoll):
    """What the bits depend on: the processor, the kernels that it lets us use, and LibTorch."""
    cpu = dict(line.split(":", 1) for line in pathlib.Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines() if ":" in line)
    cpu = {name.strip(): value.strip() for name, value in cpu.items()}
    said = subprocess.run([atoll, "--version"], capture_output=True, text=True, check=True).stdout
    parts = [cpu.get("model name", "?"), f"family {cpu.get('cpu family', '?')} model {cpu.get('model', '?')}"]
    for name in ("loops", "LibTorch"):
        if found := re.search(rf"^{name}: +(.+)$", said, re.M):
            parts.append(f"{name} {found.group(1)}")
    return ", ".join(parts)


def make_text(path):
    """The same on every machine, in any version of Python: words of made-up letters, often the same ones."""
    state, words = 1, []
    for _ in range(60_000):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        rank = int((state >> 40) ** 2 / 2**48 * 400)
        words.append("".join("aeioutnrs"[(rank * 7 + i * 3 + rank // (i + 1)) % 9] for i in range(2 + rank % 6)))
    path.write_text("\n".join(" ".join(words[i:i + 300]) for i in range(0, len(words), 300)))


def ends(atoll):
    """configuration -> digest of the global parameters, and the last training loss of the live ones."""
    with tempfile.TemporaryDirectory(prefix="atoll-digests-") as scratch:
        folder = pathlib.Path(scratch)
        text, store = folder / "text.txt", folder / "store"
        make_text(text)
        run([atoll, "tokenizer", "train", text, "--vocab-size", 384, "--out", folder / "tokenizer.json"])
        run([atoll, "data", "pack", text, "--tokenizer", folder / "tokenizer.json", "--out", store, "--validation-share", 0.1])
        found = {}
        for name, (islands, settings) in CONFIGURATIONS.items():
            print(f"... {name}", end="\r", file=sys.stderr, flush=True)
            told = run([atoll, "train", "--run", folder / name.replace(" ", "-"), "--data", store, "--json",
                        *(["--islands", islands] if islands > 1 else []),
                        *(f"--{key}={value}" for key, value in (TINY | settings).items())])
            summary = json.loads(told.strip().split("\n")[-1])
            found[name] = [summary["digest"], summary["val_loss"]]
    return found


def of_commit(commit):
    """The same of a program that is built from an older commit."""
    with old_commit.built(commit, ["atoll", "atoll-torch"]) as programs:
        return ends(str(programs / "atoll"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--atoll", default=str(ROOT / "build" / "bin" / "atoll"))
    parser.add_argument("--record", metavar="COMMIT")
    args = parser.parse_args()
    os.environ["ATOLL_PRODUCTS"] = "usual"  # Not what was quickest here: the table is of all machines of a kind.
    table = json.loads(TABLE.read_text()) if TABLE.exists() else {"commit": args.record, "machines": {}}
    here = machine(str(ROOT / "build" / "bin" / "atoll"))
    found = ends(args.atoll)
    if args.record:
        if table["commit"] != args.record:
            table = {"commit": args.record, "machines": {}}
        table["machines"][here] = found
        TABLE.write_text(json.dumps(table, indent=1) + "\n")
    expected = table["machines"].get(here)
    is_known = expected is not None
    if not is_known:
        expected = of_commit(table["commit"])
    others = sorted(name for name in CONFIGURATIONS if found[name] != expected.get(name))
    print(json.dumps({"machine": here, "from": "table" if is_known else table["commit"], "runs": len(found), "others": others}))
    return 1 if others else 0


if __name__ == "__main__":
    sys.exit(main())
