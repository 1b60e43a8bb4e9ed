#!/usr/bin/env python3
"""Islands that cannot call each other, or do not know where the coordinator is: what brings them together all the same.

usage: reach_test.py ATOLL STORE [unittest arguments]
"""
import base64
import json
import pathlib
import re
import shutil
import subprocess
import sys

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent), str(pathlib.Path(__file__).resolve().parent.parent / "processes")]
import places  # noqa: E402
from event_file import EventFile  # noqa: E402
from places import DEADLINE_S, firewall, router  # noqa: E402

SLOW_LINE = pathlib.Path(__file__).resolve().parent / "slow_line.py"
PROBE = pathlib.Path(__file__).resolve().parent / "nat_probe.py"

CLOUD, RELAY, ROUTERS, HOME = "203.0.113.10", "203.0.113.11", {"a": "198.51.100.30", "b": "192.0.2.30"}, "192.168.1.10"

# The internet is a namespace of its own, with two machines in one hall, and two homes, of which each is behind a router.
LABORATORY = f"""
for place in internet cloud relay router-a router-b home-a home-b; do ip netns add $place; ip -n $place link set lo up; done
ip -n internet link add hall type bridge
ip -n internet address add 203.0.113.1/24 dev hall
ip -n internet link set hall up
for place in cloud relay; do
  ip -n internet link add $place type veth peer name wan netns $place
  ip -n internet link set $place up
  ip -n internet link set $place master hall
done
for home in a b; do
  ip -n router-$home link add lan type veth peer name lan netns home-$home
  ip -n router-$home address add 192.168.1.1/24 dev lan
  ip -n home-$home address add {HOME}/24 dev lan
  ip -n router-$home link set lan up
  ip -n home-$home link set lan up
  ip -n home-$home route add default via 192.168.1.1
  nsenter --net=/run/netns/router-$home sysctl -qw net.ipv4.ip_forward=1
done
ip -n cloud address add {CLOUD}/24 dev wan
ip -n relay address add {RELAY}/24 dev wan
for place in cloud relay; do ip -n $place link set wan up; ip -n $place route add default via 203.0.113.1; done
nsenter --net=/run/netns/internet sysctl -qw net.ipv4.ip_forward=1
"""
# The lines of both homes are made by programs (slow_line.py).
HOME_LINES = f"""
ip -n internet address add 198.51.100.1/24 dev router-a
ip -n internet address add 192.0.2.1/24 dev router-b
ip -n router-a address add {ROUTERS["a"]}/24 dev wan
ip -n router-b address add {ROUTERS["b"]}/24 dev wan
for home in a b; do ip -n internet link set router-$home up; ip -n router-$home link set wan up; done
ip -n router-a route add default via 198.51.100.1
ip -n router-b route add default via 192.0.2.1
"""
LINE_MS = 30
PAGE_BYTES = 4096

SETTINGS = """
[model]
hidden_size = 64
intermediate_size = 128
num_layers = 2
num_heads = 2
num_kv_heads = 1
max_positions = 64

[train]
steps = 40
batch_rows = 4
sequence_length = 64
eval_rows = 4

[sync]
method = "diloco"
sync_every = 10

[swarm]
replicas = 2
"""


def with_settings(**changed):
    text = SETTINGS
    for name, value in changed.items():
        text, count = re.subn(rf"^{name} = .*$", f"{name} = {value}", text, flags=re.M)
        text = text if count else text.replace("[train]\n", f"[train]\n{name} = {value}\n")
    return text


KINDS = {"cone": {}, "cone that refuses": {"input_policy": "accept"}, "symmetric": {"masquerade": "masquerade random,fully-random"}}


def memory_of(pid):
    """All that the process has written there, without what is nothing but zeros."""
    pieces = []
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in maps:
            region, mode = line.split()[:2]
            begin, end = (int(word, 16) for word in region.split("-"))
            if not mode.startswith("rw"):
                continue
            try:
                memory.seek(begin)
                whole = memory.read(end - begin)
            except OSError:
                continue  # A device's.
            pages = (whole[at:at + PAGE_BYTES] for at in range(0, len(whole), PAGE_BYTES))
            pieces += [page for page in pages if page.count(0) < len(page)]
    return b"".join(pieces)


class Laboratory(places.Places):
    PLACES = LABORATORY
    MACHINES = ("internet", "cloud", "relay", "home-a", "home-b")

    def setUp(self):
        super().setUp()
        for home in "ab":
            self.start(f"line-{home}", "ready", "internet", [sys.executable, SLOW_LINE, str(LINE_MS), f"internet:router-{home}", f"router-{home}:wan"])
        self.shell(HOME_LINES)

    def probe(self, place, *words):
        with self.at(place, [sys.executable, PROBE, *words], stdout=subprocess.PIPE) as process:
            out, _ = process.communicate(timeout=DEADLINE_S)
        self.assertEqual(process.returncode, 0)
        return out.strip()

    def put_behind(self, **kinds):
        for home, kind in kinds.items():
            self.protect(f"router-{home}", "flush ruleset\n" + router(HOME, **KINDS[kind]))


class RouterTest(Laboratory):
    """The laboratory itself, without Atoll."""

    def setUp(self):
        super().setUp()
        for place, host in (("cloud", CLOUD), ("relay", RELAY)):
            self.start(f"probe-{place}", "serving", place, [sys.executable, PROBE, "serve", host])

    def test_routers_are_what_they_are_called(self):
        for kind, (keeps_ports, answer) in {"cone": (True, "silence"), "cone that refuses": (True, "refused"),
                                            "symmetric": (False, "silence")}.items():
            with self.subTest(kind):
                self.put_behind(a=kind)
                first, second = self.probe("home-a", "ports", CLOUD, RELAY).split()
                self.assertEqual(first == second, keeps_ports)
                self.assertEqual(self.probe("cloud", "call", ROUTERS["a"], "7071"), answer)

    def opening(self, port, tries, later_s=0):
        """What becomes of calls from both homes to each other, of which b's begin so much later."""
        both = [self.at(f"home-{home}", [sys.executable, PROBE, "open", CLOUD, str(port), str(tries), str(delay)], stdout=subprocess.PIPE)
                for home, delay in (("a", 0), ("b", later_s))]
        return [process.communicate(timeout=DEADLINE_S)[0].split() for process in both]

    def test_calls_from_both_sides_meet_behind_cones(self):
        self.put_behind(a="cone", b="cone")
        for port, later_s in ((20000, 0), (20001, 0.4)):
            for outcome in self.opening(port, 3, later_s):
                self.assertEqual(outcome[0], "open", outcome)

    def test_where_a_router_refuses_calls_have_to_meet_on_their_way(self):
        self.put_behind(a="cone that refuses", b="cone that refuses")
        for outcome in self.opening(20000, 3):
            self.assertEqual(outcome[0], "open", outcome)
        for outcome in self.opening(20001, 1, 0.3):  # Longer than the way.
            self.assertEqual(outcome, ["closed", "ECONNREFUSED"])

    def test_where_one_is_symmetric_they_do_not(self):
        for port, kind in ((20000, "symmetric"), (20001, "cone")):
            self.put_behind(a="symmetric", b=kind)
            for outcome in self.opening(port, 1):
                self.assertEqual(outcome, ["closed", "silence"])


PUBLIC = {"cloud": f"--listen 0.0.0.0:7071 --advertise {CLOUD}:7071"}


class MeetingTest(Laboratory):
    """What brings islands at home together: nobody can call them, and both have the same address there."""

    def setUp(self):
        if subprocess.run([places.ATOLL, "relay", "--help"], capture_output=True, check=False).returncode != 0:
            self.skipTest("this program has no relay")
        super().setUp()
        self.protect("cloud", firewall(7070, 7071))
        self.protect("relay", firewall(7074))

    def begin(self, settings=SETTINGS):
        (self.folder / "cloud" / "run.toml").write_text(settings)
        self.run_at("cloud", f"atoll create runs/ours --config run.toml --address {CLOUD}:7070 --uses 3 --expires 2d > invite.txt")
        self.run_at("cloud", "atoll invite runs/ours --role relay --name meeting > relay.txt")
        shutil.copy(self.folder / "cloud" / "relay.txt", self.folder / "relay")
        for home in ("home-a", "home-b"):
            shutil.copy(self.folder / "cloud" / "invite.txt", self.folder / home)
        self.events = EventFile(self.folder / "cloud" / "runs" / "ours")
        self.start("ours", ":7070", "cloud", ["atoll", "coordinate", "--run", "runs/ours"])
        self.relay("@relay.txt")

    def relay(self, *invite):
        self.start("meeting", f"relaying at {RELAY}:7074", "relay", ["atoll", "relay", *invite, "--run", "runs/meeting", "--listen",
                                                                     "0.0.0.0:7074", "--advertise", f"{RELAY}:7074"])

    def join(self, place, name):
        self.start_at(place, f"atoll join @invite.txt --data {places.STORE} --run runs/{name} --name {name} {PUBLIC.get(place, '')}")

    def ways(self, *islands):
        """How these two reached each other, as the coordinator was told, one after the other."""
        return [(event["way"], event.get("relay") or "") for event in self.events.all()
                if "way" in event and sorted(event.get("islands", [])) == sorted(islands)]

    def wait_for_way(self, *islands):
        self.wait(lambda: self.ways(*islands), f"way between {islands}")
        return self.ways(*islands)[-1]

    def assert_met(self, way, relay):
        self.begin()
        for home in "ab":
            self.join(f"home-{home}", home)
        self.wait_for_way("a", "b")
        expected = {"islands": ["a", "b"], "way": way, "relay": relay}
        self.wait(lambda: expected in json.loads(self.run_at("cloud", "atoll status runs/ours --json"))["ways"], f"status of {expected}")
        self.assert_one_model("a", "b")
        self.assertEqual({found for found, _ in self.ways("a", "b")}, {way})

    def test_behind_cones_they_reach_each_other(self):
        self.put_behind(a="cone", b="cone")
        self.assert_met("punched", "meeting")

    def test_behind_cones_that_refuse_as_well(self):
        self.put_behind(a="cone that refuses", b="cone that refuses")
        self.assert_met("punched", "meeting")

    def test_one_at_home_and_a_public_one_need_nobody(self):
        self.put_behind(b="cone")
        for public in ("a", "c"):  # The later name calls, or would.
            with self.subTest(public):
                self.begin()
                self.join("cloud", public)
                self.join("home-b", "b")
                self.assert_one_model(public, "b")
                self.assertNotIn("relayed", [way for way, _ in self.ways(public, "b")])
                self.stop("meeting")
                for place in self.MACHINES:
                    shutil.rmtree(self.folder / place / "runs", ignore_errors=True)

    def private_keys(self):
        """As their files have them, and the numbers themselves."""
        for path in self.folder.glob("*/runs/*/*/*key.pem"):
            if "meeting" in path.parts:
                continue  # The relay's own.
            lines = [line.encode() for line in path.read_text().split("\n") if line and not line.startswith("-")]
            der = base64.b64decode(b"".join(lines))
            number = der[der.index(b"\x04\x20") + 2:][:32]  # An octet string of 32 bytes.
            yield path, lines[1][:40]  # The first line is that of any key of this kind.
            yield from ((path, number), (path, number[::-1]))

    def parameters(self):
        """A stretch of each checkpoint's largest tensor."""
        for path in self.folder.glob("home-*/runs/*/checkpoints/*/model*.safetensors"):
            whole = path.read_bytes()
            size = int.from_bytes(whole[:8], "little")
            places_of = [tensor["data_offsets"] for name, tensor in json.loads(whole[8:8 + size]).items() if name != "__metadata__"]
            begin, end = max(places_of, key=lambda place: place[1] - place[0])
            middle = 8 + size + (begin + end) // 2
            yield path, whole[middle:middle + 64]

    def test_behind_symmetric_ones_the_relay_passes_on_what_it_cannot_read(self):
        self.put_behind(a="symmetric", b="symmetric")
        # The second one comes late, so that the parameters themselves pass.
        self.begin(with_settings(steps=2000, sync_every=50, replicas=1, checkpoint_every=50, keep_checkpoints=100))
        self.join("home-a", "a")
        self.wait(lambda: self.events.find("round_committed"), "first round")
        self.join("home-b", "b")
        self.assertEqual(self.wait_for_way("a", "b"), ("relayed", "meeting"))
        self.wait(lambda: self.events.find("island_caught_up", island="b"), "island b in the rounds")
        of_relay, of_island = memory_of(self.processes["meeting"].pid), memory_of(self.processes["a"].pid)
        self.assert_one_model("a", "b")
        seen = [of_relay, *(path.read_bytes() for path in (self.folder / "relay").rglob("*") if path.is_file())]
        keys, tensors = list(self.private_keys()), list(self.parameters())
        self.assertEqual(len({path for path, _ in keys}), 3)
        self.assertGreater(len(tensors), 10)
        # The search finds what is there.
        self.assertIn(f"{RELAY}:7074".encode(), of_relay)
        self.assertTrue(any(secret in of_island for path, secret in keys if "home-a" in path.parts))
        self.assertEqual([where for where, secret in keys + tensors if any(secret in memory for memory in seen)], [])

    def test_a_relay_that_was_killed_is_done_without_until_it_is_back(self):
        self.put_behind(a="symmetric", b="symmetric")
        self.begin(with_settings(steps=200))
        for home in "ab":
            self.join(f"home-{home}", home)
        self.assertEqual(self.wait_for_way("a", "b"), ("relayed", "meeting"))
        self.wait(lambda: self.events.find("round_committed"), "first round")
        mark = len(self.events.all())
        self.stop("meeting")
        self.wait(lambda: self.events.find("link_lost", after=mark) or self.events.find("relay_lost", after=mark), "word of it")
        self.relay()
        events = self.assert_one_model("a", "b")
        self.assertTrue(events.find("round_committed", after=mark, abstainers=[]))


# Machines on one LAN, where addresses change.
LAN = """
for place in switch ours reef shore; do ip netns add $place; ip -n $place link set lo up; done
ip -n switch link add lan type bridge
ip -n switch link set lan up
for place in ours reef shore; do
  ip -n switch link add $place type veth peer name lan netns $place
  ip -n switch link set $place master lan
  ip -n switch link set $place up
  ip -n $place link set lan up
done
ip -n ours address add 192.168.1.5/24 dev lan
ip -n reef address add 192.168.1.20/24 dev lan
ip -n shore address add 192.168.1.30/24 dev lan
"""

# Knows the run, and says to all who ask that it coordinates it: they call, and it proves nothing.
LIAR = """
import hashlib, socket, struct, sys, threading
def lie(listener):
    while True:
        listener.accept()[0].close()
        print("called", flush=True)
threading.Thread(target=lie, args=(socket.create_server(("", 7070)),), daemon=True).start()
ears = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
ears.bind(("239.255.70.70", 7070))
ears.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton("239.255.70.70") + socket.inet_aton(sys.argv[2]))
print("lying", flush=True)
while True:
    question, asker = ears.recvfrom(100)
    head = question[:5] + b"\\2" + struct.pack("<H", 7070) + question[8:16]
    ears.sendto(head + hashlib.sha256(head + sys.argv[1].encode()).digest(), asker)
"""


class LanTest(places.Places):
    PLACES, MACHINES, COORDINATOR = LAN, ("ours", "reef", "shore"), "ours"

    def begin_at(self, address):
        """Creates the run there; then the machine gets another address."""
        (self.folder / "ours" / "run.toml").write_text(SETTINGS)
        self.run_at("ours", f"atoll create runs/ours --config run.toml --address {address}:7070 > invite.txt")
        for island in ("reef", "shore"):
            shutil.copy(self.folder / "ours" / "invite.txt", self.folder / island)
        self.events = EventFile(self.folder / "ours" / "runs" / "ours")

    def move(self, old, new):
        self.shell(f"ip -n ours address del {old}/24 dev lan; ip -n ours address add {new}/24 dev lan")

    def coordinate(self, *options):
        self.start("ours", ":7070", "ours", ["atoll", "coordinate", "--run", "runs/ours", *options])

    def join(self, name, what="@invite.txt"):
        self.start_at(name, f"atoll join {what} --data {places.STORE} --run runs/{name}")

    def found_by(self, name):
        return [event["coordinator"] for event in EventFile(self.folder / name / "runs" / name).all() if event["kind"] == "coordinator_found"]

    def lie(self):
        fingerprint = self.run_at("ours", "openssl x509 -in runs/ours/authority/authority.pem -pubkey -noout | openssl pkey -pubin -outform DER "
                                          "| sha256sum | cut -d' ' -f1").strip()
        self.start("liar", "lying", "shore", [sys.executable, "-c", LIAR, fingerprint, "192.168.1.30"])

    def test_the_coordinator_is_found_where_it_moved_to(self):
        self.begin_at("192.168.1.5")
        self.lie()
        self.move("192.168.1.5", "192.168.1.7")
        self.coordinate()
        self.join("reef", "@invite.txt --name reef")
        self.wait(lambda: self.events.find("island_came", island="reef"), "island reef")
        self.assertEqual(set(self.found_by("reef")), {"192.168.1.7:7070"})
        # It moves on while nobody is there; who is a member finds it too.
        self.stop("ours", "reef")
        self.move("192.168.1.7", "192.168.1.9")
        self.coordinate()
        self.join("reef", "")
        self.join("shore", "@invite.txt --name shore")
        self.wait(lambda: self.found_by("reef")[-1:] == self.found_by("shore")[-1:] == ["192.168.1.9:7070"], "coordinator found")
        self.stop("liar")
        self.assert_one_model("reef", "shore")

    def test_who_does_not_want_to_be_found_is_not_and_who_lies_is_not_believed(self):
        self.begin_at("192.168.1.5")
        self.lie()
        self.move("192.168.1.5", "192.168.1.7")
        self.coordinate("--no-discovery")
        with self.at("reef", ["atoll", "join", "@invite.txt", "--run", "runs/reef", "--swarm.join_patience=1"], stderr=subprocess.PIPE) as process:
            self.assertIn("192.168.1.5:7070", process.communicate(timeout=DEADLINE_S)[1])
            self.assertNotEqual(process.returncode, 0)
        self.assertEqual(self.found_by("reef"), [])
        self.assertIn("called", self.said("liar"))
        self.stop("ours")


if __name__ == "__main__":
    places.run()
