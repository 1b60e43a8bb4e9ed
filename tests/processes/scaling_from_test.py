#!/usr/bin/env python3
"""`atoll scaling simulate --from` on a run that two islands have just trained.

usage: scaling_from_test.py ATOLL STORE [unittest arguments]
"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import xml.dom.minidom

ATOLL = STORE = ""
DEADLINE_S = 240
SETTINGS = {
    "model.hidden_size": 64, "model.intermediate_size": 128, "model.num_layers": 2, "model.num_heads": 2,
    "model.num_kv_heads": 1, "model.max_positions": 64, "train.sequence_length": 32, "train.batch_rows": 4,
    "train.warmup_steps": 2, "train.eval_rows": 2, "train.log_every": 3, "train.eval_every": 12, "train.steps": 30,
    "train.threads": 1, "train.checkpoint_every": 10, "sync.method": "streaming_diloco", "sync.codec": "e3m0",
    "sync.num_fragments": 3, "sync.fragment_sync_delay": 1, "sync.sync_every": 9,
}


def atoll(*words):
    return subprocess.run([ATOLL, *map(str, words)], capture_output=True, text=True, timeout=DEADLINE_S)


class FromRunTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="atoll-scaling-from-")
        cls.run_folder = pathlib.Path(cls.folder.name) / "run"
        done = atoll("train", "--islands", 2, "--run", cls.run_folder, "--data", STORE, "--link-rate", "2mbit", "--json",
                     *(f"--{key}={value}" for key, value in SETTINGS.items()))
        assert done.returncode == 0, done.stderr
        cls.summary = json.loads(done.stdout.strip().split("\n")[-1])

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def simulate(self, *words, run=None):
        return atoll("scaling", "simulate", "--from", run or self.run_folder, *words)

    def report(self, *words, run=None):
        done = self.simulate(*words, "--json", run=run)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.count("\n"), 1)
        return json.loads(done.stdout)

    def assert_refused(self, code, part, *words, run=None):
        done = self.simulate(*words, run=run)
        self.assertEqual((done.returncode, done.stdout), (code, ""), done)
        self.assertIn(part, done.stderr)

    def lines(self, name, island="island-0"):
        return [json.loads(line) for line in (self.run_folder / island / name).read_text().splitlines()]

    def test_the_report_tells_what_the_run_was(self):
        said = self.report("--link-rate", "2mbit")
        self.assertEqual((said["method"], said["codec"], said["calibration"]), ("streaming_diloco", "e3m0", "none"))
        self.assertEqual((said["sync_every"], said["fragments"], said["delay"], said["layers"]), (9, 3, 1, 2))
        self.assertEqual(said["parameters"], self.summary["num_parameters"])
        self.assertEqual((said["first_step"], said["last_step"]), (0, 30))
        self.assertEqual([island["name"] for island in said["islands"]], ["island-0", "island-1"])
        rounds = self.lines("rounds.jsonl")
        self.assertEqual(said["round"]["rounds"], len(rounds))
        # All that was sent, each value once to one other island, in e3m0's 4.0625 bits; headers of parts are more.
        self.assertEqual(said["round"]["copies"], 1)
        self.assertTrue(4.0625 < said["bits_on_the_wire"] < 4.4, said["bits_on_the_wire"])
        values = sum(line["values"] for line in rounds[-3:])
        self.assertEqual(values, said["parameters"])  # The last step sends every fragment.

    def test_members_may_come_and_go(self):
        """FP32 in rounds of one, two and three members: what each sent was 32 bits a copy."""
        run = pathlib.Path(self.folder.name) / "changing"
        names, values = [f"island-{i}" for i in range(3)], 1000
        for name in names:
            folder = run / name
            folder.mkdir(parents=True)
            (folder / "config.toml").write_text('[sync]\nmethod = "diloco"\nsync_every = 10\n[swarm]\nmin_replicas = 1\n')
            (folder / "metrics.jsonl").write_text("".join(json.dumps(
                {"step": step, "began_at": 0, "seconds": {"computing": step, "handling": 0, "waiting": 0, "validation": 0,
                                                          "checkpoints": 0}}) + "\n" for step in (10, 60)))
            with (folder / "rounds.jsonl").open("w") as file:
                for number in range(6):
                    members = names[:1 + number // 2]
                    if name not in members:
                        continue
                    sent = 2 * (len(members) - 1) / len(members) * 4 * values
                    file.write(json.dumps({"step": 10 + 10 * number, "sent": 10 + 10 * number, "round": number, "fragment": 0,
                                           "members": members, "values": values, "codec": "fp32", "bytes_sent": sent,
                                           "bytes_received": sent, "exchange_ms": 10, "prepare_ms": 1}) + "\n")
        said = self.report("--gbps", "0.01", run=run)
        self.assertAlmostEqual(said["bits_on_the_wire"], 32, 9)
        # Four lines of rounds of two, which send one copy, and six of three, which send four thirds.
        self.assertAlmostEqual(said["round"]["copies"], (4 * 1 + 6 * 4 / 3) / 10, 9)
        self.assertEqual(said["round"]["values"], values)

    def test_what_was_measured_is_what_the_metrics_say(self):
        said = self.report("--link-rate", "2mbit")
        for island in said["islands"]:
            last = self.lines("metrics.jsonl", island["name"])[-1]
            spent = last["seconds"]
            trained = spent["computing"] + spent["handling"] + spent["waiting"]
            self.assertAlmostEqual(island["measured"], spent["computing"] / trained, 9)
            self.assertAlmostEqual(island["pausing_s"], spent["validation"] + spent["checkpoints"], 9)
            self.assertGreater(spent["validation"], 0)
            # What training stood still for, as the run has always told it: without rows, and of a time with checkpoints.
            self.assertGreater((spent["handling"] + spent["waiting"]) / trained, last["stall_share"] - 1e-3)
            self.assertAlmostEqual(island["difference_points"], 100 * (island["predicted"] - island["measured"]), 9)
            self.assertTrue(0 < island["predicted"] <= 1)

    def test_a_faster_line_computes_more_and_targets_are_met(self):
        slow, fast = (self.report("--gbps", gbps)["utilisation"]["predicted"] for gbps in ("0.0001", "10"))
        self.assertLess(slow, 0.5)
        self.assertGreater(fast, slow)
        said = self.report("--gbps", "0.001", "--targets", "0.2,0.5")
        for target, gbps in zip(said["targets"], said["gbps"]):
            at = self.report("--gbps", f"{gbps:.12f}")["utilisation"]["predicted"]
            self.assertAlmostEqual(at, target, delta=0.01)
        self.assertEqual(said["grid_index"], [0, 0])  # Both far below the papers' first bandwidth.
        held = self.report("--gbps", "10", "--targets", "1")
        self.assertEqual((held["gbps"], held["grid_index"]), ([None], [None]))

    def test_islands_have_lines_of_their_own(self):
        even = self.report("--gbps", "0.002", "--island", "up=1", "--island", "up=1")
        self.assertEqual(even["utilisation"], self.report("--gbps", "0.002")["utilisation"])
        for worse in "up=0.1", "down=0.1", "latency=0.5":
            uneven = self.report("--gbps", "0.002", "--island", "up=1", "--island", worse)
            self.assertLess(uneven["utilisation"]["predicted"], even["utilisation"]["predicted"] - 0.02, worse)
        self.assert_refused(2, "the run has 2 islands (island-0, island-1)", "--gbps", 1, "--island", "up=1")
        self.assert_refused(2, "--island needs a line", "--island", "up=1", "--island", "up=1")
        self.assert_refused(2, "has no up or down", "--link-rate", "2mbit", "--island", "up=0.5", "--island", "up=1")

    def test_lines_as_the_run_recorded_them(self):
        said = self.report()
        self.assertEqual(said["line"]["source"], "recorded")
        self.assertGreater(said["line"]["gbps"], 0.001)
        self.assertTrue(0 < said["utilisation"]["predicted"] <= 1)

    def test_one_islands_folder_is_enough(self):
        said = self.report("--link-rate", "2mbit", run=self.run_folder / "island-1")
        self.assertEqual(len(said["islands"]), 2)
        self.assertTrue(any("not here" in entry["what"] for entry in said["left_out"]))

    def test_text_and_picture(self):
        done = self.simulate("--link-rate", "2mbit")
        self.assertEqual(done.returncode, 0, done.stderr)
        for part in "predicted", "measured", "island-1", "left out", "validation and checkpoints", "Gbit/s for a utilisation":
            self.assertIn(part, done.stdout)
        picture = pathlib.Path(self.folder.name) / "links.svg"
        self.assertEqual(self.simulate("--link-rate", "2mbit", "--plot", picture).returncode, 0)
        document = xml.dom.minidom.parseString(picture.read_text())
        self.assertEqual(len(document.getElementsByTagName("polyline")), 1)
        self.assertGreaterEqual(len(document.getElementsByTagName("circle")), 1)

    def test_what_a_run_says_itself_is_not_told(self):
        for words in (["--params", "1e9"], ["--step-time", "1"], ["--bits", "4"], ["--method", "diloco"], ["--tokens", "1e9"]):
            self.assert_refused(2, words[0], "--gbps", "1", *words)
        self.assert_refused(2, "--calibration paper", "--gbps", "1", "--calibration", "paper")
        self.assertEqual(self.simulate("--gbps", "1", "--calibration", "none").returncode, 0)
        self.assert_refused(2, "--link-rate", "--gbps", "1", "--link-rate", "2mbit")
        self.assert_refused(2, "no link rate", "--link-rate", "fast")
        self.assertIn("--from", atoll("scaling", "simulate").stderr)

    def test_damaged_records_are_refused_by_file_and_line(self):
        copy = pathlib.Path(self.folder.name) / "copy"
        metrics = (self.run_folder / "island-1" / "metrics.jsonl").read_text()
        for text, part in ((metrics.replace('"computing":', '"computing":-', 1), "line 1: 'computing' must be a number"),
                           (metrics[:100] + "\n" + metrics, "line 1: it is no JSON object"),
                           ('{"loss":1}\n', "line 1: it has no 'step'"), (metrics[:100], "no whole line yet")):
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(self.run_folder, copy)
            (copy / "island-1" / "metrics.jsonl").write_text(text)
            self.assert_refused(1, part, "--gbps", "1", run=copy)
            (copy / "island-1" / "metrics.jsonl").write_text(metrics[:-20])  # As if a line were just being written.
            self.assertEqual(self.simulate("--gbps", "1", run=copy).returncode, 0)
        (copy / "island-1" / "rounds.jsonl").unlink()
        self.assert_refused(1, "island-1/rounds.jsonl", "--gbps", "1", run=copy)
        self.assert_refused(1, "no run with records", "--gbps", "1", run=pathlib.Path(STORE))


if __name__ == "__main__":
    ATOLL, STORE = sys.argv.pop(1), sys.argv.pop(1)
    unittest.main()
