"""What faults cost: runs of real processes (tests/processes/swarm_run.py) and figures from their events and journals.

Times are those of the coordinator's events. Each function makes its own run and checks it as the fault tests do:
one digest, no commit twice, no row counted twice.
"""
import bisect
import concurrent.futures
import contextlib
import os
import pathlib
import random
import signal
import statistics
import sys
import time

from claims import ATOLL, ROOT

sys.path[:0] = [str(ROOT / "tests" / "processes"), str(ROOT / "tests" / "wan")]
import wan  # noqa: E402
from swarm_run import SwarmRun, wait_for  # noqa: E402

WAN = str(ROOT / "build" / "bin" / "atoll-wan-link")
# About 0.15 million parameters: a step takes some ten milliseconds, a round some tenths of a second.
SMALL = {"model.hidden_size": 64, "model.intermediate_size": 128, "model.num_layers": 2, "model.max_positions": 64,
         "train.sequence_length": 64, "train.batch_rows": 12, "train.log_every": 5, "sync.sync_every": 20}
# Usual for DiLoCo. At 20 steps of some milliseconds, rounds are a fifth of what a slow island does, and a fault of seconds lasts
# for dozens of them.
PERIOD = {"sync.sync_every": 100}
PERIOD_US = 20000
CGROUPS = pathlib.Path("/sys/fs/cgroup/cpu")


class Shares:
    """Cgroups with a share of a core each, by name; none where they cannot be made."""
    def __init__(self, shares):
        self._folders = {name: CGROUPS / f"atoll-{os.getpid()}-{name}" for name in shares}
        for name, share in shares.items():
            self._folders[name].mkdir()
            # Short periods: an island without its core for long looks like one that waits for another.
            (self._folders[name] / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (self._folders[name] / "cpu.cfs_quota_us").write_text(str(int(PERIOD_US * share)))

    def around(self, name):
        folder = self._folders.get(name)
        return ["sh", "-c", f'echo $$ > {folder}/cgroup.procs && exec "$@"', "sh"] if folder else []

    def remove(self):
        for folder in self._folders.values():
            with contextlib.suppress(OSError):
                folder.rmdir()


def commit_times(run):
    return [event["time"] for event in run.commits()]


@contextlib.contextmanager
def running(store, folder, names, settings, words=(), more=None, **options):
    """`words` for all of them, and islands that have their own: `more[name]`."""
    run = SwarmRun(ATOLL, store, folder, {**SMALL, "swarm.replicas": len(names), **settings}, **options)
    try:
        run.coordinate()
        for name in names:
            run.join(name, *words)
        for name, own in (more or {}).items():
            run.join(name, *own)
        run.wait_event("run_begun", step=0)
        yield run
    finally:
        run.kill_all()


def usual_interval(times):
    return statistics.median(after - before for before, after in zip(times, times[1:]))


# --- one island of three is killed, and comes back ---


def kill_one(store, folder, turns=3, seed=7):
    """Largest delay of the survivors' next commit, largest time from process start to membership, and how often the
    restarted island's first commit was not the one that its join rule names."""
    chance, delays, returns, wrong = random.Random(seed), [], [], 0
    with running(store, folder, "abc", {}) as run:
        for turn in range(turns):
            run.wait_commits(12)
            before = commit_times(run)[-12:]
            interval = usual_interval(before)
            time.sleep(chance.random() * interval)
            run.kill("b")
            killed = time.time()
            run.wait_commits(2)
            last = max(at for at in commit_times(run) if at <= killed)
            delays.append(max(0.0, min(at for at in commit_times(run) if at > killed) - last - interval))
            mark, started = run.mark(), time.time()
            run.join("b")
            back = run.wait_event("island_caught_up", after=mark, island="b")
            returns.append(back["time"] - started)
            run.wait_part("b")
            journal = run.journal()
            number = max(number for number, name in journal.names.items() if name == "b")
            taken = min(commit.round for commit in journal.commits if number in commit.members)
            wrong += taken != back["round"]
        run.end()
    return {"delay_s": max(delays), "return_s": max(returns), "wrong_rounds": wrong, "interval_s": interval}


# --- the coordinator is killed again and again ---


def kill_coordinator(store, folder, every_s, turns, away_s=0.5):
    """Commits lost or doubled, and how long the islands stood still beyond the coordinator's absence, at most."""
    idle = []
    with running(store, folder, "abc", {}) as run:
        run.wait_commits(5, after=0)
        for _ in range(turns):
            time.sleep(every_s)
            interval = usual_interval(commit_times(run)[-20:])
            run.kill("coordinator")
            killed = time.time()
            time.sleep(away_s)
            mark = run.mark()
            run.coordinate()
            back = time.time()
            run.wait_commits(1, after=mark)
            last = max(at for at in commit_times(run) if at <= killed)
            first = min(at for at in commit_times(run) if at > killed)
            idle.append(max(0.0, first - last - (back - killed) - interval))
        run.end()
        rounds = [commit.round for commit in run.journal().commits]
        wrong = len(rounds) - len(set(rounds)) + len(set(range(max(rounds) + 1)) - set(rounds))
        for name in "abc":
            own = [line["round"] for line in run.rounds(name)]
            wrong += len(own) - len(set(own)) + len(set(rounds) ^ set(own))
    return {"wrong_commits": wrong, "idle_s": max(idle)}


# --- a storm ---


def rates_in(run, spans):
    """Commits and tokens per second within these spans of time."""
    ends, sums = commit_times(run), [0]
    for commit in run.journal().commits:
        sums.append(sums[-1] + sum(commit.weights))
    count = tokens = 0
    for since, until in spans:
        first, last = bisect.bisect(ends, since), bisect.bisect(ends, until)
        count, tokens = count + last - first, tokens + sums[last] - sums[first]
    length = sum(until - since for since, until in spans)
    return {"commits_per_s": count / length, "tokens_per_s": tokens / length} if length else None


def storm_run(store, folder, settings, steps, fault=None, every_s=15):
    """Four islands of 0.45 core, to the last step; `fault` strikes each `every_s`, but not at the very end. Commits and tokens per second,
    those in the time in which no fault is felt, the loss at the end, and the share of island-time without a fault."""
    names = "abcd"
    hosts = {"coordinator": "hub", **{name: name for name in names}}
    shares = Shares({name: 0.45 for name in names})
    try:
        with wan.Network(WAN, {host: wan.Link() for host in hosts.values()}) as net, \
                running(store, folder, names, {"train.eval_rows": 256, "train.checkpoint_every": 1000, "train.steps": steps,
                                               "swarm.silence_timeout": 10, **settings},
                        net=net, hosts=hosts, around=shares.around) as run:
            run.wait_commits(10, after=0)
            begin, first_step = time.time(), run.commits()[-1]["step"]
            next_fault = begin + every_s
            while run.processes["coordinator"].poll() is None:
                is_late = run.commits()[-1]["step"] > 0.97 * steps
                if fault and time.time() >= next_fault and not is_late:
                    next_fault += every_s
                    fault.strike(run, net)
                if fault:
                    fault.heal(run, net, all_of_them=is_late)
                time.sleep(0.1)
            last = commit_times(run)[-1]
            took = last - begin
            end = next(iter(run.finished().values()))
            return {**rates_in(run, [(begin, last)]), "steps_per_s": (steps - first_step) / took, "loss": end["val_loss"],
                    "alive": 1 - fault.dead_s(begin, last) / (took * len(names)) if fault else 1.0,
                    "quiet": rates_in(run, fault.quiet_spans(begin)) if fault else None}
    finally:
        shares.remove()


FAULTS = {  # Kind: how it begins, and how it is mended.
    "kill": (lambda run, net, victim: run.kill(victim), lambda run, net, victim: run.join(victim)),
    "stop": (lambda run, net, victim: run.signal(victim, signal.SIGSTOP), lambda run, net, victim: run.signal(victim, signal.SIGCONT)),
    "cut": (lambda run, net, victim: net.cut(victim), lambda run, net, victim: net.restore(victim)),
}


class Fault:
    """One at a time, drawn from a seed: kill (and start again), stop, cut; over after some seconds."""
    def __init__(self, seed, lasts_s=5):
        self.chance, self.lasts_s = random.Random(seed), lasts_s
        self.open, self.spans = [], []

    def strike(self, run, net):
        kind, victim = self.chance.choice(tuple(FAULTS)), self.chance.choice("abcd")
        self.open.append((kind, victim, time.time()))
        FAULTS[kind][0](run, net, victim)

    def heal(self, run, net, all_of_them=False):
        for fault in list(self.open):
            kind, victim, since = fault
            if time.time() - since < self.lasts_s and not all_of_them:
                continue
            self.open.remove(fault)
            FAULTS[kind][1](run, net, victim)
            self.spans.append((since, time.time()))

    def quiet_spans(self, begin, after_s=4):
        """From some seconds after a fault is over, in which who was away has come back, to the next one."""
        edges = [(begin, begin), *self.spans]
        spans = [(over + after_s, struck) for (_, over), (struck, _) in zip(edges, edges[1:])]
        return [(since, until) for since, until in spans if until > since]

    def dead_s(self, begin, end):
        return sum(min(end, until) - max(begin, since) for since, until in self.spans if since < end)


def storm(store, folder, pace, lasts_s, seed=11):
    """Commits, and committed tokens, as a share of the fault-free rate times the share of island-time alive, and the relative difference of
    the losses of two runs, with faults and without, which have the same steps and seed.

    The fault-free rate is that of the storm's own quiet seconds: what the machine gives four processes moves by 20 % and more from one
    quarter of an hour to the next, and a run before or after says little. (`of_calm` is the share of the other run's rate.)"""
    folder = pathlib.Path(folder)
    settings = {**PERIOD, "swarm.pace": pace}
    rate = storm_run(store, folder / "trial", settings, 2000)["steps_per_s"]
    steps = int(rate * lasts_s)
    calm = storm_run(store, folder / "calm", settings, steps)
    faulty = storm_run(store, folder / "storm", settings, steps, Fault(seed))
    def share(name, of):
        return faulty[name] / (of[name] * faulty["alive"])
    return {"commits": share("commits_per_s", faulty["quiet"]), "tokens": share("tokens_per_s", faulty["quiet"]),
            "of_calm": {name: share(name, calm) for name in ("commits_per_s", "tokens_per_s")}, "loss": faulty["loss"] / calm["loss"] - 1,
            "alive": faulty["alive"], "runs": {"calm": calm, "storm": faulty}}


# --- unequal speeds, and a newcomer on a line ---


def speed(store, folder, shares, settings, lasts_s):
    """Tokens per second that a run of these islands commits, and the largest share of its time that one waited
    for the other or for rows. (Its own work for rounds is in the rate.)"""
    groups = Shares(shares)
    try:
        with running(store, folder, list(shares), {"train.batch_rows": 4 * len(shares), **settings}, around=groups.around) as run:
            run.wait_commits(3, after=0)
            wait_for(lambda begin=time.time(): time.time() - begin >= lasts_s, "the end of the measurement", lasts_s + 60)
            times = commit_times(run)[2:]
            summaries = run.end()
            weights = [sum(commit.weights) for commit in run.journal().commits][3:len(times) + 2]
        return sum(weights) / (times[-1] - times[0]), max(summary["blocked_share"] for summary in summaries.values())
    finally:
        groups.remove()


UNEQUAL = {"fast": 0.8, "slow": 0.2}


def one_slow(store, folder, pace, lasts_s=12, turns=3):
    """Committed tokens per second of a fast island and one of a quarter of its speed, over the sum of both alone; and
    the largest share of its time that one of the two waited. Medians of interleaved turns. Each is alone in a run of its own, at the same
    time as the other: what two processes take from each other on one machine is not the swarm's."""
    shares, waits = [], []
    for turn in range(turns):
        at = pathlib.Path(folder) / str(turn)
        with concurrent.futures.ThreadPoolExecutor() as pool:
            rates = [pool.submit(speed, store, at / name, {name: share}, PERIOD, lasts_s) for name, share in UNEQUAL.items()]
        alone = [rate.result()[0] for rate in rates]
        both, waited = speed(store, at / "both", UNEQUAL, {**PERIOD, "swarm.pace": pace}, lasts_s)
        shares.append(both / sum(alone))
        waits.append(waited)
    return {"share": statistics.median(shares), "waits": statistics.median(waits)}


def slow_loss(store, folder, steps=1200):
    """How much higher the loss is where one of two islands is slowed 4x (elastic) than with two equal ones (lockstep),
    after the same number of committed tokens."""
    losses = []
    for name, shares, pace in (("equal", {"fast": 0.5, "slow": 0.5}, "lockstep"), ("unequal", UNEQUAL, "elastic")):
        groups = Shares(shares)
        try:
            with running(store, pathlib.Path(folder) / name, list(shares),
                         {"train.batch_rows": 8, "train.steps": steps, "train.eval_rows": 64, "swarm.pace": pace}, around=groups.around) as run:
                losses.append(next(iter(run.finished().values()))["val_loss"])
        finally:
            groups.remove()
    return losses[1] / losses[0] - 1


# Three million parameters: a round takes the line for a fifth of the time, a newcomer's state for seconds.
JOIN = {"model.hidden_size": 256, "model.intermediate_size": 640, "model.num_layers": 4, "model.num_heads": 4,
        "train.sequence_length": 32, "train.batch_rows": 2, "train.log_every": 1, "sync.sync_every": 100, "train.eval_rows": 1}


def join_cost(store, folder, turns=5):
    """How much longer the rounds of two islands take, as a share, while a third gets the state over lines of 100 Mbit/s, than rounds
    in between. The islands leave a core free, which on other machines a newcomer would not take from them either. The first join is
    not counted: there donors touch memory for the first time, which on virtual machines takes tenths of a second."""
    groups = Shares({name: 0.35 for name in "abc"})
    line = ("--link-rate", "100mbit")
    try:
        with running(store, folder, "ab", JOIN, line, around=groups.around) as run:
            run.wait_commits(5, after=0)
            spans = []
            for _ in range(turns):
                mark, begun = run.mark(), time.time()
                run.join("c", *line)
                run.wait_event("island_joins", after=mark, island="c")
                since = time.time()
                run.wait_event("island_caught_up", after=mark, island="c")
                until = time.time()
                run.wait_commits(1)  # The round that the newcomer still met.
                run.kill("c")
                spans.append((begun, since, until, time.time()))
                run.wait_commits(3)
            run.end()
            begin = spans[0][3]
            times = [at for at in commit_times(run) if at > begin]
            calm, touched = [], []
            for before, after in zip(times, times[1:]):
                if any(after > since and before < until for _, since, until, _ in spans):
                    touched.append(after - before)
                elif not any(after > begun and before < gone for begun, _, _, gone in spans):
                    calm.append(after - before)
            return {"cost": statistics.mean(touched) / statistics.mean(calm) - 1, "touched": touched, "calm": calm}
    finally:
        groups.remove()


def slow_line(store, folder, rounds=6):
    """Seconds of an exchange of four islands, one of which has a fifth of the others' line: the first, with equal shares, and the median
    of the later ones; and what that line needs for the island's own values alone."""
    with running(store, folder, "abc", {**JOIN, "swarm.replicas": 4, "train.batch_rows": 4, "sync.sync_every": 20}, ("--link-rate", "100mbit"),
                 more={"d": ("--link-rate", "20mbit")}) as run:
        run.wait_commits(rounds, after=0)
        lines = run.rounds("d")
        times = [line["exchange_ms"] / 1000 for line in lines]
        least = min(line["bytes_sent"] for line in lines) * 8 / 20e6
        return {"equal_s": times[0], "later_s": statistics.median(times[1:]), "least_s": least}
