#!/usr/bin/env python3
"""make claims-speed: the inner step beside PyTorch, islands of several processes, BF16, decoding, the race over a slow line.

Training speed takes some 20 minutes for each table; they are kept in bench/results/speed-PRECISION-SIZE-PROCESSOR.json, and those of
every kind of processor are shown. LONG=fp32, LONG=bf16-34m, LONG=race and so on measure anew for this one, LONG=1 all.
"""
import functools
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time

import generate_speed
import speed_islands
import speed_race
import train_speed
from claims import ATOLL, NO_TESTS, ONLY, RESULTS, ROOT, Claims, code_hash, is_named, last_json, run
from pytorch_step import device_name

PYTHON = sys.executable
CODE = ("atoll/base", "atoll/cli_torch", "atoll/model", "atoll/train", "bench/pytorch_step.py", "bench/train_speed.py", *NO_TESTS)
LINES = ("atoll", "bench/speed_race.py", *NO_TESTS)
claims = Claims("speed", LINES)
work = speed_islands.folder()


# --- training speed ---
RATIOS = {"fp32": {"eager": 1.3, "compile": 1.2}, "bf16": {"eager": 1.5, "compile": 1.35}}
THREADS = ("1", "2")
STRETCH = {"bf16": {"eager": 1.6, "compile": 1.5}}
MOST_MEMORY = 0.6
GOAL_SHARE = 0.85


def processor_of(name):
    """As the machine calls it: "AMD EPYC 9354 32-Core Processor" is amd-epyc-9354-32-core."""
    return "-".join(re.findall("[a-z0-9]+", name.lower().replace("(r)", "").replace("(tm)", "").replace("processor", "")))


THIS_PROCESSOR = processor_of(device_name("cpu"))


def table_file(precision, size, processor=THIS_PROCESSOR):
    return RESULTS / f"speed-{precision}-{size}-{processor}.json"


def measure_table(precision, size):
    """PyTorch's best, both modes, and Atoll in turns."""
    words = [ATOLL, "--size", size, "--precision", precision, "--beside", "eager,compile"]
    table = train_speed.results(train_speed.parsed(words))
    table |= {"commit": run(["git", "rev-parse", "--short", "HEAD"]).strip(), "command": f"LONG={precision}-{size} make claims-speed",
              "code": code_hash(CODE), "machine": f"{os.cpu_count()} cores, {platform.machine()}", "date": time.strftime("%Y-%m-%d")}
    table_file(precision, size).write_text(json.dumps(table, indent=1) + "\n")


def lines_of(precision, size, processor, threads):
    """(claim, figure of those threads' row, whether it is met, target)"""
    where = f"{size} {precision}, {threads} thread{'s' if threads != '1' else ''}, {processor}"
    for mode, least in RATIOS[precision].items():
        goal = STRETCH.get(precision, {}).get(mode)
        yield (f"{where}: tokens/s of PyTorch's, {mode}", lambda row, mode=mode: row[mode]["ratio"], lambda ratio, least=least: ratio >= least,
               f">= {least}" + (f" ({goal})" if goal else ""))
    yield (f"{where}: peak memory of eager's", lambda row: row["eager"]["memory_ratio"], lambda share: share <= MOST_MEMORY, f"<= {MOST_MEMORY}")
    yield f"{where}: share of the measured peak", lambda row: row["atoll"]["share_of_peak"], lambda share: True, f"goal {GOAL_SHARE}"


def is_asked(precision, size):
    claims_here = (line[0] for threads in THREADS for line in lines_of(precision, size, THIS_PROCESSOR, threads))
    return is_named(f"{precision}-{size}") and any(ONLY.search(claim) for claim in claims_here)


def show_table(precision, size, file):
    """Ratios, memory and the share of the peak, for each number of threads; there may be no such file yet."""
    processor = file.stem.removeprefix(f"speed-{precision}-{size}-")
    table = json.loads(file.read_text()) if file.exists() else None
    is_current = table is not None and table["code"] == code_hash(CODE)
    for threads in THREADS:
        for claim, figure, met, target in lines_of(precision, size, processor, threads):
            if table is not None:
                claims.kept(claim, lambda threads=threads, figure=figure: figure(table["threads"][threads]), met, target, lambda: is_current, "{:.2f}")
            elif ONLY.search(claim):
                claims.show(claim, "never measured", target, "short")


# --- islands of processes ---
def differences(*words):
    return functools.cache(lambda: speed_islands.differences(work, speed_islands.small_store(work), *words))


def show_islands():
    def close(claim, measure):
        claims.measured(claim, measure, lambda difference: difference <= 1e-5, "<= 1e-5", "{:.1e}")

    for start in speed_islands.STARTS:
        for optimizer, steps in (("adamw", 20), ("sgd", 50)):
            both = differences(start, optimizer)
            close(f"two processes ({start}) and one, {steps} steps of {optimizer}: loss", lambda both=both: both()[0])
            claims.measured(f"two processes ({start}) and one, {steps} steps of {optimizer}: final validation loss", lambda both=both: both()[1],
                            lambda share: share <= 0.002, "<= 0.2 %", "{:.3%}")
    for shard in ("zero1", "zero3"):
        close(f"two processes with {shard} and one, 20 steps of adamw: loss", lambda shard=shard: differences("atoll", "adamw", shard)()[0])
    claims.measured("memory of a process, ZeRO-3 at four processes, of one alone",
                    lambda: speed_islands.shard_memory(work, speed_islands.small_store(work)), lambda share: share <= 0.35, "<= 0.35", "{:.2f}")
    claims.measured("memory of process 0, two islands under DiLoCo, ZeRO-3 over ZeRO-1",
                    lambda: speed_islands.outer_memory(work, speed_islands.small_store(work)), lambda share: share <= 0.6, "<= 0.6", "{:.2f}")
    claims.measured("two islands of two processes, one killed: digests at the end",
                    lambda: speed_islands.digests_after_a_kill(work, speed_islands.small_store(work)), lambda n: n == 1, "1", "{}")


# --- the same bits, and BF16's loss ---
@functools.cache
def demo(precision):
    return speed_islands.demo(work, precision)


def other_ends():
    done = subprocess.run([PYTHON, "bench/digests.py"], cwd=ROOT, check=False, capture_output=True, text=True)  # It ends with 1 if there are any.
    return len(last_json(done.stdout)["others"])


def show_numbers():
    claims.measured("FP32: small runs that end with other bits than before", other_ends, lambda n: n == 0, "0", "{}")
    claims.measured("the demo's validation loss in BF16 over that in FP32", lambda: demo("bf16")[0] / demo("fp32")[0] - 1,
                    lambda excess: excess <= 0.01, "<= +1 %", "{:+.2%}")
    claims.measured("two islands in BF16: distinct digests", lambda: demo("bf16")[1], lambda n: n == 1, "1", "{}")


# --- decoding ---
@functools.cache
def made():
    return generate_speed.rates(ATOLL)


def show_decoding():
    for name, least in (("a token a pass", 3), ("with guesses", 3)):
        claims.measured(f"atoll generate, SmolLM2-135M in BF16, {name}: tokens/s of transformers' generate",
                        lambda name=name: made()[name] / made()["transformers"], lambda ratio, least=least: ratio >= least, f">= {least}", "{:.1f}")


# --- the race ---
RACE = {"100/20": (0.91, "0.95; torchft 0.78"), "10/80": (0.88, "0.93; torchft 0.19"), "1/200": (0.9, "SparseLoCo")}


def show_race():
    """Each line's share is kept by itself."""
    for words, (least, goal) in RACE.items():
        def share(words=words):
            found = speed_race.main([ATOLL, str(speed_islands.small_store(work)), "--links", words])[words]
            if found["steps_a_round"] > 1.25 * speed_race.H:  # Who never exchanges has all of its speed.
                raise RuntimeError(f"a round took {found['steps_a_round']:.1f} steps")
            return found["share"]
        mbit, round_trip = words.split("/")
        claims.stored(f"race-{mbit}", f"share of its own speed over {mbit} Mbit/s, {round_trip} ms ({goal})", share,
                      lambda figure, least=least: figure >= least, f">= {least}", "{:.3f}", f"LONG=race-{mbit} make claims-speed")


def main():
    try:
        for precision in RATIOS:
            for size in ("34m", "135m"):
                if is_asked(precision, size):
                    try:
                        measure_table(precision, size)
                    except Exception as error:  # What was kept is shown, and the other claims.
                        print(f"\n{precision}-{size}: {error}", file=sys.stderr)
                for file in sorted({table_file(precision, size), *RESULTS.glob(table_file(precision, size, "*").name)}):
                    show_table(precision, size, file)
        show_islands()
        show_numbers()
        show_decoding()
        show_race()
        return claims.end()
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
