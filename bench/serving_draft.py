#!/usr/bin/env python3
"""What a draft model gains over a chain of three servers, each on a line of its own in an emulated network (tests/wan): tokens a second beside
those of a gateway without one, and whether an answer is another. The texts are answers to questions, which hardly repeat themselves.

usage: [ATOLL_BENCH_MODEL=MODEL] serving_draft.py DRAFT     prints the result as JSON; needs root, as tests/wan does
"""
import contextlib
import functools
import json
import pathlib
import shutil
import statistics
import sys

import draft_model
import served
import wan
from claims import ATOLL, ROOT, run
from serving_links import ROUND_TRIP_MS, LinkedSwarm, counted, inside
from serving_swarm import Asked, post

LINK = ROOT / "build" / "bin" / "atoll-wan-link"
SERVERS = ("s0", "s1", "s2")
GATEWAYS = ("plain", "draft")
NUM_TOKENS = 80
MINUTES = 60
LEAST_MISSED = (5, 14)
QUESTIONS = ("Why do leaves turn red in autumn?", "How does a bicycle stay upright?", "What did the Romans use concrete for?",
             "Write a short story about a lighthouse keeper.", "How do I bake bread without yeast?", "What is the difference between weather and climate?")
WAYS = ({"temperature": 0}, {"temperature": 0.7, "seed": 5})


def asked_all(url):
    """On the gateway's host. Of each question and way: all of the answer, and the seconds from its first token to its last."""
    found = []
    for question in QUESTIONS:
        ids = post(url, "/tokenize", {"messages": [{"role": "user", "content": question}], "add_generation_prompt": True})["tokens"]
        for way in WAYS:
            asked = Asked(url, prompt=ids, max_tokens=NUM_TOKENS, logprobs=20, **way)
            told = asked.told()
            found.append({"told": told, "seconds": asked.times[-1] - asked.times[0], "tokens": len(told[0]["tokens"])})
    return {"answers": found, "drafted": counted(url, "drafted"), "accepted": counted(url, "accepted")}


def speed(answers, ways):
    of = [one for number, one in enumerate(answers) if number % len(WAYS) in ways]
    return sum(one["tokens"] - 1 for one in of) / sum(one["seconds"] for one in of)


def gain(draft):
    """{"plain", "draft"}: tokens a second; "times": how many times as many, of all answers, and of the greedy and the drawn ones; "others":
    answers of which a token or a score is another; "accepted": the share of the guesses that was right."""
    if reason := wan.unavailable(str(LINK)):
        raise RuntimeError(reason)
    hosts = ("coordinator", *SERVERS, *GATEWAYS)
    found = {}
    with wan.Network(str(LINK), {host: wan.Link(delay=ROUND_TRIP_MS / 4) for host in hosts}) as net, contextlib.ExitStack() as stack:  # A packet crosses the lines of both.
        swarm = LinkedSwarm(net, served.work / f"with-{pathlib.Path(draft).name}")
        stack.callback(swarm.end)
        swarm.coordinate()
        for name, span in zip(SERVERS, served.spans(3)):
            swarm.serve(name, span)
        for name in GATEWAYS:
            url = swarm.gateway(name, *(("--draft-model", draft) if name == "draft" else ()), template=None)
            with inside(net, name):
                swarm.wait_whole(url)
                found[name] = asked_all(url)
    plain, drafted = (found[name]["answers"] for name in GATEWAYS)
    result = {name: round(speed(found[name]["answers"], (0, 1)), 2) for name in GATEWAYS}
    result["times"] = {name: round(speed(drafted, ways) / speed(plain, ways), 2) for name, ways in (("all", (0, 1)), ("greedy", (0,)), ("drawn", (1,)))}
    result["others"] = sum(one["told"] != other["told"] for one, other in zip(plain, drafted))
    result["accepted"] = {name: round(found[name]["accepted"] / max(found[name]["drafted"], 1), 3) for name in GATEWAYS}
    result["median_round_ms"] = round(1000 * statistics.median(one["seconds"] / (one["tokens"] - 1) for one in plain), 1)
    print(f"draft: {json.dumps(result)}", file=sys.stderr)
    return result


@functools.cache
def recipe():
    """What a draft gains that was made as docs/draft_models.md says, in an hour."""
    made = draft_model.make(served.model(), served.work / "made-draft", MINUTES)
    print(f"draft: {json.dumps(made)}", file=sys.stderr)
    return gain(served.work / "made-draft")


@functools.cache
def pruned():
    """What a draft gains that is the model without the two layers that it misses least (SmolLM2-135M's), and learned nothing."""
    kept = ",".join(str(layer) for layer in range(served.num_layers()) if layer not in LEAST_MISSED)
    run([ATOLL, "convert", served.model(), served.work / "pruned-draft", "--layers", kept, "--dtype", "bf16"])
    return gain(served.work / "pruned-draft")


def add(claims):
    for what, figure in (("greedy", "greedy"), ("drawn at temperature 0.7", "drawn")):
        claims.measured(f"a draft of 28 of 30 layers, {ROUND_TRIP_MS} ms round trips: tokens a second, {what}, times as many",
                        functools.partial(lambda figure: pruned()["times"][figure], figure), lambda times: times >= 2, ">= 2", "{:.2f}")
    claims.measured("and answers that are others than without that draft (20 scores a token)", lambda: pruned()["others"], lambda n: n == 0,
                    "0", "{}")
    command = "LONG=draft,draft-drawn,draft-others make claims-serving"
    for key, what, figure, met, how in (
            ("draft", f"a draft made in {MINUTES} minutes, 80 ms round trips: tokens a second, greedy, times as many", lambda r: r["times"]["greedy"],
             lambda times: times >= 2, (">= 2", "{:.2f}")),
            ("draft-drawn", "and drawn at temperature 0.7", lambda r: r["times"]["drawn"], lambda times: times >= 2, (">= 2", "{:.2f}")),
            ("draft-others", "and answers that are others than without it (20 scores a token)", lambda r: r["others"], lambda n: n == 0, ("0", "{}"))):
        claims.stored(key, what, functools.partial(lambda figure: figure(recipe()), figure), met, *how, command)


if __name__ == "__main__":
    try:
        print(json.dumps(gain(pathlib.Path(sys.argv[1]).absolute())))
    finally:
        shutil.rmtree(served.work)
