"""A run of real processes to which things happen: a coordinator with a journal, islands that are killed, stopped,
started again. For fault tests and for claims; what it waits for are events, steps and rounds, never a length of time.

    run = SwarmRun(atoll, store, folder, {"swarm.replicas": 3})
    run.coordinate(); run.join("a"); run.join("b"); run.join("c")
    run.wait_commits(3); run.kill("b"); run.wait_commits(2); run.join("b")
    run.end()    # Ctrl-C; checks that all ended well, with the same digest
"""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import time

from event_file import EventFile
from kept_port import KeptPort
from swarm_journal import Journal

DEADLINE_S = float(os.environ.get("DEADLINE", 120))  # Generous: machines are slow and shared. Nothing waits for it when all is well.

TINY = {
    "model.hidden_size": 32, "model.intermediate_size": 64, "model.num_layers": 2, "model.num_heads": 2,
    "model.num_kv_heads": 1, "model.max_positions": 64, "train.sequence_length": 32, "train.batch_rows": 12,
    "train.warmup_steps": 2, "train.eval_rows": 2, "train.log_every": 5, "train.threads": 1, "train.steps": 1000000,
    "train.checkpoint_every": 0, "sync.method": "diloco", "sync.sync_every": 20, "swarm.replicas": 2,
}


def wait_for(condition, what, deadline=DEADLINE_S):
    begin = time.monotonic()
    while not (value := condition()):
        if time.monotonic() - begin > deadline:
            raise AssertionError(f"waited {deadline} s for {what}")
        time.sleep(0.01)
    return value


def established_to(port):
    """Connections of which one end has that port, on this machine."""
    text = pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]
    ends = [(line.split()[1], line.split()[2], line.split()[3]) for line in text]
    return [end for end in ends if end[2] == "01" and f":{port:04X}" in end[0] + end[1]]


class SwarmRun:
    def __init__(self, atoll, store, folder, settings=None, net=None, hosts=None, around=None, is_created=True):
        """With `net` (tests/wan) each process runs on hosts[name]; `around(name)` gives words before the command.
        Connections are encrypted unless the run is not created."""
        self.atoll, self.store, self.folder = str(atoll), str(store), pathlib.Path(folder)
        self.settings = {**TINY, **(settings or {})}
        self.net, self.hosts, self.around = net, hosts or {}, around
        self.coordinated = self.folder / "coordinator"  # What the coordinator has of this run.
        self.folder.mkdir(parents=True)  # A run's own: what another left there would be read as its.
        self.processes = {}  # The newest of each name; "coordinator" is one.
        self.port = self.address = None  # The coordinator's.
        self.is_created, self.identities = is_created, {}
        self._events = {}  # By name.

    # --- processes ---

    def _start(self, name, words, program=None, **options):
        """Output goes to files, so that nobody has to read it for a process to go on."""
        command = [*(self.around(name) if self.around else []), program or self.atoll, *map(str, words)]
        with open(self.folder / f"{name}.log", "ab") as log, open(self.folder / f"{name}.out", "wb") as out:
            begin = {"stdout": out, "stderr": log, **options}
            if self.net:
                self.processes[name] = self.net.start(self.hosts[name], command, **begin)
            else:
                self.processes[name] = subprocess.Popen(command, **begin)
        return self.processes[name]

    def host(self, name):
        return self.net.address(self.hosts[name]) if self.net else "127.0.0.1"

    def _atoll(self, *words):
        return subprocess.run([self.atoll, *map(str, words)], check=True, capture_output=True, text=True).stdout.strip()

    def _keep_identity(self, name):
        """An island whose disk is lost has its key elsewhere: its name is that key's."""
        identity = self.folder / name / "identity"
        if (identity / "certificate.pem").exists() and name not in self.identities:
            self.identities[name] = shutil.copytree(identity, self.folder / f"identity-of-{name}")

    def _way_in(self, name, folder):
        """What it joins by: an invite the first time, later the coordinator's address."""
        identity = pathlib.Path(folder) / "identity"
        if not self.is_created or (identity / "certificate.pem").exists():
            return self.address
        if name in self.identities:
            shutil.copytree(self.identities[name], identity)
            return self.address
        return self._atoll("invite", self.coordinated, "--address", self.address, "--name", name)

    def coordinate(self, *words, **options):
        """On a port of the system's choice, the next time on the same one."""
        if self.is_created and not (self.coordinated / "authority").exists():
            self._atoll("create", self.coordinated)
        if not self.net and not self.port:
            self.port = KeptPort()
        listen = self.port.address if self.port else self.address or f"{self.host('coordinator')}:0"
        config = [f"--{name}={value}" for name, value in self.settings.items()]
        process = self._start("coordinator", ["coordinate", "--listen", listen, "--run", self.coordinated,
                                              *config, *words], **options)
        out = self.folder / "coordinator.out"
        wait_for(lambda: out.read_text().endswith("\n") or process.poll() is not None, "the coordinator's address")
        self.address = out.read_text().strip() or self.address
        return process

    def join(self, name, *words, address=None, folder=None, **options):
        more = ["--listen", f"{self.host(name)}:0"] if self.net else []
        place = folder or self.folder / name
        return self._start(name, ["join", address or self._way_in(name, place), "--run", place, "--name", name,
                                  "--data", self.store, "--json", "--train.threads=1", *more, *words], **options)

    def join_rogue(self, name, how, from_round):
        """An island that breaks the protocol in this way (rogue_island.cpp) from its Begin of that round on."""
        return self._start(name, [self._way_in(name, self.folder / name), name, self.folder / name, self.store, how, from_round],
                           program=str(pathlib.Path(self.atoll).parent / "atoll-rogue-island"))

    def signal(self, name, number):
        os.kill(self.processes[name].pid, number)

    def kill(self, name):
        self.processes[name].kill()
        self.processes[name].wait()
        self._keep_identity(name)

    def kill_all(self):
        """The end of a test: also those that are stopped."""
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()
        if self.port:
            self.port.give_back()

    def finish(self, name):
        """Exit status and summary, if there is one."""
        try:
            code = self.processes[name].wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{name} did not end in {DEADLINE_S} s: {self.tail(name)}") from None
        self._keep_identity(name)
        text = (self.folder / f"{name}.out").read_text()
        return code, json.loads(text) if code == 0 and name != "coordinator" else None

    # --- what they say ---

    def log(self, name="coordinator"):
        """What it said on stderr: for people, and why it ended."""
        try:
            return (self.folder / f"{name}.log").read_text(errors="replace")
        except OSError:
            return ""

    def tail(self, name="coordinator"):
        return "\n".join(self.log(name).splitlines()[-5:])

    def events(self, name="coordinator"):
        """What happened to it so far (event_file.py)."""
        folder = self.coordinated if name == "coordinator" else self.folder / name
        return self._events.setdefault(name, EventFile(folder))

    def mark(self, name="coordinator"):
        """For wait_event: what has happened already does not count."""
        return len(self.events(name).all())

    def wait_event(self, kind, name="coordinator", after=0, **fields):
        """Until that happens; the event."""
        def found():
            ended = self.processes[name].poll() is not None
            event = self.events(name).find(kind, after, **fields)
            assert event or not ended, f"{name} ended without {kind} {fields}"
            return event
        return self._wait(found, f"{kind} {fields} of {name}")

    def _wait(self, condition, what):
        try:
            return wait_for(condition, what)
        except AssertionError as error:
            tails = "".join(f"\n--- {each}:\n{self.tail(each)}" for each in self.processes)
            raise AssertionError(f"{error}{tails}") from None

    def commits(self, after=0):
        """The events of those that the coordinator tells of."""
        return [event for event in self.events().all()[after:] if event["kind"] == "round_committed"]

    def wait_commits(self, count, after=None):
        after = self.mark() if after is None else after
        self._wait(lambda: len(self.commits(after)) >= count, f"{count} more commits")

    def wait_part(self, name, count=1):
        """Until `count` rounds that come from now on are committed with this island's part in them."""
        last = max((event["round"] for event in self.commits()), default=-1)
        def taken():
            assert self.processes[name].poll() is None, f"{name} ended"
            lines = self.rounds(name)[-200:]
            return sum(line["round"] > last and name in line["members"] for line in lines) >= count
        self._wait(taken, f"{count} more rounds of {name}")

    def rounds(self, name):
        return self._lines(self.folder / name / "rounds.jsonl")

    def metrics(self, name):
        return self._lines(self.folder / name / "metrics.jsonl")

    @staticmethod
    def _lines(path):
        try:
            lines = path.read_text().splitlines(keepends=True)
        except OSError:
            return []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def journal(self):
        return Journal(self.coordinated / "coordinator.journal")

    # --- the end, and what must hold then ---

    def end(self):
        """Ctrl-C: all islands checkpoint after the next commit and end. Returns their summaries, checked."""
        self.signal("coordinator", signal.SIGINT)
        return self.finished()

    def finished(self):
        summaries = self.islands_finished()
        code, _ = self.finish("coordinator")
        assert code == 0, f"the coordinator ended with {code}: {self.tail()}"
        self.check()
        return summaries

    def islands_finished(self):
        names = [name for name, process in self.processes.items()
                 if name != "coordinator" and process.returncode != -signal.SIGKILL]
        ended = {name: self.finish(name) for name in names}
        for name, (code, _) in ended.items():
            assert code == 0, f"{name} ended with {code}: {self.tail(name)}"
        summaries = {name: summary for name, (_, summary) in ended.items()}
        digests = {name: summary["digest"] for name, summary in summaries.items()}
        assert len(set(digests.values())) == 1, f"the islands hold different models: {digests}"
        return summaries

    def check(self):
        """Of a run so far, by journal and by what the islands wrote: no commit twice, none that only some know,
        no row that two commits count, nobody trained on rows that were another's."""
        journal = self.journal()
        assert journal.terms == sorted(set(journal.terms)), journal.terms
        rounds = [(commit.fragment, commit.round) for commit in journal.commits]
        if len(journal.starts) == 1:
            assert len(set(rounds)) == len(rounds), "a round was committed twice"
        digests = {(commit.round, commit.digest) for commit in journal.commits}
        for name in set(journal.names.values()):
            for line in self.rounds(name):
                assert (line["round"], line["digest"]) in digests, f"{name} applied what the journal has not: {line}"
            for line in self.metrics(name):
                if line["trained"] > len(journal.granted.get(line["member"], [])):
                    raise AssertionError(f"{name} trained on rows it was not given: {line}")
                unit = journal.unit(line["member"], line["trained"]) if line["trained"] else None
                assert line["trained"] == 0 or line["unit"] == unit, f"{name} should have trained on {unit}: {line}"
        repeated = journal.repeated_units()
        assert not repeated, f"units counted more than once: {dict(list(repeated.items())[:10])}"
        return journal
