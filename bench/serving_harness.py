"""lm-evaluation-harness through a swarm's API, beside atoll eval and transformers, for claims_serving.py."""
import functools
import json
import sys

import local_tasks
from claims import ATOLL, run
from served import TEXT, model, spans, swarm_of, work

NUM_DOCUMENTS = 8


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
    return through, theirs, ours


def difference(others, tasks):
    """The largest, relative where a score is above 1."""
    through = scores()[0]["scores"]
    return max(abs(through[task][metric] - others[task][metric]) / max(1, abs(others[task][metric])) for task in tasks for metric in through[task])


def add(claims):
    what = "lm-evaluation-harness through a swarm: scores"
    claims.measured(f"{what} beside atoll eval's (choices, words, rolling)", lambda: difference(scores()[2], local_tasks.READ), lambda d: d <= 1e-4, "<= 1e-4",
                    "{:.1e}")
    claims.measured(f"{what} beside transformers' (and texts)", lambda: difference(scores()[1]["scores"], local_tasks.TASKS), lambda d: d <= 1e-4, "<= 1e-4",
                    "{:.1e}")
    claims.measured(f"of {NUM_DOCUMENTS} texts, those that transformers writes otherwise",
                    lambda: sum(a != b for a, b in zip(*(found["said"]["lines"] for found in scores()[:2]))), lambda n: n == 0, "0", "{}")
