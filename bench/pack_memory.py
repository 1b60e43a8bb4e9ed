#!/usr/bin/env python3
"""Packing in bounded memory: peak RSS and speed of `atoll data pack` on much jsonl.zst.

  pack_memory.py ATOLL [PACKED_BYTES]

The file is made of Python sources as lines of jsonl, compressed to one zstd frame that is then written as often
as it takes: a reader sees PACKED_BYTES (2 GB) of frames, one behind the other, and unpacks every byte of them.
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import corpus

BLOCK_BYTES, VOCAB_SIZE = 40_000_000, 16_384


def write_corpus(folder, packed_bytes):
    """The file, a tokenizer's training text, and how many bytes of jsonl the file holds."""
    texts = corpus.texts(BLOCK_BYTES)
    lines = "".join(json.dumps({"id": str(number), "text": text}) + "\n" for number, text in enumerate(texts)).encode()
    sample = folder / "sample.jsonl"
    sample.write_bytes(lines)
    frame = subprocess.run(["zstd", "-q", "-3", "-c", sample], check=True, capture_output=True).stdout
    count = -(-packed_bytes // len(frame))
    with open(folder / "corpus.jsonl.zst", "wb") as file:
        for _ in range(count):
            file.write(frame)
    return folder / "corpus.jsonl.zst", sample, count * len(lines)


def measure(atoll, packed_bytes=2_000_000_000):
    with tempfile.TemporaryDirectory(prefix="atoll-pack-") as scratch:
        folder = pathlib.Path(scratch)
        packed, sample, text_bytes = write_corpus(folder, packed_bytes)
        tokenizer = folder / "tokenizer.json"
        subprocess.run([atoll, "tokenizer", "train", sample, "--vocab-size", str(VOCAB_SIZE), "--out", tokenizer],
                       check=True, capture_output=True)
        begin = time.monotonic()
        memory = folder / "memory"  # By a small program: a child of this one would begin with this one's peak.
        done = subprocess.run(["/usr/bin/time", "-f", "%M", "-o", memory, atoll, "data", "pack", packed, "--tokenizer", tokenizer,
                               "--out", folder / "store", "--json"], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        report = json.loads(done.stdout)
        return {
            "packed_bytes": packed.stat().st_size,
            "jsonl_bytes": text_bytes,
            "tokens": report["tokens"],
            "max_rss_bytes": int(memory.read_text()) * 1024,
            "seconds": time.monotonic() - begin,
            "tokens_per_s": report["tokens_per_s"],
            "tokens_per_core_s": report["tokens_per_core_s"],
            "threads": report["threads"],
        }


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], int(float(sys.argv[2])) if len(sys.argv) > 2 else 2_000_000_000)))
