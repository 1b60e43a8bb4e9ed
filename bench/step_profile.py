#!/usr/bin/env python3
"""Where the time of a training step goes, by perf: what is worth a kernel, and what is not.

  step_profile.py ATOLL [--size demo|30m|34m|135m] [--precision fp32|bf16] [--threads 1] [--steps 4] [--store]

The program makes two steps, and perf looks at those that follow. Functions are told apart by their names (GROUPS, the first that fits).
Prints a table, and with --store keeps it in bench/results/speed-profile-PRECISION-SIZE.json, beside the other numbers of threads.
Needs perf (Debian: linux-perf), and the right to look at one's own processes.
"""
import argparse
import collections
import json
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from claims import RESULTS, run
from train_speed import Program, atoll_command
from pytorch_step import SIZES

# (what, dso, function). MKL packs what it multiplies; the products of attention in FP32 and all that is small are "nocopy".
GROUPS = (
    ("products, MKL", "libtorch", r"mkl_blas.*kernel_(?!nocopy)|gemm_kernel"),
    ("packing for products, MKL", "libtorch", r"mkl_blas.*copy_(right|down)|mkl_blas.*(scopy|pack)"),
    ("small products, MKL", "libtorch", r"mkl_blas|mkl_|gblock"),
    ("products, oneDNN (compiled when they are met)", r"JIT|perf-", r""),
    ("products, oneDNN", "libtorch", r"dnnl|brgemm"),
    ("products, tiles", "atoll", r"multiply_panels|multiply_eight_rows|pack_panel|pack_tiles|put_sums|\bturn(\.|$)"),
    ("attention", "atoll", r"softmax_(?!loss)|exponential|attention|Attention|ward_tile|multiply_rows|in_pairs|transposed|rotate|small_products"),
    ("norms", "atoll", r"norm"),
    ("SwiGLU", "atoll", r"swiglu"),
    ("loss", "atoll", r"loss"),
    ("update and clip", "atoll", r"update_range|sum_of_squares|adamw|clip"),
    ("rest of Atoll", "atoll", r""),
    ("waiting for other threads", "gomp", r""),
    ("waiting for other threads", "", r"sched|yield"),
    ("copies and zeros", "libc", r"mem"),
    ("system", r"kernel", r""),
    ("rest of LibTorch and others", "", r""),
)


def group_of(dso, function):
    return next(what for what, where, name in GROUPS if re.search(where, dso) and re.search(name, function))


def shares(recorded):
    text = run(["perf", "report", "-i", str(recorded), "--no-children", "--stdio", "-F", "sample,dso,sym", "-t", ";", "-w", "0,0,0"])
    found = collections.Counter()
    for line in text.splitlines():
        fields = line.split(";")
        if len(fields) >= 3 and fields[0].strip().isdigit():
            found[group_of(fields[1].strip(), fields[2].strip())] += int(fields[0])
    total = found.total()
    return collections.Counter({what: count / total for what, count in found.items()})


def profile(arguments):
    size = SIZES[arguments.size]
    program = Program("atoll", "atoll", atoll_command(arguments, size, arguments.threads), arguments.threads, size["rows"] * size["length"])
    try:
        program.steps(2, warms_up=True)
        with tempfile.TemporaryDirectory(prefix="atoll-profile-") as folder:
            recorded = pathlib.Path(folder) / "perf.data"
            perf = subprocess.Popen(["perf", "record", "-q", "-F", "499", "-o", recorded, "-p", str(program.process.pid)])
            time.sleep(0.5)  # It says nothing when it has begun.
            rate = program.steps(arguments.steps)
            perf.send_signal(signal.SIGINT)
            perf.wait()
            return rate, shares(recorded)
    finally:
        program.end()


def store(arguments, rate, found):
    file = RESULTS / f"speed-profile-{arguments.precision}-{arguments.size}.json"
    table = json.loads(file.read_text()) if file.exists() else {"threads": {}}
    table["threads"][str(arguments.threads)] = {
        "tokens_per_s": round(rate), "commit": run(["git", "rev-parse", "--short", "HEAD"]).strip(), "date": time.strftime("%Y-%m-%d"),
        "shares": {what: round(share, 4) for what, share in found.most_common()}}
    file.write_text(json.dumps(table, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("atoll")
    parser.add_argument("--size", default="34m", choices=SIZES)
    parser.add_argument("--precision", default="fp32", choices=("fp32", "bf16"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--store", action="store_true")
    arguments = parser.parse_args()
    arguments.device = "cpu"
    if not shutil.which("perf"):
        sys.exit("step_profile: there is no perf (Debian: apt install linux-perf)")
    rate, found = profile(arguments)
    if arguments.store:
        store(arguments, rate, found)
    print(f"{arguments.size}, {arguments.precision}, {arguments.threads} thread(s): {rate:.0f} tokens/s")
    for what, share in found.most_common():
        print(f"  {share:6.1%}  {what}")


if __name__ == "__main__":
    main()
