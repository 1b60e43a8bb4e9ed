#!/usr/bin/env python3
"""Rules no compiler knows: layers, bans, sizes, links in the docs. Prints what is wrong; exit 1 if anything."""
import pathlib
import re
import subprocess
import sys

root = pathlib.Path(__file__).resolve().parent.parent
problems = []


def tracked(*patterns):
    command = ["git", "ls-files", "-co", "--exclude-standard", "--", *patterns]
    names = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout
    return [pathlib.Path(name) for name in names.split("\n") if name and (root / name).exists()]


def read_layers():
    """folder -> (all folders it may include, may it include LibTorch, and all that its tests may include)."""
    order = re.findall(r"add_subdirectory\(atoll/(\w+)\)", (root / "CMakeLists.txt").read_text())
    allowed, torch, tests = {}, {}, {}
    for number, folder in enumerate(order):
        text = (root / "atoll" / folder / "CMakeLists.txt").read_text()
        call = re.search(r"atoll_module\(\w+( TORCH)?(?: DEPS ([\w\s]*?))?(?:\s[A-Z_]{4,}\b.*)?\)", text, re.S)
        torch[folder] = bool(call.group(1)) if call else folder.endswith("_torch")
        # The programs may include all that stands below them, and so may harnesses.
        below = {other for other in order[: number + 1] if torch[folder] or not torch[other]}
        reach = below if not call or folder.startswith("testing") else {folder}
        for dep in (call.group(2) or "").split() if call else ():
            reach |= allowed[dep]
        allowed[folder] = reach - ({"testing", "testing_torch"} if not folder.startswith("testing") else set())
        extra = re.search(r"TEST_DEPS ([\w\s]*)\)", text)
        named = set(extra.group(1).split()) - {"testing", "testing_torch"} if extra else set()
        tests[folder] = allowed[folder] | named | {dep for name in named for dep in allowed[name]}
    return allowed, torch, tests


def harness_includes(harness, seen):
    """All folders that a header of atoll/testing needs."""
    if harness not in seen:
        seen.add(harness)
        for target in re.findall(r'#include "(atoll/[^"]+)"', (root / harness).read_text()):
            harness_includes(target, seen) if target.startswith("atoll/testing") else seen.add(target)
    return {name.split("/")[1] for name in seen} - {"testing", "testing_torch"}


BANS = [
    (r"<torch/torch\.h>", "include narrower headers than <torch/torch.h>", ()),
    (r"\busing namespace\b", "no 'using namespace'", ()),
    (r"::now\(\)", "clocks are read in base/ only: take a Clock&", ("base",)),
    (r"std::(mt19937|random_device|default_random_engine)", "random engines live in base/ only", ("base",)),
    (r"std::(mutex|(lock_guard|scoped_lock|unique_lock)\b|condition_variable)", "take base/mutex.h's, which Clang checks",
     ("base", "train", "sync")),
    (r"(?<![\w:])(std::)?(printf|puts)\(|std::cout", "stdout belongs to base/ and cli/", ("base", "cli")),
    (r"\bFIXME\b|\bTODO\b", "finish it or say it in the docs", ()),
]


def check_source(path, layers):
    allowed, torch, tests = layers
    lines = (root / path).read_text().split("\n")
    folder = path.parts[1] if path.parts[0] == "atoll" else None
    is_test = path.stem.endswith(("_test", "_bench", "_fuzz"))
    if len(lines) > 600:
        problems.append(f"{path}: {len(lines)} lines (limit 600)")
    for number, line in enumerate(lines, 1):
        where = f"{path}:{number}"
        if len(line) > 100 and not path.stem.endswith("_table"):
            problems.append(f"{where}: {len(line)} columns (limit 100)")
        for pattern, message, exempt in BANS:
            if folder and folder not in exempt and not is_test and re.search(pattern, line):
                problems.append(f"{where}: {message}")
        include = re.match(r'#include ["<]([\w./+-]+)[">]', line)
        if not include or not folder:
            continue
        target = include.group(1)
        if is_test and target.startswith("atoll/testing"):  # Of use to tests above all that it includes.
            above = harness_includes(target, set()) - tests[folder]
            if above:
                problems.append(f"{where}: {target} needs {', '.join(sorted(above))}, not below {folder}")
        elif target.startswith("atoll/") and target.split("/")[1] not in (tests if is_test else allowed)[folder]:
            problems.append(f"{where}: {folder} may not include {target}: not below it")
        is_torch = target.split("/")[0] in ("ATen", "c10", "torch", "caffe2")
        if is_torch and not torch[folder]:
            problems.append(f"{where}: {path} is torch-free")


def anchors(text):
    """The names by which the headings of a page are linked to."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M), re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def check_page(path):
    text = (root / path).read_text()
    if path.parts[0] == "docs" and text.count("\n") > 250:
        problems.append(f"{path}: {text.count(chr(10))} lines (limit 250)")
    for target, anchor in re.findall(r"\]\(([^)#:\s]*)(?:#([^)\s]+))?\)", text):
        page = root / path.parent / target if target else root / path
        if not page.exists():
            problems.append(f"{path}: link to {target}, which does not exist")
        elif anchor and page.suffix == ".md" and anchor not in anchors(page.read_text()):
            problems.append(f"{path}: link to {target}#{anchor}: that page has no such heading")


def check_glossary():
    """One word, one meaning: docs/glossary.md has each once."""
    rows = re.findall(r"^\| (.+?) \| .+ \|$", (root / "docs/glossary.md").read_text(), re.M)[1:]
    terms = [term for row in rows for term in row.split(", ")]
    for term in sorted({term for term in terms if terms.count(term) > 1}):
        problems.append(f"docs/glossary.md: '{term}' stands there twice")


def main():
    layers = read_layers()
    for path in tracked("*.h", "*.cpp"):
        check_source(path, layers)
    for path in tracked("*.md"):
        check_page(path)
    check_glossary()
    print("\n".join(problems) or "tidy: layers, bans, sizes and links are in order")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
