"""Claims: a figure that the docs publish or an issue asks for, measured again, beside its target.

A claim is `met` or `short` when measured now. What takes too long is kept in bench/results/*.json with
commit, command and machine, and prints `stored`, or `stale` once the code it measured has changed;
LONG=1 measures it again, LONG=asan,tsan only those and what is called asan-... or tsan-...
ONLY=PATTERN measures and shows the claims alone whose text it is found in.
"""
import hashlib
import json
import os
import pathlib
import platform
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
ATOLL = str(ROOT / "build" / "bin" / "atoll")
ONLY = re.compile(os.environ.get("ONLY", ""))
LONG = os.environ.get("LONG", "").split(",")  # 1: all that takes long; or keys, or beginnings of them, with commas between.


def run(command, **options):
    """The command's stdout; ends the program with its stderr when it fails."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, **options)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def last_json(text):
    return json.loads(text.strip().split("\n")[-1])


# What set-up and a build from nothing depend on: a few lines more or less of source do not change their time.
SETUP = ("cmake", "CMakeLists.txt", "CMakePresets.json", "configs", "scripts", "Makefile")
CODE = ("atoll", *SETUP)
# For results that what tests the program cannot change.
NO_TESTS = (":!atoll/testing", *(f":!atoll/**/*_{kind}.cpp" for kind in ("test", "fuzz", "bench")))


def code_hash(paths=CODE):
    """Of the sources that a result depends on, as they are in the working tree."""
    listed = subprocess.run(["git", "ls-files", "--", *paths], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    everything = hashlib.sha256()
    for name in listed.splitlines():
        everything.update(name.encode() + b"\0" + (ROOT / name).read_bytes())
    return everything.hexdigest()[:16]


def is_named(key):
    """By LONG: the key, or the beginning of it before a dash."""
    return "1" in LONG or any(key == one or key.startswith(f"{one}-") for one in LONG)


class Claims:
    def __init__(self, name, paths=CODE):
        """`paths`: what its stored results depend on."""
        self.name = name
        self.paths = paths
        self.num_short = 0

    def show(self, claim, figure, target, state):
        self.num_short += state == "short"
        print(f"{claim:<66} {figure:>18} {target:>16}  {state}", flush=True)

    def measured(self, claim, measure, met, target, shown="{:.3g}"):
        """`measure()` gives the figure now; a failure to measure counts as short."""
        if not ONLY.search(claim):
            return None
        print(f"... {claim}", end="\r", file=sys.stderr, flush=True)
        try:
            figure = measure()
        except Exception as error:  # A claim that cannot be measured must not hide the others.
            print(f"\n{error}", file=sys.stderr)
            self.show(claim, "failed", target, "short")
            return None
        self.show(claim, shown.format(figure), target, "met" if met(figure) else "short")
        return figure

    def stored(self, key, claim, measure, met, target, shown="{:.3g}", command=""):
        """Measured only with LONG=1, or with its key, or the beginning of it before a dash; else what was measured last."""
        if not ONLY.search(claim):
            return
        file = RESULTS / f"{self.name}-{key}.json"
        if is_named(key):
            figure = self.measured(claim, measure, met, target, shown)
            if figure is not None:
                commit = run(["git", "rev-parse", "--short", "HEAD"]).strip()
                RESULTS.mkdir(exist_ok=True)
                file.write_text(json.dumps({"claim": claim, "figure": figure, "target": target, "met": met(figure),
                                            "commit": commit, "command": command, "code": code_hash(self.paths),
                                            "machine": f"{os.cpu_count()} cores, {platform.machine()}",
                                            "date": time.strftime("%Y-%m-%d")}, indent=1) + "\n")
            return
        if not file.exists():
            self.show(claim, "never measured", target, "short")
            return
        result = json.loads(file.read_text())
        state = "stored" if result["code"] == code_hash(self.paths) else "stale"
        if not result["met"]:
            state = "short"
        self.show(claim, shown.format(result["figure"]), target, state)

    def kept(self, claim, measure, met, target, is_current, shown="{:.3g}"):
        """Of a result that another command keeps; `is_current()` says whether the program still gives it."""
        if not ONLY.search(claim):
            return None
        print(f"... {claim}", end="\r", file=sys.stderr, flush=True)
        try:
            figure = measure()
            state = "short" if not met(figure) else "stored" if is_current() else "stale"
        except Exception as error:
            print(f"\n{error}", file=sys.stderr)
            return self.show(claim, "failed", target, "short")
        return self.show(claim, shown.format(figure), target, state)

    def end(self):
        print(f"\n{self.name}: {self.num_short} short")
        return 1 if self.num_short else 0
