#!/usr/bin/env python3
"""make claims-methods: every figure of the low-communication methods, measured again (about 12 minutes on 2 cores)."""
import functools
import json
import pathlib
import subprocess
import sys
import tempfile

import corpus
from claims import ATOLL, ROOT, Claims, last_json, run
from report_methods import METHODS, RESULTS, STEPS, fingerprint, prepare

PYTHON = sys.executable
claims = Claims("methods")
work = pathlib.Path(tempfile.mkdtemp(prefix="atoll-claims-"))
store = str(work / "store")
corpus.make_store(ATOLL, store, corpus.SMALL_BYTES)

# --- identities and goldens ---


def exit_status(pattern):
    """Of the tests whose name matches; none at all is a failure too."""
    done = subprocess.run(["ctest", "--test-dir", "build", "-R", pattern, "--no-tests=error"], cwd=ROOT, capture_output=True)
    return done.returncode


claims.measured("identities of the methods and of fragments, exit status of the tests",
                lambda: exit_status("^(sync|collective)[.]"), lambda n: n == 0, "0", "{}")
claims.measured("six outer steps of every method against PyTorch, largest difference",
                lambda: last_json(run([PYTHON, str(ROOT / "tests/oracle/methods_golden.py"), ATOLL, store]))["max_difference"],
                lambda d: d <= 1e-5, "<= 1e-5")

# --- bytes ---


@functools.cache
def bits():
    return last_json(run([PYTHON, str(ROOT / "bench/bits_on_the_wire.py"), ATOLL, store]))


for codec, limit in (("e3m0", 4.10), ("int8", 8.15), ("sparse_loco", 0.23), ("cocktail", 0.165)):
    claims.measured(f"{codec}: bits per parameter and direction, 30 M model", lambda c=codec: bits()[c],
                    lambda b, most=limit: b <= most, f"<= {limit}", "{:.4f}")

# --- speed of codecs ---


@functools.cache
def of_memcpy():
    text = run([str(ROOT / "build/bin/codec_codec_bench"), "--benchmark_filter=both/", "--benchmark_format=json",
                "--benchmark_repetitions=3"])
    rows = [row for row in json.loads(text)["benchmarks"] if row.get("aggregate_name") == "median"]
    return {row["run_name"].split("/")[1]: row["of_memcpy"] for row in rows}


for codec, least in (("e3m0", 0.6), ("int8", 0.6), ("topk", 0.1), ("cocktail", 0.1), ("sparse_loco", 0.1)):
    claims.measured(f"{codec}: encode and decode 256 MiB, times the speed of memcpy", lambda c=codec: of_memcpy()[c],
                    lambda r, target=least: r >= target, f">= {least}", "{:.3f}")

# --- a slow line ---


@functools.cache
def line():
    return last_json(run([PYTHON, str(ROOT / "bench/limited_link.py"), ATOLL, store]))


claims.measured("diloco fp32 on the line for half its speed, utilisation (check)", lambda: line()["diloco"]["utilisation"],
                lambda u: 0.4 <= u <= 0.6, "about 0.5", "{:.3f}")
claims.measured("streaming e3m0 tau=1 on that line, utilisation", lambda: line()["streaming"]["utilisation"],
                lambda u: u >= 0.95, ">= 0.95", "{:.3f}")
claims.measured("streaming e3m0 tau=1 on that line, share of time stalled", lambda: line()["streaming"]["stall_share"],
                lambda s: s < 0.01, "< 0.01", "{:.4f}")
claims.measured("data_parallel fp32 on the line for a tenth, utilisation (check)",
                lambda: line()["data_parallel"]["utilisation"], lambda u: 0.07 <= u <= 0.13, "about 0.1", "{:.3f}")
claims.measured("cocktail_sgd on that line, utilisation", lambda: line()["cocktail"]["utilisation"],
                lambda u: u >= 0.8, ">= 0.8", "{:.3f}")

# --- loss: from the stored report ---


@functools.cache
def report():
    if not RESULTS.exists():
        raise RuntimeError(f"{RESULTS} is missing: make report-methods writes it")
    state = json.loads(RESULTS.read_text())
    if state["steps"] != STEPS:
        raise RuntimeError(f"{RESULTS} is of {state['steps']} steps, not {STEPS}")
    return state


@functools.cache
def is_current(name):
    """Whether the method still ends a short run with the bits of the stored report's program, data and machine."""
    return report()["fingerprints"].get(name) == fingerprint(name, prepare())


def excess(pair):
    """The mean relative difference that the stored report found, of three seeds at least."""
    result = report()["comparisons"].get(pair)
    if result is None or result["seeds"] < 3:
        raise RuntimeError(f"{pair} was not measured with three seeds: make report-methods goes on with it")
    return result["mean"]


def interval(pair):
    """95 %, as words for the claim."""
    half = report()["comparisons"].get(pair, {}).get("half_width") if RESULTS.exists() else None
    return f" ± {half:.2%}" if half is not None else ""


for key, claim, limit in (
        ("streaming_e3m0_tau1 / diloco", "streaming e3m0 tau=1 over diloco, validation loss", 0.005),
        ("diloco / data_parallel", "diloco M=2 H=30 over data_parallel, validation loss", 0.015),
        ("diloco_m1 / data_parallel", "diloco M=1 over data_parallel, validation loss", 0.002),
        ("cocktail_pretrained / data_parallel_pretrained", "cocktail_sgd over data_parallel, pretrained start", 0.01)):
    claims.kept(f"{claim}{interval(key)}", lambda k=key: excess(k), lambda r, most=limit: r <= most, f"<= {limit:+.1%}",
                lambda k=key: all(map(is_current, k.split(" / "))), "{:+.2%}")


def report_hours():
    """Of all runs of the stored report."""
    seconds = [run["seconds"] for runs in report()["runs"].values() for run in runs.values()]
    if len(seconds) < 3 * len(METHODS):
        raise RuntimeError(f"{len(seconds)} of {3 * len(METHODS)} runs are stored: make report-methods goes on with them")
    return sum(seconds) / 3600


claims.kept("the whole report, hours", report_hours, lambda hours: hours <= 3, "<= 3",
            lambda: all(map(is_current, ("diloco", "data_parallel"))), "{:.2f}")
sys.exit(claims.end())
