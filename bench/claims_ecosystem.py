#!/usr/bin/env python3
"""make claims-ecosystem: what Atoll reads of others' files, measured again (about 13 minutes on 2 cores)."""
import functools
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import corpus
import pack_memory
import tokenizer_speed
from claims import ATOLL, ROOT, Claims

sys.path.append(str(ROOT / "tests" / "oracle"))
import tokenizer_families as families  # noqa: E402

claims = Claims("ecosystem")
scratch = tempfile.TemporaryDirectory(prefix="atoll-claims-")
folder = pathlib.Path(scratch.name)
NUM_STRINGS, CHUNK = 100_000, 5_000
TEXT_BYTES, TRAINED_BYTES, SPEED_BYTES, VOCAB_SIZE, ROUNDS = 20_000_000, 5_000_000, 6_000_000, 16_384, 3

# --- models: equal to transformers, forwards and backwards ---


def oracle(name):
    """Its last line."""
    done = subprocess.run([sys.executable, ROOT / "tests" / "oracle" / name, ATOLL], check=True, capture_output=True, text=True)
    return done.stdout.splitlines()[-1]


@functools.cache
def parity():
    return json.loads(oracle("transformers_parity.py"))


claims.measured("models of all families: largest difference of log-probabilities to transformers'",
                lambda: parity()["max_difference"], lambda worst: worst <= 1e-4, "<= 1e-4", "{:.1e}")
claims.measured("and of gradients, relative", lambda: parity()["max_gradient_difference"], lambda worst: worst <= 1e-4,
                "<= 1e-4", "{:.1e}")
for what, key in (("greedy texts of 64 tokens equal to transformers'", "greedy_texts"),
                  ("weights back byte for byte through convert", "weights_back_byte_for_byte"),
                  ("own checkpoints that transformers loads without a warning", "loaded_without_a_warning")):
    claims.measured(f"models: {what} (the first difference ends it)", lambda key=key: parity()[key], lambda n: n > 0, "all", "{}")

# --- evaluation: equal to lm-evaluation-harness on the same weights ---


@functools.cache
def task_scores():
    return json.loads(oracle("lm_eval_oracle.py"))


claims.measured("scores of local tasks: largest difference to lm-evaluation-harness's",
                lambda: task_scores()["max_score_difference"], lambda worst: worst <= 1e-4, "<= 1e-4", "{:.1e}")
claims.measured("and of a request's log-likelihood, relative", lambda: task_scores()["max_log_likelihood_difference"],
                lambda worst: worst <= 1e-4, "<= 1e-4", "{:.1e}")

# --- published orders and Megatron's files: equal to numpy ---


def num_orders():
    """It fails at the first difference."""
    said = oracle("orders_oracle.py")
    return sum(map(int, re.findall(r"(\d+) of", said)))


claims.measured("orders of NeoX, OLMo and OLMo-core that are equal to numpy's, of as many", num_orders, lambda n: n > 0, "all", "{}")

# --- packing: 2 GB on disk, which are some 10 GB of lines ---


@functools.cache
def packing():
    result = pack_memory.measure(ATOLL)
    print(f"\npacking: {json.dumps(result)}", file=sys.stderr)
    return result


claims.measured("packing in bounded memory: 2 GB of jsonl.zst (compressed), peak RSS in GB",
                lambda: packing()["max_rss_bytes"] / 1e9, lambda rss: rss < 1, "< 1", "{:.2f}")
claims.measured("and millions of tokens for each second of a core",
                lambda: packing()["tokens_per_core_s"] / 1e6, lambda rate: rate > 0, "told", "{:.1f}")

# --- tokenizers: equal to Hugging Face's library, and faster ---


@functools.cache
def sources():
    """20 MB of Python."""
    texts = corpus.texts(TEXT_BYTES)
    file = folder / "sources.txt"
    file.write_bytes("".join(texts).encode())
    beginning = folder / "beginning.txt"
    beginning.write_bytes(file.read_bytes()[:SPEED_BYTES].decode(errors="ignore").encode())
    return texts, file, beginning


@functools.cache
def tokenizer(family):
    texts, *_ = sources()
    kept, size = [], 0
    for text in texts[::4]:
        size += len(text)
        if size > TRAINED_BYTES:
            break
        kept.append(text)
    path = folder / f"{family}.json"
    made = families.make(family, kept + families.strings(1, 2000, families.Tokenizer(families.models.BPE())), VOCAB_SIZE)
    made.save(str(path))
    return made, path


def num_different(family, chunks):
    made, path = tokenizer(family)
    different = 0
    for texts in chunks(made):
        found = families.differences(ATOLL, path, texts)
        different += len(found)
        for text, ours, theirs in found[:1]:
            print(f"\n{family}: {text[:200]!r}: {ours[:50]}, not {theirs[:50]}", file=sys.stderr)
    return different


def generated(made):
    return (families.strings(100 + seed, CHUNK, made) for seed in range(NUM_STRINGS // CHUNK))


def source_files(made):
    texts, *_ = sources()
    return (texts[first : first + 100] for first in range(0, len(texts), 100))


def speed(family):
    result = tokenizer_speed.measure(ROOT / "build", sources()[2], tokenizer(family)[1], ROUNDS)
    print(f"\n{family}: {json.dumps(result)}", file=sys.stderr)
    return result["ratio"]


for family in families.FAMILIES:
    claims.measured(f"{family}: generated strings of {NUM_STRINGS:,} that differ from tokenizers'",
                    functools.partial(num_different, family, generated), lambda n: n == 0, "0", "{}")
    claims.measured(f"{family}: files of {TEXT_BYTES // 1_000_000} MB of source text that differ",
                    functools.partial(num_different, family, source_files), lambda n: n == 0, "0", "{}")
for family in families.FAMILIES:
    claims.measured(f"{family}: times as fast as tokenizers, one thread, in turns", functools.partial(speed, family),
                    lambda ratio: ratio >= 8, ">= 8", "{:.1f}")

sys.exit(claims.end())
