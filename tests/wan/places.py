"""Machines at several places, as network namespaces with firewalls and routers that translate addresses, and programs in them.

A test begins itself again in namespaces of its own (network, mounts, processes): what it sets up ends with it, however it ends.
Its main program is run(), which takes

usage: TEST ATOLL STORE [unittest arguments]

and ends with 77 (skipped) without root, `ip`, `nft` or `unshare`.
"""
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "processes"))
from event_file import EventFile  # noqa: E402

ATOLL = STORE = ""
SKIPPED = 77
DEADLINE_S = 300
INSIDE = "ATOLL_PLACES_TEST_INSIDE"  # Set in the namespaces.


def firewall(*ports):
    """Who calls from here is answered; from elsewhere these ports alone are reached."""
    return f"""table ip firewall {{
  chain arriving {{
    type filter hook input priority 0; policy drop;
    ct state established,related accept
    iifname "lo" accept
    tcp dport {{ {", ".join(map(str, ports))} }} accept
  }}
}}
"""


def router(home, input_policy="drop", masquerade="masquerade", forwarded_port=None):
    """For a machine `home` behind `lan`, which others see at the address of `wan`. Whoever calls that address is not answered; or,
    with input_policy="accept", is refused (RST). `masquerade`: with netfilter's usual one a port keeps its number as long as that is
    free, whoever is called; with "masquerade random,fully-random" it gets another one for each whom it calls."""
    forward = f'iifname "wan" tcp dport {forwarded_port} dnat to {home}' if forwarded_port else ""
    return f"""table ip home {{
  chain leaving {{
    type nat hook postrouting priority 100; policy accept;
    oifname "wan" {masquerade}
  }}
  chain arriving {{
    type nat hook prerouting priority -100; policy accept;
    {forward}
  }}
  chain here {{
    type filter hook input priority 0; policy {input_policy};
    ct state established,related accept
    iifname {{ "lo", "lan" }} accept
  }}
  chain through {{
    type filter hook forward priority 0; policy drop;
    ct state established,related accept
    ct status dnat accept
    iifname "lan" accept
  }}
}}
"""


def unavailable():
    if os.geteuid() != 0:
        return "it needs root"
    for program in ("ip", "nft", "unshare", "nsenter", "sysctl", "mount"):
        if shutil.which(program) is None:
            return f"{program} is missing"
    probe = "ip link set lo up && nft add table ip t && nft add chain ip t c '{ type nat hook postrouting priority 100; }' " \
            "&& nft add rule ip t c masquerade && nft add rule ip t c ct state established"
    done = subprocess.run(["unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "sh", "-c", probe],
                          capture_output=True, text=True)
    return None if done.returncode == 0 else (done.stderr.strip().split("\n") or ["no namespaces"])[0]


def begin_inside():
    """This program again, with namespaces that nobody else sees."""
    os.environ[INSIDE] = "1"
    os.execvp("unshare", ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
                          sys.executable, os.path.abspath(sys.argv[0]), ATOLL, STORE, *sys.argv[1:]])


def run():
    global ATOLL, STORE
    ATOLL, STORE = (os.path.abspath(word) for word in (sys.argv.pop(1), sys.argv.pop(1)))
    if INSIDE not in os.environ:
        reason = unavailable()
        if reason:
            print(f"SKIPPED: no places here: {reason}")
            sys.exit(SKIPPED)
        begin_inside()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    unittest.main(verbosity=2)


class Places(unittest.TestCase):
    """What a test of them says: how they are set up (a shell script), which are machines with a folder, and the names of hosts."""
    PLACES = ""
    MACHINES = ()
    COORDINATOR = "cloud"  # The machine on which runs/ours is.
    HOSTS = ""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="atoll-places-test-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.processes = {}
        self.addCleanup(self.end)
        (self.folder / "bin").mkdir()
        (self.folder / "bin" / "atoll").symlink_to(ATOLL)  # What the page calls `atoll`.
        (self.folder / "hosts").write_text("127.0.0.1 localhost\n" + self.HOSTS)
        self.shell("mount --make-rprivate /")
        self.shell(f"mount --bind {self.folder}/hosts /etc/hosts")
        self.shell("mkdir -p /run/netns && mount -t tmpfs tmpfs /run/netns")
        self.shell(self.PLACES)
        for place in self.MACHINES:
            (self.folder / place).mkdir()

    def end(self):
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()
        subprocess.run("umount -l /etc/hosts; for p in $(ip netns list | cut -d' ' -f1); do ip netns del $p; done; umount /run/netns",
                       shell=True, capture_output=True)

    def shell(self, script):
        done = subprocess.run(["sh", "-ec", script], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def protect(self, place, rules):
        done = subprocess.run(["nsenter", f"--net=/run/netns/{place}", "nft", "-f", "-"], input=rules, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)

    def at(self, place, words, **options):
        environment = {**os.environ, "PATH": f"{self.folder}/bin:{os.environ['PATH']}"}
        return subprocess.Popen(["nsenter", f"--net=/run/netns/{place}", "--", *words], cwd=self.folder / place,
                                env=environment, text=True, **options)

    def run_at(self, place, line):
        with self.at(place, ["sh", "-ec", line], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            out, err = process.communicate(timeout=DEADLINE_S)
        self.assertEqual(process.returncode, 0, f"{place}: {line}: {err}")
        return out

    def start(self, name, word, place, words):
        """What goes on, and says that word when it is there."""
        with open(self.folder / f"{name}.log", "w") as log, open(self.folder / f"{name}.out", "w") as out:
            self.processes[name] = self.at(place, words, stdout=out, stderr=log)
        self.wait(lambda: word in self.said(name), name)

    def start_at(self, place, line):
        """What goes on: a coordinator, an island, a relay. By the last part of its folder's name."""
        words = shlex.split(line)
        name = pathlib.Path(words[words.index("--run") + 1]).name
        with open(self.folder / f"{name}.log", "w") as log, open(self.folder / f"{name}.out", "w") as out:
            self.processes[name] = self.at(place, ["sh", "-ec", "exec " + line], stdout=out, stderr=log)
        return name

    def stop(self, *names):
        """Killed, as by a machine that is switched off."""
        for name in names:
            self.processes[name].kill()
            self.processes.pop(name).wait()

    def said(self, name):
        return (self.folder / f"{name}.out").read_text() + (self.folder / f"{name}.log").read_text()

    def wait(self, condition, what):
        begin = time.monotonic()
        while not condition():
            for name, process in self.processes.items():
                if process.poll() not in (None, 0):
                    self.fail(f"{name} ended while the test waits for {what}: {self.said(name)}")
            if time.monotonic() - begin > DEADLINE_S:
                self.fail(f"no {what} within {DEADLINE_S} s: " + "\n".join(map(self.said, self.processes)))
            time.sleep(0.05)

    def assert_one_model(self, *islands):
        for name in islands:
            self.assertEqual(self.processes[name].wait(DEADLINE_S), 0, self.said(name))
        self.assertEqual(self.processes["ours"].wait(DEADLINE_S), 0, self.said("ours"))
        digests = {re.search(r"global model (\w{64})", (self.folder / f"{name}.out").read_text())[1] for name in islands}
        self.assertEqual(len(digests), 1)
        events = EventFile(self.folder / self.COORDINATOR / "runs" / "ours")
        self.assertTrue(events.find("round_committed", digest=lambda digest: digest is not None))
        return events
