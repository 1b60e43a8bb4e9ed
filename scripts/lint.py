#!/usr/bin/env python3
"""clang-tidy's allow-list (.clang-tidy) over the production sources, of which it reads only what is new.

usage: lint.py [BUILD] [--touched | --whole]

The key of a file is a hash of all that clang-tidy's answer follows from: its version, our rules, the file's
compile commands, and the contents of every file that the compiler read for its objects, system headers too
(`ninja -t deps`). Neither the folder of the clone nor times are part of it, so a second clone profits from the
first: keys of what passed lie in ${XDG_CACHE_HOME:-~/.cache}/atoll/lint. On a machine that has none yet,
bench/results/clang-tidy.txt has the keys of the commit that `make nightly` last read whole.

  --touched  only what was changed itself: each new source, and for each new header one source that includes it
  --whole    every file, known or not, and writes clang-tidy.txt; one that was stopped goes on
"""
import argparse
import concurrent.futures
import functools
import hashlib
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOOL = "clang-tidy-19"
# -fno-openmp: clang has no omp.h of its own here, and the pragmas change nothing that is checked.
ARGUMENTS = ["--quiet", "--extra-arg=-Wno-unknown-warning-option", "--extra-arg=-fno-openmp",
             "--extra-arg=-Wno-gnu-zero-variadic-macro-arguments"]
NOT_PRODUCTION = ("_test", "_bench", "_fuzz")
RECORD = ROOT / "bench" / "results" / "clang-tidy.txt"
STAMPS = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "atoll" / "lint"


@functools.cache
def commands_for_clang(build):
    """A folder with the compile commands, without options that only GCC has."""
    folder = build / "lint"
    folder.mkdir(exist_ok=True)
    text = (build / "compile_commands.json").read_text()
    (folder / "compile_commands.json").write_text(text.replace(" -fno-reorder-blocks-and-partition", ""))
    return folder


def output_of(*command):
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def production_files():
    names = output_of("git", "ls-files", "-co", "--exclude-standard", "--", "atoll/*.cpp").splitlines()
    return [name for name in names
            if not pathlib.Path(name).stem.endswith(NOT_PRODUCTION) and (ROOT / name).exists()]


def torch_folder(build):
    for line in (build / "CMakeCache.txt").read_text().splitlines():
        if line.startswith("ATOLL_TORCH_DIR:"):
            return line.partition("=")[2]
    return ""


def compile_commands(build):
    """file -> [(object, words of its command)]; a file may be part of two programs."""
    commands = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        file = os.path.relpath(entry["file"], ROOT)
        words = shlex.split(entry["command"])
        out = words.index("-o")
        commands.setdefault(file, []).append((words[out + 1], words[:out] + words[out + 2:]))
    return commands


def dependencies(build, objects):
    """object -> the files that the compiler read for it; one that is not up to date is left out."""
    found, current = {}, None
    listed = subprocess.run(["ninja", "-C", str(build), "-t", "deps", *objects], check=True, capture_output=True, text=True)
    for line in listed.stdout.splitlines():
        if line.startswith("    "):
            current.append(os.path.normpath(build / line[4:]))
        elif line.endswith("(VALID)"):
            current = found.setdefault(line.partition(":")[0], [])
        else:
            current = []
    return found


class Keys:
    def __init__(self, build):
        # Longest first: the Python environment with LibTorch is usually inside the clone.
        self.places = [(folder, name) for folder, name in ((torch_folder(build), "TORCH"), (str(ROOT), "ROOT")) if folder]
        self.commands = compile_commands(build)
        objects = [name for file in production_files() for name, _ in self.commands.get(file, [])]
        self.dependencies = dependencies(build, objects)
        self.contents = {}
        self.rules = "\0".join([output_of(TOOL, "--version"), (ROOT / ".clang-tidy").read_text(), *ARGUMENTS])

    def anywhere(self, text):
        for folder, name in self.places:
            text = text.replace(folder, name)
        return text

    def content(self, file):
        if file not in self.contents:
            self.contents[file] = hashlib.sha256(pathlib.Path(file).read_bytes()).hexdigest()
        return self.contents[file]

    def key(self, file):
        """None for a file that is not built: nobody knows what it depends on."""
        everything = hashlib.sha256(self.rules.encode())
        for name, words in self.commands.get(file, []):
            if name not in self.dependencies:
                return None
            parts = [self.anywhere(word) for word in words]
            parts += sorted(f"{self.anywhere(dep)} {self.content(dep)}" for dep in self.dependencies[name])
            everything.update("\0".join(parts).encode())
        return everything.hexdigest()[:20] if file in self.commands else None

    def own_keys(self, file):
        """Of our source and of each of our headers that it includes, alone."""
        ours = {dep for name, _ in self.commands[file] for dep in self.dependencies[name]
                if dep.startswith(str(ROOT / "atoll"))}
        return {hashlib.sha256(f"{self.rules}{self.content(dep)}".encode()).hexdigest()[:20] for dep in ours}


def touched(files, maker, known):
    """Of `files` those that, together, look at every one of our files whose own contents are not known."""
    chosen, seen = [], set(known)
    for file in files:
        own = maker.own_keys(file)
        if own - seen:
            chosen.append(file)
            seen |= own
    return chosen


def read(build, file):
    done = subprocess.run([TOOL, "-p", str(commands_for_clang(build)), *ARGUMENTS, file], cwd=ROOT, capture_output=True, text=True)
    return done.returncode == 0, done.stdout


def read_all(build, todo, passed):
    """Calls `passed` with each file that clang-tidy does not object to; returns the others."""
    bad, began, shown = [], time.monotonic(), 0.0
    commands_for_clang(build)  # Once, before the threads.
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        running = {pool.submit(read, build, file): file for file in todo}
        for number, done in enumerate(concurrent.futures.as_completed(running), 1):
            good, output = done.result()
            if good:
                passed(running[done])
            else:
                bad.append(running[done])
                print(output, flush=True)
            elapsed = time.monotonic() - began
            if sys.stdout.isatty():
                print(f"\rlint: {number} of {len(todo)} files, {elapsed:.0f} s \033[K", end="", flush=True)
            elif elapsed >= shown + 60:
                shown = elapsed
                print(f"lint: {number} of {len(todo)} files, {elapsed:.0f} s", flush=True)
    if sys.stdout.isatty() and todo:
        print()
    return bad


def all_keys(maker, files):
    keys = {file: maker.key(file) for file in files}
    if unknown := [file for file in files if not keys[file]]:
        sys.exit(f"lint: git lists {len(files)} files, but {len(unknown)} of them are in no target that is built and "
                 f"up to date: {', '.join(unknown)}")
    return keys


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", nargs="?", default="build")
    how_much = parser.add_mutually_exclusive_group()
    how_much.add_argument("--touched", action="store_true")
    how_much.add_argument("--whole", action="store_true")
    arguments = parser.parse_args()
    build = (ROOT / arguments.build).resolve()

    files = production_files()
    maker = Keys(build)
    keys = all_keys(maker, files)
    whole = STAMPS / f"whole-{output_of('git', 'rev-parse', 'HEAD').strip()}"
    stamps = [STAMPS, whole] if arguments.whole else [STAMPS]
    here = {}
    for folder in stamps:
        folder.mkdir(parents=True, exist_ok=True)
        here[folder] = set(os.listdir(folder))
    known = set(here[stamps[-1]])
    if RECORD.exists() and not arguments.whole:
        known |= {line.split()[0] for line in RECORD.read_text().splitlines()}

    def passed(file):
        for folder in stamps:
            new = {keys[file], *maker.own_keys(file)} - here[folder]
            here[folder] |= new
            for key in new:
                (folder / key).touch()

    todo = [file for file in files if keys[file] not in known]
    for file in set(files) - set(todo):
        passed(file)
    if arguments.touched:
        todo = touched(todo, maker, here[STAMPS])
    print(f"lint: of {len(files)} files clang-tidy reads {len(todo)}", flush=True)
    if bad := read_all(build, todo, passed):
        sys.exit(f"lint: clang-tidy objects to {', '.join(sorted(bad))}")
    if arguments.whole:
        RECORD.write_text("".join(f"{keys[file]} {file}\n" for file in files))
        shutil.rmtree(whole)
    print("lint: clean")


if __name__ == "__main__":
    main()
