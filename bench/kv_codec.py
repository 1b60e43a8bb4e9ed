#!/usr/bin/env python3
"""The rate curve of compressed keys and values, on SmolLM2-135M and real text: bench/results/kv-codec.json and .svg.

A profile is fitted to some text; prefixes of 2,048 tokens of other text are coded, and the next 512 tokens scored on what comes
back. Takes more than an hour on two cores, so it works by parts that are kept in build/kv: one that was stopped goes on.

  kv_codec.py MODEL     a folder with SmolLM2-135M-Instruct in bf16 (`atoll convert` makes one of the GGUF file that bench/real.py
                        fetches)
"""
import json
import math
import os
import pathlib
import platform
import statistics
import sys
import time

import kv_texts
import scatter
from claims import ATOLL, RESULTS, ROOT, code_hash, run

WORK = ROOT / "build" / "kv"
CODE = ("atoll/kv", "atoll/kv_model", "atoll/model", "bench/kv_codec.py", "bench/kv_texts.py")
WINDOWS_OF_PART = 8
BITS, VECTORWISE_BITS = "1.35,1.0,0.75", "2.14"
LEVELS = ["transform 0", "transform 1"]
# What they are compared with: measured behind those, part by part.
BESIDE = ["8-bit", "4-bit", "CacheGen as published", "vectorwise 0", "transform 2"]


def profile_of(model, texts):
    path = WORK / "profile.kvp"
    if not path.exists():
        run([ATOLL, "kv", "fit", model, "--text", *texts, "--windows", "24", "--sensitivity-windows", "12", "--bits", BITS,
             "--vectorwise-bits", VECTORWISE_BITS, "--out", path])
    return path


def measure_part(model, profile, text, name, levels):
    """One part's JSON; measured once."""
    path = WORK / f"{name}.json"
    if not path.exists():
        printed = run([ATOLL, "kv", "measure", model, "--profile", profile, "--text", text, "--windows", str(WINDOWS_OF_PART),
                       "--levels", ",".join(levels), "--json"])
        path.write_text(printed)
    return json.loads(path.read_text())


def together(parts):
    """Each level over all windows that it was measured on: perplexity grows by e^mean - 1, with a 95 % interval."""
    by_name = {}
    for part in parts:
        for level in part["levels"]:
            by_name.setdefault(level["name"], []).append(level)
    levels = []
    for name, found in by_name.items():
        differences = [one for level in found for one in level["loss_differences"]]
        mean = statistics.fmean(differences)
        levels.append({"name": name, "windows": len(differences), "bits": statistics.fmean(level["bits"] for level in found),
                       "perplexity_growth": math.expm1(mean),
                       "half_interval": 1.96 * statistics.stdev(differences) / math.sqrt(len(differences)) * math.exp(mean),
                       "encoded_per_s": statistics.harmonic_mean([level["encoded_per_s"] for level in found]),
                       "decoded_per_s": statistics.harmonic_mean([level["decoded_per_s"] for level in found])})
    return sorted(levels, key=lambda level: -level["bits"])


def keep(parts, beside):
    levels = together(parts + beside)
    (RESULTS / "kv-codec.json").write_text(json.dumps({
        "perplexity": math.exp(statistics.fmean(math.log(part["perplexity"]) for part in parts)),
        "prefix": parts[0]["prefix"], "scored": parts[0]["scored"], "levels": levels, "command": "bench/kv_codec.py MODEL",
        "commit": run(["git", "rev-parse", "--short", "HEAD"]).strip(), "code": code_hash(CODE),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}", "date": time.strftime("%Y-%m-%d")}, indent=1) + "\n")
    points = {level["name"]: (level["bits"], 100 * level["perplexity_growth"], 100 * level["half_interval"]) for level in levels}
    (RESULTS / "kv-codec.svg").write_text(scatter.svg(points, "bits per element, all in", "growth of perplexity, %"))
    for level in levels:
        print(f"{level['name']:<24}{level['windows']:>8}{level['bits']:>10.3f}{100 * level['perplexity_growth']:>+10.2f} % +- "
              f"{100 * level['half_interval']:.2f}{level['encoded_per_s'] / 1e6:>10.1f}{level['decoded_per_s'] / 1e6:>10.1f}")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    WORK.mkdir(parents=True, exist_ok=True)
    fit, held = kv_texts.write(WORK / "texts")
    profile = profile_of(sys.argv[1], fit)
    parts = [measure_part(sys.argv[1], profile, text, f"part-{i}", LEVELS) for i, text in enumerate(held)]
    beside = [measure_part(sys.argv[1], profile, text, f"beside-{i}", BESIDE) for i, text in enumerate(held)]
    keep(parts, beside)


if __name__ == "__main__":
    main()
