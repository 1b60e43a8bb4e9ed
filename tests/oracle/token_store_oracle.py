#!/usr/bin/env python3
"""Atoll's token stores and batches beside numpy.

  token_store_oracle.py ATOLL

The files are raw arrays and a .csv.gz table that numpy and Python read without Atoll; the rows of each
step are those of numpy's Generator(PCG64(seed + pass + 1)), cut to whole batches, as OLMo-core draws them.
"""
import csv
import gzip
import hashlib
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy

atoll = sys.argv[1]
scratch = tempfile.TemporaryDirectory(prefix="atoll-store-")
folder = pathlib.Path(scratch.name)
store = folder / "store"


def run(*arguments):
    done = subprocess.run([atoll, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"atoll {' '.join(map(str, arguments))}: exit {done.returncode}\n{done.stderr}")
    return done.stdout


def read_split(name):
    tokens = numpy.memmap(store / f"tokens-{name}.npy", dtype=numpy.uint16, mode="r")
    with gzip.open(store / f"tokens-{name}.csv.gz", "rt", encoding="utf8", newline="") as table:
        return tokens, [(int(b), int(e), id, source, int(at)) for b, e, id, source, at in csv.reader(table)]


def main():
    (folder / "texts.jsonl").write_text("".join(
        json.dumps({"id": f'doc "{i}", part', "text": f"Document {i} says {'word ' * (i % 40)}and ends.\n"}) + "\n"
        for i in range(600)))
    run("tokenizer", "train", folder / "texts.jsonl", "--vocab-size", 300, "--out", folder / "tokenizer.json")
    run("data", "pack", folder / "texts.jsonl", "--tokenizer", folder / "tokenizer.json", "--out", store,
        "--validation-share", 0.1)
    info = json.loads(run("data", "info", store, "--json"))
    total = 0
    for name in ("train", "validation"):
        tokens, documents = read_split(name)
        assert documents[0][0] == 0 and documents[-1][1] == len(tokens) == info[name]["tokens"]
        for begin, end, id, source, line in documents:
            number = line - 1
            assert id == f'doc "{number}", part' and tokens[end - 1] == info["end_of_text"]
            ids = ",".join(map(str, tokens[begin : end - 1])) if number % 50 == 0 else None
            text = f"Document {number} says {'word ' * (number % 40)}and ends.\n"
            if ids:
                assert run("tokenizer", "decode", "--tokenizer", store / "tokenizer.json", "--ids", ids) == text
            share = (int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 11) / 2**53
            assert (share < 0.1) == (name == "validation"), f"{id} in {name}"
        total += len(documents)
    assert total == info["documents"] == 600

    tokens, _ = read_split("train")
    for seed, rows, length in ((0, 8, 32), (6198, 3, 17), (2**64 - 1, 5, 64), (2**32, 1, 100)):
        num_rows = len(tokens) // length
        per_pass = num_rows // rows
        for step in (0, 1, per_pass - 1, per_pass, 3 * per_pass + 2):
            order = numpy.arange(num_rows, dtype=numpy.uint32)
            numpy.random.Generator(numpy.random.PCG64(seed + step // per_pass + 1)).shuffle(order)
            want = order[: per_pass * rows].reshape(-1, rows)[step % per_pass]
            batch = json.loads(run("data", "batch", store, "--step", step, "--batch-rows", rows,
                                   "--sequence-length", length, "--seed", seed, "--json"))
            assert [row["row"] for row in batch["rows"]] == want.tolist(), f"seed {seed}, step {step}"
            for row in batch["rows"]:
                assert row["ids"] == tokens[row["row"] * length : (row["row"] + 1) * length].tolist()
    print("token store and batches: equal to numpy's")


main()
