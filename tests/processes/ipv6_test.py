#!/usr/bin/env python3
"""A run over IPv6 alone: its coordinator, its relay, islands that cannot be called, and who reads its status.

usage: ipv6_test.py ATOLL STORE [unittest arguments]
"""
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from kept_port import KeptPort  # noqa: E402
from swarm_run import SwarmRun, wait_for  # noqa: E402

ATOLL = STORE = ""


def atoll(*words):
    return subprocess.run([ATOLL, *map(str, words)], capture_output=True, text=True, timeout=60, check=True).stdout.strip()


def has_ipv6():
    try:
        with socket.socket(socket.AF_INET6) as one:
            one.bind(("::1", 0))
        return True
    except OSError:
        return False


class IpSixTest(unittest.TestCase):
    def setUp(self):
        if not has_ipv6():
            self.skipTest("no IPv6 here")
        folder = pathlib.Path(tempfile.mkdtemp(prefix="atoll-ipv6-test-"))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        self.run_ = SwarmRun(ATOLL, STORE, folder / "run")
        self.addCleanup(self.run_.kill_all)
        self.run_.port = KeptPort("::1")

    def test_islands_that_cannot_be_called_meet_at_a_relay(self):
        run = self.run_
        run.coordinate("--http", "[::1]:0", "--https", "[::1]:0")
        self.assertRegex(run.address, r"^\[::1\]:\d+$")
        word = atoll("invite", run.coordinated, "--address", run.address, "--role", "relay", "--name", "meeting")
        run._start("meeting", ["relay", word, "--run", run.folder / "meeting", "--listen", "[::]:0", "--advertise", "[::1]:1"])
        run.wait_event("relay_came", relay="meeting", address="[::1]:1")
        run.kill("meeting")
        run._start("meeting", ["relay", "--run", run.folder / "meeting", "--listen", "[::1]:0"])
        run.wait_event("relay_came", relay="meeting", address=re.compile(r"\[::1\]:\d{4}"))
        for name in "ab":  # Nobody is at that port.
            run.join(name, "--listen", "[::1]:0", "--advertise", "[::1]:1")
        for name in "ab":
            run.wait_event("address_unreachable", name=name, address="[::1]:1")
        met = run.wait_event("link_back")
        self.assertEqual((met["way"], met["relay"]), ("punched", "meeting"))
        run.wait_commits(2)
        for scheme in ("http", "https"):
            place = wait_for(lambda scheme=scheme: re.search(rf"{scheme}://\[::1\]:\d+", run.log()), "its address for readers")[0]
            words = ["--run", run.folder / "a"] if scheme == "https" else []
            wait_for(lambda place=place, words=words: "a and b reach each other" in atoll("status", place, *words), "the way that they met")
        run.kill("meeting")
        del run.processes["meeting"]
        run.end()


if __name__ == "__main__":
    ATOLL, STORE = sys.argv[1:3]
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
