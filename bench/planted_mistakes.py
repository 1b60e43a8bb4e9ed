#!/usr/bin/env python3
"""Mistakes that are planted one by one, each of which the test that is named with it must find.

usage: planted_mistakes.py [--folder FOLDER] [--only WORD]

bench/planted_mistakes.toml lists them: a text of a source file, what stands there instead, the test of `make test`, and the commit
that mended this mistake once ("new": none did). They are planted in a worktree of their own (with what is not committed yet), with a build of its own, in FOLDER
(which is kept then) or a temporary one. It goes on where it stopped: bench/results/planted_mistakes.json has what was found, with the
contents of the two files, and only what has changed is planted again. Exits with 1 where a mistake is not found.
"""
import argparse
import contextlib
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import tomllib

from claims import RESULTS, ROOT

TABLE = ROOT / "bench" / "planted_mistakes.toml"
FOUND = RESULTS / "planted_mistakes.json"
LONGEST_S = 40  # Of a test: one that never ends has found its mistake.


def mistakes():
    return tomllib.loads(TABLE.read_text())["mistake"]


def test_source(mistake):
    return "atoll/" + mistake["test"].replace(".", "/") + ".cpp"


def key_of(mistake):
    """Of all that the answer depends on, but for what the two files include."""
    parts = [json.dumps(mistake, sort_keys=True), *((ROOT / name).read_text() for name in (mistake["file"], test_source(mistake)))]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def planted(mistake, folder):
    """The file with the mistake in it."""
    source = (folder / mistake["file"]).read_text()
    if (count := source.count(mistake["text"])) != 1:
        raise SystemExit(f"{mistake['file']}: this is there {count} times, not once:\n{mistake['text']}")
    return source.replace(mistake["text"], mistake["planted"])


def quiet(command, folder, **options):
    return subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **options)


def build(folder, tests):
    done = quiet(["ninja", "-C", "build", f"-j{os.cpu_count()}", *(f"bin/{test.replace('.', '_')}" for test in tests)], folder)
    return "" if done.returncode == 0 else done.stdout[-3000:]


def failures(folder, test):
    """The cases that fail, or how its program ended: what ctest would start, with less patience."""
    try:
        done = quiet([f"build/bin/{test.replace('.', '_')}"], folder, timeout=LONGEST_S)
    except subprocess.TimeoutExpired:
        return [f"no end in {LONGEST_S} s"]
    if done.returncode == 0:
        return []
    return sorted(set(re.findall(r"^\[  FAILED  \] ([\w/]+\.[\w/]+)", done.stdout, re.M))) or [f"status {done.returncode}"]


@contextlib.contextmanager
def worktree(kept):
    with tempfile.TemporaryDirectory(prefix="atoll-mistakes-") as temporary:
        folder = pathlib.Path(kept or temporary) / "atoll"
        if not folder.exists():
            subprocess.run(["git", "worktree", "add", "--quiet", "--detach", folder], cwd=ROOT, check=True)
        dirty = subprocess.run(["git", "stash", "create"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
        head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
        subprocess.run(["git", "checkout", "--quiet", "--force", "--detach", dirty or head], cwd=folder, check=True)
        try:
            yield folder
        finally:
            if not kept:
                subprocess.run(["git", "worktree", "remove", "--force", folder], cwd=ROOT, check=False)


def configure(folder):
    """As this tree is: what it has compiled is in the compiler cache."""
    cache = (ROOT / "build" / "CMakeCache.txt").read_text()
    own = [f"-D{name}={value}" for name, value in re.findall(r"^(ATOLL_TORCH_DIR|ATOLL_WERROR):\w+=(.*)$", cache, re.M)]
    subprocess.run(["cmake", "--log-level=ERROR", "--preset", "release", "-DATOLL_BUILD_TESTS=ON", *own], cwd=folder, check=True,
                   stdout=subprocess.DEVNULL, env={**os.environ, "ATOLL_VENV": str(ROOT / ".venv")})


def plant(mistake, folder):
    """What finds it; raises SystemExit where it does not compile."""
    file = folder / mistake["file"]
    sound = file.read_text()
    try:
        file.write_text(planted(mistake, folder))
        if said := build(folder, [mistake["test"]]):
            raise SystemExit(f"{mistake['file']}: this does not compile:\n{mistake['planted']}\n{said}")
        return failures(folder, mistake["test"])
    finally:
        file.write_text(sound)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=pathlib.Path)
    parser.add_argument("--only", default="", help="those whose file or test has this in its name")
    args = parser.parse_args()
    every = mistakes()
    for mistake in every:
        planted(mistake, ROOT)
    kept = json.loads(FOUND.read_text()) if FOUND.exists() else {}
    kept = {key: kept[key] for key in map(key_of, every) if key in kept}
    todo = [one for one in every if key_of(one) not in kept and args.only in one["file"] + one["test"]]
    if todo:
        with worktree(args.folder) as folder:
            configure(folder)
            tests = sorted({mistake["test"] for mistake in todo})
            known = {one["name"] for one in json.loads(quiet(["ctest", "--test-dir", "build", "--show-only=json-v1"], folder).stdout)["tests"]}
            if strange := set(tests) - known:
                raise SystemExit(f"no tests of make test: {strange}")
            if said := build(folder, tests):
                raise SystemExit(said)
            for test in tests:
                if failed := failures(folder, test):
                    raise SystemExit(f"{test} fails with no mistake in it: {failed}")
            for mistake in todo:
                found_by = plant(mistake, folder)
                kept[key_of(mistake)] = {**{name: mistake[name] for name in ("file", "test", "from")}, "found_by": found_by}
                FOUND.write_text(json.dumps(kept, indent=1) + "\n")
                print(f"{'found' if found_by else 'NOT FOUND':<10} {mistake['file']}: {', '.join(found_by[:3]) or mistake['planted']}",
                      flush=True)
    FOUND.write_text(json.dumps(kept, indent=1) + "\n")
    found = [one for one in kept.values() if one["found_by"]]
    print(f"{len(found)} of {len(every)} planted mistakes are found; {sum(one['from'] != 'new' for one in found)} of them were mended "
          "in this history")
    return 0 if len(found) == len(every) else 1


if __name__ == "__main__":
    sys.exit(main())
