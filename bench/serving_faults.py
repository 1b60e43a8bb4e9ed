"""Servers of a swarm that are killed or stopped in mid-answer, for claims_serving.py: whether a bit of the answers is another, and how long
they stood still."""
import random
import signal
import statistics
import time

from serving_swarm import Asked, complete, post

NAMES = ("s0", "s1", "s2", "s3", "s4", "s5")  # Two for each part of the layers.
SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 24}, "tags": {"type": "array", "minItems": 4, "items": {
    "type": "string", "minLength": 3, "maxLength": 12}, "maxItems": 8}}, "required": ["name", "tags"], "additionalProperties": False}
SIGNALS = {"hang": signal.SIGSTOP, "leave": signal.SIGTERM}
NO_END = {"0": -100, "2": -100}  # Nobody is killed after the last token.


def body_of(kind, number, ids):
    """Of 512 tokens of context; what is read while servers are killed has 1,500."""
    body = {"prompt": ids[number : number + 512], "max_tokens": 48, "seed": number, "temperature": 0.8, "logit_bias": NO_END}
    if kind == "prefill":
        return {**body, "prompt": ids[number : number + 1500], "max_tokens": 4}
    if kind == "form":
        return {"prompt": ids[number : number + 512], "max_tokens": 60, "seed": number, "temperature": 0.8, "guided_json": SCHEMA}
    return {**body, "n": 4, "max_tokens": 24} if kind == "four" else body


def used(swarm, part, seconds=0.03):
    """Which of the two servers with those layers computes."""
    busy = swarm.busy(seconds)
    return max(NAMES[2 * part : 2 * part + 2], key=lambda name: busy.get(name, 0))


def break_chain(swarm, asked, kind, draw, reading_s):
    """Returns who was broken, and how many pieces had come."""
    if kind == "prefill":
        time.sleep(reading_s * draw.uniform(0.05, 0.35))  # The chain reads on several cores.
    else:
        asked.wait_pieces(draw.randrange(3, 30))
    parts = draw.sample(range(3), 2 if kind == "two" else 1)
    names = [used(swarm, part) for part in parts]
    if not asked.is_under_way():
        raise RuntimeError("the answer was there before a server was lost")
    if kind in SIGNALS:
        swarm.send(names[0], SIGNALS[kind])
    else:
        swarm.kill(*names)
    return names, len(asked.times)


def measure(swarm_of, one, spans, kind, times):
    """Answers with other bits, those that ended with an error, and how much longer the pause was than others, in seconds."""
    draw, result = random.Random(kind), {"others": 0, "errors": [], "delays": []}
    text = __doc__ + " ".join(str(draw.random()) for _ in range(400))
    with one(f"{kind}-one") as alone, swarm_of(kind, [span for span in spans for _ in range(2)]) as (swarm, url):
        ids = post(alone, "/tokenize", {"prompt": text})["tokens"]
        for number in range(times):
            body = body_of(kind, number, ids)
            begin = time.monotonic()
            wanted = Asked(alone, **body).told()
            reading_s = time.monotonic() - begin
            asked = Asked(url, **body)
            names, num_pieces = break_chain(swarm, asked, kind, draw, reading_s)
            try:
                result["others"] += asked.told() != wanted
            except AssertionError as error:
                result["others"] += 1
                result["errors"].append(str(error))
            result["delays"].append(round(pause(asked, num_pieces), 3))
            for name in names:
                if kind == "hang":
                    swarm.send(name, signal.SIGCONT)
                else:
                    swarm.processes[name].wait()
                    swarm.serve(name, swarm.spans[name])
            complete(url, prompt="a", max_tokens=1)
            time.sleep(1)  # Until the gateway knows of them.
    return result


def measure_moves(swarm_of, one, spans, times):
    """Both servers of the second half are killed, and the coordinator has one of the two others move there, perhaps the one that is in use."""
    result = {"others": 0, "errors": [], "delays": []}
    first, second = spans
    with one("moves-one") as alone:
        for number in range(times):
            body = body_of("moves", number, post(alone, "/tokenize", {"prompt": __doc__ * 20})["tokens"])
            wanted = Asked(alone, **body).told()
            with swarm_of(f"moves-{number}", [second, second, None, None]) as (swarm, url):
                asked = Asked(url, **body)
                asked.wait_pieces(5 + number)
                swarm.kill("s0", "s1")
                num_pieces = len(asked.times)
                try:
                    result["others"] += asked.told() != wanted
                except AssertionError as error:
                    result["others"] += 1
                    result["errors"].append(str(error))
                result["delays"].append(round(pause(asked, num_pieces), 3))
    return result


def pause(asked, num_pieces):
    """The longest gap since then, less the usual one."""
    times = [asked.begin, *asked.times]
    gaps = [b - a for a, b in zip(times, times[1:])]
    return max(gaps[num_pieces:], default=0) - (statistics.median(gaps[1:num_pieces]) if num_pieces > 2 else 0)

