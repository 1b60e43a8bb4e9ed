#!/usr/bin/env python3
"""Seconds that objects took to compile, from ninja's log: tests, production, and the slowest files.

usage: compile_time.py [BUILD]

Wall-clock seconds of one compiler each, so a busy machine shows more, and what came from the compiler cache next
to nothing: for figures to compare, build from nothing with CCACHE_DISABLE=1.
"""
import pathlib
import sys

TEST_SUFFIXES = ("_test", "_bench", "_fuzz")
ROOMS = ("tests/", "CMakeFiles/atoll_test", "CMakeFiles/atoll_torch_test")  # The last two: tests' precompiled headers.


def objects(build):
    """object -> seconds, of its newest compilation."""
    seconds = {}
    for line in (build / ".ninja_log").read_text().splitlines()[1:]:
        begin, end, _, name, _ = line.split("\t")
        if name.endswith((".o", ".gch", ".pch")):
            seconds[name] = (int(end) - int(begin)) / 1000
    return seconds


def is_test(name):
    return name.startswith(ROOMS) or pathlib.Path(name.removesuffix(".o")).stem.endswith(TEST_SUFFIXES)


def main(build="build"):
    seconds = objects(pathlib.Path(build))
    for kind, names in (("tests", list(filter(is_test, seconds))),
                        ("production", [name for name in seconds if not is_test(name)])):
        print(f"{kind}: {sum(seconds[name] for name in names):.0f} object-seconds of {len(names)} objects")
        for name in sorted(names, key=seconds.get, reverse=True)[:10]:
            print(f"{seconds[name]:8.1f}  {name}")


if __name__ == "__main__":
    main(*sys.argv[1:])
