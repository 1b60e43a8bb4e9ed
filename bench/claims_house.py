#!/usr/bin/env python3
"""make claims-house: how large, how layered and how quick to check this code is, and that kills change no bits.

What counts lines, arrows and members takes seconds; the evaluation beside busy processes some minutes. Kept, because
they take long: 200 kills (LONG=kills), the process tests on a busy machine (LONG=loaded), planted mistakes (LONG=mistakes), the
demo (LONG=demo), object-seconds of the tests (LONG=objects, from an empty build), `make check` (LONG=check), and speeds beside
those of the commit before (LONG=speeds, which builds it).
"""
import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import old_commit
import planted_mistakes
import resume_kills
from claims import ATOLL, LONG, ROOT, Claims, last_json, run

sys.path.append(str(ROOT / "scripts"))
sys.path.append(str(ROOT / "tests"))
import compile_time  # noqa: E402
import small_store  # noqa: E402
import tidy  # noqa: E402

claims = Claims("house")
NUM_KILLS = 200
TEST_SUFFIXES = ("_test", "_fuzz", "_bench")


def production():
    """Paths of the sources that are neither tests nor what tests share."""
    return [path for path in tidy.tracked("atoll/*.h", "atoll/*.cpp")
            if not path.stem.endswith(TEST_SUFFIXES) and not path.parts[1].startswith("testing")]


def lines(path):
    return (ROOT / path).read_text().count("\n")


def largest_room():
    rooms = collections.Counter()
    for path in production():
        rooms[path.parts[1]] += lines(path)
    name, size = rooms.most_common(1)[0]
    print(f"the largest room: {name}", file=sys.stderr)
    return 100 * size / sum(rooms.values())


def upward_arrows():
    layers = tidy.read_layers()
    tidy.problems.clear()
    for path in tidy.tracked("atoll/*.h", "atoll/*.cpp"):
        tidy.check_source(path, layers)
    return sum("may not include" in problem or "is torch-free" in problem or "not below" in problem
               for problem in tidy.problems)


def without_bodies(text):
    """Of a class what stands directly in it: what is in braces is left out."""
    flat, depth = "", 0
    for letter in text:
        depth -= letter == "}"
        flat += letter if depth == 0 else ""
        depth += letter == "{"
    return flat


def members(text):
    """class -> how many data members it has: names that end with an underscore, declared directly in it."""
    text = re.sub(r'//[^\n]*|"(\\.|[^"\\\n])*"', "", text)
    found = {}
    for begin in re.finditer(r"^ *class (?:ATOLL_\w+\([^{;]*?\) )?([\w:]+)[^;{()]*\{", text, re.M):
        depth = 0
        for end in range(begin.end() - 1, len(text)):
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            if depth == 0:
                break
        found[begin.group(1)] = len(re.findall(r"[\w>&*\]] +[&*]?\w+_\s*(?:ATOLL_GUARDED_BY\(\w+\)\s*)?(?:=[^;]*|\{\})?;",
                                               without_bodies(text[begin.end():end])))
    return found


def largest_class():
    largest = max(((count, name, path) for path in production()
                   for name, count in members((ROOT / path).read_text()).items()))
    print(f"the largest class: {largest[1]} in {largest[2]}", file=sys.stderr)
    return largest[0]


def longest_file():
    longest = max((lines(path), path) for path in production() if not path.stem.endswith("_table"))
    print(f"the longest file: {longest[1]}", file=sys.stderr)
    return longest[0]


def asks_for_pace():
    """Lines that ask which pace a run has, outside the objects that answer for it."""
    homes = ("pace", "elastic", "lockstep")
    return sum(len(re.findall(r"\bis_elastic\b", (ROOT / path).read_text())) for path in production()
               if not path.stem.startswith(homes))


claims.measured("largest room, % of the lines (tests' own left out)", largest_room, lambda p: p <= 10, "<= 10", "{:.1f}")
claims.measured("arrows that point upwards", upward_arrows, lambda n: n == 0, "0", "{}")
claims.measured("longest file, lines", longest_file, lambda n: n <= 450, "<= 450", "{}")
claims.measured("members of the largest class", largest_class, lambda n: n <= 20, "<= 20", "{}")
claims.measured("times that `is_elastic` is asked outside the objects for pace", asks_for_pace, lambda n: n <= 10, "<= 10", "{}")
claims.measured("lines of production", lambda: sum(map(lines, production())), lambda n: n <= 66_000, "<= 66,000", "{:,}")

# --- the bits of small runs ---
def other_ends():
    done = subprocess.run([sys.executable, "bench/digests.py"], cwd=ROOT, check=False, capture_output=True, text=True)
    return len(last_json(done.stdout)["others"])


claims.measured("small runs that end with other bits than this machine's table", other_ends, lambda n: n == 0, "0", "{}")

# --- beside busy processes ---
claims.measured("evaluation on two threads beside two busy processes, times as long",
                lambda: last_json(run([sys.executable, "bench/busy_evaluation.py", ATOLL]))["ratio"],
                lambda r: r <= 2.5, "<= 2.5", "{:.2f}")


# --- kills ---
def kill(count):
    with tempfile.TemporaryDirectory(prefix="atoll-claims-") as folder:
        store = str(pathlib.Path(folder) / "store")
        small_store.make_store(ATOLL, store, ["json", "logging", "asyncio"])
        kept = ROOT / "bench" / "results" / "house-kills-runs.json" if count > 10 else pathlib.Path(folder) / "kills.json"
        subprocess.run([sys.executable, "bench/resume_kills.py", "--store", store, "--out", str(kept), "--count", str(count)],
                       cwd=ROOT, check=False, stdout=sys.stderr)
        kills = json.loads(kept.read_text())["kills"]
        if len(kills) < count:
            raise RuntimeError(f"{len(kills)} of {count} kills were made")
        return sum(not one["is_same"] for one in kills)


claims.measured("10 kills in lock-step runs: ends with other bits", lambda: kill(10), lambda n: n == 0, "0", "{}")
claims.stored("kills", f"{NUM_KILLS} kills in lock-step runs: ends with other bits", lambda: kill(NUM_KILLS), lambda n: n == 0,
              "0", "{}", "LONG=kills make claims-house", resume_kills.CODE)


# --- mistakes ---
def found_mistakes():
    """By the tests named with them, of those that stand in the table now."""
    kept = json.loads(planted_mistakes.FOUND.read_text()).values()
    return sum(bool(one["found_by"]) for one in kept)


def are_current():
    return {planted_mistakes.key_of(one) for one in MISTAKES} == set(json.loads(planted_mistakes.FOUND.read_text()))


MISTAKES = planted_mistakes.mistakes()
if {"1", "mistakes"} & set(LONG):
    subprocess.run([sys.executable, "bench/planted_mistakes.py"], cwd=ROOT, check=False, stdout=sys.stderr)
claims.kept(f"planted mistakes found, of {len(MISTAKES)} (LONG=mistakes)", found_mistakes, lambda n: n >= max(40, len(MISTAKES)),
            f"{len(MISTAKES)} (>= 40)", are_current, "{}")


# --- the process tests on a busy machine ---
def failures_under_load():
    kept = ROOT / "bench" / "results" / "house-loaded-runs.jsonl"
    done = subprocess.run([sys.executable, "bench/loaded_tests.py", "--out", str(kept)], cwd=ROOT, check=False,
                          stdout=subprocess.PIPE, text=True)
    return last_json(done.stdout)["failures"]


claims.stored("loaded", "10 times the process tests, all cores busy: failures", failures_under_load, lambda n: n == 0, "0", "{}",
              "LONG=loaded make claims-house", ("atoll", "tests", "bench/loaded_tests.py"))


# --- the demo ---
def waiting_in_demo():
    """Percent of the living islands' time; the killed one's absence is apart."""
    with tempfile.TemporaryDirectory(prefix="atoll-claims-") as folder:
        told = run(["scripts/demo.sh"], env={**os.environ, "DEMO_DIR": folder})
    if "All islands hold the same global model" not in told:
        raise RuntimeError(f"the demo told:\n{told}")
    return float(re.search(r"^global .*?([\d.]+)%", told, re.M).group(1))


claims.stored("demo", "the demo, one island killed: waiting, %", waiting_in_demo, lambda p: p <= 2, "<= 2", "{:.1f}",
              "LONG=demo make claims-house", ("atoll", "configs/demo.toml", "scripts/demo.sh"))


# --- how long checks take ---
def object_seconds():
    """Of the tests alone, compiled from nothing, by one compiler at a time."""
    with tempfile.TemporaryDirectory(prefix="atoll-claims-") as folder:
        run(["cmake", "--log-level=ERROR", "-S", ".", "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
             "-DATOLL_BUILD_TESTS=ON", f"-DATOLL_TORCH_DIR={old_commit.torch_dir()}", "-DCMAKE_CXX_COMPILER_LAUNCHER="])
        targets = [line.split(":")[0] for line in run(["ninja", "-C", folder, "-t", "targets", "all"]).splitlines()]
        run(["ninja", "-C", folder, "-j1", *(name for name in targets if name.endswith(".o") and compile_time.is_test(name))])
        seconds = compile_time.objects(pathlib.Path(folder))
        return sum(value for name, value in seconds.items() if compile_time.is_test(name))


def serial_seconds():
    """Of ctest's tests that let no other run beside them."""
    listed = json.loads(run(["ctest", "--test-dir", "build", "--show-only=json-v1"]))
    alone = {test["name"] for test in listed["tests"]
             if any(one["name"] == "RUN_SERIAL" and one["value"] for one in test.get("properties", []))}
    if not alone:
        return 0
    log = (ROOT / "build" / "Testing" / "Temporary" / "CTestCostData.txt").read_text()
    return sum(float(line.split()[2]) for line in log.splitlines() if line.split()[:1] and line.split()[0] in alone)


claims.stored("objects", "seconds to compile the tests' objects", object_seconds, lambda s: s <= 1000, "<= 1000", "{:.0f}",
              "LONG=objects make claims-house", ("atoll", "cmake", "CMakeLists.txt"))
claims.stored("check", "`make check` after a change of one .cpp, or one header of base, s",
              lambda: max(last_json(run([sys.executable, "bench/check_times.py"])).values()), lambda s: s <= 180, "<= 180", "{:.0f}",
              "LONG=check make claims-house", ("atoll", "cmake", "CMakeLists.txt", "scripts"))
claims.measured("seconds of tests that run alone", serial_seconds, lambda s: s <= 150, "<= 150", "{:.0f}")

# --- speeds ---
COMMIT_BEFORE = "0186c63"  # The last one before the rooms.
KEPT = os.environ.get("BEFORE_TREE")  # A folder where its build is kept from one time to the next.
claims.stored("speeds", f"training, exchange and codecs: the lowest of the speeds over that of {COMMIT_BEFORE}",
              lambda: last_json(run([sys.executable, "bench/speed_before.py", COMMIT_BEFORE,
                                      *(["--tree", KEPT] if KEPT else [])]))["lowest"], lambda r: r >= 0.95,
              ">= 0.95", "{:.3f}", "LONG=speeds make claims-house")
sys.exit(claims.end())
