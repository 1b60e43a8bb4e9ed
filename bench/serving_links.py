"""A chain of three servers, each on a line of its own in an emulated network (tests/wan), for claims_serving.py: what a token takes beside
the hops that it must make."""
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


def token_ms(url):
    """The median gap between tokens."""
    asked = Asked(url, prompt="Tides come twice a day because", temperature=0, max_tokens=NUM_TOKENS, logit_bias={"0": -100, "2": -100})
    asked.told()
    return 1000 * statistics.median(b - a for a, b in zip(asked.times, asked.times[1:]))


@functools.cache
def links():
    """Milliseconds that a token takes by a gateway that guesses nothing, over the machine's own lines and over those of 80 ms."""
    if reason := wan.unavailable(str(ROOT / "build/bin/atoll-wan-link")):
        raise RuntimeError(reason)
    with wan.Network(str(ROOT / "build/bin/atoll-wan-link"), {host: wan.Link() for host in HOSTS}) as net, contextlib.ExitStack() as stack:
        swarm = LinkedSwarm(net, served.work / "links")
        stack.callback(swarm.end)
        swarm.coordinate()
        for name, span in zip(HOSTS[1:4], served.spans(3)):
            swarm.serve(name, span)
        url = swarm.gateway("g", "--max-guesses", 0)
        stack.enter_context(inside(net, "g"))
        swarm.wait_whole(url)
        near = token_ms(url)
        for host in HOSTS:
            net.set(host, delay=ROUND_TRIP_MS / 4)  # A packet crosses the lines of both.
        swarm.wait_whole(url)
        result = {"near_ms": near, "far_ms": token_ms(url)}
    print(f"links of {ROUND_TRIP_MS} ms: {json.dumps(result)}", file=sys.stderr)
    return result


def add(claims):
    claims.measured(f"3 servers, {ROUND_TRIP_MS} ms round trips: a token's time beside its hops and compute",
                    lambda: links()["far_ms"] / (NUM_HOPS * ROUND_TRIP_MS / 2 + links()["near_ms"]) - 1, lambda more: more <= 0.15, "<= +15 %", "{:+.1%}")
