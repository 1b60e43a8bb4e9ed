#!/usr/bin/env python3
"""Islands of several processes: the losses of one process, whoever starts them; and what is lost.

usage: processes_test.py ATOLL STORE [unittest arguments]
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent), str(pathlib.Path(__file__).resolve().parent.parent)]
import slurm_cluster  # noqa: E402
from kept_port import KeptPort  # noqa: E402
from small_store import make_store  # noqa: E402
from swarm_run import DEADLINE_S, wait_for  # noqa: E402

ATOLL, STORE = "", ""
TINY = {
    "model.hidden_size": 32, "model.intermediate_size": 64, "model.num_layers": 2, "model.num_heads": 2,
    "model.num_kv_heads": 1, "model.max_positions": 64, "train.sequence_length": 32, "train.batch_rows": 8,
    "train.warmup_steps": 2, "train.eval_rows": 2, "train.log_every": 1, "train.threads": 1, "train.steps": 20,
}
LOST_STATUS = 75  # It may be started again.
ENDLESS = {"train.steps": 1000000, "train.checkpoint_every": 10}


def clean():
    """The environment without what would make a process one of several."""
    own = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    starters = ("SLURM_", "TORCHELASTIC_", "ATOLL_PROCESS_")
    return {key: value for key, value in os.environ.items() if key not in own and not key.startswith(starters)}


def as_torchrun(rank, size, port):
    return {**clean(), "RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank),
            "LOCAL_WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}


def losses(run):
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [row["loss"] for row in map(json.loads, lines) if "loss" in row]


def steps_taken(run):
    """A line may be under way."""
    path = run / "metrics.jsonl"
    return path.read_text().count("\n") if path.exists() else 0


def children_of(pid):
    found = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            name_end = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(name_end[1]) == pid and name_end[0] != "Z":
            found.append(int(stat.parent.name))
    return found


def is_there(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class ProcessesTestCase(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="atoll-processes-test-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def port(self):
        """It stays this test's."""
        kept = KeptPort()
        self.addCleanup(kept.give_back)
        return int(kept.address.rsplit(":", 1)[1])

    def words(self, run, *more, **settings):
        merged = {**TINY, **{key.replace("__", "."): value for key, value in settings.items()}}
        return [ATOLL, "train", "--run", str(self.folder / run), "--data", STORE,
                *(f"--{key}={value}" for key, value in merged.items()), *more]

    def start(self, words, environment=None, log="log"):
        with open(self.folder / log, "ab") as err:
            process = subprocess.Popen(words, env=environment or clean(), stdout=subprocess.PIPE, stderr=err, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def said(self, log="log"):
        return (self.folder / log).read_text()

    def finish(self, process, code=0, log="log"):
        try:
            out, _ = process.communicate(timeout=DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.fail(f"no end after {DEADLINE_S} s: {self.said(log)}")
        self.assertEqual(process.returncode, code, self.said(log))
        return out

    def train(self, run, *more, code=0, log="log", **settings):
        return self.finish(self.start(self.words(run, *more, **settings), log=log), code, log)

    def start_by_hand(self, size, run, *more, **settings):
        """As torchrun does it."""
        port = self.port()
        return [self.start(self.words(run, *more, **settings), as_torchrun(rank, size, port), log=f"log-{rank}")
                for rank in range(size)]

    def assert_near(self, run, wanted, delta=1e-5):
        got = losses(self.folder / run)
        self.assertEqual(len(got), len(wanted))
        for step, (one, other) in enumerate(zip(got, wanted), 1):
            self.assertAlmostEqual(one, other, delta=delta, msg=f"step {step}")


class LossesTest(ProcessesTestCase):
    def test_they_are_those_of_one_process_whoever_starts_them(self):
        self.train("one")
        wanted = losses(self.folder / "one")
        self.assertEqual(len(wanted), 20)
        self.assertLess(wanted[-1], wanted[0])
        for shard in "none", "zero1", "zero3":
            with self.subTest(shard):
                self.train(shard, "--processes-per-island", "2", train__shard=shard)
                self.assert_near(shard, wanted)
                for rank, process in enumerate(self.start_by_hand(2, "by-hand-" + shard, train__shard=shard)):
                    self.finish(process, log=f"log-{rank}")
                self.assert_near("by-hand-" + shard, wanted)

    def test_torchrun_starts_them(self):
        """Its agent keeps the store at MASTER_PORT, over the restarts of what it starts."""
        torchrun = pathlib.Path(sys.executable).parent / "torchrun"
        if not torchrun.exists():
            self.skipTest("no torchrun here")
        self.train("one")
        words = [str(torchrun), "--nproc-per-node", "2", "--master-port", str(self.port()), "--no-python", "--"]
        self.finish(self.start([*words, *self.words("run", train__shard="zero1")]))
        self.assert_near("run", losses(self.folder / "one"))

    def test_bf16_takes_new_values_everywhere(self):
        """Each process rounds the parameters itself, after each update."""
        self.train("one", train__precision="bf16", train__lr=0.01)
        wanted = losses(self.folder / "one")
        self.assertLess(wanted[-1], wanted[0] - 0.5)
        for shard in "none", "zero1", "zero3":
            self.train(shard, "--processes-per-island", "2", train__shard=shard, train__precision="bf16", train__lr=0.01)
            self.assert_near(shard, wanted, delta=0.05)

    def test_a_file_of_all_settings_serves(self):
        """Some in it are the data's to say."""
        settings = subprocess.run(self.words("one", "--dump-config"), env=clean(), capture_output=True, text=True, check=True).stdout
        self.assertIn("vocab_size = 0", settings)
        (self.folder / "all.toml").write_text(settings)
        words = [ATOLL, "train", str(self.folder / "all.toml"), "--run", str(self.folder / "run"), "--data", STORE]
        self.finish(self.start([*words, "--processes-per-island", "2"]))
        self.assertEqual(len(losses(self.folder / "run")), 20)

    def test_a_loss_that_is_not_finite_ends_all(self):
        settings = {"train__lr": 1000, "train__optimizer": "sgd", "train__grad_clip": 0}
        code = self.start(self.words("one", **settings)).wait(DEADLINE_S)
        reason = self.said().splitlines()[-1]
        self.assertIn("training diverged", reason)
        for shard in "none", "zero1", "zero3":
            self.train(shard, "--processes-per-island", "2", code=code, log=f"log-{shard}", train__shard=shard, **settings)
            self.assertIn("training diverged", self.said(f"log-{shard}"))
        for processes, shard in (1, "none"), (2, "none"), (2, "zero3"):
            log = f"log-bf16-{processes}-{shard}"
            self.train(f"run-{log}", "--processes-per-island", str(processes), code=code, log=log, train__precision="bf16", train__shard=shard,
                       **settings)
            self.assertIn("training diverged", self.said(log))

    def test_islands_of_several_processes_agree(self):
        several = {"sync.method": "diloco", "sync.sync_every": 5}
        self.train("one", "--islands", "2", **several)
        out = self.train("two", "--islands", "2", "--processes-per-island", "2", "--json", **several)
        self.assertEqual(json.loads(out)["steps"], 20)
        for island in "island-0", "island-1":
            self.assert_near(f"two/{island}", losses(self.folder / "one" / island))

    def test_a_run_goes_on(self):
        process = self.start(self.words("run", "--processes-per-island", "2", train__shard="zero1", **ENDLESS))
        wait_for(lambda: list((self.folder / "run" / "checkpoints").glob("step-*10")), "a checkpoint")
        process.send_signal(signal.SIGINT)
        out = self.finish(process)
        self.assertIn("stopped at step", out)
        self.assertEqual(children_of(process.pid), [])
        at = steps_taken(self.folder / "run")
        process = self.start(self.words("run", "--processes-per-island", "3", train__batch_rows=8, **ENDLESS))
        self.assertNotEqual(process.wait(DEADLINE_S), 0)  # Eight rows are not for three.
        self.assertIn("dealt evenly to its 3 processes", self.said())
        process = self.start(self.words("run", "--processes-per-island", "4", train__shard="zero1", **ENDLESS))
        wait_for(lambda: steps_taken(self.folder / "run") > at, "training to go on")
        process.send_signal(signal.SIGINT)
        self.finish(process)


class LostTest(ProcessesTestCase):
    def training(self, *more, size=3, rows=6, **settings):
        """By hand, so that each can be killed; they have begun."""
        processes = self.start_by_hand(size, "run", *more, train__batch_rows=rows, **ENDLESS, **settings)
        wait_for(lambda: steps_taken(self.folder / "run") > 12 or any(one.poll() is not None for one in processes), "training")
        for rank, process in enumerate(processes):
            self.assertIsNone(process.poll(), self.said(f"log-{rank}"))
        return processes

    def test_a_killed_process_ends_the_others_who_name_it(self):
        for shard in "none", "zero1", "zero3":
            with self.subTest(shard):
                processes = self.training(train__shard=shard)
                processes[1].kill()
                for rank in 0, 2:
                    self.finish(processes[rank], code=LOST_STATUS, log=f"log-{rank}")
                    self.assertIn("process 1 of this island", self.said(f"log-{rank}"))
                    (self.folder / f"log-{rank}").write_text("")
                before = max(self.checkpoints())
                self.training(train__shard=shard)
                wait_for(lambda: max(self.checkpoints()) > before, "the run to go on")
                self.doCleanups()  # The next has a run of its own.
                self.setUp()

    def checkpoints(self):
        return [int(one.name.split("-")[1]) for one in (self.folder / "run" / "checkpoints").glob("step-" + 8 * "[0-9]")]

    def test_without_process_0_the_others_end(self):
        processes = self.training()
        processes[0].kill()
        for rank in 1, 2:
            self.finish(processes[rank], code=LOST_STATUS, log=f"log-{rank}")
            self.assertRegex(self.said(f"log-{rank}"), r"process 0 of this island \(on .*\), which leads, has ended")

    def test_a_process_that_hangs_is_named(self):
        processes = self.training(train__process_timeout=5)
        processes[2].send_signal(signal.SIGSTOP)
        for rank in 0, 1:
            self.finish(processes[rank], code=LOST_STATUS, log=f"log-{rank}")
            self.assertIn("process 2 of this island", self.said(f"log-{rank}"))
            self.assertIn("gave no sign of life", self.said(f"log-{rank}"))

    def test_a_leader_that_hangs_is_named(self):
        """Their store is in it: nobody who asks that comes back."""
        processes = self.training(train__process_timeout=5)
        processes[0].send_signal(signal.SIGSTOP)
        for rank in 1, 2:
            self.finish(processes[rank], code=LOST_STATUS, log=f"log-{rank}")
            self.assertRegex(self.said(f"log-{rank}"), "process 0 of this island .*, which leads, gave no sign of life")

    def test_followers_end_with_the_program_that_started_them(self):
        process = self.start(self.words("run", "--processes-per-island", "3", train__batch_rows=6, **ENDLESS))
        wait_for(lambda: steps_taken(self.folder / "run") > 2 or process.poll() is not None, "training")
        followers = children_of(process.pid)
        self.assertEqual(len(followers), 2, self.said())
        process.kill()
        process.wait()
        wait_for(lambda: not any(map(is_there, followers)), "the followers to end")

    def test_who_does_not_come_is_named(self):
        port = self.port()
        words = self.words("run", train__process_timeout=5)
        process = self.start(words, as_torchrun(0, 3, port))
        self.finish(process, code=1)
        self.assertIn("of the 3 processes of this island 1, 2 have not come within 5 s", self.said())
        alone = self.start(words, as_torchrun(1, 3, port), log="other")
        self.finish(alone, code=1, log="other")
        self.assertIn("process 1 of 3 found nobody", self.said("other"))

    def test_numbers_of_processes_that_differ(self):
        port = self.port()
        processes = [self.start(self.words("run"), as_torchrun(rank, 2 + rank, port), log=f"log-{rank}") for rank in (0, 1)]
        for rank, process in enumerate(processes):
            self.finish(process, code=1, log=f"log-{rank}")
            self.assertIn(f"was started as one of {3 - rank}", self.said(f"log-{rank}"))

    def test_an_island_that_lost_a_process_comes_back(self):
        settings = {**ENDLESS, "sync.method": "diloco", "sync.sync_every": 10, "train.batch_rows": 8}
        process = self.start(self.words("run", "--islands", "2", "--processes-per-island", "2", **settings))
        run = self.folder / "run"
        wait_for(lambda: all(steps_taken(run / f"island-{i}") > 12 for i in (0, 1)) or process.poll() is not None, "training")
        leaders = [pid for pid in children_of(process.pid) if children_of(pid)]
        self.assertEqual(len(leaders), 2, self.said())
        victim = children_of(leaders[0])[0]
        os.kill(victim, signal.SIGKILL)
        wait_for(lambda: "one of its processes was lost" in self.said(), "word of it")
        wait_for(lambda: "is back and trains" in self.said(), "its return")
        counts = [steps_taken(run / f"island-{i}") for i in (0, 1)]
        wait_for(lambda: all(steps_taken(run / f"island-{i}") > counts[i] + 12 for i in (0, 1)), "both islands to train")
        process.send_signal(signal.SIGINT)
        self.finish(process)


class RefusedTest(ProcessesTestCase):
    def test_other_settings_are_named(self):
        port = self.port()
        processes = [self.start(self.words("run", train__lr=lr), as_torchrun(rank, 2, port), log=f"log-{rank}")
                     for rank, lr in enumerate((1e-3, 2e-3))]
        for rank, process in enumerate(processes):
            self.finish(process, code=2 if rank else 1, log=f"log-{rank}")
            self.assertIn("train.lr = 0.002", self.said(f"log-{rank}"))
            self.assertIn("process 0 has 0.001", self.said(f"log-{rank}"))

    def test_another_token_store_is_named(self):
        other = self.folder / "other"
        make_store(ATOLL, other, ["email"])
        port = self.port()
        for rank, store in enumerate((STORE, str(other))):
            words = [store if word == STORE else word for word in self.words("run")]
            self.start(words, as_torchrun(rank, 2, port), log=f"log-{rank}")
        wait_for(lambda: all("another token store" in self.said(f"log-{rank}") for rank in (0, 1)), "both to say so")
        self.assertIn(str(other), self.said("log-1"))

    def test_a_mistake_of_all_is_told_by_each(self):
        for rank, process in enumerate(self.start_by_hand(2, "run", train__warmup_steps=30)):
            self.finish(process, code=2, log=f"log-{rank}")
            self.assertIn("train.warmup_steps = 30", self.said(f"log-{rank}"))

    def test_a_leader_that_cannot_begin_is_no_good_end(self):
        (self.folder / "run").write_text("no folder")
        leader, follower = self.start_by_hand(2, "run")
        self.finish(leader, code=1, log="log-0")
        self.finish(follower, code=1, log="log-1")
        self.assertRegex(self.said("log-1"), "process 0 of this island.*, which leads, ended: before the work was done")

    def test_bad_variables_are_named(self):
        for name, value, part in (("RANK", "2", "RANK = 2 and WORLD_SIZE = 2"), ("MASTER_PORT", "x", "MASTER_PORT = 'x'"),
                                  ("MASTER_ADDR", "", "MASTER_ADDR is not set")):
            with self.subTest(name):
                environment = {**as_torchrun(0, 2, 1), name: value}
                self.finish(self.start(self.words("run"), environment), code=2)
                self.assertIn(part, self.said())

    def test_what_does_not_go_together(self):
        for more, settings, part in ((["--processes-per-island", "0"], {}, "must be a whole number"),
                                     (["--processes-per-island", "2"], {"train__shard": "zero9"}, "none, zero1, zero3"),
                                     (["--islands", "2", "--processes-per-island", "2"], {"train__device": "cuda"},
                                      "all islands would take the same devices"),
                                     (["--processes-per-island", "2"], {"train__shard": "zero1", "train__optimizer": "muon"},
                                      "needs them whole")):
            with self.subTest(part):
                self.train("run", *more, code=2, **settings)
                self.assertIn(part, self.said())

    def test_one_process_is_an_island_whatever_the_environment_says(self):
        process = self.start(self.words("run", "--processes-per-island", "1"), as_torchrun(1, 2, 1))
        self.finish(process)


@unittest.skipIf(slurm_cluster.missing(), "Slurm is not installed")
class SrunTest(ProcessesTestCase):
    @classmethod
    def setUpClass(cls):
        cls.slurm = cls.enterClassContext(slurm_cluster.SlurmCluster(cpus=2))

    def srun(self, *words):
        environment = {**clean(), **self.slurm.environment}
        return self.start(["srun", "--ntasks=2", "--cpus-per-task=1", "--quiet", *words], environment)

    def test_losses_are_those_of_one_process(self):
        self.train("one")
        for shard in "none", "zero1", "zero3":
            self.finish(self.srun(*self.words(shard, train__shard=shard)))
            self.assert_near(shard, losses(self.folder / "one"))

    def test_a_killed_task_ends_the_step(self):
        process = self.srun(*self.words("run", **ENDLESS))
        wait_for(lambda: steps_taken(self.folder / "run") > 12 or process.poll() is not None, "training")
        tasks = [int(path.parent.name) for path in pathlib.Path("/proc").glob("[0-9]*/environ")
                 if self.is_task(path, rank=1)]
        self.assertTrue(tasks, self.said())
        os.kill(tasks[0], signal.SIGKILL)
        self.assertNotEqual(process.wait(DEADLINE_S), 0)
        self.assertIn("process 1 of this island", self.said())
        before = steps_taken(self.folder / "run")
        process = self.srun(*self.words("run", **ENDLESS))
        wait_for(lambda: steps_taken(self.folder / "run") > before or process.poll() is not None, "the run to go on")
        self.assertIsNone(process.poll(), self.said())

    def is_task(self, path, rank):
        try:
            words = path.read_bytes().split(b"\0")
            program = os.readlink(path.parent / "exe")
        except OSError:
            return False
        return (f"SLURM_PROCID={rank}".encode() in words and program.endswith("atoll-torch") and
                str(self.slurm.folder).encode() in path.read_bytes())


if __name__ == "__main__":
    ATOLL, STORE = map(os.path.abspath, sys.argv[1:3])
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
