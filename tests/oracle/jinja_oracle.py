#!/usr/bin/env python3
"""Atoll's templates beside Jinja2's own, as transformers (chat templates) and lm-evaluation-harness set it up.

  jinja_oracle.py RENDER [--count N] [--seed S]     RENDER: build/bin/atoll-render-templates

1. Written cases: equal text, or an error from both.
2. What is not supported: refused, however Jinja2 sees it.
3. N generated templates (12,000): equal text; where Jinja2 gives an error, so do we. What we refuse and Jinja2 renders
   must say so ("not supported" and the like), and be rare.
"""
import argparse
import collections
import json
import pathlib
import random
import subprocess
import sys

import jinja2
from transformers.utils.chat_template_utils import _compile_jinja_template

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from jinja_cases import CASES, REFUSED, VARIABLES
from jinja_grammar import Grammar

CHAT = {"trim_blocks": True, "lstrip_blocks": True, "transformers": True}
HARNESS = {"keep_trailing_newline": True, "strict_undefined": True}
harness = jinja2.Environment(loader=jinja2.BaseLoader(), undefined=jinja2.StrictUndefined, keep_trailing_newline=True)

# What we may refuse although Jinja2 renders it; each is in the message.
REFUSALS = ("not supported", "cannot be written as text", "can be read once", "cannot be compared", "64 bits",
            "marked as safe", "put |list", "too long", "too deep", "gets longer")


def reference(options, template, variables):
    """The text, or None where Jinja2 gives an error."""
    try:
        compiled = _compile_jinja_template(template) if options is CHAT else harness.from_string(template)
        text = compiled.render(**variables)
        text.encode()  # Half a surrogate pair is no text.
        return text
    except Exception:
        return None


def render_all(program, tasks):
    lines = [json.dumps({"template": template, "options": options, "variables": VARIABLES}) for options, template in tasks]
    done = subprocess.run([program], input="\n".join(lines) + "\n", capture_output=True, text=True)
    assert done.returncode == 0, f"exit {done.returncode}: {done.stderr[-2000:]}"
    answers = [json.loads(line) for line in done.stdout.split("\n") if line]
    assert len(answers) == len(tasks), f"{len(answers)} answers to {len(tasks)} templates"
    return answers


def difference(options, template, answer):
    """What is wrong with `answer`, or None; and how it went."""
    want = reference(options, template, VARIABLES)
    if "text" in answer:
        if want is None:
            return f"rendered {answer['text']!r}, an error in Jinja2", "wrong"
        if answer["text"] != want:
            return f"{answer['text']!r}, not {want!r}", "wrong"
        return None, "equal"
    if want is None:
        return None, "both refuse"
    if any(part in answer["error"] for part in REFUSALS):
        return None, "refused: " + answer["error"].split(": ", 1)[1]
    return f"refused ({answer['error']}), not {want!r}", "wrong"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("render")
    parser.add_argument("--count", type=int, default=12000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()

    tasks = [(options, case) for case in CASES for options in (CHAT, HARNESS)]
    wrong = 0
    for (options, case), answer in zip(tasks, render_all(arguments.render, tasks)):
        problem, how = difference(options, case, answer)
        if how.startswith("refused"):
            problem = how
        if problem:
            wrong += 1
            print(f"{case!r} {'chat' if options is CHAT else 'harness'}: {problem}")
    print(f"{len(tasks)} written templates, {wrong} wrong")

    tasks = [(CHAT, case) for case, _ in REFUSED]
    for (case, message), (_, answer) in zip(REFUSED, zip(tasks, render_all(arguments.render, tasks))):
        if message not in answer.get("error", ""):
            wrong += 1
            print(f"{case!r}: {answer}, should be refused with {message!r}")

    print(f"seed {arguments.seed}")
    grammar = Grammar(random.Random(arguments.seed))
    tasks = [((CHAT, HARNESS)[i % 3 == 2], grammar.template()) for i in range(arguments.count)]
    outcomes = collections.Counter()
    for (options, template), answer in zip(tasks, render_all(arguments.render, tasks)):
        problem, how = difference(options, template, answer)
        outcomes[how] += 1
        if problem:
            wrong += 1
            if wrong < 30:
                print(f"{template!r} {'chat' if options is CHAT else 'harness'}: {problem}")
    refused = sum(count for how, count in outcomes.items() if how.startswith("refused"))
    print(f"{arguments.count} generated templates: {outcomes['equal']} equal, {outcomes['both refuse']} errors in both, "
          f"{refused} refused, {outcomes['wrong']} wrong")
    for how, count in outcomes.most_common(12):
        if how.startswith("refused"):
            print(f"  {count} {how}")
    if outcomes["equal"] < 0.5 * arguments.count or refused > 0.05 * arguments.count:
        sys.exit("too few templates were compared")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
