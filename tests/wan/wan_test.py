#!/usr/bin/env python3
"""The emulated network does what it says, and Atoll trains across it. Skipped (exit 77) without root.

usage: wan_test.py ATOLL_WAN_LINK ATOLL STORE [unittest arguments]
"""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "processes"))
import wan  # noqa: E402
from event_file import EventFile  # noqa: E402

PROGRAM = ATOLL = STORE = ""
SKIPPED = 77
DEADLINE_S = 120
TCP_HEADERS = 52 / 1500  # IP, TCP and time stamps of a full packet.

# Receives TCP for a while; prints Mbit/s of payload, counted from the second half second on.
BULK_SERVER = """
import socket, sys, time
with socket.create_server((sys.argv[1], 5001)) as server:
    print("ready", flush=True)
    peer, _ = server.accept()
    begin = time.monotonic(); counting = None; received = 0
    while time.monotonic() - begin < 4:
        size = len(peer.recv(1 << 16))
        if counting is None and time.monotonic() - begin > 0.5: counting = time.monotonic()
        elif counting is not None: received += size
    print(received * 8e-6 / (time.monotonic() - counting), flush=True)
"""
BULK_CLIENT = """
import socket, sys
try:
    with socket.create_connection((sys.argv[1], 5001)) as peer:
        while True: peer.sendall(bytes(1 << 16))
except OSError: pass
"""
ECHO_SERVER = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    s.bind((sys.argv[1], 5002)); print("ready", flush=True)
    while True: data, peer = s.recvfrom(2048); s.sendto(data, peer)
"""
# Sends datagrams; prints the smallest round trip in ms and which came back.
ECHO_CLIENT = """
import json, socket, sys, time
count, gap = int(sys.argv[2]), float(sys.argv[3])
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    s.settimeout(0.0005); back = {}; deadline = None; number = 0
    begin = time.monotonic()
    while deadline is None or time.monotonic() < deadline:
        while number < count and time.monotonic() - begin >= number * gap:
            s.sendto(f"{number} {time.monotonic()}".encode(), (sys.argv[1], 5002)); number += 1
        if number == count and deadline is None: deadline = time.monotonic() + 1
        try: data = s.recv(2048).split()
        except TimeoutError: continue
        back[int(data[0])] = time.monotonic() - float(data[1])
    print(json.dumps([min(back.values(), default=None), sorted(back)]))
"""


def python(script, *words):
    return [sys.executable, "-c", script, *map(str, words)]


def pair(**link):
    return {"a": wan.Link(**link), "b": wan.Link(**link)}


def network(links, seed=1):
    return wan.Network(PROGRAM, links, seed=seed)


def start_server(net, host, script):
    server = net.start(host, python(script, net.address(host)), stdout=subprocess.PIPE, text=True)
    assert server.stdout.readline() == "ready\n"
    return server


def wait_for(condition, what):
    begin = time.monotonic()
    while not condition():
        if time.monotonic() - begin > DEADLINE_S:
            raise AssertionError(f"waited {DEADLINE_S} s for {what}")
        time.sleep(0.02)


class LinkTest(unittest.TestCase):
    def echo(self, net, count=20, gap=0.002):
        with start_server(net, "a", ECHO_SERVER) as server:
            done = net.run("b", python(ECHO_CLIENT, net.address("a"), count, gap), stdout=subprocess.PIPE, text=True)
            server.kill()
        return json.loads(done.stdout)

    def bulk_mbit(self, net):
        with start_server(net, "a", BULK_SERVER) as server:
            client = net.start("b", python(BULK_CLIENT, net.address("a")))
            payload = float(server.stdout.readline())
        client.wait()
        return payload / (1 - TCP_HEADERS)

    def test_the_rate_is_within_a_tenth_of_the_set_one(self):
        # A busy machine can only slow a link down: the best of three counts, and none may exceed the set rate.
        best = 0
        with network(pair(rate=20, delay=5)) as net:
            for _ in range(3):
                measured = self.bulk_mbit(net)
                self.assertLess(measured, 22)
                best = max(best, measured)
                if best > 18:
                    break
        print(f"TCP over 20 Mbit/s: {best:.2f} Mbit/s of IP bytes", file=sys.stderr)
        self.assertGreater(best, 18)

    def test_a_round_trip_takes_twice_the_one_way_delay(self):
        with network(pair(delay=10)) as net:
            shortest, back = self.echo(net)
        print(f"round trip over 2 x 20 ms: {shortest * 1e3:.2f} ms", file=sys.stderr)
        self.assertEqual(len(back), 20)
        self.assertGreaterEqual(shortest, 0.040)

    def test_loss_is_the_seeds(self):
        count, loss = 2000, 0.05
        outcomes = []
        for seed in (1, 1, 2):
            with network(pair(loss=loss), seed=seed) as net:
                outcomes.append(self.echo(net, count, 0.001)[1])  # Faster, a busy machine loses some itself.
                self.assertEqual(net.stats()["hosts"]["a"]["up"]["full"], 0)
        expected = count * (1 - loss) ** 4  # Four crossings of a lossy link, there and back.
        print(f"echoes of {count} at 5 % loss: {[len(o) for o in outcomes]}, expected {expected:.0f}", file=sys.stderr)
        for outcome in outcomes:
            self.assertAlmostEqual(len(outcome), expected, delta=4 * (expected * (1 - (1 - loss) ** 4)) ** 0.5)
        self.assertEqual(outcomes[0], outcomes[1])
        self.assertNotEqual(outcomes[0], outcomes[2])

    def test_a_cut_stops_traffic_until_it_is_restored(self):
        with network({"a": wan.Link(), "b": wan.Link(), "c": wan.Link()}) as net:
            self.assertEqual(len(self.echo(net)[1]), 20)
            for cut in (["a"], ["b", "a"]):
                net.cut(*cut)
                self.assertEqual(self.echo(net)[1], [])
                net.restore(*cut)
                self.assertEqual(len(self.echo(net)[1]), 20)
            net.cut("a", "c")  # Another pair.
            self.assertEqual(len(self.echo(net)[1]), 20)

    def test_a_link_changes_while_it_is_used(self):
        with network(pair()) as net:
            net.set("b", delay=30)
            self.assertGreaterEqual(self.echo(net)[0], 0.060)
            for wrong, part in (({"loss": 2}, "from 0 to 1"), ({"speed": 1}, "speed")):
                with self.assertRaisesRegex(ValueError, part):
                    net.set("b", **wrong)

    def test_nothing_is_left_behind(self):
        # Whether the block fails or the whole program is killed.
        class Failure(Exception):
            pass
        with self.assertRaises(Failure):
            with network(pair()) as net:
                sleeper = net.start("a", ["sleep", "1000"])
                raise Failure
        self.assertEqual(sleeper.wait(DEADLINE_S), -signal.SIGKILL)
        program = f"""
import sys, time; sys.path.insert(0, {str(pathlib.Path(__file__).resolve().parent)!r})
import wan
with wan.Network({PROGRAM!r}, {{"a": wan.Link(), "b": wan.Link()}}) as net:
    print(net.start("a", ["sleep", "1000"]).pid, net._process.pid, flush=True)
    time.sleep(1000)"""
        for how in (signal.SIGKILL, signal.SIGINT):
            with subprocess.Popen(python(program), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as user:
                pids = user.stdout.readline().split()
                user.send_signal(how)
            for pid in pids:
                wait_for(lambda: not is_running(pid), "the end of a process in the network")


def is_running(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class AtollTest(unittest.TestCase):
    """Island `a` and the coordinator on one host, island `b` on the other."""

    SETTINGS = {
        "model.hidden_size": 64, "model.intermediate_size": 128, "model.num_layers": 2, "model.num_heads": 2,
        "model.num_kv_heads": 1, "model.max_positions": 64, "train.sequence_length": 32, "train.batch_rows": 4,
        "train.warmup_steps": 2, "train.eval_rows": 2, "train.log_every": 1, "sync.sync_every": 5,
        "swarm.min_replicas": 2, "swarm.silence_timeout": 5,
    }

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="atoll-wan-test-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.logs = {}

    def start(self, net, host, *words):
        """What it says on stderr goes to a file: it may be more than a pipe that nobody reads can hold."""
        with tempfile.NamedTemporaryFile("w", dir=self.folder, suffix=".log", delete=False) as log:
            process = net.start(host, [ATOLL, *map(str, words)], stdout=subprocess.PIPE, stderr=log, text=True)
        self.logs[process] = pathlib.Path(log.name)
        return process

    def start_run(self, net, **settings):
        merged = {**self.SETTINGS, **{key.replace("__", "."): value for key, value in settings.items()}}
        coordinator = self.start(net, "a", "coordinate", "--insecure", "--listen", net.address("a") + ":0",
                                 "--run", self.folder / "coordinator",
                                 *(f"--{key}={value}" for key, value in merged.items()))
        address = coordinator.stdout.readline().strip()
        islands = [self.start(net, host, "join", address, "--insecure", "--name", f"island-{host}", "--listen",
                              net.address(host) + ":0", "--run", self.folder / host, "--data", STORE, "--json",
                              "--train.threads=1", "--swarm.return_patience=5", "--swarm.join_patience=10")
                   for host in ("a", "b")]
        return coordinator, islands

    def finish(self, process):
        try:
            out, _ = process.communicate(timeout=DEADLINE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            out, _ = process.communicate()
            self.fail(f"no end after {DEADLINE_S} s: {out} {self.logs[process].read_text()}")
        return process.returncode, out, self.logs[process].read_text()

    def test_two_islands_train_over_a_lossy_link(self):
        # One way 20 ms and 0.5 % loss between the hosts: each access link has half.
        with network(pair(rate=20, delay=10, loss=0.0025)) as net:
            coordinator, islands = self.start_run(net, train__steps=30)
            results = [self.finish(island) for island in islands]
            for code, _, err in results:
                self.assertEqual(code, 0, err)
            self.assertEqual(self.finish(coordinator)[0], 0)
            crossed = net.stats()["hosts"]["b"]
        summaries = [json.loads(out) for _, out, _ in results]
        self.assertEqual(summaries[0]["digest"], summaries[1]["digest"])
        self.assertGreater(crossed["up"]["bytes"], summaries[1]["bytes_sent"])
        print(f"island-b: {summaries[1]['bytes_sent']} bytes sent, {crossed['up']['bytes']} crossed its uplink, "
              f"{crossed['up']['lost'] + crossed['down']['lost']} packets lost", file=sys.stderr)

    def test_who_is_cut_off_ends_in_time_and_the_other_goes_on(self):
        with network(pair(rate=100, delay=2)) as net:
            coordinator, islands = self.start_run(net, train__steps=1000000, swarm__replicas=2,
                                                  swarm__min_replicas=1)
            wait_for(lambda: self.steps("b") >= 10, "a few steps")
            net.cut("b")
            code_b, _, err_b = self.finish(islands[1])
            alone = self.steps("a")
            wait_for(lambda: self.steps("a") >= alone + 20, "steps of the island that is left")
            for process in (islands[0], coordinator):
                process.send_signal(signal.SIGINT)
            (code_a, _, err_a), (code_c, _, err_c) = self.finish(islands[0]), self.finish(coordinator)
        self.assertEqual((code_a, code_b, code_c), (0, 1, 0), (err_a, err_b, err_c))
        self.assertTrue(EventFile(self.folder / "coordinator").find("island_lost", island="island-b"))
        self.assertTrue(EventFile(self.folder / "b").find("island_failed", reason=re.compile("coordinator")))

    def steps(self, host):
        try:
            return len((self.folder / host / "metrics.jsonl").read_text().splitlines())
        except OSError:
            return 0


if __name__ == "__main__":
    PROGRAM, ATOLL, STORE = (os.path.abspath(word) for word in (sys.argv.pop(1), sys.argv.pop(1), sys.argv.pop(1)))
    reason = wan.unavailable(PROGRAM)
    if reason:
        print(f"SKIPPED: no emulated network here: {reason}")
        sys.exit(SKIPPED)
    unittest.main(verbosity=2)
