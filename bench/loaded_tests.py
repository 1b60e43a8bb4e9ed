#!/usr/bin/env python3
"""The process, swarm, WAN and Slurm tests again and again while other programs keep every core busy: a test that is red by chance shows.

usage: loaded_tests.py --out FILE [--times 10] [--build build]

As many loops that do nothing but turn run beside them as there are cores. FILE has one line a run of the tests: which failed, and how
long it took; with what is there already for this code it goes on. Exits with 1 if any failed.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import time

from claims import CODE, ROOT, code_hash


def once(build):
    """Names of the tests that failed, and seconds."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count())]
    begin = time.monotonic()
    try:
        done = subprocess.run(["ctest", "--test-dir", build, "-L", "process", f"-j{os.cpu_count()}"], cwd=ROOT, check=False,
                              capture_output=True, text=True)
    finally:
        for process in busy:
            process.kill()
            process.wait()
    failed = re.findall(r"^\s+\d+ - (\S+) \(", done.stdout, re.M)
    if done.returncode != 0 and not failed:
        raise RuntimeError(f"ctest failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return failed, time.monotonic() - begin


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--build", default="build")
    args = parser.parse_args()
    code = code_hash((*CODE, "tests"))
    known = [json.loads(line) for line in args.out.read_text().splitlines()] if args.out.exists() else []
    runs = [one for one in known if one["code"] == code]
    while len(runs) < args.times:
        failed, seconds = once(args.build)
        runs.append({"code": code, "failed": failed, "seconds": round(seconds)})
        args.out.write_text("".join(json.dumps(one) + "\n" for one in runs))
        print(f"{len(runs)} of {args.times}: {', '.join(failed) or 'all passed'}, {seconds:.0f} s", file=sys.stderr, flush=True)
    print(json.dumps({"runs": len(runs), "failures": sum(len(one["failed"]) for one in runs)}))
    return 1 if any(one["failed"] for one in runs) else 0


if __name__ == "__main__":
    sys.exit(main())
