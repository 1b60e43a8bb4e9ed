"""Commands in an emulated wide-area network: network namespaces joined by links with a rate, a delay, a
bounded queue and seeded loss, which can be cut and restored while commands run.

    with wan.Network("build/bin/atoll-wan-link", {"a": wan.Link(rate=20, delay=10), "b": wan.Link(rate=20, delay=10)}) as net:
        server = net.start("a", ["iperf3", "-s"])
        net.run("b", ["iperf3", "-c", net.address("a")])
        net.cut("b")

Each host has one access link to an ideal hub: a packet crosses the sender's link and the receiver's, so the one-way
delay is the sum of both delays, and a round trip twice that. Leaving the block ends every command inside and the
network with it; so does the end of this process, however it comes (atoll-wan-link sees its stdin close).
Needs root: ask unavailable() first.
"""
import dataclasses
import json
import os
import select
import shutil
import subprocess
import time

ANSWER_DEADLINE_S = 30


@dataclasses.dataclass(frozen=True)
class Link:
    """A host's access link; the same both ways unless `up` or `down` say otherwise."""
    rate: float = 0  # Mbit/s of IP bytes; 0 = unlimited.
    delay: float = 0  # ms, one way, of this link alone.
    loss: float = 0  # Share of packets in each direction.
    queue: float = 256  # KiB that wait in each direction; what does not fit is dropped.
    up: float | None = None
    down: float | None = None

    def settings(self):
        return ",".join(f"{key}={value}" for key, value in dataclasses.asdict(self).items() if value is not None)


def unavailable(program):
    """Why there can be no emulated network here, or None. Tries it: one host is set up and torn down."""
    if shutil.which("nsenter") is None:
        return "nsenter (util-linux) is missing"
    command = [program, "--host", "a", "--host", "b"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return None if done.returncode == 0 else done.stderr.strip()


def is_inside(pid, namespace):
    try:
        return os.path.samefile(f"/proc/{pid}/ns/net", namespace)
    except OSError:  # It ended meanwhile.
        return False


class Network:
    def __init__(self, program, links, seed=1, mtu=1500):
        self._command = [program, "--seed", str(seed), "--mtu", str(mtu)]
        for name, link in links.items():
            self._command += ["--host", f"{name},{link.settings()}"]
        self._process = None
        self._hosts = {}

    def __enter__(self):
        # In a session of its own: Ctrl-C is for the commands inside, and this process then ends the network.
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                         start_new_session=True)
        try:
            self._hosts = self._answer()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self._process.stdin.close()  # It ends the commands, then itself.
        try:
            self._process.wait(ANSWER_DEADLINE_S)
        except BaseException:
            self._process.kill()
            self._process.wait()
            raise
        finally:
            self._process.stdout.close()

    def address(self, host):
        return self._hosts[host]["address"]

    def namespace(self, host):
        return self._hosts[host]["namespace"]

    def start(self, host, command, **options):
        """A Popen of `command` inside `host`; its process id and signals are the command's own."""
        namespace = self.namespace(host)
        process = subprocess.Popen(["nsenter", "--net=" + namespace, "--", *map(os.fspath, command)], **options)
        while process.poll() is None and not is_inside(process.pid, namespace):
            time.sleep(0.001)  # Once it is inside, the end of the network finds it.
        return process

    def run(self, host, command, timeout=None, **options):
        """A CompletedProcess, as subprocess.run gives it."""
        with self.start(host, command, **options) as process:
            try:
                out, err = process.communicate(timeout=timeout)
            except BaseException:
                process.kill()
                raise
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    def cut(self, host, other=None):
        """Nothing passes on the host's access link; with `other`, between these two."""
        self._ask(" ".join(filter(None, ["cut", host, other])))

    def restore(self, host, other=None):
        self._ask(" ".join(filter(None, ["restore", host, other])))

    def set(self, host, **settings):
        """Changes rate, up, down, delay, loss, loss_up, loss_down, queue or burst of the host's link."""
        self._ask(f"set {host} " + ",".join(f"{key}={value}" for key, value in settings.items()))

    def stats(self):
        """Packets and bytes per host and direction, and the emulator's own processor time."""
        return self._ask("stats")

    def _ask(self, line):
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        answer = self._answer()
        if "error" in answer:
            raise ValueError(answer["error"])
        return answer

    def _answer(self):
        readable, _, _ = select.select([self._process.stdout], [], [], ANSWER_DEADLINE_S)
        line = self._process.stdout.readline() if readable else ""
        if not line:
            raise RuntimeError(f"the emulated network ended or does not answer: {' '.join(self._command)}")
        return json.loads(line)
