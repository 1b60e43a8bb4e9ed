"""Servers of a swarm that are killed, stopped or moved in mid-answer, for claims_serving.py: whether a bit of the answers is another, how long
they stood still, and whether anything was recovered at all."""
import collections
import contextlib
import itertools
import random
import re
import shutil
import signal
import statistics
import time

import served
from claims import ATOLL
from serving_swarm import Asked, ServingSwarm, ask, complete, post
from swarm_run import wait_for

NAMES = ("s0", "s1", "s2", "s3", "s4", "s5")  # Two for each part of the layers.
SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 24}, "tags": {"type": "array", "minItems": 4, "items": {
    "type": "string", "minLength": 3, "maxLength": 12}, "maxItems": 8}}, "required": ["name", "tags"], "additionalProperties": False}
SIGNALS = {"hang": signal.SIGSTOP, "leave": signal.SIGTERM}
NO_END = {"0": -100, "2": -100}  # Nobody is killed after the last token.
SCORES = 20  # Of each token, the most that the API gives: an answer with the same ones comes of the same logits.
TRIES = 3  # Where the event missed the text.
LEAST_RECOVERIES = {"two": 2}  # 1 of the others.
UNDISTURBED, FAR = 5, 1000  # Texts, which begin elsewhere.
SERVES = "serving layers"
PROGRAM_GIB = 0.25  # What atoll serve reckons with, beside layers, keys and values.
NUM_BEFORE, NUM_MADE = 64, 1500  # Tokens of a text during which a server is moved: it takes some 15 s until that is thought about.


class Missed(Exception):
    """There was nothing to lose any more."""


def body_of(kind, number, ids):
    """Of 512 tokens of context; what is read while servers are killed has 1,500."""
    body = {"prompt": ids[number : number + 512], "max_tokens": 48, "seed": number, "temperature": 0.8, "logit_bias": NO_END, "logprobs": SCORES}
    if kind == "prefill":
        return {**body, "prompt": ids[number : number + 1500], "max_tokens": 4}
    if kind == "form":
        return {"prompt": ids[number : number + 512], "max_tokens": 60, "seed": number, "temperature": 0.8, "guided_json": SCHEMA, "logprobs": SCORES}
    return {**body, "n": 4, "max_tokens": 24} if kind == "four" else body


# --- what a gateway had to mend ---

def recoveries(url):
    """So far, by kind."""
    found = re.findall(r'^atoll_recoveries_total\{.*kind="(\w+)"\} (\d+)$', ask(url, "/metrics"), re.MULTILINE)
    return collections.Counter({kind: int(count) for kind, count in found})


def recovered(url, before, least=1, patience_s=2):
    """Since then, by kind; so many are waited for, as they are shown a moment later."""
    end = time.monotonic() + patience_s
    while (found := recoveries(url) - before).total() < least and time.monotonic() < end:
        time.sleep(0.05)
    return found


def delay(asked, broken_at):
    """How much longer than usual the pauses were since then: of each gap that is more than five times the median one, what is above the median.
    Of several choices that of the one which waited longest."""
    longest = 0
    for index in {piece["index"] for piece in asked.pieces}:
        times = []
        for piece, when in zip(asked.pieces, asked.times):
            if piece["index"] == index and (not times or when - times[-1] > 0.001):  # Guesses that were right come together.
                times.append(when)
        gaps = [(end, end - begin) for begin, end in zip(times, times[1:])]
        usual = statistics.median(gap for _, gap in gaps) if gaps else 0
        longest = max(longest, sum(gap - usual for end, gap in gaps if end > broken_at and gap > 5 * usual))
    return longest


def told_as(asked, wanted, result):
    """Counts it in `result` if it is another answer, or none."""
    try:
        result["others"] += asked.told() != wanted
    except AssertionError as error:
        result["others"] += 1
        result["errors"].append(str(error))


def empty():
    """`others`: answers with other bits, or with an error, which `errors` has; `unrecovered`: events without a recovery, in all their tries;
    `recoveries`: by kind; `delays`: seconds, of events with a recovery."""
    return {"others": 0, "errors": [], "unrecovered": 0, "tries": 0, "recoveries": collections.Counter(), "delays": []}


# --- servers that are lost ---

def used(swarm, part, before, patience_s=2):
    """Which of the two servers with those layers has computed since then; that is waited for."""
    end = time.monotonic() + patience_s
    while True:
        now = swarm.computed()
        spent = {name: now[name] - before.get(name, 0) for name in NAMES[2 * part : 2 * part + 2] if name in now}
        name = max(spent, key=spent.get)
        if spent[name] > 0.02 or time.monotonic() > end:
            return name
        time.sleep(0.005)


def break_chain(swarm, asked, kind, draw, reading_s, before):
    """Returns who was broken, and when."""
    if kind == "prefill":
        time.sleep(reading_s * draw.uniform(0.05, 0.35))  # The chain reads on several cores.
    else:
        asked.wait_pieces(draw.randrange(3, 30))
    parts = draw.sample(range(3), 2 if kind == "two" else 1)
    names = [used(swarm, part, before) for part in parts]
    if not asked.is_under_way():
        raise Missed("the answer was there before a server was lost")
    if kind == "prefill" and asked.times:
        raise Missed("the prompt was read before a server was lost")
    broken_at = time.monotonic()
    if kind in SIGNALS:
        swarm.send(names[0], SIGNALS[kind])
    else:
        swarm.kill(*names)
    return names, broken_at


def start_again(swarm, name, kind):
    if kind == "hang":
        return swarm.send(name, signal.SIGCONT)
    swarm.processes[name].wait()
    before = swarm.log(name).count(SERVES)
    swarm.serve(name, swarm.spans[name])
    wait_for(lambda: swarm.log(name).count(SERVES) > before, f"the layers of {name}")


def total_s(asked):
    return asked.times[-1] - asked.begin


def undisturbed_s(url, kind, ids):
    """The median time of answers to other texts of that length."""
    found = []
    for number in range(UNDISTURBED):
        asked = Asked(url, **body_of(kind, FAR + number, ids))
        asked.told()
        found.append(total_s(asked))
    return statistics.median(found)


def measure(swarm_of, one, spans, kind, times):
    """That event so many times, each in an answer of its own; see empty(). What missed the text is tried again with the next one. A delay is that
    of the pauses; of a prompt that is read it is the answer's whole time less the usual one."""
    draw, result, numbers = random.Random(f"{kind} {times}"), empty(), itertools.count()
    text = __doc__ + " ".join(str(draw.random()) for _ in range(400))
    least = LEAST_RECOVERIES.get(kind, 1)
    with one(f"{kind}-one") as alone, swarm_of(kind, [span for span in spans for _ in range(2)]) as (swarm, url):
        ids = post(alone, "/tokenize", {"prompt": text})["tokens"]
        usual_s = undisturbed_s(url, kind, ids) if kind == "prefill" else None
        for _ in range(times):
            for _ in range(TRIES):
                result["tries"] += 1
                body = body_of(kind, next(numbers), ids)
                begin = time.monotonic()
                wanted = Asked(alone, **body).told()
                reading_s = time.monotonic() - begin
                counted, computed = recoveries(url), swarm.computed()
                asked, names = Asked(url, **body), []
                with contextlib.suppress(Missed):
                    names, broken_at = break_chain(swarm, asked, kind, draw, reading_s, computed)
                told_as(asked, wanted, result)
                found = recovered(url, counted, least) if names else collections.Counter()
                for name in names:
                    start_again(swarm, name, kind)
                complete(url, prompt="a", max_tokens=1)
                time.sleep(1)  # Until the gateway knows of them.
                if found.total() >= least:
                    result["recoveries"] += found
                    if asked.error is None:
                        result["delays"].append(round(delay(asked, broken_at) if usual_s is None else total_s(asked) - usual_s, 3))
                    break
            else:
                result["unrecovered"] += 1
    return result


# --- servers that are moved ---

def measure_moves(swarm_of, one, spans, times):
    """Both servers of the second half are killed, and the coordinator has one of the two others move there, perhaps the one that is in use."""
    result = empty()
    first, second = spans
    with one("moves-one") as alone:
        ids = post(alone, "/tokenize", {"prompt": __doc__ * 20})["tokens"]
        for number in range(times):
            body = body_of("moves", number, ids)
            wanted = Asked(alone, **body).told()
            with swarm_of(f"moves-{number}", [second, second, None, None]) as (swarm, url):
                result["tries"] += 1
                counted = recoveries(url)
                asked = Asked(url, **body)
                asked.wait_pieces(5 + number)
                broken_at = time.monotonic()
                swarm.kill("s0", "s1")
                told_as(asked, wanted, result)
                found = recovered(url, counted)
                result["recoveries"] += found
                result["unrecovered"] += not found
                if asked.error is None:
                    result["delays"].append(round(delay(asked, broken_at), 3))
    return result


@contextlib.contextmanager
def swarm_with_mover(name):
    """One server has all layers but the first sixth, by its user's choice. The mover has room for half of them, and is told the first half: nobody
    else has the first layers, so that each text goes over it, and it may not leave."""
    swarm, count = ServingSwarm(ATOLL, served.model(), served.work / name), served.num_layers()
    try:
        swarm.coordinate()
        swarm.serve("last", f"{count // 6}:{count}")
        room_gib = swarm.kv_gib + PROGRAM_GIB + (count // 2 + 0.5) * served.layer_gib()
        swarm.serve("mover", None, "--memory-gib", round(room_gib, 6))
        url = swarm.gateway("g")
        swarm.wait_whole(url)
        yield swarm, url
    finally:
        swarm.end()
        shutil.rmtree(swarm.folder)


def wait_moved(url, asked, before):
    """Until its chain goes by another server than the one that was moved, or it is over."""
    while "moved" not in recoveries(url) - before and asked.is_under_way():
        time.sleep(0.1)
    return time.monotonic()


def measure_moved(times):
    """A server that a text goes over is moved meanwhile, as placement has it: two others come for its layers, by their users' choice. So it can be
    spared, while the second half has one server alone, which serves 25 of 30 layers and is as slow as that: with the mover their bottleneck rises
    2.7 times, were all as fast (chain/placer, `balance`, thought about every ten seconds). `unrecovered`: texts during which it was not moved;
    `contexts`: tokens until then."""
    result, numbers, half = empty() | {"contexts": []}, itertools.count(), served.num_layers() // 2
    with served.one("moved-one") as alone:
        ids = post(alone, "/tokenize", {"prompt": __doc__ * 20})["tokens"]
        for _ in range(times):
            for _ in range(TRIES):
                result["tries"] += 1
                number = next(numbers)
                body = {"prompt": ids[number : number + NUM_BEFORE], "max_tokens": NUM_MADE, "seed": number, "temperature": 1, "logit_bias": NO_END,
                        "logprobs": SCORES}
                wanted = Asked(alone, **body).told()
                with swarm_with_mover(f"moved-{number}") as (swarm, url):
                    counted = recoveries(url)
                    asked = Asked(url, **body)
                    asked.wait_pieces(3)
                    for name in ("first", "second"):
                        swarm.serve(name, f"0:{half}")
                    seen_at = wait_moved(url, asked, counted)
                    num_made = len(asked.times)
                    told_as(asked, wanted, result)
                    found = recovered(url, counted)
                    has_moved = "moved" in found
                    if has_moved:  # It has loaded others.
                        wait_for(lambda: swarm.log("mover").count(SERVES) > 1, "the mover's new layers")
                if has_moved:
                    result["recoveries"] += found
                    result["contexts"].append(NUM_BEFORE + num_made)
                    if asked.error is None:
                        result["delays"].append(round(delay(asked, seen_at - 0.5), 3))
                    break
            else:
                result["unrecovered"] += 1
    return result
