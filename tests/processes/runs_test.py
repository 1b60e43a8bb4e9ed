#!/usr/bin/env python3
"""Several runs on one coordinator: real processes, and nothing of one run is ever found in another.

usage: runs_test.py ATOLL STORE [unittest arguments]
"""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

from kept_port import KeptPort
from swarm_run import TINY, SwarmRun, wait_for
from swarm_test import limit_files

ATOLL = STORE = ""
FINE = {"sync.sync_every": 10, "train.seed": 1}
COARSE = {"sync.sync_every": 40, "swarm.pace": "elastic", "model.hidden_size": 64, "train.seed": 2}


class OneOfSeveral(SwarmRun):
    """A run of a Coordinator below, and nothing of the others."""

    def __init__(self, shared, name, settings, is_created):
        super().__init__(ATOLL, STORE, shared.folder / name, settings, is_created=is_created)
        self.shared, self.name, self.coordinated = shared, name, shared.folder / "runs" / name
        self.config = self.folder / "config.toml"
        self.config.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in self.settings.items()))
        if is_created:
            self._atoll("create", self.coordinated)

    def log(self, name="coordinator"):
        return self.shared.log() if name == "coordinator" else super().log(name)

    def join(self, name, *words, **more):
        if self.is_created:  # A certificate says the run.
            return super().join(name, *words, **more)
        return super().join(name, *words, **{"address": f"{self.shared.address}/{self.name}", **more})

    def status(self):
        done = subprocess.run([ATOLL, "status", self.coordinated, "--json"], capture_output=True, text=True, timeout=60)
        return json.loads(done.stdout) if done.returncode == 0 else None


class Coordinator:
    def __init__(self, folder, runs, is_created=False):
        self.folder, self.address, self.log_file = folder, None, folder / "coordinator.log"
        self.port = KeptPort()
        self.runs = {name: OneOfSeveral(self, name, settings, is_created) for name, settings in runs.items()}

    def add(self, name, settings):
        self.runs[name] = OneOfSeveral(self, name, settings, is_created=False)
        return self.runs[name]

    def start(self, *words, **options):
        out = self.folder / "coordinator.out"
        pairs = [word for run in self.runs.values() for word in ("--config", run.config, "--run", run.coordinated)]
        with open(self.log_file, "ab") as log, open(out, "wb") as stdout:
            self.process = subprocess.Popen([ATOLL, "coordinate", "--listen", self.port.address, *pairs, *words],
                                            stdout=stdout, stderr=log, **options)
        wait_for(lambda: out.read_text().endswith("\n") or self.process.poll() is not None, "the coordinator's address")
        self.address = out.read_text().strip() or self.address
        for run in self.runs.values():
            run.processes["coordinator"], run.address = self.process, self.address

    def kill(self):
        self.process.kill()
        self.process.wait()

    def log(self):
        return self.log_file.read_text()

    def stop(self):
        """Ctrl-C; all runs end. The exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(120)


class SeveralRuns(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="atoll-runs-test-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def coordinator(self, words=(), is_created=False, **runs):
        shared = Coordinator(self.folder, runs, is_created)
        self.addCleanup(lambda: [run.kill_all() for run in shared.runs.values()])
        self.addCleanup(shared.port.give_back)
        shared.start(*words)
        return shared, *shared.runs.values()

    def begin(self, names="ab", commits=2, **runs):
        """Islands of the same names in all runs."""
        shared, *parts = self.coordinator(**runs)
        for run in parts:
            for name in names:
                run.join(name)
        for run in parts:
            run.wait_commits(commits, after=0)
        return shared, *parts

    def ended(self, run):
        """All islands of this run hold one model; journal and folders hold this run, whole, and no other."""
        summaries = run.islands_finished()
        run.check()
        return summaries

    def refusal(self, shared, where, *words):
        island = self.folder / "stranger"
        done = subprocess.run([ATOLL, "join", where, "--run", island, "--name", "stranger", "--data", STORE, *words],
                              capture_output=True, text=True, timeout=120)
        shutil.rmtree(island, ignore_errors=True)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("refused this island", done.stderr)
        return done.stderr


class RunsTest(SeveralRuns):
    def test_two_runs_train_at_once_and_do_not_mix(self):
        shared, fine, coarse = self.begin(fine=FINE, coarse=COARSE)
        for _ in range(2):  # At once: each goes on while the other does.
            fine.wait_commits(1)
            coarse.wait_commits(1)

        none = self.refusal(shared, shared.address)
        self.assertRegex(none, "several runs.*fine, coarse")
        self.assertRegex(self.refusal(shared, f"{shared.address}/other"), "no run 'other', but fine, coarse")
        wrong = self.refusal(shared, f"{shared.address}/coarse", "--sync.sync_every=10")  # As in the other one.
        self.assertIn("sync.sync_every: the coordinator has 40, this island asked for 10", wrong)
        self.assertNotIn("stranger", json.dumps(fine.events().all()))
        self.assertTrue(coarse.events().find("island_refused", island="stranger", reason=re.compile("^sync.sync_every")))
        self.assertIn("[coarse] island 'stranger' was refused: sync.sync_every", shared.log())
        self.assertEqual(subprocess.run([ATOLL, "join", f"{shared.address}/a/b"], capture_output=True).returncode, 2)
        # An island that has another run's state is none of this run.
        fine.kill("b")
        held = sorted(path.name for path in (fine.folder / "b").rglob("*"))
        coarse.join("lost", folder=fine.folder / "b")
        self.assertNotEqual(coarse.finish("lost")[0], 0)
        del coarse.processes["lost"]
        self.assertEqual(held, sorted(path.name for path in (fine.folder / "b").rglob("*")))
        fine.join("b")
        fine.wait_part("b")
        # The killed process is listed until the coordinator has missed it for long enough.
        wait_for(lambda: len(fine.status()["islands"]) == 2, "the killed island to be forgotten")

        seen = {run.name: run.status() for run in (fine, coarse)}
        for run in (fine, coarse):
            self.assertEqual(seen[run.name]["name"], run.name)
            self.assertEqual(seen[run.name]["run"], run.journal().run)
            self.assertEqual([island["name"] for island in seen[run.name]["islands"]], ["a", "b"])
        self.assertNotEqual(seen["fine"]["run"], seen["coarse"]["run"])
        self.assert_status_of_all(shared, seen)

        self.assertEqual(shared.stop(), 0)
        one, other = self.ended(fine)["a"], self.ended(coarse)["a"]
        self.assertNotEqual(one["digest"], other["digest"])
        self.assertEqual({line["step"] % 10 for line in fine.rounds("a")}, {0})
        for run in (fine, coarse):
            self.assertFalse((run.coordinated / "coordinator.json").exists())

    def assert_status_of_all(self, shared, seen):
        where = json.loads((shared.runs["fine"].coordinated / "coordinator.json").read_text())["status"]
        ask = lambda *words: subprocess.run([ATOLL, "status", *words], capture_output=True, text=True, timeout=60, check=True)
        both = json.loads(ask(where, "--json").stdout)["runs"]
        self.assertEqual([run["name"] for run in both], ["fine", "coarse"])
        text = ask(where).stdout
        for name, status in seen.items():
            self.assertIn(f"run {name} ({status['run']}): training", text)
        for place in (f"{where}/coarse", f"http://{where}/status/coarse"):
            self.assertEqual(json.loads(ask(place, "--json").stdout)["run"], seen["coarse"]["run"])
        done = subprocess.run([ATOLL, "status", f"{where}/other"], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 1)
        self.assertIn("has no run that is called 'other'", done.stderr)

    def test_a_killed_coordinator_comes_back_with_all_its_runs_and_one_more(self):
        shared, fine, coarse = self.begin(fine=FINE, coarse=COARSE)
        for turn in range(2):
            marks = {run: run.mark() for run in (fine, coarse)}
            shared.kill()
            if turn == 1:
                third = shared.add("third", {**FINE, "swarm.replicas": 1})
            shared.start()
            for run, mark in marks.items():
                for name in "ab":
                    run.wait_event("island_back", after=mark, island=name)
                run.wait_commits(2)
        third.join("a")
        third.wait_commits(2, after=0)
        self.assertEqual(shared.stop(), 0)
        for run in (fine, coarse, third):
            self.ended(run)
        self.assertEqual([len(run.journal().terms) for run in (fine, coarse, third)], [3, 3, 1])
        self.assertEqual(len({run.journal().run for run in (fine, coarse, third)}), 3)

    def test_one_run_ends_and_the_other_goes_on(self):
        shared, short, long = self.begin(short={**FINE, "train.steps": 200}, long=COARSE)
        self.assertEqual({summary["steps"] for summary in self.ended(short).values()}, {200})
        short.wait_event("run_over", step=200)
        long.wait_commits(2)
        self.assertIn("the run 'short' is over", self.refusal(shared, f"{shared.address}/short"))
        wait_for(lambda: short.status() is None, "the end of coordinator.json")
        # Its folder is free: another coordinator may have it.
        again = subprocess.Popen([ATOLL, "coordinate", "--listen", "127.0.0.1:0", "--config", short.config, "--run", short.coordinated],
                                 stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.assertRegex(again.stdout.readline(), r"127\.0\.0\.1:\d+")
        again.kill()
        again.communicate()
        long.wait_commits(1)
        self.assertEqual(shared.stop(), 0)
        self.ended(long)

    def test_one_run_fails_and_the_other_goes_on(self):
        shared, good, bad = self.coordinator(good={**FINE, "train.checkpoint_every": 20}, bad=FINE)
        for name in "ab":
            good.join(name)
        checkpoints = good.folder / "a" / "checkpoints"
        models = []
        for model in ("first", "second"):
            newer = lambda: [folder for folder in checkpoints.glob("step-????????") if folder.name not in models]
            wait_for(newer, "a checkpoint")
            models.append(max(newer()).name)
            shutil.copytree(checkpoints / models[-1], good.folder / model)
        bad.join("a", "--init", good.folder / "first")
        bad.wait_event("island_ready", island="a")
        # Without --init its checkpoints would lack what the model says of its tokenizer and chats.
        self.assertRegex(self.refusal(shared, f"{shared.address}/bad"), "files of --init: the run has [0-9a-f]{64}, this island none")
        bad.join("b", "--init", good.folder / "second")  # Two models: there is nothing to begin with.
        bad.wait_event("run_failed", reason=re.compile("^checkpoints: the islands have none in common"))
        for name in "ab":
            self.assertEqual(bad.finish(name)[0], 1)
        good.wait_commits(3)
        self.assertEqual(shared.stop(), 1)
        self.ended(good)
        self.assertRegex(shared.log(), r"1 of 2 runs failed:\n  bad: checkpoints: the islands have none in common")

    def test_a_full_disk_stands_one_run_still_and_loses_nothing(self):
        shared, fine, coarse = self.begin(fine=FINE, coarse={**COARSE, "sync.sync_every": 400})
        fine.wait_commits(100, after=0)
        shared.kill()
        sizes = {run: (run.coordinated / "coordinator.journal").stat().st_size for run in (fine, coarse)}
        self.assertGreater(sizes[fine], sizes[coarse] + 2000)
        shared.log_file.write_bytes(b"")  # The limit is for each file.
        for run in (fine, coarse):
            run.events().path.write_bytes(b"")
            self.assertEqual(run.mark(), 0)
        shared.start(**limit_files(sizes[fine] + 1500))
        fine.wait_event("run_stands_still", reason=re.compile("coordinator.journal.*(large|space)"))
        coarse.wait_commits(2)
        self.assertIsNone(fine.processes["a"].poll())  # It waits.
        shared.kill()
        marks = {run: run.mark() for run in (fine, coarse)}
        shared.start()
        for run in (fine, coarse):
            for name in "ab":
                run.wait_event("island_back", after=marks[run], island=name)
            run.wait_commits(2)
        self.assertEqual(shared.stop(), 0)
        for run in (fine, coarse):
            self.ended(run)

    def test_runs_that_could_not_be_told_apart_are_refused(self):
        config = self.folder / "config.toml"
        config.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in TINY.items()))
        def error(code, *words):
            done = subprocess.run([ATOLL, "coordinate", "--listen", "127.0.0.1:0", *words], cwd=self.folder,
                                  capture_output=True, text=True, timeout=60)
            self.assertEqual((done.returncode, done.stdout), (code, ""), done.stderr)
            return done.stderr
        pair = lambda folder: ("--config", config, "--run", folder)
        self.assertIn("2 --config and 1 --run", error(2, *pair("a"), "--config", config))
        self.assertIn("1 --config and 2 --run", error(2, *pair("a"), "--run", "b"))
        self.assertIn("two runs are called 'a'", error(2, *pair("a"), *pair("x/a/")))
        self.assertIn("'b c' is none", error(2, *pair("a"), *pair("b c")))
        self.assertRegex(error(2, *pair("a"), *pair("b"), "--sync.sync_every=0"), "run 'a': .*sync_every")
        self.assertIn("two runs are called 'a'", error(2, *pair("a"), *pair("a")))


class EncryptedRunsTest(SeveralRuns):
    """Runs that were created, at one port: certificates tell them apart."""

    def atoll(self, *words, code=0):
        done = subprocess.run([ATOLL, *map(str, words)], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stdout.strip() if code == 0 else done.stderr

    def test_two_encrypted_runs_share_a_port_and_nothing_else(self):
        alone = {"swarm.replicas": 1}
        https = ("--https", "127.0.0.1:0", "--https", "127.0.0.1:0")
        shared, fine, coarse = self.coordinator(https, is_created=True, fine={**FINE, **alone}, coarse={**COARSE, **alone})
        for run in (fine, coarse):
            run.join("a")
        for run in (fine, coarse):
            run.wait_commits(1, after=0)
        # A member of one is none of the other, by whichever name it asks.
        guest = shutil.copytree(fine.folder / "a" / "identity", self.folder / "guest" / "identity").parent
        said = self.atoll("join", f"{shared.address}/coarse", "--run", guest, "--data", STORE, code=1)
        self.assertIn("no run 'coarse', but fine", said)
        word = self.atoll("invite", fine.coordinated, "--address", shared.address, "--name", "b")
        self.atoll("revoke", "a", "--run", coarse.coordinated)
        self.assertIn("revoked", coarse.wait_event("island_lost", island="a")["reason"])
        coarse.kill("a")
        fine.wait_commits(1)
        self.assert_readers_are_apart(fine, coarse)
        # All of it comes back, and each is invited to its own.
        shared.kill()
        mark = fine.mark()
        shared.start()
        fine.wait_event("island_back", after=mark, island="a")
        fine.join("b", address=word)
        fine.wait_event("island_came", after=mark, island="b")
        coarse.join("c")
        coarse.wait_event("island_came", after=0, island="c")
        self.assertEqual([run.status()["name"] for run in (fine, coarse)], ["fine", "coarse"])

    def assert_readers_are_apart(self, fine, coarse):
        ports = re.findall(r"for readers of \S+ at https://([\d.:]+)/status", fine.log())
        self.assertEqual(len(ports), 2)
        for own, other, port in ((fine, coarse, ports[0]), (coarse, fine, ports[1])):
            token = self.folder / f"token-{own.name}"
            token.write_text(self.atoll("invite", own.coordinated, "--role", "reader", "--token"))
            as_reader = ("status", f"https://{port}", "--token", f"@{token}", "--json", "--run")
            seen = self.atoll(*as_reader, own.coordinated)
            self.assertIn(own.journal().run, seen)
            self.assertNotIn(other.journal().run, seen)
            self.assertIn("certificate is not taken", self.atoll(*as_reader, other.coordinated, code=1))

    def test_what_cannot_share_a_coordinator_is_refused(self):
        ours, theirs, plain = self.folder / "ours", self.folder / "theirs", self.folder / "plain"
        for run in (ours, theirs):
            self.atoll("create", run)
        shutil.copytree(ours, self.folder / "copy")
        config = self.folder / "config.toml"
        config.write_text("")
        def refused(*runs, more=()):
            pairs = [word for run in runs for word in ("--config", config, "--run", run)]
            return self.atoll("coordinate", "--listen", "127.0.0.1:0", *pairs, *more, code=2)
        self.assertIn("is in the clear", refused(ours, plain))
        self.assertIn("have one authority", refused(ours, self.folder / "copy"))
        self.assertIn("--insecure", refused(theirs, ours, more=["--insecure"]))
        self.assertIn("1 --https and 2 --run", refused(ours, theirs, more=["--https", "127.0.0.1:0"]))


if __name__ == "__main__":
    ATOLL, STORE = (os.path.abspath(word) for word in (sys.argv.pop(1), sys.argv.pop(1)))
    unittest.main(verbosity=2)
