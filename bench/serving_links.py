"""A chain of three servers, each on a line of its own in an emulated network (tests/wan), for claims_serving.py: what a token takes beside
the hops that it must make, and what guesses gain."""
import contextlib
import ctypes
import functools
import json
import os
import statistics
import sys
import types

import served
import wan
from claims import ATOLL, ROOT
from serving_swarm import Asked, ServingSwarm, ask

HOSTS = ("coordinator", "s0", "s1", "s2", "g")
ROUND_TRIP_MS = 80
NUM_HOPS = 4  # To the first server, to the second, to the third, and back.
NUM_TOKENS = 48
REPEATS = "One shark, two sharks, three sharks. " * 12


@contextlib.contextmanager
def inside(net, host):
    """This thread, and those that it starts, are on that host."""
    with open("/proc/thread-self/ns/net") as here, open(net.namespace(host)) as there:
        enter(there)
        try:
            yield
        finally:
            enter(here)


def enter(namespace):
    if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), 0x40000000) != 0:
        raise OSError(ctypes.get_errno(), f"{namespace.name} cannot be entered: {os.strerror(ctypes.get_errno())}")


class LinkedSwarm(ServingSwarm):
    """Each process on the host of its name."""

    def __init__(self, net, folder):
        super().__init__(ATOLL, served.model(), folder, threads=1)
        self.port.give_back()
        self.net, self.port = net, types.SimpleNamespace(address=f"{net.address('coordinator')}:7070", give_back=lambda: None)

    def start(self, name, words, pattern, around=(), **options):
        own = ["--listen", f"{self.net.address(name)}:0"] if name in self.spans else []
        around = ["nsenter", "--net=" + self.net.namespace(name), "--", *around]
        return super().start(name, [*words, "--insecure", *own], pattern.replace("127.0.0.1", r"[\d.]+"), around, **options)


def counted(url, name):
    return sum(float(line.rsplit(" ", 1)[1]) for line in ask(url, "/metrics").splitlines() if line.startswith(f"atoll_{name}_tokens_total"))


def token_ms(url, guessed=False, **body):
    """Between the first token and the last, for each; the median gap where no token is guessed."""
    before = counted(url, "drafted")
    asked = Asked(url, max_tokens=NUM_TOKENS, logit_bias={"0": -100, "2": -100}, **body)
    told = asked.told()
    times = asked.times[: NUM_TOKENS]
    if guessed:
        return 1000 * (times[-1] - times[0]) / (len(times) - 1), told
    if counted(url, "drafted") - before > NUM_TOKENS / 4:
        raise RuntimeError("this text repeats itself: it does not say what a token takes without guesses")
    return 1000 * statistics.median(b - a for a, b in zip(times, times[1:])), told


NOISE = {"prompt": "zq", "temperature": 2, "seed": 3}  # Hardly two tokens come twice.
AGAIN = {"prompt": REPEATS, "temperature": 0}


@functools.cache
def links():
    if reason := wan.unavailable(str(ROOT / "build/bin/atoll-wan-link")):
        raise RuntimeError(reason)
    with served.one("links-one") as url:
        wanted = token_ms(url, True, **AGAIN)[1]
    with wan.Network(str(ROOT / "build/bin/atoll-wan-link"), {host: wan.Link() for host in HOSTS}) as net, contextlib.ExitStack() as stack:
        swarm = LinkedSwarm(net, served.work / "links")
        stack.callback(swarm.end)
        swarm.coordinate()
        for name, span in zip(HOSTS[1:4], served.spans(3)):
            swarm.serve(name, span)
        url = swarm.gateway("g")
        stack.enter_context(inside(net, "g"))
        swarm.wait_whole(url)
        near = token_ms(url, **NOISE)[0]
        for host in HOSTS:
            net.set(host, delay=ROUND_TRIP_MS / 4)  # A packet crosses the lines of both.
        swarm.wait_whole(url)
        far = token_ms(url, **NOISE)[0]
        guessed, told = token_ms(url, True, **AGAIN)
    result = {"near_ms": near, "far_ms": far, "guessed_ms": guessed, "others": int(told != wanted)}
    print(f"links of {ROUND_TRIP_MS} ms: {json.dumps(result)}", file=sys.stderr)
    return result


def add(claims):
    claims.measured(f"3 servers, {ROUND_TRIP_MS} ms round trips: a token's time beside its hops and compute",
                    lambda: links()["far_ms"] / (NUM_HOPS * ROUND_TRIP_MS / 2 + links()["near_ms"]) - 1, lambda more: more <= 0.15, "<= +15 %", "{:+.1%}")
    claims.measured("and guesses, text that repeats itself: tokens a second, times as many", lambda: links()["far_ms"] / links()["guessed_ms"],
                    lambda times: times >= 2, ">= 2", "{:.1f}")
    claims.measured("and that text's answers with another bit than one process's", lambda: links()["others"], lambda n: n == 0, "0", "{}")
