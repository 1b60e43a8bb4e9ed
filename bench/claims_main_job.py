#!/usr/bin/env python3
"""make claims-main-job: every figure of the main job, measured again (about 15 minutes on 2 cores)."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

from claims import ATOLL, ROOT, SETUP, Claims, last_json, run

PYTHON = sys.executable
claims = Claims("main-job")
work = pathlib.Path(tempfile.mkdtemp(prefix="atoll-claims-"))


def timed(command, **options):
    begin = time.monotonic()
    run(command, **options)
    return time.monotonic() - begin


def oracle(script, *words):
    return last_json(run([PYTHON, str(ROOT / "tests" / "oracle" / script), *words]))


# --- set-up, build, tests: long ones are stored ---

def fresh_clone(target):
    """Seconds of `make TARGET` in a new clone without environment, build folder or compiler cache."""
    clone = work / "clone"
    shutil.rmtree(clone, ignore_errors=True)
    run(["git", "clone", "-q", str(ROOT), str(clone)])
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("ATOLL_", "CCACHE_"))}
    environment |= {"CCACHE_DISABLE": "1"}
    begin = time.monotonic()
    subprocess.run(["make", target], cwd=clone, env=environment, check=True, capture_output=True)
    return time.monotonic() - begin


def sanitizer(target):
    return subprocess.run(["make", target], cwd=ROOT, capture_output=True).returncode


claims.stored("demo-fresh", "make demo in a fresh clone, seconds", lambda: fresh_clone("demo"),
              lambda s: s <= 900, "<= 900", "{:.0f}", "make demo", SETUP)
claims.stored("build-clean", "build from clean, tests included, no compiler cache, seconds",
              lambda: fresh_clone("tests"), lambda s: s <= 600, "<= 600", "{:.0f}", "make tests", SETUP)
claims.stored("asan", "ASan and UBSan over the unit tests and fuzz targets, exit status",
              lambda: sanitizer("asan"), lambda code: code == 0, "0", "{}", "make asan")
claims.stored("tsan", "TSan over base, swarm, codec, collective, exit status",
              lambda: sanitizer("tsan"), lambda code: code == 0, "0", "{}", "make tsan")
claims.measured("the whole test run after the build, seconds",
                lambda: timed(["ctest", "--test-dir", "build", "-j2", "--output-on-failure"]),
                lambda s: s <= 300, "<= 300", "{:.0f}")
claims.measured("atoll --version, milliseconds (median of 21)",
                lambda: sorted(timed([ATOLL, "--version"]) for _ in range(21))[10] * 1000,
                lambda ms: ms <= 20, "<= 20", "{:.1f}")

# --- the demo, and the same with data-parallel ---

demo = work / "demo"
table = ""


def run_demo():
    global table
    begin = time.monotonic()
    table = run(["scripts/demo.sh"], env=os.environ | {"DEMO_DIR": str(demo)})
    return time.monotonic() - begin


def column(name):
    """Of the demo's table, by island; "global" among them. Names of columns stand over the right ends of their values."""
    header, *rows = re.search(r"^ +val start.*\n(?:.+\n)+", table, re.M).group().splitlines()
    end = header.index(name) + len(name)
    return {row.split()[0]: float(re.search(r"(\S+)( s)?$", row[:end]).group(1).rstrip("%")) for row in rows}


claims.measured("make demo again, seconds", run_demo, lambda s: s <= 300, "<= 300", "{:.0f}")
claims.measured("demo, an island killed on the way: waiting of the living islands, per cent",
                lambda: column("waiting")["global"], lambda share: share <= 2, "<= 2", "{:.1f}")
claims.measured("and the killed one was away, seconds", lambda: column("away")["island-1"], lambda s: s > 0, "> 0", "{:.1f}")


def digests():
    """Distinct digests of the islands' global parameters, from the checkpoints on disk."""
    states = sorted((demo / "run").glob("island-*/checkpoints/step-*/state.json"))
    newest = [[s for s in states if f"island-{i}/" in str(s)][-1] for i in (0, 1)]
    return len({re.search(r'"digest": "(\w+)"', s.read_text()).group(1) for s in newest})


claims.measured("demo: distinct digests of the islands' global parameters", digests, lambda n: n == 1, "1", "{}")


def train(name, *settings):
    return last_json(run([ATOLL, "train", "configs/demo.toml", "--run", str(work / name), "--data", str(demo / "data"),
                          "--json", "--swarm.pace=lockstep", *settings]))["val_loss"]


data_parallel = train("data-parallel", "--sync.method=data_parallel")
claims.measured("DiLoCo (H = 20) over data-parallel, validation loss",
                lambda: train("diloco", "--sync.method=diloco", "--sync.codec=bf16") / data_parallel - 1,
                lambda excess: excess <= 0.03, "<= +3 %", "{:+.2%}")


def demo_loss():
    return float(re.findall(r'"val_loss": ?([\d.]+)', (demo / "run/island-0/metrics.jsonl").read_text())[-1])


claims.measured("the demo (4 bits, a kill) over data-parallel, validation loss", lambda: demo_loss() / data_parallel - 1,
                lambda excess: True, "(no target)", "{:+.2%}")

# --- identities, goldens, oracles ---

store = str(demo / "data")
claims.measured("identities of DiLoCo, largest difference",
                lambda: oracle("identities.py", ATOLL, store)["max_difference"], lambda d: d <= 1e-6, "<= 1e-6")
claims.measured("three outer steps against PyTorch, largest difference",
                lambda: oracle("diloco_golden.py", ATOLL, store)["max_difference"], lambda d: d <= 1e-5, "<= 1e-5")
claims.measured("log-probabilities against transformers, largest difference",
                lambda: oracle("transformers_parity.py", ATOLL)["max_difference"], lambda d: d <= 1e-4, "<= 1e-4")
claims.measured("tokenizer: ids unequal to Hugging Face's, corpus and 10,000 strings",
                lambda: oracle("tokenizer_oracle.py", ATOLL)["num_different"], lambda n: n == 0, "0", "{}")

# --- speed ---


def bench(script, *words):
    return last_json(run([PYTHON, str(ROOT / "bench" / script), *words]))


claims.measured("tokenizer: times as fast as Hugging Face's best mode, one thread",
                lambda: bench("tokenizer_speed.py", str(ROOT / "build"))["ratio"], lambda r: r >= 4, ">= 4", "{:.2f}")
claims.measured("training: times as fast as PyTorch eager, one process",
                lambda: bench("train_speed.py", ATOLL)["ratio"], lambda r: r >= 1, ">= 1", "{:.2f}")
claims.measured("checkpoint of a 30 M model: training held up, milliseconds",
                lambda: bench("checkpoint_stall.py", store)["stall_ms"], lambda ms: ms < 100, "< 100", "{:.1f}")

shutil.rmtree(work)
sys.exit(claims.end())
