#!/usr/bin/env python3
"""Atoll's tokenizer beside Hugging Face's: the same training result and the same ids.

  tokenizer_oracle.py ATOLL [--all-code-points]

1. Both train on the default corpus: equal vocabularies and merges. Our file loads in `tokenizers`.
2. Equal ids on every document of the default corpus and on 10,000 random Unicode strings.
3. Every code point in contexts that show its class (without the flag: all of planes 0 and 1, every
   61st elsewhere), with a vocabulary that merges across every boundary a wrong class would miss.
4. Text with special tokens and bad UTF-8 through `tokenizer encode`, ids back through `decode`.
"""
import gzip
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

os.environ["TOKENIZERS_PARALLELISM"] = "false"
import numpy
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

atoll = sys.argv[1]
scratch = tempfile.TemporaryDirectory(prefix="atoll-tokenizer-")
folder = pathlib.Path(scratch.name)


def run(*arguments, stdin=None):
    done = subprocess.run([atoll, *map(str, arguments)], capture_output=True, input=stdin)
    if done.returncode != 0:
        sys.exit(f"atoll {' '.join(map(str, arguments))}: exit {done.returncode}\n{done.stderr.decode()}")
    return done.stdout


def pack(tokenizer, *inputs):
    """The ids of each packed document, without its end-of-text, and its name."""
    store = folder / "store"
    run("data", "pack", *inputs, "--tokenizer", tokenizer, "--out", store, "--validation-share", 0, "--overwrite")
    tokens = numpy.fromfile(store / "tokens-train.npy", dtype=numpy.uint16)
    with gzip.open(store / "tokens-train.csv.gz", "rt", encoding="utf8", newline="") as table:
        rows = [line.rstrip("\n").split(",") for line in table]
    return [(row[2], tokens[int(row[0]) : int(row[1]) - 1].tolist()) for row in rows]


def compare(what, reference, texts, ours):
    assert len(texts) == len(ours), f"{what}: {len(texts)} texts, {len(ours)} documents"
    for text, (name, ids) in zip(texts, ours):
        want = reference.encode(text, add_special_tokens=False).ids
        if ids != want:
            at = next((i for i, (a, b) in enumerate(zip(ids, want)) if a != b), min(len(ids), len(want)))
            around = reference.decode(want[max(0, at - 5) : at + 5], skip_special_tokens=False)
            sys.exit(f"{what}, document {name}: ids differ at {at}: {ids[at:at+5]}, not {want[at:at+5]}, in {around!r}")
    print(f"{what}: {len(texts)} texts, {sum(len(ids) for _, ids in ours)} equal ids")


def as_plain_text(path):
    """Hugging Face's view of the file, special tokens in the text left as text, as `data pack` does."""
    reference = Tokenizer.from_file(str(path))
    reference.encode_special_tokens = True
    return reference


def check_training_and_corpus():
    path = folder / "tokenizer.json"
    run("tokenizer", "train", "--vocab-size", 4096, "--out", path)
    ours = pack(path)
    root = pathlib.Path(json.loads(run("data", "info", folder / "store", "--json"))["sources"][0])
    texts = [(root / name).read_bytes().decode("utf8", errors="replace") for name, _ in ours]
    assert len(texts) > 300, f"only {len(texts)} documents in {root}"

    reference = Tokenizer(models.BPE())
    reference.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    reference.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=4096, min_frequency=2, special_tokens=["<|endoftext|>"], initial_alphabet=alphabet,
        show_progress=False))
    want = json.loads(reference.to_str())["model"]
    got = json.loads(path.read_text())["model"]
    assert got["vocab"] == want["vocab"] and got["merges"] == want["merges"], "training results differ"
    print(f"training: equal vocabularies of {len(got['vocab'])} ids")
    compare("default corpus", as_plain_text(path), texts, ours)
    return path


def boundary_tokenizer():
    """Merges the last byte of any character with a, 1, ! and newline: a word boundary always shows."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    mapped = {a: pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str(a)[0][0] for a in "a1!\n"}
    merges = [(byte, mapped[end]) for end in "a1!\n" for byte in alphabet]
    tokens = ["<|endoftext|>", *alphabet, *dict.fromkeys(a + b for a, b in merges)]
    tokenizer = Tokenizer(models.BPE({token: id for id, token in enumerate(tokens)}, merges))
    tokenizer.add_special_tokens(["<|endoftext|>"])
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    path = folder / "boundary.json"
    tokenizer.save(str(path))
    return path


def write_lines(texts):
    path = folder / "texts.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return path


def check_code_points(tokenizer, everything):
    codes = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
    if not everything:
        codes = [c for c in codes if c < 0x20000 or c % 61 == 0]
    texts = ["".join(f"{chr(c)}a{chr(c)}1{chr(c)}!{chr(c)}\n\n!" for c in codes[i : i + 4096])
             for i in range(0, len(codes), 4096)]
    compare(f"{len(codes)} code points", as_plain_text(tokenizer), texts, pack(tokenizer, write_lines(texts)))


def random_strings(count):
    source = random.Random(20240917)
    spaces = [" ", " ", " ", "\n", "\t", "\r\n", "\x0b", "\x0c", "\x1c", "\x85", "\xa0", "\u1680", "\u2003", "\u2028",
              "\u202f", "\u205f", "\u3000", "\u180e", "\u200b", "\ufeff"]
    words = ["the", "'s", "'ll", "'LL", "don't", "def", "()", "==", "<|endoftext|>", "<|endof", "12", "3.14", "caf\u00e9"]
    digits = [chr(zero + i) for zero in (0x30, 0x660, 0x966, 0xE50, 0x1D7CE, 0x1FBF0, 0x10D40) for i in range(10)]
    digits += ["\u00b2", "\u00bd", "\u2167", "\u3024", "\u4e94"]

    def piece():
        kind = source.randrange(8)
        if kind == 0:
            return source.choice(spaces) * source.choice([1, 1, 2, 3, 17, 40])
        if kind == 1:
            return source.choice(words)
        if kind == 2:
            return "".join(source.choice(digits) for _ in range(source.randrange(1, 5)))
        if kind == 3:  # Letters with combining marks.
            return "".join(chr(source.choice([0x61, 0xE9, 0x3B1, 0x5D0, 0x915, 0xAC00])) +
                           chr(source.choice([0x300, 0x301, 0x5B0, 0x93F, 0x20DD, 0x200D])) for _ in range(3))
        if kind == 4:
            return "".join(chr(source.randrange(0x20, 0x7F)) for _ in range(source.randrange(1, 30)))
        low, high = source.choice([(0x80, 0x800), (0x800, 0xD800), (0xE000, 0x10000), (0x10000, 0x20000),
                                   (0x20000, 0x40000), (0x40000, 0x110000), (0x1F300, 0x1FAFF), (0x4E00, 0x9FFF)])
        return "".join(chr(source.randrange(low, high)) for _ in range(source.randrange(1, 8)))

    return ["".join(piece() for _ in range(source.randrange(1, 12))) for _ in range(count)]


def check_command(tokenizer):
    reference = Tokenizer.from_file(str(tokenizer))
    bad = [b"", b"a<|endoftext|>b<|endoftext|><|endof", b"\xff\xfea\xe2\x82z\xed\xa0\x80", b"a\0b \r\n", "caf\u00e9 ".encode()]
    bad.append(bytes(random.Random(5).randrange(256) for _ in range(20000)))
    for text in bad:
        path = folder / "text.txt"
        path.write_bytes(text)
        ids = json.loads(run("tokenizer", "encode", "--tokenizer", tokenizer, "--text", path, "--json"))["ids"]
        seen = text.decode("utf8", errors="replace")
        assert ids == reference.encode(seen, add_special_tokens=False).ids, f"{text[:40]}: ids differ"
        if ids:
            joined = ",".join(map(str, ids)).encode()
            out = json.loads(run("tokenizer", "decode", "--tokenizer", tokenizer, "--ids", "-", "--json", stdin=joined))
            out = out["text"]
            assert out == seen == reference.decode(ids, skip_special_tokens=False), f"{text[:40]}: text differs"
    print(f"encode and decode commands: {len(bad)} texts")


def main():
    trained = check_training_and_corpus()
    boundary = boundary_tokenizer()
    strings = random_strings(10_000)
    for path in (trained, boundary):
        compare(f"random strings, {path.name}", as_plain_text(path), strings, pack(path, write_lines(strings)))
    check_code_points(boundary, "--all-code-points" in sys.argv)
    check_command(trained)
    print(json.dumps({"num_different": 0}))  # The first difference ends the program.


main()
