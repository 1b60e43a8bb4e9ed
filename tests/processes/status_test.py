#!/usr/bin/env python3
"""`atoll status` and /metrics while real runs train, and what they say when there is no run.

usage: status_test.py ATOLL [unittest arguments]
"""
import http.server
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import unittest
import urllib.error
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from small_store import make_store  # noqa: E402
from event_file import EventFile  # noqa: E402
from swarm_run import wait_for  # noqa: E402

ATOLL = ""
ROOT = None  # A folder for everything; removed at the end.
DEADLINE_S = 120

TINY = {
    "model.hidden_size": 32, "model.intermediate_size": 64, "model.num_layers": 2, "model.num_heads": 2,
    "model.num_kv_heads": 1, "model.max_positions": 64, "train.sequence_length": 32, "train.batch_rows": 4,
    "train.warmup_steps": 2, "train.eval_rows": 2, "train.threads": 1, "train.steps": 1000000, "sync.sync_every": 5,
}


def start(*words, **more):
    return subprocess.Popen([ATOLL, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)


def run(*words, **more):
    return subprocess.run([ATOLL, *map(str, words)], capture_output=True, text=True, timeout=DEADLINE_S, **more)


def status(place):
    """The one JSON object, or nothing while the coordinator is not there yet."""
    done = run("status", place, "--json")
    return json.loads(done.stdout) if done.returncode == 0 else None


def get(address, path):
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=DEADLINE_S) as reply:
            return reply.status, reply.headers["Content-Type"], reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers["Content-Type"], error.read().decode()


def metrics(address):
    code, kind, text = get(address, "/metrics")
    assert (code, kind) == (200, "text/plain; version=0.0.4; charset=utf-8"), (code, kind)
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


class StatusTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=ROOT))
        self.children = []

    def tearDown(self):
        for process in self.children:
            if process.poll() is None:
                process.kill()
            process.communicate()

    def start(self, *words, **more):
        self.children.append(start(*words, **more))
        return self.children[-1]

    def train(self, folder):
        return self.start("train", "--islands", 2, "--run", folder, "--data", ROOT / "store",
                          *(f"--{key}={value}" for key, value in TINY.items()))

    def coordinator(self, *words):
        """One that waits for islands; its folder and its status address."""
        folder = self.folder / "run"
        process = self.start("coordinate", "--listen", "127.0.0.1:0", "--run", folder, "--min-replicas", 2, *words)
        wait_for((folder / "coordinator.json").exists, "coordinator.json")
        return process, folder, json.loads((folder / "coordinator.json").read_text())

    def assert_fails(self, done, code, *parts):
        self.assertEqual(done.returncode, code, done)
        for part in parts:
            self.assertIn(part, done.stderr)

    def test_a_run_is_seen_from_its_folder_while_it_trains(self):
        folder = self.folder / "run"
        launcher = self.train(folder)
        first = wait_for(lambda: (seen := status(folder)) and seen["round"] is not None and seen, "a committed round")
        self.assertEqual(first["state"], "training")
        self.assertEqual(first["steps"], 1000000)
        self.assertEqual((first["live"], first["participating"], first["averaged_share"]), (2, 2, 1.0))
        self.assertEqual([island["name"] for island in first["islands"]], ["island-0", "island-1"])
        self.assertEqual(first["alarm"], "")
        # 5 steps of 4 rows of 32 tokens in every round, of both islands together.
        self.assertEqual(first["committed_tokens"], (first["round"] + 1) * 5 * 4 * 32)
        self.assertEqual(first["step"], (first["round"] + 1) * 5)
        later = wait_for(lambda: (seen := status(folder)) and seen["round"] > first["round"] + 5 and
                         all(island["loss"] for island in seen["islands"]) and seen, "more rounds")
        for island in later["islands"]:
            self.assertEqual(island["state"], "training")
            self.assertGreater(island["last_round"], first["round"])
            self.assertGreater(island["tokens_per_s"], 0)
        self.assertGreater(later["rounds_per_minute"], 0)

        address = json.loads((folder / "coordinator.json").read_text())["status"]
        numbers = metrics(address)
        self.assertEqual(numbers["atoll_islands_live"], 2)
        self.assertEqual(numbers['atoll_run_state{state="training"}'], 1)
        self.assertGreaterEqual(numbers["atoll_round"], later["round"])
        self.assertGreater(numbers['atoll_island_loss{island="island-1"}'], 0)
        text = run("status", f"http://{address}/status").stdout
        self.assertRegex(text, r"run \w+: training, round \d+, step \d+ of 1000000")
        self.assertRegex(text, r"island-1 +training +\d+ +\d+\.\d{4} ")

        watching = self.start("status", folder, "--watch", "0.2")
        line = watching.stdout.readline()
        self.assertRegex(line, r"^\d\d:\d\d:\d\d  training, round \d+")
        launcher.send_signal(signal.SIGINT)
        out, err = launcher.communicate(timeout=DEADLINE_S)
        self.assertEqual(launcher.returncode, 0, err)
        rest, err = watching.communicate(timeout=DEADLINE_S)  # The run's end is its end.
        self.assertEqual(watching.returncode, 0, err)
        self.assertRegex(rest, "the coordinator has ended|  over, ")
        self.assert_fails(run("status", folder), 1, "no coordinator runs in", str(folder))

    def test_what_happened_is_read_from_the_folder(self):
        folder = self.folder / "run"
        launcher = self.train(folder)
        events = EventFile(folder)
        wait_for(lambda: events.find("round_committed", round=2), "three rounds")
        watching = self.start("status", folder, "--events", "--watch", "0.1")
        seen = [watching.stdout.readline()]
        launcher.send_signal(signal.SIGINT)
        _, err = launcher.communicate(timeout=DEADLINE_S)
        self.assertEqual(launcher.returncode, 0, err)
        for line in watching.stdout:
            seen.append(line)
            if "the run has stopped at step" in line:
                break
        watching.send_signal(signal.SIGINT)
        rest, err = watching.communicate(timeout=DEADLINE_S)
        self.assertEqual(watching.returncode, 0, err)

        # There is no coordinator any more, and none is needed.
        done = run("status", folder, "--events")
        self.assertEqual(done.returncode, 0, done.stderr)
        when = r"(?m)^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  "
        self.assertRegex(done.stdout, when + r" {10}the run begins at step 0 with island-0, island-1$")
        self.assertRegex(done.stdout, when + r"island-1  came as 'island-1'$")
        self.assertEqual(sorted(done.stdout.splitlines()), sorted("".join(seen).splitlines() + rest.splitlines()))
        lines = [json.loads(line) for line in run("status", folder, "--events", "--json").stdout.splitlines()]
        self.assertEqual(len(lines), len(done.stdout.splitlines()))
        self.assertEqual([line["time"] for line in lines], sorted(line["time"] for line in lines))
        self.assertEqual({line["folder"] for line in lines if line["kind"] == "came_as"}, {"island-0", "island-1"})
        self.assertEqual([line for line in lines if "folder" not in line], events.all())
        own = run("status", folder / "island-0", "--events").stdout
        self.assertIn("came as 'island-0'", own)
        self.assertNotIn("the run begins", own)

        with open(events.path, "a") as file:
            file.write('{"time": 1, "kind": "run_')  # As a kill may leave it.
        self.assertEqual(run("status", folder, "--events").stdout, done.stdout)

    def test_a_folder_without_events(self):
        self.assert_fails(run("status", self.folder, "--events"), 1, "there are no events in", str(self.folder))
        self.assert_fails(run("status", "127.0.0.1:1", "--events"), 2, "no folder", "--events")
        self.assert_fails(run("status", self.folder, "--json", "--watch", 1), 2, "--events")

    def test_readers_that_hang_hold_up_neither_the_run_nor_its_end(self):
        folder = self.folder / "run"
        launcher = self.train(folder)
        before = wait_for(lambda: (seen := status(folder)) and seen["round"] is not None and seen, "a committed round")
        place = json.loads((folder / "coordinator.json").read_text())
        host, port = place["status"].split(":")
        hanging = [socket.create_connection((host, int(port))) for _ in range(50)]
        for client in hanging[:25]:
            client.sendall(b"GET /status HTT")
        wait_for(lambda: status(folder)["round"] > before["round"] + 20, "rounds beside hanging readers")
        launcher.send_signal(signal.SIGINT)
        _, err = launcher.communicate(timeout=DEADLINE_S)
        self.assertEqual(launcher.returncode, 0, err)
        wait_for(lambda: not os.path.exists(f"/proc/{place['pid']}"), "the coordinator's end")
        for client in hanging:
            client.close()

    def test_before_the_islands_come(self):
        process, folder, place = self.coordinator()
        self.assertEqual(place["pid"], process.pid)
        seen = status(folder)
        self.assertEqual((seen["state"], seen["live"], seen["wanted"], seen["islands"]), ("gathering", 0, 2, []))
        self.assertIsNone(seen["round"])
        self.assertIn("gathering, 0 of 2 islands are here", run("status", place["status"]).stdout)
        code, _, text = get(place["status"], "/elsewhere")
        self.assertEqual(code, 404)
        self.assertIn("/metrics", text)
        # The address for islands is none for questions, and the error says so.
        self.assert_fails(run("status", place["control"]), 1, "no answer by HTTP", "not the one that islands join")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=DEADLINE_S)
        self.assertIn(f"status at http://{place['status']}/status", err)
        self.assertFalse((folder / "coordinator.json").exists())

    def test_a_killed_coordinator_is_told_from_a_running_one(self):
        process, folder, place = self.coordinator()
        process.kill()
        process.communicate()
        self.assert_fails(run("status", folder), 1, "no coordinator runs in", "any more", str(place["pid"]))
        self.assert_fails(run("status", place["status"]), 1, f"nothing listens on {place['status']}")
        # Another process has its id by now.
        (folder / "coordinator.json").write_text(json.dumps({**place, "pid": os.getpid()}))
        self.assert_fails(run("status", folder), 1, f"nothing listens on {place['status']}", "coordinator.json")
        (folder / "coordinator.json").write_text(json.dumps({**place, "machine": "elsewhere"}))
        self.assert_fails(run("status", folder), 1, "runs on the machine 'elsewhere'")
        (folder / "coordinator.json").write_text("{")
        self.assert_fails(run("status", folder), 1, "coordinator.json' is damaged")

    def test_the_one_running_below_runs_needs_no_name(self):
        self.assert_fails(run("status", cwd=self.folder), 2, "no coordinator runs in a folder below 'runs'")
        for number, name in enumerate(("one", "two")):
            self.start("coordinate", "--listen", "127.0.0.1:0", "--run", f"runs/{name}", "--min-replicas", number + 1,
                       cwd=self.folder)
            wait_for((self.folder / "runs" / name / "coordinator.json").exists, "coordinator.json")
            if number == 0:
                self.assertEqual(json.loads(run("status", "--json", cwd=self.folder).stdout)["wanted"], 1)
        self.assert_fails(run("status", cwd=self.folder), 2, "atoll status runs/one", "atoll status runs/two")

    def test_what_is_no_place_to_ask(self):
        self.assert_fails(run("status", self.folder / "nowhere"), 2, "no folder that exists", "HOST:PORT")
        self.assert_fails(run("status", self.folder), 1, "no coordinator runs in", "--run")
        handler = type("Quiet", (http.server.SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as other:
            threading.Thread(target=other.serve_forever, daemon=True).start()
            self.assert_fails(run("status", f"127.0.0.1:{other.server_port}"), 1, "it is no Atoll coordinator")
            other.shutdown()

    def test_where_status_may_be_served(self):
        for address in ("0.0.0.0:0", "192.168.1.5:80", "[::]:0"):
            self.assert_fails(run("coordinate", "--http", address), 2, f"--http: {address}", "loopback")
        self.assert_fails(run("coordinate", "--http", "on"), 2, "--http", "not an address")
        host = "[::1]" if os.path.exists("/proc/net/if_inet6") and open("/proc/net/if_inet6").read() else "localhost"
        _, _, place = self.coordinator("--http", f"{host}:0")
        self.assertTrue(re.fullmatch(re.escape(host) + r":[1-9]\d*", place["status"]), place)
        self.assertEqual(status(place["status"])["state"], "gathering")
        self.assert_fails(run("coordinate", "--listen", "127.0.0.1:0", "--http", place["status"]), 1,
                          f"--http: cannot listen on {place['status']}: Address already in use")

    def test_status_can_be_off(self):
        _, folder, place = self.coordinator("--http", "off")
        self.assertIsNone(place["status"])
        self.assert_fails(run("status", folder), 1, "--http off")


if __name__ == "__main__":
    ATOLL = os.path.abspath(sys.argv.pop(1))
    ROOT = pathlib.Path(tempfile.mkdtemp(prefix="atoll-status-test-"))
    try:
        make_store(ATOLL, ROOT / "store", ["json", "logging", "asyncio"])
        unittest.main(verbosity=2)
    finally:
        shutil.rmtree(ROOT)
