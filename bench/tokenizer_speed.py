#!/usr/bin/env python3
"""Encoding speed of Atoll and of Hugging Face `tokenizers`, one thread each, in turns, in one run.

  tokenizer_speed.py BUILD [--rounds 3] [--vocab-size 8192] [--text FILE] [--max-bytes 6000000] [--tokenizer FILE]

BUILD is the build folder (it holds bin/atoll and bin/data_tokenizer_bench). The text is the default
corpus, joined, unless a file is named; the tokenizer is trained on it unless one is named. Hugging Face's gets its best of three modes in each round: encode,
encode_batch_fast of one large text, encode_batch_fast of the text in pieces of 20 kB. Both sides start
each round with empty word caches and are timed by the processor time they use, so that a busy machine does
not favour either. Prints one JSON object; ids are compared, and a difference is an error.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
import tokenizers

PIECE_CHARACTERS = 20_000


def default_text(arguments, folder):
    """The default corpus, as `data pack` finds it, in one file."""
    store = folder / "store"
    atoll = arguments.build / "bin" / "atoll"
    tokenizer = folder / "tokenizer.json"
    subprocess.run([atoll, "tokenizer", "train", "--vocab-size", str(arguments.vocab_size), "--out", tokenizer]
                   + ([arguments.text] if arguments.text else []), check=True, capture_output=True)
    if arguments.text:
        return arguments.text
    subprocess.run([atoll, "data", "pack", "--tokenizer", tokenizer, "--out", store], check=True, capture_output=True)
    root = pathlib.Path(json.loads((store / "store.json").read_text())["sources"][0])
    left_out = {"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__"}
    files = [f for f in sorted(root.rglob("*.py")) if not left_out & set(f.relative_to(root).parts[:-1])]
    joined = folder / "text.txt"
    text = b"".join(f.read_bytes() for f in files)[: arguments.max_bytes]
    joined.write_bytes(text.decode("utf8", errors="replace").encode())
    return joined


def ours(build, text, tokenizer):
    environment = dict(os.environ, ATOLL_BENCH_TEXT=str(text), ATOLL_BENCH_TOKENIZER=str(tokenizer))
    output = subprocess.run([build / "bin" / "tokenizer_tokenizer_bench", "--benchmark_format=json"],
                            env=environment, check=True, capture_output=True, text=True).stdout
    result = json.loads(output)["benchmarks"][0]
    return result["bytes_per_second"] / 1e6, int(result["ids"])


def theirs(text, tokenizer):
    contents = text.read_bytes().decode("utf8")
    num_bytes = len(contents.encode())
    pieces = [contents[i : i + PIECE_CHARACTERS] for i in range(0, len(contents), PIECE_CHARACTERS)]
    modes = {
        "encode": lambda t: [t.encode(contents, add_special_tokens=False)],
        "encode_batch_fast, one text": lambda t: t.encode_batch_fast([contents], add_special_tokens=False),
        "encode_batch_fast, pieces": lambda t: t.encode_batch_fast(pieces, add_special_tokens=False),
    }
    speeds = {}
    for name, encode in modes.items():
        fresh = tokenizers.Tokenizer.from_file(str(tokenizer))
        start = time.process_time()
        encoded = encode(fresh)
        speeds[name] = num_bytes / (time.process_time() - start) / 1e6
        if name == "encode":
            num_ids = len(encoded[0].ids)
    return speeds, num_ids


def measure(build, text, tokenizer, num_rounds):
    """Both sides in turns; ids are compared, and a difference is an error."""
    rounds = []
    for _ in range(num_rounds):
        atoll, our_ids = ours(build, text, tokenizer)
        speeds, their_ids = theirs(text, tokenizer)
        if our_ids != their_ids:
            raise RuntimeError(f"{our_ids} ids, but tokenizers has {their_ids}")
        rounds.append({"atoll": atoll, "tokenizers": max(speeds.values()), "mode": max(speeds, key=speeds.get)})
    ratios = [r["atoll"] / r["tokenizers"] for r in rounds]
    return {
        "bytes": text.stat().st_size,
        "atoll_mb_per_s": round(statistics.median(r["atoll"] for r in rounds), 2),
        "tokenizers_mb_per_s": round(statistics.median(r["tokenizers"] for r in rounds), 2),
        "tokenizers_version": tokenizers.__version__,
        "tokenizers_mode": statistics.mode(r["mode"] for r in rounds),
        "ratio": round(statistics.median(ratios), 2),
        "ratio_min": round(min(ratios), 2),
        "rounds": len(rounds),
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--max-bytes", type=int, default=6_000_000)
    parser.add_argument("--vocab-size", type=int, default=8192)
    parser.add_argument("--text", type=pathlib.Path)
    parser.add_argument("--tokenizer", type=pathlib.Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="atoll-bench-") as name:
        folder = pathlib.Path(name)
        text = default_text(arguments, folder)
        tokenizer = arguments.tokenizer or folder / "tokenizer.json"
        print(json.dumps(measure(arguments.build, text, tokenizer, arguments.rounds) | {"vocab_size": arguments.vocab_size}))


if __name__ == "__main__":
    main()
