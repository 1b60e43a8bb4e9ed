#!/usr/bin/env python3
"""`atoll scaling sweep` with real training: results, resuming after kill -9, failed points, refusals.

usage: sweep_test.py ATOLL STORE [unittest arguments]
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
import time
import unittest

ATOLL, STORE = "", ""
DEADLINE_S = 240
SWEEP = """
[sweep]
tokens_per_param = {tokens}
extensions = 1
[settings.data]
path = "{store}"
[settings.train]
sequence_length = 16
eval_rows = 16
[settings.model]
max_positions = 16
num_heads = 2
num_kv_heads = 2
intermediate_size = 16
num_layers = 1
[sizes.a]
hidden_size = 8
[sizes.b]
hidden_size = 12
[[grid]]
name = "rates"
replicas = {replicas}
lr = {lr}
batch_tokens = 128
{more}
"""


class SweepTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="atoll-sweep-test-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def sweep_file(self, lr="[4e-3]", replicas="[0]", more="", tokens=1, name="s.toml"):
        path = self.folder / name
        path.write_text(SWEEP.format(store=STORE, lr=lr, replicas=replicas, more=more, tokens=tokens))
        return path

    def command(self, *words, folder="out"):
        return [ATOLL, "scaling", "sweep", *map(str, words), "--folder", str(self.folder / folder)]

    def sweep(self, *words, folder="out", code=0):
        done = subprocess.run(self.command(*words, folder=folder), capture_output=True, text=True, timeout=DEADLINE_S)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def json_of(self, *words, folder="out"):
        return json.loads(self.sweep(*words, "--json", folder=folder).stdout)

    def points(self, folder="out"):
        path = self.folder / folder / "points.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return {point["key"]: point for point in map(json.loads, lines)}

    def start(self, *words):
        process = subprocess.Popen(self.command(*words), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def wait_for(self, condition):
        end = time.monotonic() + DEADLINE_S
        while not (found := condition()):
            self.assertLess(time.monotonic(), end, "it did not happen")
            time.sleep(0.02)
        return found

    def trainers(self):
        """Ids of the processes that train a point of this test."""
        return self.processes(b"train")

    def processes(self, command=None):
        """Ids of the processes with this command, or any, that work on a point of this test."""
        points = str(self.folder / "out" / "points").encode()
        found = []
        for entry in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if any(points in word for word in words) and command in (None, *words[1:2]):
                found.append(int(entry.name))
        return found

    def test_a_small_sweep(self):
        path = self.sweep_file("[2e-3, 8e-3]", "[0, 2]", "outer_lr = 0.6\nsync_every = 5")
        said = self.json_of(path, "--cores", 2)
        self.assertEqual((said["done"], said["failed"], said["missing"]), (True, 0, 0))
        self.assertEqual([(cell["size"], cell["replicas"]) for cell in said["cells"]],
                         [("a", 0), ("a", 2), ("b", 0), ("b", 2)])
        for cell in said["cells"]:
            self.assertIn(cell["axes"]["lr"]["end"], ("interior", "low", "high"))
            self.assertEqual(cell["points"], 3)  # Two values and the one extension.
            if cell["axes"]["lr"]["end"] != "interior":
                self.assertIn("the one extension is used", cell["axes"]["lr"]["limit"])
        self.assert_interior(said)
        report = (self.folder / "out" / "report.md").read_text()
        self.assertIn("| rates | b |", report)
        self.assertIn("No law: one needs 3 sizes.\n\n", report)
        table = (self.folder / "out" / "results.csv").read_text().splitlines()
        self.assertTrue(table[0].startswith("params,replicas,loss"))
        self.assertEqual(len(table), 13)
        fit = subprocess.run([ATOLL, "scaling", "fit", self.folder / "out" / "results.csv"], capture_output=True, text=True)
        self.assertIn("too few points", fit.stderr)  # Two sizes make no law; but the table is read.
        self.assertEqual(os.listdir(self.folder / "out" / "points"), [])
        # Nothing is trained twice: not in a second call, not in a fresh folder that is given the results.
        before = self.points()
        self.assertEqual(self.json_of(path)["points"], 12)
        self.assertEqual(self.points(), before)
        kept = self.folder / "kept.jsonl"
        self.sweep(path, "--report", "--export", kept)
        self.assertEqual(json.loads(self.sweep(path, "--dry-run", "--json", "--import", kept, folder="new").stdout)["points"], 0)
        self.assertIn("12 points would be added", self.sweep(path, "--dry-run", "--import", kept, folder="new").stderr)
        self.assertFalse((self.folder / "new").exists())
        again = self.json_of(path, "--import", kept, folder="new")
        self.assertEqual(again["cells"], said["cells"])
        self.assertEqual(self.points("new"), before)
        # What the database had is in the text too.
        (self.folder / "out" / "points.db").write_bytes(b"x" * 5000)
        damaged = self.sweep(path, "--report", code=1).stderr
        self.assertIn("delete it, and the finished points are taken over from", damaged)
        for file in (self.folder / "out").glob("points.db*"):
            file.unlink()
        self.assertEqual(self.json_of(path, "--report")["cells"], said["cells"])
        self.assertEqual(self.points(), before)
        # A value more trains that value alone.
        wider = self.sweep_file("[2e-3, 8e-3, 32e-3]", "[0, 2]", "outer_lr = 0.6\nsync_every = 5")
        self.sweep(wider)
        self.assertEqual({key: self.points()[key] for key in before}, before)
        # A dry run takes nothing over.
        left = [json.loads(self.sweep(wider, "--dry-run", "--json", *words, folder="new").stdout)["points"]
                for words in ([], ["--import", self.folder / "out" / "points.jsonl"], [])]
        self.assertEqual(left, [left[0], 0, left[0]])
        self.assertGreater(left[0], 0)

    def test_a_killed_sweep_resumes(self):
        path = self.sweep_file("[2e-3, 8e-3]", "[0, 2]", "outer_lr = 0.6\nsync_every = 5", tokens=4)
        process = self.start(path, "--cores", 1)
        # Those with replicas come first, so one of them is under way.
        self.wait_for(lambda: len(self.points()) >= 2 and list(self.folder.glob("out/points/*/run/island-1/metrics.jsonl")))
        process.kill()
        process.wait()
        self.wait_for(lambda: not self.trainers())  # They die with it.
        before = self.points()
        said = self.json_of(path, "--cores", 2)
        self.assertEqual((said["done"], said["failed"]), (True, 0))
        after = self.points()
        self.assertEqual({key: after[key] for key in before}, before)
        self.assertGreater(len(after), len(before))
        self.json_of(path, "--cores", 2, folder="whole")
        whole = self.points("whole")
        self.assertEqual({key: (p["loss"], p["digest"]) for key, p in whole.items()},
                         {key: (p["loss"], p["digest"]) for key, p in after.items()})

    def test_ctrl_c_keeps_what_runs(self):
        path = self.sweep_file("[4e-3]", tokens=150)
        process = self.start(path, "--cores", 1)
        run = self.folder / "out" / "points"
        self.wait_for(lambda: list(run.glob("*/run/metrics.jsonl")))
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=DEADLINE_S)
        self.assertEqual(process.returncode, 130, errors)
        self.assertIn("goes on by the same command", errors)
        self.assertEqual(self.points(), {})
        self.assert_goes_on(path, run)

    def assert_goes_on(self, path, run, islands=1):
        """What was stopped has a checkpoint of a later step, from which the next sweep goes on to the same end."""
        pattern = "*/run/island-*/checkpoints/step-????????" if islands > 1 else "*/run/checkpoints/step-????????"
        kept = {int(step.name.removeprefix("step-")) for step in run.glob(pattern)}
        self.assertGreater(max(kept), 0)
        said = self.json_of(path, "--keep")
        self.assertEqual((said["points"], said["failed"]), (2, 0))
        summaries = [json.loads(result.read_text())["summary"] for result in run.glob("*/result.json")]
        left = min(summaries, key=lambda summary: summary["steps_now"] / summary["steps"])
        self.assertEqual(left["steps_now"], left["steps"] - max(kept))
        self.sweep(path, folder="whole")
        self.assertEqual({key: p["digest"] for key, p in self.points().items()},
                         {key: p["digest"] for key, p in self.points("whole").items()})

    def test_a_machine_that_fails_costs_what_came_after_the_last_checkpoint(self):
        path = self.sweep_file("[4e-3]", tokens=150)
        path.write_text(path.read_text().replace("eval_rows", "checkpoint_every = 100\neval_rows"))
        process = self.start(path, "--cores", 1)
        run = self.folder / "out" / "points"
        self.wait_for(lambda: [step for step in run.glob("*/run/checkpoints/step-????????/state.json") if "-00000000/" not in str(step)])
        process.kill()
        process.wait()
        self.wait_for(lambda: not self.processes())
        self.assert_goes_on(path, run)

    def test_places_with_the_same_settings_are_trained_once(self):
        """Half the tokens of the first grid are all of the second's."""
        more = ("tokens_factor = 2\nsearch = 'halving'\n[[grid]]\nname = 'same'\nreplicas = 0\nlr = 4e-3\n"
                "batch_tokens = 128\n")
        path = self.sweep_file("[4e-3]", more=more)
        path.write_text(path.read_text().replace("extensions = 1", "extensions = 1\nhalving_rungs = 2"))
        self.assertEqual(json.loads(self.sweep(path, "--dry-run", "--json").stdout)["points"], 4)
        said = self.json_of(path, "--cores", 2)
        self.assertEqual((said["done"], said["points"], said["failed"]), (True, 4, 0))

    def test_what_there_is_no_memory_for_is_left_missing(self):
        path = self.sweep_file("[4e-3]")
        refused = self.sweep(path, "--memory", "1MB", "--json", code=1)
        self.assertIn("2 points need more memory than the budget, 1.0 MB", refused.stderr)
        said = json.loads(refused.stdout)
        self.assertEqual((said["points"], said["missing"], said["failed"]), (0, 2, 0))
        for words, count in (["--memory", "1MB"], 2), ([], 0):
            self.assertEqual(json.loads(self.sweep(path, "--dry-run", *words, "--json").stdout)["too_large"], count)
        foreseen = self.sweep(path, "--dry-run", "--memory", "1MB").stdout
        self.assertIn("too much for the 1.0 MB there are: 2 of the 2 would not be trained", foreseen)
        self.assertIn("a guess until a point has been timed", foreseen)
        self.assertIn("need more memory", (self.folder / "out" / "report.md").read_text())
        self.assertEqual(self.json_of(path)["points"], 2)

    def assert_interior(self, said):
        """Each cell's best place and its ends, told again from points.jsonl alone."""
        by_key = self.points()
        for cell in said["cells"]:
            best = by_key[cell["best"]["key"]]["settings"]
            size, replicas = best["model.hidden_size"], best["swarm.replicas"]
            alike = {float(p["settings"]["train.lr"]): p["loss"] for p in by_key.values() if p["status"] == "done" and
                     (p["settings"]["model.hidden_size"], p["settings"]["swarm.replicas"],
                      p["settings"]["sync.method"]) == (size, replicas, best["sync.method"])}
            rates = sorted(alike)
            lowest = min(rates, key=alike.get)
            self.assertEqual((cell["best"]["lr"], cell["best"]["loss"]), (lowest, alike[lowest]))
            end = {0: "low", len(rates) - 1: "high"}.get(rates.index(lowest), "interior")
            self.assertEqual(cell["axes"]["lr"]["end"], end)
            for below, above in zip(rates, rates[1:]):
                self.assertAlmostEqual(above / below, 4, 5)  # Extensions keep the ratio.

    def test_sigterm_to_all_processes_keeps_what_runs(self):
        """As a time limit, a machine that shuts down and a preempted job do it."""
        for replicas, tokens, more in ("[0]", 150, ""), ("[2]", 60, "outer_lr = 0.6\nsync_every = 5"):
            with self.subTest(replicas):
                path = self.sweep_file("[4e-3]", replicas, more, tokens=tokens)
                process = self.start(path, "--cores", 2 if more else 1)
                run = self.folder / "out" / "points"
                islands = ("island-0/", "island-1/") if more else ("",)
                self.wait_for(lambda: all(any(file.stat().st_size for file in run.glob(f"*/run/{island}metrics.jsonl"))
                                          for island in islands))
                for pid in [*self.processes(), process.pid]:
                    os.kill(pid, signal.SIGTERM)
                _, errors = process.communicate(timeout=DEADLINE_S)
                self.assertEqual(process.returncode, 130, errors)
                self.assertEqual(self.points(), {})
                self.assert_goes_on(path, run, len(islands))
                shutil.rmtree(self.folder / "out")
                shutil.rmtree(self.folder / "whole", ignore_errors=True)

    def test_a_failed_point_is_recorded_and_others_go_on(self):
        path = self.sweep_file("[4e-3]", tokens=60)
        process = self.start(path, "--cores", 1)
        os.kill(self.wait_for(self.trainers)[0], signal.SIGKILL)
        _, errors = process.communicate(timeout=DEADLINE_S)
        self.assertEqual(process.returncode, 0, errors)
        self.assertIn("failed; the others go on", errors)
        said = self.json_of(path)
        self.assertEqual((said["points"], said["failed"]), (2, 1))
        self.assertIn("killed by signal 9", said["failures"][0]["message"])
        self.assertIn("killed by signal 9", (self.folder / "out" / "report.md").read_text())
        self.assertEqual(self.json_of(path, "--retry")["failed"], 0)

    def test_a_point_that_loses_an_island_fails_and_others_go_on(self):
        path = self.sweep_file("[4e-3]", "[2]", "outer_lr = 0.6\nsync_every = 5", tokens=60)
        process = self.start(path, "--cores", 2)
        self.wait_for(lambda: list(self.folder.glob("out/points/*/run/island-1/metrics.jsonl")))
        os.kill(self.processes(b"join")[0], signal.SIGKILL)
        _, errors = process.communicate(timeout=DEADLINE_S)
        self.assertEqual(process.returncode, 0, errors)
        said = self.json_of(path)
        self.assertEqual((said["points"], said["failed"]), (2, 1))
        self.assertRegex(said["failures"][0]["message"], "island-[01]: killed by signal 9")
        self.assertFalse(self.processes())

    def test_two_sweeps_on_one_folder_are_refused(self):
        path = self.sweep_file("[4e-3]", tokens=60)
        process = self.start(path, "--cores", 1)
        self.wait_for(self.trainers)
        self.assertIn("in use by another process", self.sweep(path, code=1).stderr)
        process.kill()

    def test_one_that_runs_can_be_looked_at(self):
        path = self.sweep_file("[4e-3]", tokens=60)
        process = self.start(path, "--cores", 1)
        self.wait_for(self.points)
        process.send_signal(signal.SIGSTOP)  # So that it does not end meanwhile; its folder stays its own.
        kept = (self.folder / "out" / "points.jsonl").read_bytes()
        said = self.sweep(path, "--report")
        self.assertIn("another process sweeps", said.stderr)
        finished = [line.split()[-1] for line in said.stdout.splitlines() if re.search(r"\d\.\d{4}$", line)]
        self.assertEqual(finished, [f"{point['loss']:.4f}" for point in self.points().values()])
        self.assertIn("not finished, 0 of 1 points so far", said.stdout)
        outlook = self.json_of(path, "--dry-run")
        self.assertEqual((outlook["done"], outlook["points"]), (1, 1))
        self.assertEqual((self.folder / "out" / "points.jsonl").read_bytes(), kept)
        self.assertFalse((self.folder / "out" / "report.md").exists())
        process.send_signal(signal.SIGCONT)
        _, errors = process.communicate(timeout=DEADLINE_S)
        self.assertEqual(process.returncode, 0, errors)
        self.assertEqual(len(self.points()), 2)

    def test_a_dry_run_starts_nothing(self):
        path = self.sweep_file("[2e-3, 4e-3, 8e-3]", "[0, 2]", "outer_lr = 0.6\nsync_every = 5")
        said = json.loads(self.sweep(path, "--dry-run", "--json").stdout)
        self.assertEqual((said["done"], said["points"]), (0, 12))
        self.assertGreater(said["tokens"], 0)
        self.assertFalse((self.folder / "out").exists())

    def test_refusals_come_before_anything_starts(self):
        for what, words in (("replicas must be from 0", {"replicas": "[-1]"}),
                            ("outer_lr has no effect", {"more": "outer_lr = 0.6"}),
                            ("needs sync_every", {"replicas": "[2]", "more": "outer_lr = 0.6"}),
                            ("did you mean 'seeds'", {"more": "seed = 1"}),
                            ("over the", {"replicas": "[2]", "more": "outer_lr = 0.6\nsync_every = 1000000"}),
                            ("must be from 1e-12 to 1000, not -0.005\n", {"lr": "[-0.005]"}),
                            ("a multiple of 48", {"replicas": "[3]", "more": "outer_lr = 0.6\nsync_every = 5"}),
                            ("unknown setting 'train.lrr'", {"more": "[settings.train]\nlrr = 1"})):
            with self.subTest(what):
                path = self.sweep_file(**words)
                if "[settings.train]\n" in words.get("more", ""):
                    path.write_text(path.read_text().replace(words["more"], "").replace("eval_rows", "lrr"))
                self.assertIn(what, self.sweep(path, code=2).stderr)
                self.assertFalse((self.folder / "out").exists())
        path = self.sweep_file()
        self.assertIn("--memory must be a size", self.sweep(path, "--memory", "much", code=2).stderr)
        for option in "--memory", "--export":
            self.assertIn(option, self.sweep(path, option, "", code=2).stderr)
        self.assertIn("there is no sweep", self.sweep(path, "--report", code=2).stderr)
        (self.folder / "bad.jsonl").write_text("{}\n")
        self.assertIn("bad.jsonl, line 1", self.sweep(path, "--import", self.folder / "bad.jsonl", code=1).stderr)


if __name__ == "__main__":
    ATOLL, STORE = sys.argv.pop(1), sys.argv.pop(1)
    unittest.main()
