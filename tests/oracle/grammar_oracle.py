#!/usr/bin/env python3
"""Grammars of JSON schemas beside PyPI's jsonschema.

  grammar_oracle.py WALK [--count N] [--seed S] [--suite DIR]     WALK: build/bin/atoll-walk-grammar

1. N generated schemas (400): random texts of each grammar are right by the schema; instances that are right, written
   compactly with their properties in the schema's order, are texts of the grammar; wrong ones are not.
2. The same with schemas of what is not so and the like, of which more may be refused.
3. The same with the schemas and instances of JSON-Schema-Test-Suite, if installed (Debian: json-schema-test-suite).
What is refused is counted by keyword and must be rare (5 %) in 1 and 3.
"""
import argparse
import collections
import decimal
import json
import pathlib
import random
import re
import subprocess
import sys

import jsonschema

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from schema_cases import NegationMaker, SchemaMaker, instances, instances_of_parts

SUITES = ["/usr/share/json-schema-test-suite/tests/draft2020-12", "/usr/share/json-schema-test-suite/tests/draft7"]
WALKS = 12

# jsonschema knows some formats only where other packages are there: those in words of our own.
FORMATS = jsonschema.Draft202012Validator.FORMAT_CHECKER
CLOCK = r"([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)"
for name, pattern in {"time": CLOCK, "date-time": r"\d{4}-\d\d-\d\dT" + CLOCK, "uri": r"[A-Za-z][\w+.-]*:[!-~]*",
                      "hostname": r"[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*", "duration": r"P[\dYMWDTHS]+"}.items():
    FORMATS.checks(name)(lambda text, pattern=pattern: not isinstance(text, str) or bool(re.fullmatch(pattern, text, re.A)))


def run(program, tasks):
    lines = "".join(json.dumps(task) + "\n" for task in tasks)
    done = subprocess.run([program], input=lines, capture_output=True, text=True)
    assert done.returncode == 0, f"exit {done.returncode}: {done.stderr[-2000:]}"
    answers = [json.loads(line) for line in done.stdout.split("\n") if line]
    assert len(answers) == len(tasks), f"{len(answers)} answers to {len(tasks)} schemas"
    return answers


decimal.getcontext().prec = 400  # 1e99 may be asked whether it is a multiple of 0.01.


def exactly(text):
    """Fractions as they are written: floats would make 0.3 no multiple of 0.1."""
    return json.loads(text, parse_float=decimal.Decimal)


def in_order(value, schema, root):
    """The value with its properties in the order of the schema's, as far as that is plain to see."""
    if isinstance(schema, dict) and isinstance(schema.get("$ref"), str) and schema["$ref"].startswith("#/"):
        target = root
        for step in schema["$ref"][2:].split("/"):
            step = step.replace("~1", "/").replace("~0", "~").replace("%25", "%").replace("%22", '"')
            target = target[int(step)] if isinstance(target, list) else target.get(step, {})
        return in_order(value, target, root)
    if not isinstance(schema, dict):
        return value
    if isinstance(value, list):
        rest = schema.get("items", {})
        prefix = rest if isinstance(rest, list) else schema.get("prefixItems", [])
        return [in_order(item, prefix[i] if i < len(prefix) else rest, root) for i, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    places = [schema] + schema.get("allOf", [])
    for key in ("anyOf", "oneOf"):  # The branch that it is right by.
        for part in schema.get(key, []):
            whole = {"$defs": root.get("$defs", {}), "definitions": root.get("definitions", {}), "allOf": [part]}
            if jsonschema.Draft202012Validator(whole).is_valid(value):
                if "$ref" in part:
                    return in_order(value, part, root)
                places.append(part)
                break
    places += [schema[key] for key in ("if", "then", "else") if key in schema]
    listed = {}
    for place in places:
        if isinstance(place, dict):
            for name, part in place.get("properties", {}).items():
                listed.setdefault(name, part)
    for place in places:
        if isinstance(place, dict):
            for name in place.get("required", []):
                listed.setdefault(name, {})
    names = [name for name in listed if name in value] + [name for name in value if name not in listed]
    return {name: in_order(value[name], listed.get(name, {}), root) for name in names}


def compact(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class Tally:
    def __init__(self):
        self.refused = collections.Counter()
        self.schemas = self.texts = self.taken = self.kept_out = self.unfinished = 0
        self.problems = []

    def check(self, schema, answer, values, validator, may_be_narrow):
        self.schemas += 1
        checker = validator(exactly(json.dumps(schema)), format_checker=FORMATS)
        if "error" in answer:
            if "no text satisfies" in answer["error"]:
                right = [value for value, is_right in values if is_right]
                if right:
                    self.problems.append(f"{schema}: 'no text', but {right[0]!r}")
                return
            keyword = re.search(r"'(\w+|\$\w+)'", answer["error"])
            self.refused[keyword.group(1) if keyword else answer["error"][:60]] += 1
            return
        for text in answer["walks"]:
            if text.endswith("<too long>"):  # By chance it never came to what ends it: "contains", "_id$".
                self.unfinished += 1
                continue
            self.texts += 1
            try:
                errors = list(checker.iter_errors(exactly(text)))
            except ValueError as error:
                errors = [error]
            if errors:
                self.problems.append(f"{schema}: wrong text {text[:200]!r}: {str(errors[0])[:200]}")
        for (value, is_right), takes in zip(values, answer["takes"]):
            if takes and not is_right:
                self.problems.append(f"{schema}: takes {value!r}")
            elif not takes and is_right and not may_be_narrow(schema, value):
                self.problems.append(f"{schema}: does not take {value!r}")
            self.taken += takes
            self.kept_out += not takes

    def print(self, name):
        total = sum(self.refused.values())
        print(f"{name}: {self.schemas} schemas, {total} refused ({100 * total / max(self.schemas, 1):.1f} %) "
              f"{dict(self.refused)}; {self.texts} random texts "
              f"({self.unfinished} unfinished); {self.taken} values taken, {self.kept_out} not; "
              f"{len(self.problems)} problems")
        for problem in self.problems[:20]:
            print("  " + (problem if len(problem) < 700 else problem[:300] + " ... " + problem[-400:]))


def generated(program, count, seed, name, maker, values_for, may_be_narrow):
    schemas = [maker.schema() for _ in range(count)]
    validator = jsonschema.Draft202012Validator
    pool = random.Random(seed + 1)
    tasks, values = [], []
    for number, schema in enumerate(schemas):
        checker = validator(exactly(json.dumps(schema)), format_checker=FORMATS)
        tried = [(value, checker.is_valid(exactly(compact(value)))) for value in values_for(schema, pool)]
        values.append(tried)
        texts = [compact(in_order(value, schema, schema)) for value, _ in tried]
        tasks.append({"schema": schema, "seed": number, "walks": WALKS, "texts": texts, "blanks": number % 2 == 0})
    tally = Tally()
    for schema, answer, tried in zip(schemas, run(program, tasks), values):
        tally.check(schema, answer, tried, validator, may_be_narrow)
    tally.print(name)
    return tally


def narrow(schema, value):
    """Right values that the docs say are not written: fractions of integers, long numbers, other orders."""
    text = compact(value)
    return (re.search(r"\d\.0\b|\d{18}|[eE]", text) is not None
            or '":' in text and text.count('":') > 1  # Properties, perhaps in another order.
            or isinstance(schema, dict) and "$ref" in json.dumps(schema.get("properties", {})))


def suite(program, folder):
    validator = jsonschema.Draft202012Validator if "2020" in folder else jsonschema.Draft7Validator
    groups = []
    for path in sorted(pathlib.Path(folder).glob("*.json")):
        if path.stem not in ("refRemote", "vocabulary", "dynamicRef"):  # They need other documents.
            groups += json.loads(path.read_text())
    tasks = [{"schema": group["schema"], "walks": WALKS,
              "texts": [compact(in_order(test["data"], group["schema"], group["schema"])) for test in group["tests"]]}
             for group in groups]
    tally = Tally()
    for group, answer in zip(groups, run(program, tasks)):
        values = [(test["data"], test["valid"]) for test in group["tests"]]
        tally.check(group["schema"], answer, values, validator, narrow)
    tally.print(folder)
    return tally


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("walk")
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--suite", action="append")
    arguments = parser.parse_args()
    count, seed = arguments.count, arguments.seed
    hard = generated(arguments.walk, count, seed, "generated, of negations", NegationMaker(random.Random(seed)),
                     instances_of_parts, narrow)
    tallies = [generated(arguments.walk, count, seed, "generated", SchemaMaker(random.Random(seed)), instances,
                         lambda schema, value: False)]
    for folder in arguments.suite or SUITES:
        if pathlib.Path(folder).is_dir():
            tallies.append(suite(arguments.walk, folder))
    for tally in tallies:
        if sum(tally.refused.values()) > 0.05 * tally.schemas:
            sys.exit("over 5 % of the schemas are refused")
    sys.exit(any(tally.problems for tally in [hard, *tallies]))


if __name__ == "__main__":
    main()
