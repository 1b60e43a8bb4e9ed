#!/usr/bin/env python3
"""How long `make check` takes after a change of one source file, and of one header of `base`.

  check_times.py [--source atoll/laws/fit.cpp] [--header atoll/base/event.h]

All is built and checked first. Then a declaration is added to the file, which no compiler cache knows, `make check` is
timed, and the file is as it was. A tree with changes in those files is refused. Prints one JSON object, seconds.
"""
import argparse
import json
import subprocess
import sys
import time

from old_commit import ROOT, run


def check():
    begin = time.monotonic()
    done = subprocess.run(["make", "check"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"make check failed:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return time.monotonic() - begin


def after_change_of(name):
    path = ROOT / name
    text = path.read_text()
    end = text.rindex("\n}  // namespace atl")
    path.write_text(f"{text[:end]}\nstruct Changed{time.time_ns()};\n{text[end:]}")
    try:
        return check()
    finally:
        path.write_text(text)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", default="atoll/laws/fit.cpp")
    parser.add_argument("--header", default="atoll/base/event.h")
    args = parser.parse_args()
    if changed := run(["git", "-C", ROOT, "status", "--porcelain", "--", args.source, args.header]):
        sys.exit(f"these have changes that are not committed, and would be written over:\n{changed}")
    out = {"nothing": check()}
    for name in (args.source, args.header):
        out[name] = after_change_of(name)
        print(f"{name}: {out[name]:.0f} s", file=sys.stderr, flush=True)
        check()
    print(json.dumps(out))


if __name__ == "__main__":
    main()
