"""The text that claims and reports are measured on: the same on every machine.

It is the Python files of those packages that set-up pins and that are one file for all machines (nothing in them is
compiled). What they hold is pinned here too, by a digest of each package: another version is an error. Files come in an
order that mixes the packages, so any beginning of the whole (60 MB) is a fair part of it.

  corpus.py    prints the digests, for who changes the versions in scripts/setup.sh
"""
import functools
import hashlib
import importlib.util
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "tests"))
import small_store  # noqa: E402

SMALL_BYTES = 700_000  # Of what is trained on for seconds.
DIGESTS = {
    "accelerate": "ce147e08c3a5f3012d8f1b360894f826f99267f4a253301b135c8661a1fbc434",
    "datasets": "16aacd60c2fed9723fa8fb285c71a303a6cf46c11517df5093e83a6c2169696b",
    "evaluate": "e5a4e7ba6fa0eb0c0243546aeeef772b92088a48dc1eb3ee0999981943384ace",
    "jinja2": "e9f889dccd745ae5aff1957993c550318fe07b1fade7c8a0e9fe9fbf3992bb97",
    "lm_eval": "33167278b7d25d8048f724bfe21f54efa56b577f3ddfc79bc590c281e8f378de",
    "transformers": "9abf2e88db77063e21e55fa2041e7da5ad5852a4a056c9d0574929cda98ad1c3",
}


def package_files(package):
    """(name, bytes) of each Python file, by name."""
    found = importlib.util.find_spec(package)  # Imports nothing.
    if found is None:
        raise RuntimeError(f"the package {package} is missing: run scripts/setup.sh test")
    root = pathlib.Path(found.origin).parent
    return [(path.relative_to(root.parent).as_posix(), path.read_bytes()) for path in sorted(root.rglob("*.py"))]


def digest(files):
    everything = hashlib.sha256()
    for name, content in files:
        everything.update(f"{name} {len(content)}\n".encode() + content)
    return everything.hexdigest()


@functools.cache
def files():
    """(name, text) of all files, in their order."""
    together = []
    for package, pinned in DIGESTS.items():
        found = package_files(package)
        if digest(found) != pinned:
            raise RuntimeError(f"the Python files of {package} are not those that claims are measured on: run scripts/setup.sh "
                               "test; who changed its version there prints new digests with bench/corpus.py")
        together += [(name, content.decode()) for name, content in found]
    return sorted(together, key=lambda file: hashlib.sha256(file[0].encode()).digest())


def beginning(max_bytes):
    """As many files as fit, in their order."""
    taken = 0
    for name, text in files():
        taken += len(text.encode())
        if taken > max_bytes:
            return
        yield name, text


def texts(max_bytes):
    return [text for _, text in beginning(max_bytes)]


def write(folder, max_bytes):
    """A tree of files."""
    for name, text in beginning(max_bytes):
        path = pathlib.Path(folder) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())


def make_store(atoll, folder, max_bytes):
    """A small vocabulary's token store; what it is made of lies beside it."""
    write(small_store.corpus_of(folder), max_bytes)
    small_store.pack(atoll, folder)


if __name__ == "__main__":
    for package in DIGESTS:
        print(f'    "{package}": "{digest(package_files(package))}",')
