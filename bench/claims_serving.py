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
import real
from claims import ATOLL, ROOT, Claims, run
from served import CODE, TEXT, model, num_layers, one, spans, swarm_of, work

# The next are found in tests/, which served.py names.
import grammar_oracle
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
from serving_swarm import ServingSwarm, complete, post, told

claims = Claims("serving", CODE)

# --- the same answers ---
# With the 20 likeliest tokens' scores, the most that the API gives: what has the same ones comes of the same logits.
BODIES = [{"prompt": TEXT[100 * i : 130 * i + 40], "max_tokens": 24, "logprobs": 20} |
          ({"temperature": 0} if i % 2 else {"temperature": 0.9, "seed": i}) for i in range(16)]
SCORES = "text or 20 scores a token"


@functools.cache
def wanted(tokens=24, threads=1):
    with one("wanted", threads) as url:
        return [told(complete(url, **{**body, "max_tokens": tokens})) for body in BODIES]


def num_other_answers(url):
    """Of four alone, then 16 at once: with another bit in text or scores than one process's."""
    alone = [told(complete(url, **body)) for body in BODIES[:4]]
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        beside = list(pool.map(lambda body: told(complete(url, **body)), BODIES))
    return sum(a != b for a, b in zip(alone + beside, wanted()[:4] + wanted()))


def num_others(count):
    """Of a chain of so many servers."""
    with swarm_of(f"chain-{count}", spans(count)) as (_, url):
        return num_other_answers(url)


def num_others_by_threads():
    """Of a chain whose servers have 1, 2 and 2 threads; and of one process with 2 threads, all beside those of one with 1."""
    swarm = ServingSwarm(ATOLL, model(), work / "threads")
    try:
        swarm.coordinate()
        for number, (span, threads) in enumerate(zip(spans(3), (1, 2, 2))):
            swarm.threads = threads
            swarm.serve(f"s{number}", span)
        swarm.threads = 1
        url = swarm.gateway("g")
        swarm.wait_whole(url)
        of_chain = num_other_answers(url)
    finally:
        swarm.end()
        shutil.rmtree(swarm.folder)
    return of_chain + sum(a != b for a, b in zip(wanted(threads=2), wanted()))


def num_others_on_avx2():
    """Of a chain whose middle server is on an emulated processor without AVX-512, and has one layer, as that is slow: 2 alone, then 16 at once."""
    qemu = shutil.which("qemu-x86_64-static") or shutil.which("qemu-x86_64")
    if not qemu:
        raise RuntimeError("there is no emulator: apt-get install qemu-user-static")
    middle = num_layers() // 2
    asked = [{"model": "mine", **body, "max_tokens": 8} for body in BODIES]
    answer = lambda url, body: told(post(url, "/v1/completions", body, 900))
    with contextlib.ExitStack() as stack:
        swarm = ServingSwarm(ATOLL, model(), work / "avx2")
        stack.callback(swarm.end)
        swarm.coordinate()
        swarm.serve("s0", f"0:{middle}")
        swarm.serve("s2", f"{middle + 1}:{num_layers()}")
        swarm.atoll = f"{ATOLL}-torch"  # The emulator follows into no other program.
        swarm.serve("s1", f"{middle}:{middle + 1}", around=(qemu, "-cpu", "Haswell"))
        swarm.atoll = ATOLL
        url = swarm.gateway("g")
        swarm.wait_whole(url)
        found = [answer(url, body) for body in asked[:2]]
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            found += pool.map(functools.partial(answer, url), asked)
    return sum(a != b for a, b in zip(found, wanted(8)[:2] + wanted(8)))


def num_others_of_two():
    """Two gateways of one swarm, each asked all at once."""
    with swarm_of("two", spans(2)) as (swarm, url), concurrent.futures.ThreadPoolExecutor(32) as pool:
        urls = [url, swarm.gateway("g2")]
        swarm.wait_whole(urls[1])
        found = list(pool.map(lambda number: told(complete(urls[number % 2], **BODIES[number // 2])), range(32)))
    return sum(a != wanted()[number // 2] for number, a in enumerate(found))


for count in (2, 3, 5):
    claims.measured(f"{count} servers: answers of 4 alone and 16 at once with other bits than one's ({SCORES})", functools.partial(num_others, count),
                    lambda n: n == 0, "0", "{}")
claims.measured("servers of 1, 2 and 2 threads, and one process of 2: with other bits than 1 thread's", num_others_by_threads, lambda n: n == 0,
                "0", "{}")
claims.measured("two gateways at once, 16 answers each: with other bits", num_others_of_two, lambda n: n == 0, "0", "{}")
claims.measured("3 servers, one of them with AVX2 alone: with other bits, of 2 alone and 16 at once", num_others_on_avx2, lambda n: n == 0, "0", "{}")

# --- servers that are lost ---
FAULTS = {"decode": "kill -9 while tokens are made", "prefill": "kill -9 while a prompt is read", "two": "two killed at once",
          "form": "kill -9 under a JSON schema", "four": "kill -9 of n = 4", "hang": "SIGSTOP", "leave": "SIGTERM"}
NUM_FAULTS, NUM_KILLS, NUM_MOVES = 10, 50, 3  # The first and the last are measured, the second stored.


@functools.cache
def faults(kind, times):
    found = serving_faults.measure(swarm_of, one, spans(3), kind, times)
    print(f"{times} times {kind}: {json.dumps(found)}", file=sys.stderr)
    return found


@functools.cache
def gaps():
    found = serving_faults.measure_moves(swarm_of, one, spans(2), NUM_MOVES)
    print(f"moves to a gap: {json.dumps(found)}", file=sys.stderr)
    return found


@functools.cache
def moved():
    found = serving_faults.measure_moved(NUM_MOVES)
    print(f"moves of a server in use: {json.dumps(found)}", file=sys.stderr)
    return found


def claim_delay(what, measure):
    claims.measured(f"{what}: added delay, median, s", lambda: statistics.median(measure()["delays"]), lambda s: s <= 1, "<= 1", "{:.2f}")
    claims.measured(f"and the longest added delay of {what}", lambda: max(measure()["delays"]), lambda s: True, "told", "{:.2f}")


def num_wrong(kind, times):
    """Answers that are others, and events without a recovery."""
    return faults(kind, times)["others"] + faults(kind, times)["unrecovered"]


for kind, what in FAULTS.items():
    claims.measured(f"{NUM_FAULTS} times {what}: answers with another bit ({SCORES})", lambda kind=kind: faults(kind, NUM_FAULTS)["others"],
                    lambda n: n == 0, "0", "{}")
claims.measured(f"and of these {NUM_FAULTS * len(FAULTS)} events those without a recovery",
                lambda: sum(faults(kind, NUM_FAULTS)["unrecovered"] for kind in FAULTS), lambda n: n == 0, "0", "{}")
for kind, what in FAULTS.items():
    claims.stored(f"kills-{kind}", f"{NUM_KILLS} times {what}: answers with another bit, or no recovery",
                  lambda kind=kind: num_wrong(kind, NUM_KILLS), lambda n: n == 0, "0", "{}", "LONG=kills make claims-serving")

claims.measured(f"both servers of a half killed, another moves to the gap: of {NUM_MOVES} answers, others", lambda: gaps()["others"],
                lambda n: n == 0, "0", "{}")
claims.measured(f"a server in use is moved in mid-answer, for balance: of {NUM_MOVES} answers, others", lambda: moved()["others"],
                lambda n: n == 0, "0", "{}")
claims.measured("and of both, events without a recovery, or in which it was not moved", lambda: gaps()["unrecovered"] + moved()["unrecovered"],
                lambda n: n == 0, "0", "{}")

for kind, what in FAULTS.items():
    claim_delay(f"{what}, {1500 if kind == 'prefill' else 512} tokens of context", functools.partial(faults, kind, NUM_FAULTS))
claim_delay("a move to a gap, 512 tokens of context", gaps)
claim_delay("a move for balance, some 500 tokens of context", moved)

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
NUM_SCHEMAS, NUM_OF_SUITE, MOST_TOKENS = 100, 40, 400
SUITE = "/usr/share/json-schema-test-suite/tests/draft7"  # Debian's json-schema-test-suite has no newer draft.
WALK = ROOT / "build" / "bin" / "atoll-walk-grammar"
JSON_PROMPT = """Short JSON, one on each line:
{"id": 7, "name": "Ann"}
["red", "blue"]
{"kind": "a", "value": null}
"green"
{"tags": [], "size": 2.5}
"""
VOCABULARY, END = "gpt-oss", "<|endoftext|>"  # o200k.


def is_right(schema, text, validator):
    """Whether the text is JSON that PyPI's jsonschema finds right by the schema, formats as well; fractions as they are written."""
    try:
        return validator(grammar_oracle.exactly(json.dumps(schema)), format_checker=grammar_oracle.FORMATS).is_valid(grammar_oracle.exactly(text))
    except ValueError:
        return False


def answers_by(name, schemas, validator, field):
    """Of texts that a swarm answers by each schema, 16 at a time: right ones, wrong ones, those that came to their bound, and schemas that are
    refused. `field` puts a schema into a request."""
    def answer(url, number):
        body = {"model": "mine", "prompt": JSON_PROMPT, "max_tokens": MOST_TOKENS, "temperature": 0.7, "seed": number, **field(schemas[number])}
        try:
            [choice] = post(url, "/v1/completions", body, 900)["choices"]
        except urllib.error.HTTPError as error:
            with error:
                return "refused" if error.code == 400 else "wrong", error.read().decode()
        return "bound" if choice["finish_reason"] == "length" else "ended", choice["text"]

    with swarm_of(name, spans(2)) as (_, url), concurrent.futures.ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(functools.partial(answer, url), range(len(schemas))))
    counts = dict.fromkeys(("right", "wrong", "bound", "refused"), 0)
    for schema, (kind, text) in zip(schemas, answers):  # Here, not in the pool: each thread has its own precision of fractions.
        kind = kind if kind != "ended" else "right" if is_right(schema, text, validator) else "wrong"
        counts[kind] += 1
        if kind in ("wrong", "refused"):
            print(f"{name}: {kind}: {json.dumps(schema)}: {text[:300]}", file=sys.stderr)
    print(f"{name}: {counts}", file=sys.stderr)
    return counts


@functools.cache
def forms():
    """Answers by generated schemas, which are asked for in vLLM's words."""
    maker = SchemaMaker(random.Random(5))
    return answers_by("forms", [maker.schema() for _ in range(NUM_SCHEMAS)], jsonschema.Draft202012Validator, lambda schema: {"guided_json": schema})


@functools.cache
def suite():
    """What tests/oracle/grammar_oracle.py finds with the suite's schemas, without those that need other documents."""
    if not pathlib.Path(SUITE).is_dir():
        raise RuntimeError(f"there is no {SUITE}: apt-get install json-schema-test-suite")
    with contextlib.redirect_stdout(sys.stderr):
        return grammar_oracle.suite(WALK, SUITE)


@functools.cache
def suite_answers():
    """Answers by some of the suite's schemas that the grammars take, by `response_format`: none of these may be refused."""
    paths = [path for path in sorted(pathlib.Path(SUITE).glob("*.json")) if path.stem != "refRemote"]
    found = [group["schema"] for path in paths for group in json.loads(path.read_text())]
    taken = [schema for schema, answer in zip(found, grammar_oracle.run(WALK, [{"schema": schema} for schema in found])) if "error" not in answer]
    schemas = random.Random(5).sample(taken, NUM_OF_SUITE)
    return answers_by("suite", schemas, jsonschema.Draft7Validator,
                      lambda schema: {"response_format": {"type": "json_schema", "json_schema": {"name": "suite", "schema": schema}}})


def large_vocabulary():
    """The path of gpt-oss's tokenizer.json with its end of text as id 0, where bench/structured_output.py has it, and without its other added
    tokens; texts come to the same tokens by other ids."""
    whole = json.loads(pathlib.Path(real.tokenizers()[VOCABULARY]()).read_text())
    vocab, added = whole["model"]["vocab"], {one["content"] for one in whole["added_tokens"]}
    whole["model"]["vocab"] = {END: 0} | {text: 1 + place for place, text in enumerate(sorted(vocab.keys() - added, key=vocab.get))}
    whole["added_tokens"] = [{"id": 0, "content": END, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}]
    whole["post_processor"] = None  # It would name added tokens.
    path = work / "large-vocabulary.json"
    path.write_text(json.dumps(whole))
    return path


@functools.cache
def masks():
    """Of each program what its masks take over that vocabulary, in one run."""
    found = json.loads(run([sys.executable, "bench/structured_output.py", WALK, "--tokenizer", large_vocabulary()]))
    print(f"masks: {json.dumps(found)}", file=sys.stderr)
    if not 190_000 <= found["tokens"] <= 210_000:
        raise RuntimeError(f"the vocabulary has {found['tokens']:,} tokens")
    return found


def mask_median(program):
    """In microseconds; else why there is none."""
    found = masks()[program]
    return found.get("mask_median_us", "takes none") if isinstance(found, dict) else "not installed"


for what, answers, most_refused in ((f"{NUM_SCHEMAS} generated schemas through the API", forms, 5),
                                    (f"{NUM_OF_SUITE} of JSON-Schema-Test-Suite by response_format", suite_answers, 0)):
    claims.measured(f"{what}: answers that are not right by theirs", lambda: answers()["wrong"], lambda n: n == 0, "0", "{}")
    claims.measured(f"{what}: schemas that are refused, %", lambda: 100 * answers()["refused"] / sum(answers().values()),
                    lambda share: share <= most_refused, f"<= {most_refused}", "{:.1f}")
    claims.measured(f"{what}: answers that came to {MOST_TOKENS} tokens, %", lambda: 100 * answers()["bound"] / sum(answers().values()),
                    lambda share: True, "told", "{:.1f}")
claims.measured("JSON-Schema-Test-Suite, draft 7, without the 7 of remote documents: refused, %", lambda: 100 * sum(suite().refused.values()) / suite().schemas,
                lambda share: share <= 5, "<= 5", "{:.1f}")
claims.measured("and texts and values of JSON-Schema-Test-Suite that jsonschema sees otherwise", lambda: len(suite().problems), lambda n: n == 0, "0",
                "{}")
claims.measured(f"a mask over {VOCABULARY}'s 200,000 tokens, median, microseconds", lambda: mask_median("atoll"),
                lambda us: us <= 1000, "<= 1000", "{}")
for program in ("llguidance", "xgrammar"):
    claims.measured(f"and a mask by {program}, microseconds", lambda: mask_median(program), lambda us: True, "told", "{}")

shutil.rmtree(work)
sys.exit(claims.end())
