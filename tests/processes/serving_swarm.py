"""A model that a swarm of real processes serves: a coordinator, servers of layers and gateways, to which things happen. For fault
tests and for claims.

    swarm = ServingSwarm(atoll, model, folder)
    swarm.coordinate(); swarm.serve("a", "0:2"); swarm.serve("b", "2:4"); url = swarm.gateway("g")
    swarm.kill("a"); swarm.end()
"""
import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import threading
import time
import urllib.request

import openai
from kept_port import KeptPort
from swarm_run import DEADLINE_S, wait_for


def ask(url, path, timeout=DEADLINE_S):
    with urllib.request.urlopen(url + path, timeout=timeout) as reply:
        return reply.read().decode()


def client_of(url):
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=DEADLINE_S)


class ServingSwarm:
    def __init__(self, atoll, model, folder, threads=1):
        self.atoll, self.model, self.folder, self.threads = str(atoll), model, pathlib.Path(folder), threads
        self.kv_gib = 0.1  # Of each server.
        self.folder.mkdir(parents=True)
        self.processes = {}  # The newest of each name.
        self.port = KeptPort()
        self.spans = {}  # Of each server with layers of its user's choice.
        self.urls = {}
        self.run = self.folder / "run"

    # --- processes ---

    def start(self, name, words, pattern, around=(), **options):
        """What it says first, which holds the pattern."""
        out = self.folder / f"{name}.out"
        options.setdefault("env", {**os.environ, "XDG_CACHE_HOME": str(self.folder / "user-cache")})
        with open(self.folder / f"{name}.log", "ab") as log, open(out, "wb") as file:
            process = subprocess.Popen([*around, self.atoll, *map(str, words)], stdout=file, stderr=log, **options)
        self.processes[name] = process
        wait_for(lambda: out.read_text().endswith("\n") or process.poll() is not None, f"the first line of {name}")
        found = re.search(pattern, out.read_text())
        if not found:
            raise AssertionError(f"{name} said '{out.read_text()}' and {self.log(name)[-600:]}")
        return found.group()

    def coordinate(self, *words):
        return self.start("coordinator", ["coordinate", "--listen", self.port.address, "--run", self.run, *words], r"127.0.0.1:\d+")

    def way_in(self, name, role, join=None):
        """What it joins by: an address, or an invite and a place for the certificate."""
        if join is None and (self.run / "authority").exists():
            join = self.invite(role)
        join = join or self.port.address
        return ["--join", join, *(["--run", self.folder / name] if join.startswith("atoll") else [])]

    def invite(self, role):
        command = [self.atoll, "invite", self.run, "--address", self.port.address, "--role", role]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def serve(self, name, layers=None, *words, model=None, files=True, join=None, around=(), **options):
        """Without files its layers come from the others."""
        self.spans[name] = layers
        words = ["serve", *([model or self.model] if files else ["--model-cache", self.cache(name)]), *self.way_in(name, "server", join), "--peer-name", name, "--threads", self.threads, "--kv-gib", self.kv_gib,
                 "--name", "mine", *(["--blocks", layers] if layers else []), *words]
        return self.start(name, words, r"has joined .*, at \S+", around, **options)

    def cache(self, name):
        return self.folder / f"{name}-cache"

    def gateway(self, name, *words, model=None, join=None, template="plain", called="mine"):
        url = self.start(name, ["gateway", model or self.model, *self.way_in(name, "gateway", join), "--peer-name", name, "--threads", self.threads,
                                "--listen", "127.0.0.1:0", *(["--name", called] if called else []), *(["--template", template] if template else []), *words],
                         r"http://[\d.:]+")
        self.urls[name] = url
        return url

    def alone(self, name, *words):
        """The whole model in one process."""
        self.urls[name] = self.start(name, ["serve", self.model, "--gateway", "--listen", "127.0.0.1:0", "--name", "mine", "--threads", self.threads,
                                            "--template", "plain", "--kv-gib", 0.2 if self.kv_gib < 0.2 else self.kv_gib, *words], r"http://[\d.:]+")
        return self.urls[name]

    def send(self, name, number):
        self.processes[name].send_signal(number)

    def kill(self, *names):
        for name in names:
            self.processes[name].kill()
        for name in names:
            self.processes[name].wait()

    def finish(self, name, number=signal.SIGTERM):
        """How it ends when it is asked to."""
        self.send(name, number)
        return self.processes[name].wait(DEADLINE_S)

    def end(self):
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()
        self.port.give_back()

    # --- what they say ---

    def log(self, name):
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def is_alive(self, name):
        return self.processes[name].poll() is None

    def wait_whole(self, url):
        """Until a token comes of it: what the coordinator says takes a moment to arrive."""
        def answers():
            try:
                return complete(url, prompt="a", max_tokens=1)
            except OSError:
                return None
        wait_for(answers, "an answer")

    def busy(self, seconds=0.0):
        """Servers that compute, with the time of each, in the order of their layers: those in use."""
        begin = self.computed()
        time.sleep(seconds)
        return {name: time_s - begin[name] for name, time_s in self.computed().items() if name in begin}

    def computed(self):
        """Of each server that lives the processor time so far, in seconds."""
        found = {}
        for name in self.spans:
            if self.is_alive(name):
                tasks = pathlib.Path(f"/proc/{self.processes[name].pid}/task")
                found[name] = 0.0
                for task in tasks.iterdir():
                    with contextlib.suppress(OSError):  # It has ended meanwhile.
                        found[name] += int((task / "schedstat").read_text().split()[0]) / 1e9
        return found


def post(url, path, body, timeout=DEADLINE_S):
    request = urllib.request.Request(url + path, data=json.dumps(body).encode(), headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=timeout) as reply:
        return json.loads(reply.read())


def complete(url, **body):
    """A completion without a client: for many at once."""
    return post(url, "/v1/completions", {"model": "mine", **body})


def told(reply):
    """All of a reply that may not differ: texts, tokens, scores to the last bit, ends."""
    return [{key: choice[key] for key in ("text", "logprobs", "finish_reason", "index")} for choice in reply["choices"]]


class Asked:
    """A stream in the background, and what came of it: pieces with scores, and when each came."""

    def __init__(self, url, **body):
        self.pieces, self.times, self.error = [], [], None
        self._arrived = threading.Condition()
        self._thread = threading.Thread(target=self._read, args=(url, body), daemon=True)
        self.begin = time.monotonic()
        self._thread.start()

    def _read(self, url, body):
        data = json.dumps({"model": "mine", "stream": True, "logprobs": 2, **body}).encode()
        request = urllib.request.Request(url + "/v1/completions", data=data, headers={"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=DEADLINE_S) as reply:
                for line in reply:
                    if not line.startswith(b"data: {"):
                        continue
                    piece = json.loads(line[6:])
                    with self._arrived:
                        if "error" in piece:
                            raise AssertionError(piece["error"]["message"])
                        self.pieces.extend(piece["choices"])
                        self.times.append(time.monotonic())
                        self._arrived.notify_all()
        except Exception as error:  # Shown to whoever waits for it.
            self.error = error
        with self._arrived:
            self._arrived.notify_all()

    def wait_pieces(self, count):
        """Until so many have come, or all."""
        with self._arrived:
            self._arrived.wait_for(lambda: len(self.pieces) >= count or self.error or not self._thread.is_alive(), DEADLINE_S)

    def is_under_way(self):
        return self._thread.is_alive()

    def told(self):
        """As told(): of each choice text, tokens, scores, end."""
        self._thread.join(DEADLINE_S)
        if self.error:
            raise AssertionError(f"after {len(self.pieces)} pieces: {self.error}")
        found = {}
        for piece in sorted(self.pieces, key=lambda one: one["index"]):
            one = found.setdefault(piece["index"], {"text": "", "tokens": [], "token_logprobs": [], "top_logprobs": [], "end": None})
            one["text"] += piece["text"]
            one["end"] = piece["finish_reason"] or one["end"]
            for key in ("tokens", "token_logprobs", "top_logprobs"):
                one[key] += (piece["logprobs"] or {}).get(key) or []
        return found

    def longest_gap(self):
        times = [self.begin, *self.times]
        return max(b - a for a, b in zip(times[1:], times[2:])) if len(times) > 2 else 0.0
