"""A swarm that is never left in peace, for claims_serving.py: four servers, a gateway and eight clients; every 20 s a server is killed or
one comes, twice the coordinator is killed. What its answers are is known beforehand from one process."""
import functools
import json
import pathlib
import random
import statistics
import sys
import threading
import time

from served import TEXT, model, one, swarm_of
from serving_swarm import Asked, complete, told

NUM_SERVERS, NUM_CLIENTS, EVERY_S, COORDINATOR_AWAY_S = 4, 8, 20, 3
KV_GIB, PROGRAM_GIB = 0.1, 0.25  # What a server may have beside its layers: serving_swarm.py's, and what atoll serve reckons with.
NAN = float("nan")  # Where no server lived so long.
MINUTES = (3, 30)  # The first is measured, the second stored.
SETTLES_S, LEAST_LIFE_S = 30, 90  # Until a server has its layers and has touched its pages for keys and values; lives that tell of growth.
SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "size": {"type": "integer"}}, "required": ["name", "size"],
          "additionalProperties": False}


def bodies():
    """Short and long prompts, greedy and drawn, of a form, several answers to one prompt."""
    found = []
    for i in range(32):
        body = {"prompt": TEXT[90 * i : 90 * i + (60, 400, 1600, 200)[i % 4]], "max_tokens": 16 + i, "temperature": 0.8 if i % 3 else 0, "seed": i}
        found.append(body | ({"guided_json": SCHEMA, "max_tokens": 60} if i % 8 == 5 else {"n": 3} if i % 8 == 2 else {}))
    return found


def resident_mb(pid):
    """What it has for itself: pages of the model's files are the system's."""
    fields = dict(line.split(":", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(fields["RssAnon"].split()[0]) / 1024


class Clients:
    """Who ask all the time, one answer after another, and compare."""

    def __init__(self, url, asked, wanted):
        self.url, self.asked, self.wanted = url, asked, wanted
        self.count, self.errors, self.others, self.longest = 0, [], 0, 0.0
        self._ends = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._ask, args=(number,)) for number in range(NUM_CLIENTS)]
        for thread in self._threads:
            thread.start()

    def _ask(self, number):
        draw = random.Random(number)
        while not self._ends.is_set():
            index = draw.randrange(len(self.asked))
            begin, error, found = time.monotonic(), None, None
            try:
                found = self._answer(index, number % 2 == 0)
            except Exception as caught:  # Whatever it is: no request may fail.
                body = caught.read().decode() if hasattr(caught, "read") else ""
                error = f"{index}: {caught!r} {body}"[:400]
            with self._lock:
                self.count += 1
                self.longest = max(self.longest, time.monotonic() - begin)
                if error:
                    self.errors.append(error)
                elif found != self.wanted[index][number % 2]:
                    self.others += 1

    def _answer(self, index, streams):
        return Asked(self.url, **self.asked[index]).told() if streams else told(complete(self.url, **self.asked[index]))

    def end(self):
        self._ends.set()
        for thread in self._threads:
            thread.join()


class Trouble:
    """What happens to the swarm: by turns one of its servers is killed, and another comes. Memory is watched meanwhile."""

    def __init__(self, swarm, words):
        self.swarm, self.words, self.draw, self.count = swarm, words, random.Random(1), NUM_SERVERS
        self.names = [f"s{number}" for number in range(NUM_SERVERS)]
        self.memory = {}  # Of each process: seconds since the begin, and megabytes.

    def server(self):
        if len(self.names) == NUM_SERVERS:
            self.swarm.kill(self.names.pop(self.draw.randrange(NUM_SERVERS)))
        else:
            name = f"s{self.count}"
            self.count += 1
            self.swarm.serve(name, None, *self.words)
            self.names.append(name)

    def coordinator(self):
        self.swarm.kill("coordinator")
        time.sleep(COORDINATOR_AWAY_S)
        self.swarm.coordinate()

    def note_memory(self, now):
        for name in ("g", *self.names):
            if not self.swarm.is_alive(name):
                raise RuntimeError(f"{name} has ended: {self.swarm.log(name)[-600:]}")
            self.memory.setdefault(name, []).append((now, resident_mb(self.swarm.processes[name].pid)))


def growth(samples, begin, end):
    """How much more the process held at most in the second half of that time than in the first one, as a share."""
    halves = [max(mb for when, mb in samples if begin <= when <= end and (2 * when > begin + end) == is_second) for is_second in (False, True)]
    return halves[1] / halves[0] - 1


def growths(memory):
    """That of each server which lived long enough, from when it had settled to its end."""
    lives = {name: samples for name, samples in memory.items() if name != "g" and samples[-1][0] - samples[0][0] >= LEAST_LIFE_S}
    return {name: growth(samples, samples[0][0] + SETTLES_S, samples[-1][0]) for name, samples in lives.items()}


@functools.cache
def soak(seconds):
    asked = bodies()
    with one("soak-one") as url:
        wanted = [(Asked(url, **body).told(), told(complete(url, **body))) for body in asked]
    # Each has room for a little more than half of the layers; which, the coordinator says.
    words = ("--memory-gib", str(round(KV_GIB + PROGRAM_GIB + layers_gib(0.6), 3)))
    with swarm_of("soak", [None] * NUM_SERVERS, server_words=words) as (swarm, url):
        clients, trouble = Clients(url, asked, wanted), Trouble(swarm, words)
        begin = time.monotonic()
        due = [(when, trouble.server) for when in range(EVERY_S, seconds - EVERY_S, EVERY_S)]
        due += [(seconds * third // 3 + EVERY_S // 2, trouble.coordinator) for third in (1, 2)]
        due.sort(key=lambda one: one[0])
        while (now := time.monotonic() - begin) < seconds:
            if due and due[0][0] <= now:
                due.pop(0)[1]()
            trouble.note_memory(now)
            time.sleep(0.5)
        clients.end()
    most_mb = max(mb for name, samples in trouble.memory.items() if name != "g" for _, mb in samples)
    servers = growths(trouble.memory)
    result = {"answers": clients.count, "failed": len(clients.errors), "others": clients.others, "longest_s": round(clients.longest, 1),
              "gateway_growth": growth(trouble.memory["g"], seconds / 3, seconds), "server_mb": round(most_mb),
              "server_share": most_mb / 1024 / (KV_GIB + PROGRAM_GIB), "server_growth": statistics.median(servers.values() or [NAN]),
              "worst_server_growth": max(servers.values(), default=NAN)}
    print(f"soak: {json.dumps(result)}\nservers: {json.dumps({name: round(more, 3) for name, more in servers.items()})}\n" +
          "\n".join(clients.errors[:5]), file=sys.stderr)
    return result


def layers_gib(share):
    files = sum(file.stat().st_size for file in pathlib.Path(model()).glob("*.safetensors"))
    return share * files / 2**30


COMMAND = "LONG=soak-failed,soak-others,soak-gateway,soak-server,soak-growth,soak-worst make claims-serving"


def add(claims):
    for minutes in MINUTES:
        what = f"{minutes} minutes, a server killed or added each {EVERY_S} s, the coordinator twice"
        lives = f"of servers' lives of {LEAST_LIFE_S} s and more, without the first {SETTLES_S} s"
        for key, claim, figure, target in (
                ("failed", f"{what}: requests that failed", "failed", 0),
                ("others", "and answers with another token", "others", 0),
                ("gateway", "and the gateway's memory: growth from the second third, when its caches are full, to the last", "gateway_growth", 0.05),
                ("server", "and the largest server's, of what it may have beside its layers", "server_share", 1),
                ("growth", f"and growth of memory from the first half to the second, {lives}: the median", "server_growth", 0.05),
                ("worst", "and the worst of those lives", "worst_server_growth", None)):
            measure = functools.partial(lambda figure, seconds: soak(seconds)[figure], figure, 60 * minutes)
            met = functools.partial(lambda target, found: target is None or found <= target, target)
            how = ("told", "{:.1%}") if target is None else (f"<= {target:.0%}", "{:.1%}") if target else ("0", "{}")
            if minutes == 3:
                claims.measured(claim, measure, met, *how)
            else:
                claims.stored(f"soak-{key}", claim, measure, met, *how, COMMAND)
