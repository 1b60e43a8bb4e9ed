#!/usr/bin/env python3
"""Masks of Atoll's grammars beside llguidance's and xgrammar's, over one vocabulary and the same texts, one thread.

  structured_output.py WALK --tokenizer FILE [--count 60] [--seed 1]

WALK is build/bin/atoll-walk-grammar; FILE a byte-level tokenizer.json. Python needs `tokenizers`, and what is to be
measured beside: `llguidance`, `xgrammar` (with numpy; they are no requirement of Atoll). For each generated schema
(tests/oracle/schema_cases.py) a right value is written compactly and encoded; each program compiles the schema and gives
the mask before each token. Programs start each schema without what they kept of the last. Prints one JSON object:
microseconds of processor time, of masks the median, the 99th percentile and the worst.
"""
import argparse
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

import jsonschema
import tokenizers

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "oracle"))
from grammar_oracle import compact, in_order, run  # noqa: E402
from schema_cases import SchemaMaker, instances  # noqa: E402


def byte_alphabet():
    """What byte each character of a byte-level vocabulary stands for."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + i): byte for i, byte in enumerate(others)}


def vocabulary(tokenizer):
    """The bytes of each id; of the first, which ends texts, none."""
    bytes_of = byte_alphabet()
    tokens = [b""] * tokenizer.get_vocab_size()
    for text, number in tokenizer.get_vocab().items():
        tokens[number] = bytes(bytes_of[c] for c in text) if number else b""
    return tokens


def tasks(tokenizer, count, seed):
    maker, pool = SchemaMaker(random.Random(seed)), random.Random(seed)
    while count:
        schema = maker.schema()
        right = [value for value in instances(schema, pool) if jsonschema.Draft202012Validator(schema).is_valid(value)]
        if right:
            text = max((compact(in_order(value, schema, schema)) for value in right), key=len)
            count -= 1
            yield schema, tokenizer.encode(text).ids


def atoll(walk, work, tokens):
    with tempfile.NamedTemporaryFile("w", suffix=".hex") as file:
        file.write("".join(token.hex() + "\n" for token in tokens))
        file.flush()
        answers = run(walk, [{"schema": schema, "vocabulary": file.name, "tokens": ids} for schema, ids in work])
    return [None if "error" in answer else (answer["compile_us"], answer["mask_us"]) for answer in answers]


def timed(compile_schema, mask, take, ids):
    begin = time.thread_time()
    state = compile_schema()
    compiled, masks = time.thread_time() - begin, []
    for number in ids:
        begin = time.thread_time()
        mask(state)
        masks.append(1e6 * (time.thread_time() - begin))
        if not take(state, number):
            return None
    return 1e6 * compiled, masks


def llguidance(work, tokenizer):
    import llguidance as llg
    import llguidance.numpy as masks
    whole = llg.LLTokenizer(tokenizer.to_str(), eos_token=0)
    bitmask = masks.allocate_token_bitmask(1, whole.vocab_size)

    def compile_schema(schema):
        matcher = llg.LLMatcher(whole, llg.LLMatcher.grammar_from_json_schema(schema))
        if matcher.is_error():
            raise RuntimeError(matcher.get_error())
        return matcher

    def one(schema, ids):
        return timed(lambda: compile_schema(schema), lambda m: masks.fill_next_token_bitmask(m, bitmask),
                     lambda m, number: m.consume_token(number), ids)
    return attempts(work, one)


def xgrammar(work, tokens):
    import numpy
    import xgrammar as xgr
    info = xgr.TokenizerInfo(tokens, vocab_type=xgr.VocabType.RAW, stop_token_ids=[0])
    bitmask = xgr.allocate_token_bitmask(1, info.vocab_size)
    assert numpy is not None

    def one(schema, ids):
        compiler = xgr.GrammarCompiler(info, max_threads=1, cache_enabled=False)
        return timed(lambda: xgr.GrammarMatcher(compiler.compile_json_schema(json.dumps(schema))),
                     lambda m: m.fill_next_token_bitmask(bitmask), lambda m, number: m.accept_token(number), ids)
    return attempts(work, one)


def attempts(work, one):
    results = []
    for schema, ids in work:
        try:
            results.append(one(schema, ids))
        except Exception:  # What they refuse, each in its way.
            results.append(None)
    return results


def summary(results):
    done = [result for result in results if result]
    masks = sorted(micros for _, times in done for micros in times)
    if not masks:
        return {"schemas": 0}
    return {"schemas": len(done), "refused_or_not_taken": len(results) - len(done), "masks": len(masks),
            "compile_median_us": round(statistics.median(compiled for compiled, _ in done), 1),
            "compile_worst_us": round(max(compiled for compiled, _ in done), 1),
            "mask_median_us": round(statistics.median(masks), 1), "mask_mean_us": round(statistics.mean(masks), 1),
            "mask_p99_us": round(masks[len(masks) * 99 // 100], 1), "mask_worst_us": round(masks[-1], 1)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("walk")
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    tokenizer = tokenizers.Tokenizer.from_file(arguments.tokenizer)
    tokens = vocabulary(tokenizer)
    work = list(tasks(tokenizer, arguments.count, arguments.seed))
    report = {"tokens": len(tokens), "atoll": summary(atoll(arguments.walk, work, tokens))}
    for name, measure, argument in (("llguidance", llguidance, tokenizer), ("xgrammar", xgrammar, tokens)):
        try:
            report[name] = summary(measure(work, argument))
        except ImportError as error:
            report[name] = f"not installed: {error}"
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
