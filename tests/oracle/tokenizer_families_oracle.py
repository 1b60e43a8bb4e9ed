#!/usr/bin/env python3
"""Every family of tokenizer.json that Atoll reads beside Hugging Face's library.

  tokenizer_families_oracle.py ATOLL [--strings 3000] [--pipelines 42] [--only FAMILY,... | code-points | pipelines]

Of each family a small tokenizer is trained with the library. Compared: ids of generated strings, added tokens read
as tokens and left as text; the text decoded from them; ids with the post-processor's tokens; normalisation and \\w of
every code point, long texts, which are cut in pieces, and random normalizers and pre-tokenizers.
"""
import argparse
import pathlib
import random
import sys
import tempfile

import tokenizer_families as families
import unicodedata2
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

parser = argparse.ArgumentParser()
parser.add_argument("atoll")
parser.add_argument("--strings", type=int, default=3000)
parser.add_argument("--pipelines", type=int, default=42)
parser.add_argument("--only", type=lambda names: names.split(","))
arguments = parser.parse_args()
scratch = tempfile.TemporaryDirectory(prefix="atoll-families-")
folder = pathlib.Path(scratch.name)


def compare(what, path, texts, special=False):
    report(what, texts, families.differences(arguments.atoll, path, texts, special))


def report(what, texts, found):
    if found:
        text, ours, theirs = min(found, key=lambda one: len(one[0]))
        sys.exit(f"{what}: {len(found)} of {len(texts)} texts differ, the shortest {text!r}:\n{ours}\nnot\n{theirs}")
    print(f"{what}: {len(texts)} texts equal", flush=True)


def saved(name, tokenizer):
    path = folder / f"{name}.json"
    tokenizer.save(str(path))
    return path


def one_byte_tokens():
    """A byte-level tokenizer without merges: each byte shows."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({token: id for id, token in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def in_texts(items):
    return ["".join(items[i : i + 256]) for i in range(0, len(items), 256)]


def check_code_points():
    codes = [code for code in range(0x110000) if not 0xD800 <= code <= 0xDFFF]
    used = [chr(code) for code in codes
            if code < 0x20000 or 0x2F000 <= code < 0x30000 or 0xE0000 <= code < 0xE0200 or code % 61 == 0]
    composing = one_byte_tokens()
    composing.normalizer = normalizers.NFC()
    path = saved("nfc", composing)
    # Alone, between marks of low and high classes, and behind letters that compose.
    compare("normalised code points", path, in_texts([f"{c}x\u0301{c}\u0316xe{c}\u0302 " for c in used]))
    decomposed = [normalizers.NFD().normalize_str(c) for c in used if unicodedata2.decomposition(c)[:1] not in ("", "<")]
    compare("decomposed code points", path, in_texts([text + "\u0345x" for text in decomposed]))
    source = random.Random(3)
    compare("their mixtures", path, ["".join(source.choice(decomposed) for _ in range(30)) for _ in range(1000)])

    for taking in (normalizers.StripAccents(), normalizers.Nmt(), normalizers.BertNormalizer(), normalizers.Precompiled(families.charsmap())):
        changed = one_byte_tokens()
        changed.normalizer = taking
        # Alone, and with what makes one of them.
        compare(f"{type(taking).__name__} of code points", saved("changed", changed), in_texts([f"{c} A{c}\u0301" for c in used]))

    words = one_byte_tokens()
    words.add_tokens([AddedToken("ab", single_word=True), AddedToken("<", lstrip=True, rstrip=True)])
    compare("word characters", saved("words", words), in_texts([f"{c}ab ab{c} {c}<{c}\n" for c in used]))


def check_pieces(name, path, texts):
    """Texts longer than one piece of the encoder."""
    joined = "".join(texts)
    long = [joined[:300_000], joined[:150_000].replace(" ", ""), "ab" * 50_000, " " * 70_000 + "x", "\n" * 70_000 + "x",
            "a " * 50_000]
    compare(f"{name}, long texts", path, long)


def check_pipelines(texts):
    sample = texts + families.strings(1, 2000, Tokenizer(models.BPE()))
    for number, tokenizer in enumerate(families.pipelines(5, arguments.pipelines, sample, 2000)):
        path = saved(f"pipeline-{number}", tokenizer)
        strings = families.strings(100 + number, 150, tokenizer) + ["".join(texts)[:20_000]]
        compare(f"pipeline {number}", path, [text for text in strings if not families.panics(tokenizer.encode, text)])


def main():
    texts = families.python_sources(1_000_000)
    for name in {**families.FAMILIES, **families.VARIANTS}:
        if arguments.only and name not in arguments.only:
            continue
        tokenizer = families.make(name, texts + families.strings(1, 2000, Tokenizer(models.BPE())), 2000)
        path = saved(name, tokenizer)
        strings = families.strings(2, arguments.strings, tokenizer)
        compare(name, path, strings)
        compare(f"{name}, --special", path, strings[:200], special=True)
        report(f"{name}, added tokens as text", strings, families.plain_differences(arguments.atoll, path, strings, folder))
        check_pieces(name, path, texts)
    if not arguments.only or "code-points" in arguments.only:
        check_code_points()
    if not arguments.only or "pipelines" in arguments.only:
        check_pipelines(texts)


main()
