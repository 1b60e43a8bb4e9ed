"""What it costs that results hang on nothing but the text, for claims_serving.py. On CPUs that is not switched on: products always sum in one
order, so what is compared is their time beside that of the library's, whose sums hang on the shape and the threads."""
import functools
import json
import os
import sys

from claims import ROOT, run

SHAPE = (2048, 8192)  # Inputs and outputs.
ROWS = {1: "decode of 1", 16: "decode of 16", 1024: "prefill"}
TIMES = 5


@functools.cache
def times():
    """Of each kind and number of rows the fastest of some, taken by turns."""
    sizes = f"({'|'.join(map(str, ROWS))})/{SHAPE[0]}/{SHAPE[1]}"
    command = [ROOT / "build/bin/model_products_bench", f"--benchmark_filter=^(libtorch|atoll/f32|atoll/bf16)/{sizes}$", "--benchmark_format=json",
               f"--benchmark_repetitions={TIMES}", "--benchmark_enable_random_interleaving=true", "--benchmark_min_time=0.1"]
    found = {}
    for one in json.loads(run(command, env=os.environ | {"OMP_WAIT_POLICY": "PASSIVE"}))["benchmarks"]:
        if one["run_type"] == "iteration":
            kind, rows = one["run_name"].rsplit("/", 3)[:2]
            found[kind, int(rows)] = min(found.get((kind, int(rows)), one["real_time"]), one["real_time"])
    print(f"products, ns: {found}", file=sys.stderr)
    return found


def cost(kind, rows):
    return times()[kind, rows] / times()["libtorch", rows] - 1


def add(claims):
    for rows, what in ROWS.items():
        claims.measured(f"--deterministic is always on, {what}: FP32 products' time beside LibTorch's", functools.partial(cost, "atoll/f32", rows),
                        lambda more: more <= 0.2, "<= +20 %", "{:+.0%}")
        claims.measured("and with bf16 weights, as they are served", functools.partial(cost, "atoll/bf16", rows), lambda more: more <= 0.2, "<= +20 %",
                        "{:+.0%}")
