"""Many open streams beside clients whose requests' heads come a byte at a time, for claims_serving.py."""
import contextlib
import functools
import json
import socket
import statistics
import subprocess
import sys
import threading
import time
import urllib.request

from claims import ATOLL
from served import PROMPT, model, spans, work
from serving_swarm import ServingSwarm
from swarm_run import DEADLINE_S, wait_for

NUM_STREAMS, NUM_SLOW, LEAST_OPEN, NUM_TOKENS, NUM_POLLS = 200, 200, 190, 80, 100
LONGEST_S = 600  # Of all texts.
KV_GIB = 1  # Of each server: so that all of these texts are made at once.
BETWEEN_POLLS_S, BETWEEN_BYTES_S = 0.05, 0.5


class Stream:
    """A stream in the background: open once its headers have come, until it ends; `error` says what went wrong."""

    def __init__(self, url, **body):
        self.is_open, self.error = False, None
        self._thread = threading.Thread(target=self._read, args=(url, body), daemon=True)
        self._thread.start()

    def _read(self, url, body):
        data = json.dumps({"model": "mine", "stream": True, **body}).encode()
        request = urllib.request.Request(url + "/v1/completions", data=data, headers={"Content-Type": "application/json"})
        newest = b""
        try:
            with urllib.request.urlopen(request, timeout=DEADLINE_S) as reply:
                self.is_open = True
                for line in reply:
                    newest = line.strip() or newest
                    if newest.startswith(b'data: {"error"'):
                        break
            if newest != b"data: [DONE]":
                self.error = f"the stream ends with {newest[:200]}"
        except Exception as error:  # Shown to whoever asks for it.
            self.error = repr(error)
        self.is_open = False

    def failure(self):
        """Once it is over: what went wrong, or nothing."""
        self._thread.join(LONGEST_S)
        return "it does not end" if self._thread.is_alive() else self.error


class SlowClients:
    """Connections that all send their request's head a byte at a time and never finish it. One that the gateway ends is opened anew."""

    def __init__(self, url):
        host, port = url.split("//")[1].split(":")
        self._address = (host, int(port))
        self._sockets = [self._connection() for _ in range(NUM_SLOW)]
        self.num_bytes = self.num_ended = 0
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._dribble, daemon=True)
        self._thread.start()

    def _connection(self):
        connection = socket.create_connection(self._address, timeout=DEADLINE_S)
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nX-Slow: ")
        connection.setblocking(False)
        return connection

    def _dribble(self):
        while not self._ends.wait(BETWEEN_BYTES_S):
            for number, connection in enumerate(self._sockets):
                with contextlib.suppress(OSError):
                    connection.send(b"a")
                    self.num_bytes += 1
                if not is_open(connection):
                    self.num_ended += 1
                    connection.close()
                    with contextlib.suppress(OSError):
                        self._sockets[number] = self._connection()

    def num_open(self):
        return sum(map(is_open, self._sockets))

    def end(self):
        self._ends.set()
        self._thread.join()
        for connection in self._sockets:
            connection.close()


def is_open(connection):
    """Whether the gateway has neither ended it nor answered."""
    try:
        connection.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


def health_ms(url):
    """By a process of its own, from before it connects: this one's threads would be measured as well."""
    words = ["--silent", "--noproxy", "*", "--max-time", str(DEADLINE_S), "--output", "/dev/null", "--write-out", "%{http_code} %{time_total}"]
    done = subprocess.run(["curl", *words, url + "/health"], capture_output=True, text=True)
    status, seconds = done.stdout.split()
    if status != "200":
        raise RuntimeError(f"/health: {status} {done.stderr}")
    return 1000 * float(seconds)


@functools.cache
def load():
    """How long /health took each time, in milliseconds, and what went wrong with streams. All streams' texts are made at once (--max-running)."""
    with contextlib.ExitStack() as stack:
        swarm = ServingSwarm(ATOLL, model(), work / "load")
        swarm.kv_gib = KV_GIB
        stack.callback(swarm.end)
        swarm.coordinate()
        for number, span in enumerate(spans(2)):
            swarm.serve(f"s{number}", span)
        url = swarm.gateway("g", "--max-running", NUM_STREAMS)
        swarm.wait_whole(url)
        bias = {"0": -100, "2": -100}  # So that none ends early.
        streams = [Stream(url, prompt=f"{i} {PROMPT}", max_tokens=NUM_TOKENS, temperature=0, logit_bias=bias) for i in range(NUM_STREAMS)]
        wait_for(lambda: sum(one.is_open for one in streams) >= LEAST_OPEN or any(one.error for one in streams), f"the heads of {LEAST_OPEN} streams")
        slow = SlowClients(url)  # Last: a request has 30 seconds to come.
        stack.callback(slow.end)
        times, num_streams, num_slow, num_bytes = [], [], [], slow.num_bytes
        for _ in range(NUM_POLLS):
            times.append(health_ms(url))
            num_streams.append(sum(one.is_open for one in streams))
            num_slow.append(slow.num_open())
            time.sleep(BETWEEN_POLLS_S)
        num_bytes = slow.num_bytes - num_bytes
        errors = [error for error in (one.failure() for one in streams) if error]
    print(f"/health: median {statistics.median(times):.1f} ms, at most {max(times):.1f}, beside {min(num_streams)} streams at least and "
          f"{min(num_slow)} slow clients, which sent {num_bytes} bytes; {slow.num_ended} of them were ended; errors: {errors[:1]}", file=sys.stderr)
    if min(num_streams) < LEAST_OPEN or min(num_slow) < LEAST_OPEN:
        raise RuntimeError(f"only {min(num_streams)} streams and {min(num_slow)} slow clients were there all the time, not {LEAST_OPEN}")
    if num_bytes < NUM_SLOW:
        raise RuntimeError(f"slow clients sent only {num_bytes} bytes meanwhile")
    return times, errors


def add(claims):
    what = f"{LEAST_OPEN} open streams at least and {NUM_SLOW} clients whose heads never end"
    claims.measured(f"/health beside {what}: ms, the longest of {NUM_POLLS}", lambda: max(load()[0]), lambda ms: ms <= 100, "<= 100", "{:.0f}")
    claims.measured("and answers of those streams that failed", lambda: len(load()[1]), lambda n: n == 0, "0", "{}")
