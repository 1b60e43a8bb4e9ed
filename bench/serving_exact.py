"""What it costs that results hang on nothing but the text, for claims_serving.py. On CPUs that is not switched on: products always sum in one
order, so what is compared is their time beside that of the library's, whose sums hang on the shape and the threads: of a large product, and of those
that a pass of SmolLM2-135M has, each as often as it comes there. Weights of the latter lie in the processor's caches, so that it is computing that
is compared; a model's come from memory.
"""
import functools
import json
import os
import sys

from claims import ROOT, run

LARGE = {(2048, 8192): 1}  # Inputs and outputs, and how often.
# Queries, keys and values; what comes of attention; both parts of the MLP's input; its output.
LAYERS = {(576, 960): 30, (576, 576): 30, (576, 3072): 30, (1536, 576): 30}
HEAD = {(576, 49152): 1}  # Of each text's newest token alone: hardly anything of a prompt's 1024.
ROWS = {1: "decode of 1", 16: "decode of 16", 1024: "prefill"}
KINDS = {"atoll/f32": "FP32", "atoll/bf16": "bf16 weights, as they are served"}
TIMES = 5


def smollm2(rows):
    return LAYERS if rows == 1024 else LAYERS | HEAD


@functools.cache
def times():
    """Of each kind and size the fastest of some, taken by turns, in nanoseconds."""
    sizes = sorted({(rows, *shape) for rows in ROWS for shape in LARGE | smollm2(rows)})
    named = "|".join("/".join(map(str, size)) for size in sizes)
    command = [ROOT / "build/bin/model_products_bench", f"--benchmark_filter=^(libtorch|{'|'.join(KINDS)})/({named})$", "--benchmark_format=json",
               f"--benchmark_repetitions={TIMES}", "--benchmark_enable_random_interleaving=true", "--benchmark_min_time=0.1"]
    found = {}
    for one in json.loads(run(command, env=os.environ | {"OMP_WAIT_POLICY": "PASSIVE"}))["benchmarks"]:
        if one["run_type"] == "iteration":
            kind, *size = one["run_name"].rsplit("/", 3)
            key = (kind, *map(int, size))
            found[key] = min(found.get(key, one["real_time"]), one["real_time"])
    print(f"products, ns: {found}", file=sys.stderr)
    return found


def time_of(kind, rows, shapes):
    return sum(count * times()[kind, rows, *shape] for shape, count in shapes.items())


def cost(kind, rows, shapes):
    """How much longer they take than LibTorch's in FP32, as a share."""
    return time_of(kind, rows, shapes) / time_of("libtorch", rows, shapes) - 1


def add(claims):
    for rows, what in ROWS.items():
        for shapes, whose in ((LARGE, "a large product"), (smollm2(rows), "SmolLM2's products")):
            for kind, weights in KINDS.items():
                claims.measured(f"--deterministic is always on, {what}, {whose}, {weights}: time beside LibTorch's in FP32",
                                functools.partial(cost, kind, rows, shapes), lambda more: more <= 0.2, "<= +20 %", "{:+.0%}")
