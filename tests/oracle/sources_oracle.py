#!/usr/bin/env python3
"""What Atoll makes of compressed corpora, of OLMo's token files and of mixtures, beside Python and numpy.

  sources_oracle.py ATOLL
"""
import csv
import gzip
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import numpy

atoll = str(pathlib.Path(sys.argv[1]).resolve())
scratch = tempfile.TemporaryDirectory(prefix="atoll-sources-")
folder = pathlib.Path(scratch.name)
tokenizer = folder / "tokenizer.json"
draw = random.Random(6)


def run(*arguments):
    done = subprocess.run([atoll, *map(str, arguments)], cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"atoll {' '.join(map(str, arguments))}: exit {done.returncode}\n{done.stderr}")
    return done.stdout


def write_jsonl(path, texts):
    data = "".join(json.dumps({"id": f"{path.stem}-{i}", "text": text}) + "\n" for i, text in enumerate(texts)).encode()
    if path.suffix == ".gz":
        half = len(data) // 2  # Two members, cut inside a line.
        path.write_bytes(gzip.compress(data[:half]) + gzip.compress(data[half:]))
    elif path.suffix == ".zst":
        frames = [subprocess.run(["zstd", "-q", "-c", *options], input=part, stdout=subprocess.PIPE, check=True).stdout
                  for options, part in ((["-19", "--check"], data[:1000]), (["-1", "--long=27"], data[1000:]))]
        path.write_bytes(b"".join(frames))
    else:
        path.write_bytes(data)


def read_store(store):
    info = json.loads((store / "store.json").read_text())
    tokens = numpy.fromfile(store / "tokens-train.npy", dtype=info["dtype"])
    with gzip.open(store / "tokens-train.csv.gz", "rt", newline="") as table:
        return tokens, [(int(a), int(b), *rest) for a, b, *rest in csv.reader(table)]


words = ["the", "cat", "sat", "über", "\U0001f600", "\u4e16\u754c", "on a mat.\n"]
texts = [" ".join(draw.choices(words, k=draw.randrange(1, 60))) for _ in range(2000)]
write_jsonl(folder / "plain.jsonl", texts)
run("tokenizer", "train", folder / "plain.jsonl", "--vocab-size", 600, "--out", tokenizer)

# The same text in any packing is the same tokens: those of each text encoded alone.
run("data", "pack", folder / "plain.jsonl", "--tokenizer", tokenizer, "--out", folder / "plain", "--validation-share", 0)
plain, documents = read_store(folder / "plain")
assert len(documents) == len(texts)
for number in range(0, 2000, 97):
    begin, end, id, *_ = documents[number]
    ids = ",".join(map(str, plain[begin : end - 1]))
    assert id == f"plain-{number}"
    assert json.loads(run("tokenizer", "decode", "--tokenizer", tokenizer, "--ids", ids, "--json"))["text"] == texts[number]
for name in ("a.jsonl.gz", "b.json.gz", "c.jsonl.zst"):
    write_jsonl(folder / name, texts)
    store = folder / name.replace(".", "-")
    run("data", "pack", folder / name, "--tokenizer", tokenizer, "--out", store, "--validation-share", 0)
    assert (read_store(store)[0] == plain).all(), name

# What info tells is what Python counts.
info = json.loads(run("data", "info", folder / "plain", "--json"))
lengths = [end - begin for begin, end, *_ in documents]
counted = {}
for length in lengths:
    bucket = counted.setdefault(length.bit_length() - 1, [0, 0])
    bucket[0] += 1
    bucket[1] += length
told = {row["from"].bit_length() - 1: [row["documents"], row["tokens"]] for row in info["length_histogram"] if row["documents"]}
assert told == counted
assert info["bytes_per_token"] == sum(len(text.encode()) for text in texts) / (len(plain) - len(texts))
assert info["by_source"] == [{"source": str(folder / "plain.jsonl"), "documents": 2000, "tokens": len(plain)}]

# OLMo's files, written by numpy and csv as dolma writes them.
for part, (first, last) in {"part-0": (0, 700), "part-1": (700, 2000)}.items():
    start = documents[first][0]
    plain[start : documents[last - 1][1]].astype("<u2").tofile(folder / f"{part}.npy")
    with gzip.open(folder / f"{part}.csv.gz", "wt", newline="") as table:
        csv.writer(table).writerows([a - start, b - start, *rest] for a, b, *rest in documents[first:last])
run("data", "import", folder / "part-0.npy", folder / "part-1.npy", "--tokenizer", tokenizer, "--out", folder / "imported")
tokens, rows = read_store(folder / "imported")
assert (tokens == plain).all() and rows == documents
twice = subprocess.run([atoll, "data", "import", "part-0.npy", "./part-0.npy", "--tokenizer", tokenizer, "--out", "twice"],
                       cwd=folder, capture_output=True, text=True)
assert twice.returncode == 2 and "named twice" in twice.stderr, twice.stderr
run("data", "verify", folder / "imported")
verified = json.loads(run("data", "verify", folder / "part-1.npy", "--tokenizer", tokenizer, "--json"))
assert (verified["documents"], verified["tokens"]) == (1300, len(plain) - documents[700][0])

# A mixture: NeoX's rule over the stores, each in numpy's order of its own rows.
stores = {}
for name, count in (("small", 150), ("large", 1500), ("middle", 350)):
    write_jsonl(folder / f"{name}.jsonl", draw.sample(texts, count))
    stores[name] = folder / name
    run("data", "pack", folder / f"{name}.jsonl", "--tokenizer", tokenizer, "--out", stores[name], "--validation-share", 0.1)
weights = {"small": 0.25, "large": 1.5, "middle": 0.75}
run("data", "mix", "mix", *(f"{name}={weight}" for name, weight in weights.items()))
length, batch, seed, steps = 64, 6, 11, (0, 1, 2, 3, 500, 501, 3000)
shares = numpy.array(list(weights.values())) / sum(weights.values())
shares /= shares.sum()
arrays = [read_store(stores[name])[0] for name in weights]
taken = numpy.zeros(len(shares), dtype=numpy.int64)
orders = {}
at = 0
for step in range(max(steps) + 1):
    want = []
    for _ in range(batch):
        store = int(numpy.argmax(shares * max(at, 1) - taken))
        num_rows = len(arrays[store]) // length
        turn, place = divmod(int(taken[store]), num_rows)
        if (store, turn) not in orders:
            order = numpy.arange(num_rows, dtype=numpy.uint32)
            numpy.random.Generator(numpy.random.PCG64(seed + turn + 1)).shuffle(order)
            orders[store, turn] = order
        want.append((list(weights)[store], int(orders[store, turn][place])))
        taken[store] += 1
        at += 1
    if step in steps:
        rows = json.loads(run("data", "batch", "mix", "--step", step, "--batch-rows", batch, "--sequence-length",
                              length, "--seed", seed, "--json"))["rows"]
        assert [(pathlib.Path(row["store"]).name, row["row_of_store"]) for row in rows] == want, step
        for row, (name, number) in zip(rows, want):
            array = arrays[list(weights).index(name)]
            assert row["ids"] == array[number * length : (number + 1) * length].tolist()
            assert row["documents"], step
run("data", "verify", folder / "mix")
print(f"sources: {len(texts)} texts in 4 packings, OLMo's files, {len(steps)} steps of a mixture: equal to numpy's and Python's")
