#!/usr/bin/env python3
"""make nightly: what takes too long for `make test`, in parts; results are kept in bench/results/nightly.json.

usage: nightly.py [PART...]    the parts named, or all that have not passed with this code yet
       nightly.py --age        how old the last results are; `make test` ends with it

Every part is stored as soon as it ends, with its commit, so that a nightly that was stopped goes on where it
stopped. A part that takes more than MINUTES (60) is stopped too: builds, clang-tidy and the soak then go on from
what they have. A part counts as long as nothing but results and docs has changed since its commit.
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
FILE = ROOT / "bench" / "results" / "nightly.json"
MINUTES = float(os.environ.get("MINUTES") or 60)
RESULTS_AND_DOCS = (":!bench/results", ":!docs", ":!*.md")
# Targets of the Makefile; what they need built they build. Two parts are no more than the builds of the next ones.
PARTS = ("tests", "lint-whole", "nightly-tests", "asan-build", "asan", "tsan-build", "tsan", "soak",
         "claims-main-job", "claims-methods", "claims-swarm", "claims-ecosystem", "claims-scaling", "claims-house", "claims-models",
         "claims-security", "claims-serving", "claims-speed")


def git(*words):
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)


def changed_since(commit):
    """Whether code differs from that commit's, or nobody knows."""
    return git("diff", "--quiet", commit, "HEAD", "--", ".", *RESULTS_AND_DOCS).returncode != 0


def stored():
    return json.loads(FILE.read_text()) if FILE.exists() else {"parts": {}}


def run_part(name, commit):
    print(f"nightly: {name}", flush=True)
    begin = time.monotonic()
    process = subprocess.Popen(["make", name], cwd=ROOT, start_new_session=True)
    try:
        code = process.wait(MINUTES * 60)
    except subprocess.TimeoutExpired:
        print(f"nightly: {name} is stopped after {MINUTES:g} minutes; the next nightly goes on with it")
        return False
    finally:
        if process.poll() is None:  # Ctrl-C ends here too.
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()
    results = stored()
    results["parts"][name] = {"passed": code == 0, "commit": commit, "date": time.strftime("%Y-%m-%d"),
                              "seconds": round(time.monotonic() - begin)}
    if all(name in results["parts"] and results["parts"][name]["passed"]
           and not changed_since(results["parts"][name]["commit"]) for name in PARTS):
        results["whole"] = {"commit": commit, "date": time.strftime("%Y-%m-%d")}
    FILE.write_text(json.dumps(results, indent=1) + "\n")
    return code == 0


def age_of(result):
    between = git("rev-list", "--count", f"{result['commit']}..HEAD")
    commits = f"{between.stdout.strip()} commits" if between.returncode == 0 else "an unknown number of commits"
    days = (time.time() - time.mktime(time.strptime(result["date"], "%Y-%m-%d"))) / 86400
    return f"{commits} and {max(0, int(days))} days ago ({result['commit'][:8]})"


def print_age():
    results = stored()
    whole = results.get("whole")
    print(f"nightly: all of it passed {age_of(whole)}" if whole else "nightly: it has never passed as a whole")
    for name, part in results["parts"].items():
        if not part["passed"]:
            print(f"nightly: {name} failed {age_of(part)}")


def main(names):
    if names == ["--age"]:
        return print_age()
    if unknown := [name for name in names if name not in PARTS]:
        sys.exit(f"nightly: there is no part {', '.join(unknown)}; parts are {', '.join(PARTS)}")
    if git("status", "--porcelain", "--", ".", ":!bench/results").stdout:
        sys.exit("nightly: the working tree has changes that no commit names; commit them first")
    commit = git("rev-parse", "HEAD").stdout.strip()
    before = stored()["parts"]
    todo = names or [name for name in PARTS if name not in before or not before[name]["passed"]
                     or changed_since(before[name]["commit"])]
    bad = [name for name in todo if not run_part(name, commit)]
    print_age()
    return f"nightly: not passed: {', '.join(bad)}" if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
