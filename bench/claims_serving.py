#!/usr/bin/env python3
"""make claims-serving: SmolLM2-135M behind the API, by one process and by swarms of servers, and what befalls them; served.py says which model."""
import concurrent.futures
import contextlib
import functools
import json
import pathlib
import random
import shutil
import statistics
import sys
import urllib.error

import jsonschema
from claims import ATOLL, ROOT, Claims, run
from served import TEXT, model, one, spans, swarm_of, work

# The next are found in tests/, which served.py names.
import serving_clients
import serving_draft
import serving_exact
import serving_faults
import serving_guesses
import serving_harness
import serving_liars
import serving_links
import serving_load
import serving_memory
import serving_soak
import serving_speed
from schema_cases import SchemaMaker
from serving_swarm import ServingSwarm, complete, told

claims = Claims("serving")

# --- the same answers ---
BODIES = [{"prompt": TEXT[100 * i : 130 * i + 40], "max_tokens": 24, "logprobs": 3, **({"temperature": 0} if i % 2 else {"temperature": 0.9, "seed": i})}
          for i in range(16)]


@functools.cache
def wanted(count=16, tokens=24):
    with one("wanted") as url:
        return [told(complete(url, **{**body, "max_tokens": tokens})) for body in BODIES[:count]]


def num_others(count):
    """Answers of a chain of so many servers with another bit in text or scores: four alone, then 16 at once."""
    with swarm_of(f"chain-{count}", spans(count)) as (_, url), concurrent.futures.ThreadPoolExecutor(16) as pool:
        alone = [told(complete(url, **body)) for body in BODIES[:4]]
        beside = list(pool.map(lambda body: told(complete(url, **body)), BODIES))
    return sum(a != b for a, b in zip(alone + beside, wanted()[:4] + wanted()))


def num_others_on_avx2():
    """The middle one of three servers on an emulated processor without AVX-512."""
    qemu = shutil.which("qemu-x86_64-static") or shutil.which("qemu-x86_64")
    if not qemu:
        raise RuntimeError("there is no emulator: apt-get install qemu-user-static")
    begin, middle, end = spans(3)
    with contextlib.ExitStack() as stack:
        swarm = ServingSwarm(ATOLL, model(), work / "avx2")
        stack.callback(swarm.end)
        swarm.coordinate()
        swarm.serve("s0", begin)
        swarm.serve("s2", end)
        swarm.atoll = f"{ATOLL}-torch"  # The emulator follows into no other program.
        swarm.serve("s1", middle, around=(qemu, "-cpu", "Haswell"))
        swarm.atoll = ATOLL
        url = swarm.gateway("g")
        swarm.wait_whole(url)
        found = [told(complete(url, **{**body, "max_tokens": 8})) for body in BODIES[:2]]
    return sum(a != b for a, b in zip(found, wanted(2, 8)))


def num_others_of_two():
    """Two gateways of one swarm, each asked all at once."""
    with swarm_of("two", spans(2)) as (swarm, url), concurrent.futures.ThreadPoolExecutor(32) as pool:
        urls = [url, swarm.gateway("g2")]
        swarm.wait_whole(urls[1])
        found = list(pool.map(lambda number: told(complete(urls[number % 2], **BODIES[number // 2])), range(32)))
    return sum(a != wanted()[number // 2] for number, a in enumerate(found))


for count in (2, 3, 5):
    claims.measured(f"{count} servers: answers of 4 alone and 16 at once with other bits than one's", functools.partial(num_others, count),
                    lambda n: n == 0, "0", "{}")
claims.measured("two gateways at once, 16 answers each: with other bits", num_others_of_two, lambda n: n == 0, "0", "{}")
claims.measured("3 servers, one of them with AVX2 alone: the same, of 2", num_others_on_avx2, lambda n: n == 0, "0", "{}")

# --- servers that are lost ---
FAULTS = {"decode": "kill -9 while tokens are made", "prefill": "kill -9 while a prompt is read", "two": "two killed at once",
          "form": "kill -9 under a JSON schema", "four": "kill -9 of n = 4", "hang": "SIGSTOP", "leave": "SIGTERM"}


@functools.cache
def faults(kind):
    found = serving_faults.measure(swarm_of, one, spans(3), kind, 10)
    print(f"{kind}: {json.dumps(found)}", file=sys.stderr)
    return found


@functools.cache
def moves():
    found = serving_faults.measure_moves(swarm_of, one, spans(2), 3)
    print(f"moves: {json.dumps(found)}", file=sys.stderr)
    return found


for kind, what in FAULTS.items():
    claims.measured(f"10 times {what}: answers with another bit", lambda kind=kind: faults(kind)["others"], lambda n: n == 0, "0", "{}")
claims.measured("both servers of a half killed, another moves there: of 3 answers, others", lambda: moves()["others"], lambda n: n == 0, "0", "{}")
for kind in ("decode", "two", "hang"):
    claims.measured(f"{FAULTS[kind]}, 512 tokens of context: added delay, s", lambda kind=kind: statistics.median(faults(kind)["delays"]),
                    lambda s: s <= 1, "<= 1", "{:.2f}")
    claims.measured("and the longest of 10", lambda kind=kind: max(faults(kind)["delays"]), lambda s: s <= 1 or kind == "hang",
                    "<= 1" if kind != "hang" else "told", "{:.2f}")

serving_speed.add(claims)
serving_exact.add(claims)
serving_clients.add(claims)
serving_harness.add(claims)
serving_liars.add(claims, model, lambda: spans(3), work)
serving_load.add(claims)
serving_links.add(claims)
serving_guesses.add(claims)
serving_draft.add(claims)
serving_memory.add(claims)
serving_soak.add(claims)

# --- structured output ---
NUM_SCHEMAS = 100


@functools.cache
def forms():
    """Of generated schemas: refused, answers that are not right by them, answers that came to their bound."""
    maker, counts = SchemaMaker(random.Random(5)), {"refused": 0, "wrong": 0, "bound": 0, "right": 0}
    schemas = [maker.schema() for _ in range(NUM_SCHEMAS)]

    def answer(url, number):
        try:
            [choice] = complete(url, prompt="As JSON: ", max_tokens=250, temperature=0.7, seed=number, guided_json=schemas[number])["choices"]
        except urllib.error.HTTPError as error:
            with error:
                return "refused" if error.code == 400 else "wrong"
        if choice["finish_reason"] == "length":
            return "bound"
        return "right" if jsonschema.Draft202012Validator(schemas[number]).is_valid(json.loads(choice["text"])) else "wrong"

    with swarm_of("forms", spans(2)) as (_, url), concurrent.futures.ThreadPoolExecutor(16) as pool:
        for result in pool.map(functools.partial(answer, url), range(NUM_SCHEMAS)):
            counts[result] += 1
    print(f"schemas: {counts}", file=sys.stderr)
    return counts


def mask_median():
    tokenizer = pathlib.Path(model()) / "tokenizer.json"
    return json.loads(run([sys.executable, "bench/structured_output.py", ROOT / "build/bin/atoll-walk-grammar", "--tokenizer", tokenizer]))["atoll"]["mask_median_us"]


claims.measured(f"{NUM_SCHEMAS} schemas through the API: answers that are not right by theirs", lambda: forms()["wrong"], lambda n: n == 0, "0", "{}")
claims.measured("the same: schemas that are refused, %", lambda: forms()["refused"], lambda n: n <= 5, "<= 5", "{}")
claims.measured("the same: answers that came to 250 tokens", lambda: forms()["bound"], lambda n: True, "told", "{}")
claims.measured("a mask, median, microseconds", mask_median, lambda us: us <= 50, "<= 50", "{:.1f}")

shutil.rmtree(work)
sys.exit(claims.end())
