#!/usr/bin/env python3
"""The commands of docs/deploy.md, word for word, on three machines at three places: network namespaces behind a firewall and a
router that translates addresses. Skipped (exit 77) without root, `ip`, `nft` or `unshare`.

usage: deploy_test.py ATOLL STORE [unittest arguments]
"""
import pathlib
import re
import shutil
import subprocess
import sys

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent), str(pathlib.Path(__file__).resolve().parent.parent / "processes")]
import places  # noqa: E402
from event_file import EventFile  # noqa: E402
from places import DEADLINE_S, firewall, router  # noqa: E402

PAGE = pathlib.Path(__file__).resolve().parent.parent.parent / "docs" / "deploy.md"

CLOUD, REEF, HOME_ROUTER, HOME = "203.0.113.10", "198.51.100.20", "192.0.2.30", "192.168.1.10"
HOSTS = f"{CLOUD} ours.example.org\n{REEF} reef.example.edu\n{HOME_ROUTER} home.example.net\n"

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
ip -n home address add {HOME}/24 dev lan
for place in cloud reef router; do ip -n internet link set $place up; ip -n $place link set wan up; done
ip -n router link set lan up
ip -n home link set lan up
ip -n cloud route add default via 203.0.113.1
ip -n reef route add default via 198.51.100.1
ip -n router route add default via 192.0.2.1
ip -n home route add default via 192.168.1.1
for place in internet router; do nsenter --net=/run/netns/$place sysctl -qw net.ipv4.ip_forward=1; done
"""


def section(heading):
    text = re.search(rf"^#+ {heading}\n(.*?)(?=^#|\Z)", PAGE.read_text(), re.S | re.M)
    assert text, f"{PAGE.name} has no section '{heading}'"
    return text[1]


def commands(heading):
    blocks = re.findall(r"```sh\n(.*?)```", section(heading), re.S)
    return [line for block in blocks for line in block.strip().split("\n")]


class PlacesTest(places.Places):
    PLACES, MACHINES, HOSTS = PLACES, ("cloud", "reef", "home"), HOSTS

    def setUp(self):
        super().setUp()
        shutil.copytree(pathlib.Path(places.STORE).with_suffix(".corpus"), self.folder / "cloud" / "corpus")

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

    def test_the_page_word_for_word(self):
        self.protect("cloud", firewall(7070))
        self.protect("reef", firewall(7071))
        self.protect("router", router(HOME))
        self.assert_home_cannot_be_called()
        self.begin_in_the_cloud()
        self.follow("reef", "At the university")
        self.follow("home", "At home")
        # The coordinator publishes its status twice a second.
        self.wait(lambda: "reef" in self.run_at("cloud", "atoll status runs/ours"), "reef in the status")
        events = self.assert_one_model("reef", "shore")
        self.assertFalse(events.find("island_lost"))

    def test_by_a_forwarded_port_home_is_called(self):
        self.protect("cloud", firewall(7070))
        self.protect("reef", firewall(7071))
        self.protect("router", router(HOME, forwarded_port=7072))
        self.begin_in_the_cloud()
        self.follow("home", "A forwarded port")
        self.follow("reef", "At the university")
        self.assert_one_model("home", "reef")

    def test_a_third_island_takes_part_and_home_need_not_have_the_last_name(self):
        self.protect("cloud", firewall(7070, 7073))
        self.protect("reef", firewall(7071))
        self.protect("router", router(HOME))
        self.begin_in_the_cloud(lambda settings: settings.replace("replicas = 2", "replicas = 3"))
        self.follow("cloud", "A third island")
        self.follow("home", "At home", lambda line: line.replace("shore", "home"))  # The others call it first, in vain.
        self.follow("reef", "At the university")
        events = self.assert_one_model("home", "reef", "cloud")
        self.assertTrue(events.find("link_back", islands=["home", "reef"]))


if __name__ == "__main__":
    places.run()
