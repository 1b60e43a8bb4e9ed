#!/usr/bin/env python3
"""Tokenizers that are no tokenizer.json beside the libraries they are made for: SentencePiece's models, tekken and tiktoken files.

  other_formats_oracle.py ATOLL [FILE ...]

Without files, small ones of each kind are trained here. Compared: ids and decoded text of source code and hard strings.
"""
import argparse
import base64
import io
import json
import math
import pathlib
import random
import re
import subprocess
import sys
import tempfile

import sentencepiece
import tiktoken
import tokenizer_families as families
from tokenizers import Tokenizer, models


def texts_for(seed, count):
    return families.python_sources(200_000) + families.strings(seed, count, Tokenizer(models.BPE()))


def ids_and_texts(atoll, path, texts):
    ours = [row["ids"] for row in families.lines(atoll, ["encode", "--tokenizer", path, "--text", "-", "--jsonl"],
                                                 [{"text": text} for text in texts])]
    decoded = [row["text"] for row in families.lines(atoll, ["decode", "--tokenizer", path, "--ids", "-", "--jsonl"],
                                                     [{"ids": ids} for ids in ours])]
    return ours, decoded


def different(texts, ours, theirs):
    return [(text, a, b) for text, a, b in zip(texts, ours, theirs, strict=True) if a != b]


# --- SentencePiece ---


def as_tokenizer_json(atoll, path, folder):
    """What a token store made with it carries."""
    (folder / "one.jsonl").write_text('{"text": "one"}\n')
    subprocess.run([atoll, "data", "pack", folder / "one.jsonl", "--tokenizer", path, "--out", folder / "store", "--overwrite",
                    "--validation-share", "0"], check=True, capture_output=True)
    return folder / "store" / "tokenizer.json"


def sentence_piece_differences(atoll, path, texts):
    """From SentencePiece, where `tokenizers` reads the table of characters as it does; from `tokenizers` in any case."""
    with tempfile.TemporaryDirectory(prefix="atoll-formats-") as folder:
        converted = as_tokenizer_json(atoll, path, pathlib.Path(folder))
        found = families.differences(atoll, converted, texts)
        normalizer = Tokenizer.from_file(str(converted)).normalizer
    reference = sentencepiece.SentencePieceProcessor(model_file=str(path))
    # To `tokenizers` a control's text is its token, and if the model is Unigram a byte's.
    ids = range(reference.vocab_size())
    controls = re.compile("|".join(re.escape(reference.id_to_piece(id)) for id in ids if reference.is_control(id)) + "|<0x")
    same = [text for text in texts if not controls.search(text) and normalizer.normalize_str(text) == reference.normalize(text)]
    assert len(same) > 0.9 * len(texts), f"{len(same)} of {len(texts)} texts are normalised alike"
    ours, decoded = ids_and_texts(atoll, path, same)
    # What is unknown the library shows as another text.
    known = [i for i, ids in enumerate(ours) if reference.unk_id() not in ids]
    pick = lambda values: [values[i] for i in known]
    score = lambda ids: sum(map(reference.get_score, ids))
    theirs = reference.encode(same)
    # It adds in single precision: of ways that are equally good it takes another.
    best = [a if math.isclose(score(a), score(b), rel_tol=1e-6) else b for a, b in zip(ours, theirs)]
    return (found + different(same, ours, best) +
            different(pick(same), pick(decoded), [reference.decode(ours[i]) for i in known]))


SENTENCE_PIECE = {
    "llama": dict(model_type="bpe", byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False,
                  split_digits=True, allow_whitespace_only_pieces=True),
    "gemma": dict(model_type="bpe", byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False,
                  add_dummy_prefix=False, user_defined_symbols=["<start_of_turn>", "\n\n", "[x]"]),
    "bpe of old": dict(model_type="bpe", normalization_rule_name="nmt_nfkc"),
    "t5": dict(model_type="unigram", normalization_rule_name="nmt_nfkc", bos_id=-1, pad_id=0, eos_id=1, unk_id=2),
    "xlm-r": dict(model_type="unigram", normalization_rule_name="nfkc_cf", remove_extra_whitespaces=False),
    "unigram of bytes": dict(model_type="unigram", byte_fallback=True, normalization_rule_name="identity", split_by_whitespace=False,
                             remove_extra_whitespaces=False),
}


def train_sentence_piece(path, texts, **options):
    # A line is a sentence to the trainer.
    lines = [line for text in texts for line in text.split("\n") if line]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=model, vocab_size=2500, character_coverage=0.98,
                                             minloglevel=2, hard_vocab_limit=False, **options)
    path.write_bytes(model.getvalue())


# --- ranks ---


def ranks_of(tokenizer):
    """Bytes -> rank, as tiktoken has them, of a byte-level tokenizer whose first tokens are the bytes."""
    spelled = families.byte_alphabet()
    vocabulary = json.loads(tokenizer.to_str())["model"]["vocab"]
    tokens = sorted((token for token in vocabulary if token != "<|endoftext|>"), key=vocabulary.get)
    return {bytes(spelled[character] for character in token): rank for rank, token in enumerate(tokens)}


def tekken_differences(atoll, path, texts):
    file = json.loads(path.read_text())
    first = file["config"]["default_num_special_tokens"]
    count = file["config"]["default_vocab_size"] - first
    ranks = {base64.b64decode(token["token_bytes"]): token["rank"] for token in file["vocab"][:count]}
    reference = tiktoken.Encoding("tekken", pat_str=file["config"]["pattern"], mergeable_ranks=ranks, special_tokens={})
    special = re.compile(r"</?s>|<unk>|<pad>|\[/?[A-Z_]+\d*\]|<SPECIAL_")
    texts = [text for text in texts if not special.search(text)]  # Those are tokens here.
    ours, decoded = ids_and_texts(atoll, path, texts)
    theirs = [[first + id for id in reference.encode_ordinary(text)] for text in texts]
    return different(texts, ours, theirs) + different(texts, decoded, texts)


def write_tekken(path, tokenizer, names_specials):
    tokens = [{"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": None}
              for token, rank in ranks_of(tokenizer).items()]
    file = {"config": {"pattern": families.O200K, "num_vocab_tokens": len(tokens), "default_vocab_size": len(tokens) + 20,
                       "default_num_special_tokens": 30, "version": "v13" if names_specials else "v3"}, "vocab": tokens}
    if names_specials:
        file["special_tokens"] = [{"rank": rank, "token_str": f"[S{rank}]", "is_control": True} for rank in range(25)]
    path.write_text(json.dumps(file))


def tiktoken_differences(atoll, path, texts, pattern):
    ranks = {base64.b64decode(token): int(rank) for token, rank in map(str.split, path.read_text().splitlines())}
    reference = tiktoken.Encoding("ranks", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    ours, decoded = ids_and_texts(atoll, path, texts)
    return different(texts, ours, [reference.encode_ordinary(text) for text in texts]) + different(texts, decoded, texts)


def write_tiktoken(path, tokenizer, size):
    """As many tokens as a known encoding has: those that were learnt, then others that no text has."""
    tokens = list(ranks_of(tokenizer))
    source, known = random.Random(5), set(tokens)
    while len(tokens) < size:
        token = source.randbytes(6)
        if token not in known:
            known.add(token)
            tokens.append(token)
    path.write_text("".join(f"{base64.b64encode(token).decode()} {rank}\n" for rank, token in enumerate(tokens)))


def report(what, found, num_texts):
    if found:
        text, ours, theirs = min(found, key=lambda one: len(one[0]))
        sys.exit(f"{what}: {len(found)} of {num_texts} differ, the shortest {text!r}:\n{ours}\nnot\n{theirs}")
    print(f"{what}: {num_texts} texts equal", flush=True)


def file_differences(atoll, path, texts):
    return (tekken_differences if path.suffix == ".json" else sentence_piece_differences)(atoll, path, texts)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("atoll")
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    arguments = parser.parse_args()
    texts = texts_for(3, 3000)
    for path in arguments.files:
        report(path.name, file_differences(arguments.atoll, path, texts), len(texts))
    if arguments.files:
        return
    with tempfile.TemporaryDirectory(prefix="atoll-formats-") as scratch:
        folder = pathlib.Path(scratch)
        for name, options in SENTENCE_PIECE.items():
            path = folder / "tokenizer.model"
            train_sentence_piece(path, texts_for(1, 2000), **options)
            report(name, sentence_piece_differences(arguments.atoll, path, texts), len(texts))
        trained = families.gpt4o(texts_for(1, 2000), 2000)
        for names_specials in (False, True):
            write_tekken(folder / "tekken.json", trained, names_specials)
            report("tekken", tekken_differences(arguments.atoll, folder / "tekken.json", texts), len(texts))
        for size, pattern in ((50256, families.GPT2), (100256, families.CL100K)):
            write_tiktoken(folder / "tiktoken.model", trained, size)
            report(f"tiktoken, {size} ranks", tiktoken_differences(arguments.atoll, folder / "tiktoken.model", texts, pattern), len(texts))


if __name__ == "__main__":
    main()
