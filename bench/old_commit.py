"""Programs of an older commit, built with this tree's LibTorch, so that both can run beside each other."""
import contextlib
import pathlib
import re
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


def run(words):
    done = subprocess.run([*map(str, words)], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, words))} failed: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def torch_dir():
    cache = (ROOT / "build" / "CMakeCache.txt").read_text()
    return re.search(r"^ATOLL_TORCH_DIR:\w+=(.*)$", cache, re.M).group(1)


@contextlib.contextmanager
def built(commit, targets, with_tests=False, tree=None):
    """The folder of the programs. `tree`: a folder to keep the commit's tree and build in, which the next call finds."""
    with tempfile.TemporaryDirectory(prefix="atoll-commit-") as scratch:
        folder = pathlib.Path(tree or pathlib.Path(scratch) / "tree").resolve()
        if not folder.exists():
            run(["git", "-C", ROOT, "worktree", "add", "--detach", folder, commit])
        try:
            there = run(["git", "-C", folder, "rev-parse", "HEAD"]).strip()
            if there != run(["git", "-C", ROOT, "rev-parse", commit]).strip():
                raise RuntimeError(f"{folder} is at {there}, not at {commit}: name another folder")
            run(["cmake", "--log-level=ERROR", "-S", folder, "-B", folder / "build", "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                 f"-DATOLL_TORCH_DIR={torch_dir()}", f"-DATOLL_BUILD_TESTS={'ON' if with_tests else 'OFF'}"])
            run(["cmake", "--build", folder / "build", "--target", *targets])
            yield folder / "build" / "bin"
        finally:
            if tree is None:
                run(["git", "-C", ROOT, "worktree", "remove", "--force", folder])
