#!/usr/bin/env python3
"""make claims-models: what people really have, read as the programs read it that they have it from."""
import functools
import pathlib
import sys
import tempfile

import real
import tokenizer_speed
from claims import ATOLL, ROOT, Claims

sys.path.append(str(ROOT / "tests" / "oracle"))
import other_formats_oracle as other_formats  # noqa: E402
import tokenizer_families as families  # noqa: E402
from tokenizers import Tokenizer, models  # noqa: E402

claims = Claims("models")
scratch = tempfile.TemporaryDirectory(prefix="atoll-claims-")
folder = pathlib.Path(scratch.name)
BY_HAND = {"Llama 2", "Llama 3", "Llama 3.1", "Qwen 3", "Gemma 3", "Claude", *real.OLMO}
MIXED_BYTES, SPEED_BYTES = 1_000_000, 2_000_000

# --- tokenizers ---


@functools.cache
def code_points():
    return [chr(code) for code in range(0x110000) if not 0xD800 <= code <= 0xDFFF]


def mixed_texts(tokenizer):
    """Source code, words of many scripts, random Unicode with the tokenizer's own added tokens."""
    texts, size = families.python_sources(MIXED_BYTES // 2), MIXED_BYTES // 2
    for text in families.strings(7, 10_000, tokenizer):
        if size >= MIXED_BYTES:
            return texts
        texts.append(text)
        size += len(text.encode())
    return texts


def num_different(path):
    tokenizer = Tokenizer.from_file(str(path))
    different = len(families.differences(ATOLL, path, mixed_texts(tokenizer)))
    return different + len(families.differences(ATOLL, path, code_points()))


@functools.cache
def speed_text():
    path = folder / "text.txt"
    path.write_bytes("".join(families.python_sources(SPEED_BYTES)).encode())
    return path


def speed(path):
    return tokenizer_speed.measure(ROOT / "build", speed_text(), path, 3)["ratio"]


for name, path_of in real.tokenizers().items():
    claims.measured(f"{name}: of 1 MB and all code points alone, texts that differ", lambda: num_different(path_of()),
                    lambda n: n == 0, "0", "{}")
    fastest = 8 if name in BY_HAND else 1
    claims.measured(f"{name}: encoding, times as fast as tokenizers", lambda: speed(path_of()), lambda r: r >= fastest,
                    f">= {fastest}", "{:.1f}")



def num_different_of(path):
    """From SentencePiece or tiktoken."""
    texts = mixed_texts(Tokenizer(models.BPE()))
    return sum(len(other_formats.file_differences(ATOLL, path, some)) for some in (texts, code_points()))


for name, path_of in real.other_formats().items():
    claims.measured(f"{name}: of 1 MB and all code points alone, texts that differ", lambda: num_different_of(path_of()),
                    lambda n: n == 0, "0", "{}")
    claims.measured(f"{name}: encoding, times as fast as tokenizers",
                    lambda: speed(other_formats.as_tokenizer_json(ATOLL, path_of(), folder)), lambda r: r >= 1, ">= 1", "{:.1f}")

sys.exit(claims.end())
