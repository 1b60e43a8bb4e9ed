#!/usr/bin/env python3
"""Every `atoll` command line in README and docs parses: its subcommand, options and settings exist. Every event stands in them.

usage: docs_test.py ATOLL
"""
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def command_lines():
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for block in re.findall(r"```(?:sh|console)?\n(.*?)```", path.read_text(), re.S):
            for line in block.replace("\\\n", " ").split("\n"):
                line = line.strip().removeprefix("$ ")
                if re.match(r"(build/bin/)?atoll ", line):
                    yield path.name, line


def events_not_in_the_docs():
    """Kinds and fields in the code that events.md has not, and kinds there that are none."""
    tables = (ROOT / "docs" / "events.md").read_text()
    rows = [row.split("|") for row in tables.split("\n") if row.startswith("| `")]
    listed = {kind: set(re.findall(r"`(\w+)`", row[2])) for row in rows for kind in re.findall(r"`(\w+)`", row[1])}
    kinds = set()
    for path in ROOT.glob("atoll/*/events.h"):
        for body in path.read_text().split("kKind = ")[1:]:
            kind, fields = body.split('"')[1], set(re.findall(r'field\("(\w+)"', body))
            kinds.add(kind)
            if kind not in listed:
                yield f"events.md: no event {kind}"
            elif not fields <= listed[kind]:
                yield f"events.md: event {kind}: no {', '.join(sorted(fields - listed[kind]))}"
    yield from (f"events.md: event {kind} is none" for kind in sorted(set(listed) - kinds))
    if len(kinds) < 40:
        yield f"only {len(kinds)} events found"


def main():
    atoll = sys.argv[1]
    problems, num_lines, helps = list(events_not_in_the_docs()), 0, {}
    for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        if re.search(r"@[A-Z]+@", path.read_text()):
            problems.append(f"{path.name}: a placeholder was left")
    settings = subprocess.run([atoll, "train", "--dump-config"], check=True, capture_output=True, text=True).stdout
    sections = {}
    for line in settings.split("\n"):
        if line.startswith("["):
            section = line[1 : line.index("]")]
        elif "=" in line and not line.startswith("#"):
            sections.setdefault(section, set()).add(line.split("=")[0].strip())
    for where, line in command_lines():
        num_lines += 1
        words = shlex.split(line, comments=True)[1:]
        command = []
        for word in words:  # "data pack": a group and its command
            if word.startswith("-") or len(command) == 2 or (command and command[0] not in ("data", "tokenizer", "scaling", "kv", "bench")):
                break
            command.append(word)
        if words[0] == "--version" or words[0] == "COMMAND":
            continue
        key = tuple(command)
        if key not in helps:
            shown = subprocess.run([atoll, *command, "--help"], capture_output=True, text=True)
            helps[key] = shown.stdout if shown.returncode == 0 else None
        if helps[key] is None:
            problems.append(f"{where}: '{line}': no such command")
            continue
        for word in words:
            if not word.startswith("--"):
                continue
            name = word[2:].split("=")[0]
            if "." in name:
                section, key_name = name.split(".", 1)
                if key_name not in sections.get(section, set()):
                    problems.append(f"{where}: '{line}': no setting {name}")
            elif f"--{name}" not in helps[key]:
                problems.append(f"{where}: '{line}': no option --{name}")
    print("\n".join(problems) or f"docs: {num_lines} command lines are in order")
    return 1 if problems or num_lines == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
