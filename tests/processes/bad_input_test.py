#!/usr/bin/env python3
"""What strangers and members say to a running system that they should not, and machines that are not as they should be.

usage: bad_input_test.py OTHER_CLOCK ATOLL STORE [unittest arguments]
"""
import base64
import concurrent.futures
import json
import os
import pathlib
import re
import resource
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from swarm_run import SwarmRun, wait_for  # noqa: E402
from tls_peer import BULK, CIRCUIT, CONTROL, TlsPeer, ask_to_join, fetch_state, hello, peer_hello, resume  # noqa: E402

OTHER_CLOCK = ATOLL = STORE = ""
DAY = 24 * 3600
EVIL = "x\n{\"kind\": \"run_over\"}\n\x1b[31matoll: all is well"


def atoll(*words, code=0):
    done = subprocess.run([ATOLL, *map(str, words)], capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != code:
        raise AssertionError(f"atoll {words}: {done.returncode}, not {code}: {done.stderr}")
    return done.stdout.strip() if code == 0 else done.stderr


class BadInput(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="atoll-bad-input-test-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def begin(self, names="ab", name="run", coordinate_with=None, **settings):
        run = SwarmRun(ATOLL, STORE, self.folder / name, {"swarm.replicas": max(len(names), 1), **settings})
        self.addCleanup(run.kill_all)
        run.coordinate(**(coordinate_with or {}))
        for each in names:
            run.join(each)
        if names:
            run.wait_event("run_begun", step=0)
        return run

    def identity(self, run, name):
        return run.folder / name / "identity"

    def authority(self, run):
        return run.coordinated / "authority"

    def certificate_request(self):
        """Of a new key, as PEM."""
        return subprocess.run(["openssl", "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout",
                               self.folder / "new-key", "-subj", "/CN=x"], check=True, capture_output=True, text=True).stdout


class SecretsTest(BadInput):
    def test_a_process_that_aborts_leaves_no_core(self):
        place = self.folder / "cores"
        place.mkdir()
        unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        options = {"cwd": place, "preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_CORE, unlimited)}
        run = self.begin("", coordinate_with=options)
        run.join("a", **options)
        run.wait_event("run_begun", step=0)
        for name, process in run.processes.items():
            process.send_signal(signal.SIGABRT)
            _, status = os.waitpid(process.pid, 0)
            self.assertEqual(os.WTERMSIG(status), signal.SIGABRT, name)
            self.assertFalse(os.WCOREDUMP(status), name)
        self.assertEqual(list(place.iterdir()), [])

    def test_keys_are_in_no_command_line_environment_or_file_but_their_own(self):
        run = self.begin("")
        word = atoll("invite", run.coordinated, "--address", run.address, "--uses", 2)
        for name in "ab":
            run.join(name, address=word)
            wait_for((self.identity(run, name) / "certificate.pem").exists, "its certificate")
        keys = list(run.folder.rglob("*key.pem"))
        self.assertEqual(len(keys), 3)
        # A line of base64 within each key, and the numbers that it stands for.
        lines = [key.read_text().splitlines()[1].encode() for key in keys]
        hidden = [*lines, *(base64.b64decode(line)[8:] for line in lines), word.encode()]
        for name, process in run.processes.items():
            for where in ("cmdline", "environ"):
                shown = pathlib.Path(f"/proc/{process.pid}/{where}").read_bytes()
                self.assertFalse(any(secret in shown for secret in hidden), (name, where))
        for path in run.folder.rglob("*"):
            if path.is_file() and path not in keys:
                content = path.read_bytes()
                self.assertFalse(any(secret in content for secret in hidden), path)

    def test_an_authority_that_others_can_read_or_write_is_refused(self):
        run = self.folder / "ours"
        atoll("create", run)
        key = run / "authority" / "authority-key.pem"
        key.chmod(0o640)
        self.assertIn("chmod 600", atoll("coordinate", "--run", run, "--listen", "127.0.0.1:0", code=1))
        self.assertIn("chmod 600", atoll("invite", run, "--address", "127.0.0.1:1", code=1))
        key.chmod(0o600)
        book = run / "authority" / "invites.json"
        book.chmod(0o644)
        self.assertIn("chmod 600", atoll("invite", run, "--list", code=1))


class StrangersTest(BadInput):
    def test_who_guesses_an_invite_is_held_back_and_told_of(self):
        run = self.begin("")
        request = self.certificate_request()
        def ask(secret):
            return ask_to_join(run.address, self.authority(run), invite=secret, name="x", request=request)["refusal"]
        said = [ask(secrets.token_urlsafe(16)) for _ in range(7)]
        for answer in said[:5]:
            self.assertIn("no such invite", answer)
        for answer in said[5:]:
            self.assertIn("too many attempts", answer)
        run.wait_event("guesses_held_back", address="127.0.0.1")
        good = json.loads(atoll("invite", run.coordinated, "--address", run.address, "--json"))
        run.join("a", address=good["invite"])
        self.assertNotEqual(run.finish("a")[0], 0)
        self.assertIn("too many attempts", run.tail("a"))  # A right one is looked at as late as a wrong one.

    def test_what_strangers_say_makes_no_line_of_a_log(self):
        run = self.begin("a")
        invite = json.loads(atoll("invite", run.coordinated, "--address", run.address, "--json"))
        request = self.certificate_request()
        for words in ({"invite": EVIL, "name": "x", "request": request}, {"invite": "", "name": EVIL, "request": request},
                      {"invite": "x", "name": EVIL, "request": EVIL}, {EVIL: EVIL}):
            self.assertIn("refusal", ask_to_join(run.address, self.authority(run), **words))
        # A member's name is its certificate's; what else it says is as free as a stranger's.
        with TlsPeer(run.address, self.authority(run), self.identity(run, "a")) as member:
            member.say(hello(EVIL, "a", EVIL))
            member.hear()
        run.wait_event("island_refused", island="a")
        self.assertNotIn(invite["invite"], run.log())
        for line in run.log().splitlines():
            self.assertTrue(line.isprintable(), line)
            self.assertFalse(line.startswith(("{", "x\n", "atoll: all is well")), line)
        for line in (run.coordinated / "events.jsonl").read_text().splitlines():
            self.assertNotEqual(json.loads(line)["kind"], "run_over")


class MembersTest(BadInput):
    def test_who_trickles_is_closed_and_keeps_nobody_waiting(self):
        """The handshake is done, and a frame begun that does not come."""
        run = self.begin("ab")
        island = run.wait_event("island_came", island="a")["address"]
        member = self.identity(run, "b")
        ends = [(run.address, CONTROL), (run.address, BULK), (island, BULK), (island, CIRCUIT)]
        mark = run.mark()
        with concurrent.futures.ThreadPoolExecutor(len(ends)) as pool:
            def closed_after(end):
                with TlsPeer(end[0], self.authority(run), member, plane=end[1]) as peer:
                    return peer.trickle(16)
            times = list(pool.map(closed_after, ends))
        for end, after in zip(ends, times):
            self.assertIsNotNone(after, f"still open: {end}")
            self.assertLess(after, 15, end)
        run.wait_commits(1, after=mark)

    def test_nobody_gets_the_state_of_a_run_that_is_not_its_own(self):
        run = self.begin("abc")
        other = self.begin("x", name="other")
        island = run.wait_event("island_came", island="a")["address"]
        own, theirs = self.run_id(run), self.run_id(other)
        for address, plane in ((run.address, CONTROL), (island, BULK), (island, CIRCUIT)):
            with self.assertRaisesRegex(OSError, "(?i)unknown ca|decrypt|signature", msg=(address, plane)):
                TlsPeer(address, self.authority(run), self.identity(other, "x"), plane=plane)
        # Members by their certificate: of another run by their word, and another member's name.
        numbers = {name: number for number, name in run.journal().names.items()}
        for said in (peer_hello(theirs, numbers["b"], numbers["a"]), peer_hello(own, numbers["c"], numbers["a"])):
            with TlsPeer(island, self.authority(run), self.identity(run, "b"), plane=BULK, patience=5) as peer:
                peer.say(said)
                with self.assertRaisesRegex(OSError, "goodbye|hung up|reset"):
                    peer.say(fetch_state(own))
                    peer.hear()
        with TlsPeer(run.address, self.authority(run), self.identity(run, "b")) as peer:
            peer.say(resume(theirs, numbers["b"], "b"))
            self.assertIn(b"it must join again", peer.hear())
        run.wait_commits(1)

    def test_an_island_passes_on_only_what_the_coordinator_told_it_of(self):
        run = self.begin("", **{"swarm.replicas": 3})
        run.join("c")
        for name in "ab":  # Nobody is at that port.
            run.join(name, "--advertise", "127.0.0.1:1")
        self.assertEqual(run.wait_event("link_back")["relay"], "c")
        host = run.wait_event("island_came", island="c")["address"]
        self.assertIn("told of no such circuit", self.ask_for_circuit(run, host))
        run.wait_commits(1)

    def ask_for_circuit(self, run, host):
        """Two members ask for one of their own; what the first of them hears."""
        with TlsPeer(host, self.authority(run), self.identity(run, "a"), plane=CIRCUIT) as one, \
                TlsPeer(host, self.authority(run), self.identity(run, "b"), plane=CIRCUIT) as other:
            for calls, peer in enumerate((one, other)):
                peer.socket.sendall(bytes(16) + bytes([calls]) + bytes(111))
            return one.socket.recv(256).decode(errors="replace")

    def run_id(self, run):
        return json.loads((run.coordinated / "coordinator.json").read_text())["run"]


class ClockTest(BadInput):
    def test_a_clock_that_is_a_day_off_is_named(self):
        run = self.begin("")
        for name, offset in (("behind", -DAY), ("ahead", DAY + 3600)):
            off = {**os.environ, "LD_PRELOAD": OTHER_CLOCK, "OTHER_CLOCK": str(offset)}
            invite = atoll("invite", run.coordinated, "--address", run.address, "--name", name, "--expires", "5d")
            run.join(name, address=invite, env=off)
            self.assertNotEqual(run.finish(name)[0], 0)
            self.assertRegex(run.tail(name), r"certificate .*clock", name)
            # Who has a certificate already says it before it calls anybody.
            late = atoll("invite", run.coordinated, "--address", run.address, "--name", f"late-{name}", "--expires", "5d")
            run.join(f"late-{name}", address=late)
            wait_for((self.identity(run, f"late-{name}") / "certificate.pem").exists, "its certificate")
            run.kill(f"late-{name}")
            run.join(f"late-{name}", address=run.address, env=off)
            self.assertNotEqual(run.finish(f"late-{name}")[0], 0)
            self.assertRegex(run.tail(f"late-{name}"), "this machine's clock says .*if the clock is wrong set it", name)


if __name__ == "__main__":
    OTHER_CLOCK, ATOLL, STORE = map(os.path.abspath, sys.argv[1:4])  # A test starts processes elsewhere.
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
