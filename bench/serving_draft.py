#!/usr/bin/env python3
"""What a draft model gains over a chain of three servers, each on a line of its own in an emulated network (tests/wan): tokens a second beside
those of a gateway without one, and whether an answer is another. The texts are answers to questions, which hardly repeat themselves.

usage: serving_draft.py MODEL DRAFT     prints the result as JSON; needs root, as tests/wan does

gain(model, draft, folder) is for claims.
"""
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import types

from claims import ATOLL, ROOT

sys.path += [str(ROOT / "tests" / part) for part in ("processes", "wan")]
import wan  # noqa: E402
from serving_swarm import Asked, ServingSwarm, ask, post  # noqa: E402

LINK = ROOT / "build" / "bin" / "atoll-wan-link"
SERVERS = ("s0", "s1", "s2")
ROUND_TRIP_MS = 80  # Of each line between two of them: a token's way around has four half ones.
NUM_TOKENS = 80
QUESTIONS = ("Why do leaves turn red in autumn?", "How does a bicycle stay upright?", "What did the Romans use concrete for?",
             "Write a short story about a lighthouse keeper.", "How do I bake bread without yeast?", "What is the difference between weather and climate?")
WAYS = ({"temperature": 0}, {"temperature": 0.7, "seed": 5})


class LinkedSwarm(ServingSwarm):
    """Each process on the host of its name."""

    def __init__(self, net, model, folder):
        super().__init__(ATOLL, model, folder, threads=1)
        self.port.give_back()
        self.net, self.port = net, types.SimpleNamespace(address=f"{net.address('coordinator')}:7070", give_back=lambda: None)

    def start(self, name, words, pattern, around=(), **options):
        own = [] if name == "coordinator" else ["--listen", f"{self.net.address(name)}:0"]
        return super().start(name, [*words, "--insecure", *own], pattern.replace("127.0.0.1", r"[\d.]+"), ["nsenter", "--net=" + self.net.namespace(name), "--"], **options)

    def gateway_of(self, name, *words):
        return self.start(name, ["gateway", self.model, *self.way_in(name, "gateway"), "--peer-name", name, "--threads", 1, "--name", "mine", *words],
                          r"http://[\d.:]+")


def spans(model):
    num_layers = json.loads((pathlib.Path(model) / "config.json").read_text())["num_hidden_layers"]
    bounds = [number * num_layers // len(SERVERS) for number in range(len(SERVERS) + 1)]
    return [f"{begin}:{end}" for begin, end in zip(bounds, bounds[1:])]


def counted(url, name):
    return sum(float(line.rsplit(" ", 1)[1]) for line in ask(url, "/metrics").splitlines() if line.startswith(f"atoll_{name}_tokens_total"))


def asked_all(url):
    """On the gateway's host. Of each question and way: all of the answer, and the seconds from its first token to its last."""
    found = []
    for question in QUESTIONS:
        ids = post(url, "/tokenize", {"messages": [{"role": "user", "content": question}], "add_generation_prompt": True})["tokens"]
        for way in WAYS:
            asked = Asked(url, prompt=ids, max_tokens=NUM_TOKENS, **way)
            told = asked.told()
            found.append({"told": told, "seconds": asked.times[-1] - asked.times[0], "tokens": len(told[0]["tokens"])})
    return {"answers": found, "drafted": counted(url, "drafted"), "accepted": counted(url, "accepted")}


def speed(answers, ways):
    of = [one for number, one in enumerate(answers) if number % len(WAYS) in ways]
    return sum(one["tokens"] - 1 for one in of) / sum(one["seconds"] for one in of)


def gain(model, draft, folder, round_trip_ms=ROUND_TRIP_MS):
    """{"plain", "draft"}: tokens a second; "times": how many times as many, of all answers, and of the greedy and the seeded ones; "others":
    answers of which a token or a score is another; "accepted": the share of the guesses that was right."""
    if reason := wan.unavailable(str(LINK)):
        raise RuntimeError(reason)
    hosts = ("coordinator", *SERVERS, "plain", "draft")
    with wan.Network(str(LINK), {host: wan.Link(delay=round_trip_ms / 4) for host in hosts}) as net:  # A packet crosses the lines of both.
        swarm = LinkedSwarm(net, model, pathlib.Path(folder) / "draft")
        try:
            swarm.coordinate()
            for name, span in zip(SERVERS, spans(model)):
                swarm.serve(name, span)
            found = {}
            for name, words in (("plain", ()), ("draft", ("--draft-model", draft))):
                url = swarm.gateway_of(name, *words)
                done = net.run(name, [sys.executable, __file__, "--ask", url], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                if done.returncode != 0:
                    raise RuntimeError(f"{done.stderr[-2000:]}\n{swarm.log(name)[-2000:]}")
                found[name] = json.loads(done.stdout)
        finally:
            swarm.end()
    plain, drafted = (found[name]["answers"] for name in ("plain", "draft"))
    result = {name: round(speed(found[name]["answers"], (0, 1)), 2) for name in ("plain", "draft")}
    result["times"] = {name: round(speed(drafted, ways) / speed(plain, ways), 2) for name, ways in (("all", (0, 1)), ("greedy", (0,)), ("seeded", (1,)))}
    result["others"] = sum(one["told"] != other["told"] for one, other in zip(plain, drafted))
    result["accepted"] = round(found["draft"]["accepted"] / max(found["draft"]["drafted"], 1), 3)
    result["plain_accepted"] = round(found["plain"]["accepted"] / max(found["plain"]["drafted"], 1), 3)
    result["median_round_ms"] = round(1000 * statistics.median(one["seconds"] / (one["tokens"] - 1) for one in plain), 1)
    return result


if __name__ == "__main__":
    if sys.argv[1] == "--ask":
        url = sys.argv[2]
        ServingSwarm.wait_whole(None, url)
        print(json.dumps(asked_all(url)))
    else:
        with tempfile.TemporaryDirectory(prefix="atoll-serving-draft-") as where:
            print(json.dumps(gain(*sys.argv[1:3], where)))
