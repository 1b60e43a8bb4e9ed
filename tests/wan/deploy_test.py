#!/usr/bin/env python3
"""The commands of docs/deploy.md, word for word, on three machines at three places: network namespaces behind a firewall and a
router that translates addresses. Skipped (exit 77) without root, `ip`, `nft` or `unshare`.

usage: deploy_test.py ATOLL STORE [unittest arguments]

The test begins itself again in namespaces of its own (network, mounts, processes): what it sets up ends with it, however it ends.
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
INSIDE = "ATOLL_DEPLOY_TEST_INSIDE"  # Set in the namespaces.
PAGE = pathlib.Path(__file__).resolve().parent.parent.parent / "docs" / "deploy.md"

CLOUD, REEF, HOME_ROUTER = "203.0.113.10", "198.51.100.20", "192.0.2.30"
HOSTS = f"127.0.0.1 localhost\n{CLOUD} ours.example.org\n{REEF} reef.example.edu\n{HOME_ROUTER} home.example.net\n"

# The internet is a namespace of its own, with a leg to each place; the machine at home is behind a router.
PLACES = f"""
ip netns add internet
for place in cloud reef router; do ip netns add $place; ip -n internet link add $place type veth peer name wan netns $place; done
ip netns add home
ip -n router link add lan type veth peer name lan netns home
for place in internet cloud reef router home; do ip -n $place link set lo up; done
ip -n cloud address add {CLOUD}/24 dev wan
ip -n reef address add {REEF}/24 dev wan
ip -n router address add {HOME_ROUTER}/24 dev wan
ip -n internet address add 203.0.113.1/24 dev cloud
ip -n internet address add 198.51.100.1/24 dev reef
ip -n internet address add 192.0.2.1/24 dev router
ip -n router address add 192.168.1.1/24 dev lan
ip -n home address add 192.168.1.10/24 dev lan
for place in cloud reef router; do ip -n internet link set $place up; ip -n $place link set wan up; done
ip -n router link set lan up
ip -n home link set lan up
ip -n cloud route add default via 203.0.113.1
ip -n reef route add default via 198.51.100.1
ip -n router route add default via 192.0.2.1
ip -n home route add default via 192.168.1.1
for place in internet router; do nsenter --net=/run/netns/$place sysctl -qw net.ipv4.ip_forward=1; done
"""


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


def router(forwarded_port=None):
    forward = f'iifname "wan" tcp dport {forwarded_port} dnat to 192.168.1.10' if forwarded_port else ""
    return f"""table ip home {{
  chain leaving {{
    type nat hook postrouting priority 100; policy accept;
    oifname "wan" masquerade
  }}
  chain arriving {{
    type nat hook prerouting priority -100; policy accept;
    {forward}
  }}
  chain through {{
    type filter hook forward priority 0; policy drop;
    ct state established,related accept
    ct status dnat accept
    iifname "lan" accept
  }}
}}
"""


def section(heading):
    text = re.search(rf"^#+ {heading}\n(.*?)(?=^#|\Z)", PAGE.read_text(), re.S | re.M)
    assert text, f"{PAGE.name} has no section '{heading}'"
    return text[1]


def commands(heading):
    blocks = re.findall(r"```sh\n(.*?)```", section(heading), re.S)
    return [line for block in blocks for line in block.strip().split("\n")]


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
                          sys.executable, os.path.abspath(__file__), ATOLL, STORE, *sys.argv[1:]])


class PlacesTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="atoll-deploy-test-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.processes = {}
        self.addCleanup(self.end)
        (self.folder / "bin").mkdir()
        (self.folder / "bin" / "atoll").symlink_to(ATOLL)  # What the page calls `atoll`.
        (self.folder / "hosts").write_text(HOSTS)
        (self.folder / "netns").mkdir()
        self.shell("mount --make-rprivate /")
        self.shell(f"mount --bind {self.folder}/hosts /etc/hosts")
        self.shell("mkdir -p /run/netns && mount -t tmpfs tmpfs /run/netns")
        self.shell(PLACES)
        for place in ("cloud", "reef", "home"):
            (self.folder / place).mkdir()
        shutil.copytree(pathlib.Path(STORE).with_suffix(".corpus"), self.folder / "cloud" / "corpus")

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

    def start_at(self, place, line):
        """What goes on: a coordinator or an island. By the last part of its folder's name."""
        words = shlex.split(line)
        name = pathlib.Path(words[words.index("--run") + 1]).name
        with open(self.folder / f"{name}.log", "w") as log, open(self.folder / f"{name}.out", "w") as out:
            self.processes[name] = self.at(place, ["sh", "-ec", "exec " + line], stdout=out, stderr=log)
        return name

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

    def follow(self, place, heading, edit=lambda line: line):
        """The section's lines in their order; what goes on is left to go on once it is there."""
        for line in map(edit, commands(heading)):
            if not line.startswith(("atoll coordinate", "atoll join")):
                self.run_at(place, line)
                continue
            name = self.start_at(place, line)
            if line.startswith("atoll coordinate"):
                self.wait(lambda: (self.folder / f"{name}.out").read_text(), "coordinator's address")
            else:
                self.wait(lambda: EventFile(self.folder / "cloud" / "runs" / "ours").find("island_came", island=name), f"island {name}")

    def begin_in_the_cloud(self, change=lambda settings: settings):
        settings = re.search(r"```toml\n(.*?)```", section("In the cloud"), re.S)[1]
        (self.folder / "cloud" / "run.toml").write_text(change(settings))
        self.follow("cloud", "In the cloud")
        for place in ("reef", "home"):  # As the page says: by a way that you trust.
            shutil.copytree(self.folder / "cloud" / "store", self.folder / place / "store")
            shutil.copy(self.folder / "cloud" / "invite.txt", self.folder / place)

    def assert_home_cannot_be_called(self):
        probe = "import socket; socket.create_connection(('192.0.2.30', 7071), 2)"
        with self.at("reef", [sys.executable, "-c", probe], stderr=subprocess.DEVNULL) as process:
            self.assertNotEqual(process.wait(DEADLINE_S), 0)

    def assert_one_model(self, *islands):
        for name in islands:
            self.assertEqual(self.processes[name].wait(DEADLINE_S), 0, self.said(name))
        self.assertEqual(self.processes["ours"].wait(DEADLINE_S), 0, self.said("ours"))
        digests = {re.search(r"global model (\w{64})", (self.folder / f"{name}.out").read_text())[1] for name in islands}
        self.assertEqual(len(digests), 1)
        events = EventFile(self.folder / "cloud" / "runs" / "ours")
        self.assertTrue(events.find("round_committed", digest=lambda digest: digest is not None))
        return events

    def test_the_page_word_for_word(self):
        self.protect("cloud", firewall(7070))
        self.protect("reef", firewall(7071))
        self.protect("router", router())
        self.assert_home_cannot_be_called()
        self.begin_in_the_cloud()
        self.follow("reef", "At the university")
        self.follow("home", "At home")
        self.assertIn("reef", self.run_at("cloud", "atoll status runs/ours"))
        events = self.assert_one_model("reef", "shore")
        self.assertFalse(events.find("island_lost"))

    def test_by_a_forwarded_port_home_is_called(self):
        self.protect("cloud", firewall(7070))
        self.protect("reef", firewall(7071))
        self.protect("router", router(7072))
        self.begin_in_the_cloud()
        self.follow("home", "A forwarded port")
        self.follow("reef", "At the university")
        self.assert_one_model("home", "reef")

    def test_a_third_island_passes_on_where_home_cannot_be_called(self):
        self.protect("cloud", firewall(7070, 7073))
        self.protect("reef", firewall(7071))
        self.protect("router", router())
        self.begin_in_the_cloud(lambda settings: settings.replace("replicas = 2", "replicas = 3"))
        self.follow("cloud", "A third island")
        self.follow("home", "At home", lambda line: line.replace("shore", "home"))  # The others then call it, in vain.
        self.follow("reef", "At the university")
        events = self.assert_one_model("home", "reef", "cloud")
        self.assertEqual(events.find("link_relayed")["via"], "cloud")


if __name__ == "__main__":
    ATOLL, STORE = (os.path.abspath(word) for word in (sys.argv.pop(1), sys.argv.pop(1)))
    if INSIDE not in os.environ:
        reason = unavailable()
        if reason:
            print(f"SKIPPED: no three places here: {reason}")
            sys.exit(SKIPPED)
        begin_inside()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    unittest.main(verbosity=2)
