#!/usr/bin/env python3
"""Part of make claims-kv: what it saves that keys and values are kept. SmolLM2-135M, or what served.py says; one process and swarms of servers."""
import contextlib
import functools
import json
import pathlib
import shutil
import statistics
import sys
import time

import served
import serving_links
from claims import ATOLL, ROOT, Claims
from served import THREADS, model, num_layers, spans, work

# The next are found in tests/, which served.py names.
import wan
from serving_swarm import Asked, ServingSwarm, complete

claims = Claims("kv", served.CODE)
NUM_TOKENS = 4096
NUM_REPEATS = 5
ANSWER = {"max_tokens": 4, "temperature": 0}
CHUNK = 128


@functools.cache
def ids():
    """Real text: the standard library's."""
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(str(pathlib.Path(model()) / "tokenizer.json"))
    text = "".join(path.read_text(errors="ignore") for path in sorted(pathlib.Path(json.__file__).parent.parent.glob("[a-f]*.py")))
    return tokenizer.encode(text).ids


def prompt(number):
    begin = number * NUM_TOKENS
    if len(ids()) < begin + NUM_TOKENS:
        raise RuntimeError(f"the text has {len(ids())} tokens: too few for {number + 1} prompts")
    return ids()[begin : begin + NUM_TOKENS]


def first_token(url, tokens, **more):
    """Seconds until it comes, and all that comes."""
    asked = Asked(url, prompt=tokens, **ANSWER, **more)
    told = asked.told()
    return asked.times[0] - asked.begin, told


class Store:
    """A process, or a swarm, that keeps what it reads in folders."""

    def __init__(self, name):
        self.swarm = ServingSwarm(ATOLL, model(), work / name, THREADS)
        self.swarm.kv_gib = 1

    def folder(self, name):
        return self.swarm.folder / f"{name}-kv"

    def alone(self):
        url = self.swarm.alone("one", "--kv-store", self.folder("one"))
        complete(url, prompt="a", max_tokens=1)
        return url

    def wait_kept(self, name, num_tokens, layers):
        """Until all of its chunks are on the disk."""
        wanted = num_tokens // CHUNK * layers
        deadline = time.monotonic() + 120
        while len(list(self.folder(name).glob("*/????????*"))) < wanted:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{name} has kept too little")
            time.sleep(0.1)


@functools.cache
def one_process():
    """Medians of how long the first token takes: first, repeated, after a restart; and how many answers were others."""
    times = {"first": [], "memory": [], "disk": []}
    num_other = 0
    store = Store("reuse")
    try:
        for number in range(NUM_REPEATS):
            url = store.alone()
            first, wanted = first_token(url, prompt(number))
            memory, again = first_token(url, prompt(number))
            store.wait_kept("one", (number + 1) * (NUM_TOKENS - 1), num_layers())
            store.swarm.finish("one")
            disk, restored = first_token(store.alone(), prompt(number))
            store.swarm.finish("one")
            for key, value in (("first", first), ("memory", memory), ("disk", disk)):
                times[key].append(value)
            num_other += (again != wanted) + (restored != wanted)
    finally:
        store.swarm.end()
        shutil.rmtree(store.swarm.folder)
    result = {key: statistics.median(values) for key, values in times.items()} | {"other": num_other}
    print(f"the first token of {NUM_TOKENS}, seconds: {json.dumps(result)}", file=sys.stderr)
    return result


def add_reuse():
    claims.measured("a prompt again, from memory: of the first time to first token", lambda: one_process()["memory"] / one_process()["first"],
                    lambda f: f <= 0.03, "<= 3 %", "{:.1%}")
    claims.measured("the same, from disk after a restart", lambda: one_process()["disk"] / one_process()["first"], lambda f: f <= 0.1, "<= 10 %",
                    "{:.1%}")
    claims.measured("answers behind what was kept with another token or score", lambda: one_process()["other"], lambda f: f == 0, "0")


# --- over lines ---
HOSTS = ("coordinator", "a", "b", "b2", "c", "g")


class KeptSwarm(serving_links.LinkedSwarm):
    def __init__(self, net, folder):
        super().__init__(net, folder)
        self.kv_gib = 1


@contextlib.contextmanager
def linked(name, mbit, without=()):
    """Three spans, of which the second one has two servers, each on a line of so many Mbit/s and 2 ms; some are not started."""
    if reason := wan.unavailable(str(ROOT / "build/bin/atoll-wan-link")):
        raise RuntimeError(reason)
    with wan.Network(str(ROOT / "build/bin/atoll-wan-link"), {host: wan.Link(rate=mbit, delay=1) for host in HOSTS}) as net, \
            contextlib.ExitStack() as stack:
        swarm = KeptSwarm(net, work / name)
        stack.callback(shutil.rmtree, swarm.folder)
        stack.callback(swarm.end)
        swarm.coordinate()
        first, second, third = spans(3)
        for server, span in (("a", first), ("b", second), ("b2", second), ("c", third)):
            if server not in without:
                swarm.serve(server, span, "--neighbour-rate", "10gbit")
        stack.enter_context(serving_links.inside(net, "g"))
        yield swarm


def recovery(mbit, words, seed):
    """Seconds that an answer stood still while one of the two servers was killed; None: its tokens are others."""
    with linked(f"recovery-{mbit}-{len(words)}-{seed}", mbit) as swarm:
        url = swarm.gateway("g", "--max-guesses", 0, *words)
        swarm.wait_whole(url)
        body = {"prompt": prompt(seed), "max_tokens": 48, "temperature": 0, "logit_bias": {"0": -100, "2": -100}}
        asked = Asked(url, **body)
        asked.wait_pieces(16)
        busy = swarm.busy(0.2)
        swarm.kill(max(("b", "b2"), key=lambda name: busy.get(name, 0)))
        told = asked.told()
        again = Asked(url, **body).told()
    return asked.longest_gap() if told == again else None


@functools.cache
def recoveries(mbit):
    kept = [recovery(mbit, (), seed) for seed in range(3)]
    read = [recovery(mbit, ("--no-kv-store",), seed) for seed in range(3)]
    print(f"a server lost behind {NUM_TOKENS} tokens, {mbit} Mbit/s: {kept} s with what was kept, {read} s without", file=sys.stderr)
    return kept, read


def add_recovery():
    claims.measured("1 Gbit/s, a server lost: gap, of that without what was kept",
                    lambda: statistics.median(recoveries(1000)[0]) / statistics.median(recoveries(1000)[1]), lambda f: f <= 1 / 3, "<= 33 %", "{:.0%}")
    claims.measured("answers with other tokens", lambda: sum(gap is None for gaps in recoveries(1000) for gap in gaps), lambda f: f == 0, "0")


def main():
    add_reuse()
    add_recovery()
    return claims.end()


if __name__ == "__main__":
    sys.exit(main())
