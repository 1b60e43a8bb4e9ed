#!/usr/bin/env python3
"""`atoll scaling`: what it prints, what it refuses, and that its parts go together.

usage: scaling_test.py ATOLL [unittest arguments]
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.dom.minidom

ATOLL = ""
PUBLISHED = pathlib.Path(__file__).resolve().parent.parent.parent / "atoll" / "laws" / "published" / "loss.csv"
WORK = ["--params", "1e9", "--layers", "24", "--step-time", "0.1"]


def run(*words):
    return subprocess.run([ATOLL, "scaling", *map(str, words)], capture_output=True, text=True, timeout=120)


class ScalingTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="atoll-scaling-test-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def table(self, text, name="t.csv"):
        path = self.folder / name
        path.write_text(text)
        return path

    def json_of(self, *words):
        done = run(*words, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.count("\n"), 1)
        return json.loads(done.stdout)

    def assert_refused(self, code, part, *words):
        done = run(*words)
        self.assertEqual((done.returncode, done.stdout), (code, ""), done)
        self.assertIn(part, done.stderr)

    # --- fit ---

    def test_fit_keeps_its_contract(self):
        fit = self.json_of("fit", PUBLISHED, "--bootstrap", 50)
        self.assertEqual([law["replicas"] for law in fit["independent"]], [0, 1, 2, 4, 8])
        self.assertEqual(set(fit["independent"][0]), {"replicas", "A", "alpha", "A_interval", "alpha_interval"})
        self.assertLessEqual({"A", "alpha", "beta"}, set(fit["joint"]))
        for laws in fit["leave_one_out"]["independent"], fit["leave_one_out"]["joint"]:
            self.assertEqual([law["replicas"] for law in laws], [1, 2, 4, 8])
        alone = fit["leave_one_out"]["data_parallel"]
        self.assertEqual(alone["params"], fit["leave_one_out"]["params"])
        self.assertTrue(0 < alone["residual"] < 0.02)
        printed = run("fit", PUBLISHED, "--bootstrap", 0).stdout
        self.assertRegex(printed, r"data-parallel .* %.4f\n" % alone["residual"])
        self.assertRegex(printed, r"joint .* M=1 0\.0188, M=2 0\.0128, M=4 0\.0080, M=8 0\.0076\n")
        self.assertEqual([set(form["coefficients"]) for form in fit["parametric"]],
                         [{"A", "a", "b"}, {"A", "a", "b", "C"}, {"A", "a", "b", "C"}, {"A", "a", "B", "b", "C"}])
        self.assertEqual(fit["refused"], [])
        for law in fit["independent"]:
            self.assertTrue(law["A_interval"][0] < law["A"] < law["A_interval"][1])

    def test_bad_tables_are_refused_by_line(self):
        for text, part in (("params,loss\n1e6,2\n", "missing column replicas"),
                           ("params,replicas,loss\n", "no rows"),
                           ("", "no line of column names"),
                           ("params,replicas,loss\n1e6,1,2\n", "too few points"),
                           ("params,replicas,loss\n1e6,1,2\n2e6,1,1.9\n", "too few points"),
                           ("params,replicas,loss\n1e6,1,nan\n", "line 2: loss must be a finite number"),
                           ("params,replicas,loss\n-1e6,1,2\n", "params must be more than 0"),
                           ("params,replicas,loss\n1e6,1,2\n1e6,1,2\n", "the same row as line 2"),
                           ("params,replicas,loss\n1e6,1,2\n1e6,1,3\n", "contradicts line 2")):
            with self.subTest(text):
                self.assert_refused(1, part, "fit", self.table(text))
        self.assert_refused(1, "none.csv", "fit", self.folder / "none.csv")
        self.assert_refused(1, str(self.folder), "fit", self.folder)

    def test_one_number_of_replicas_has_no_joint_law_and_says_why(self):
        rows = "".join(f"{n},2,{30 * n ** -0.1}\n" for n in (1e6, 2e6, 4e6, 8e6))
        path = self.table("params,replicas,loss\n" + rows)
        done = run("fit", path, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        fit = json.loads(done.stdout)
        self.assertIsNone(fit["joint"])
        self.assertEqual(fit["parametric"], [])
        self.assertEqual(len(fit["independent"]), 1)
        three = self.table("params,replicas,loss\n1e6,1,4\n2e6,1,3.8\n4e6,1,3.5\n")
        self.assertIn("3 points, N as `params` says, to 4e+06", run("fit", three).stdout)
        self.assertIn("joint law of loss: all rows have 2 replicas", done.stderr)
        self.assertIn("joint law of loss", [refusal["what"] for refusal in fit["refused"]])

    def test_data_parallel_alone_is_told_once_what_it_lacks(self):
        rows = "".join(f"{n},0,{30 * n ** -0.1}\n" for n in (1e6, 2e6, 4e6, 8e6, 1.6e7))
        done = run("fit", self.table("params,replicas,loss\n" + rows))
        self.assertEqual((done.returncode, done.stderr.count("\n")), (0, 2), done.stderr)
        self.assertIn("joint law of loss: all rows are data-parallel", done.stderr)
        self.assertIn("the forms: they need rows of two numbers of replicas", done.stderr)
        self.assertRegex(done.stdout, r"data-parallel .* 0\.0000\n")

    def test_a_loss_that_grows_is_warned_of(self):
        path = self.table("params,replicas,loss\n" + "".join(f"{n},1,{n ** 0.02}\n" for n in (1e6, 2e6, 4e6, 8e6)))
        for words in ["fit", path], ["predict", "--params", "3e6", "--replicas", 1, "--fit", path]:
            self.assertIn("1 replica: the loss grows with size (alpha +0.02)", run(*words).stderr)
            self.assertEqual(len(self.json_of(*words)["warnings"]), 1)
        self.assertEqual(self.json_of("fit", PUBLISHED, "--bootstrap", 0)["warnings"], [])

    def test_options_without_effect_are_refused(self):
        self.assert_refused(2, "--plot needs the name of a file", "fit", PUBLISHED, "--plot", "")
        self.assert_refused(2, "20 redraws", "fit", PUBLISHED, "--bootstrap", 1)
        self.assert_refused(2, "--confidence has no effect", "fit", PUBLISHED, "--bootstrap", 0, "--confidence", 0.9)
        bare = self.table("params,replicas,loss\n" + "".join(f"{n},1,{30 * n ** -0.1}\n" for n in (1e6, 2e6, 4e6)))
        for words in ["fit", bare], ["predict", "--params", "1e6", "--replicas", 1, "--fit", bare]:
            self.assert_refused(2, "no batch that a batch unit could count", *words, "--batch-unit", 2048)

    def test_wrong_values_name_the_command(self):
        self.assertIn("`atoll scaling fit --help` shows how", run("fit", PUBLISHED, "--bootstrap", "x").stderr)
        self.assertIn("`atoll scaling predict --help` shows how", run("predict", "--params", 1).stderr)
        self.assertIn("`atoll scaling --help` shows how", run().stderr)

    def test_runs_that_do_not_compare_are_left_out(self):
        text = "params,replicas,loss,tokens,sync_every\n" + "".join(
            f"{n},2,{30 * n ** -0.1},{20 * n},30\n" for n in (1e6, 2e6, 4e6, 8e6))
        alone = self.json_of("fit", self.table(text))
        self.assertEqual((alone["left_out"], alone["fitted_params"]), ([], [1e6, 8e6]))
        self.assertEqual(alone["runs_have"], {"tokens_per_param": 20, "sync_every": 30, "method": None})
        path = self.table(text + "2e6,2,5,6.4e8,30\n2e6,2,5,4e7,1\n")
        done = run("fit", path, "--json")
        self.assertIn("line 6 is left out: 320 tokens a parameter (most runs: 20 tokens a parameter)", done.stderr)
        self.assertIn("line 7 is left out: sync_every 1 (most runs: sync_every 30)", done.stderr)
        mixed = json.loads(done.stdout)
        self.assertEqual([entry["lines"] for entry in mixed["left_out"]], [[6], [7]])
        self.assertEqual(mixed["independent"], alone["independent"])
        # What fit printed has the whole table, and is told apart again.
        again = self.table(done.stdout, "fit.json")
        question = ["predict", "--params", "3e6", "--replicas", 2, "--fit"]
        predicted = self.json_of(*question, again)
        self.assertEqual(predicted["loss"], self.json_of(*question, path)["loss"])
        self.assertEqual(len(predicted["left_out"]), 2)
        self.assertIn("line 7 is left out", run(*question, path).stderr)
        equal = self.table("params,replicas,loss,sync_every\n" + "".join(
            f"{n},2,3,{h}\n" for n in (1e6, 2e6, 4e6) for h in (10, 30)))
        for words in (["fit", equal], [*question, equal]):
            self.assert_refused(1, f"{equal}: the runs do not compare", *words)

    def test_unknown_columns_are_named(self):
        rows = "".join(f"{n},1,{30 * n ** -0.1},x\n" for n in (1e6, 2e6, 4e6))
        done = run("fit", self.table("params,replicas,loss,note\n" + rows))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("columns without a meaning here: note", done.stderr)

    def test_pictures(self):
        for words in (["fit", PUBLISHED], ["simulate", *WORK]):
            for name in "a.svg", "b.html":
                path = self.folder / "new" / name
                done = run(*words, "--plot", path)
                self.assertEqual(done.returncode, 0, done.stderr)
                text = path.read_text()
                self.assertNotIn("http://", text.replace("http://www.w3.org/2000/svg", ""))
                if name.endswith(".svg"):
                    self.assertEqual(len(xml.dom.minidom.parseString(text).getElementsByTagName("polyline")), 5)
            self.assert_refused(2, ".svg or .html", *words, "--plot", self.folder / "c.png")
            self.assert_refused(2, "must end in", *words, "--plot", "x")

    # --- predict ---

    def test_predict_keeps_its_contract(self):
        said = self.json_of("predict", "--params", "1.3e9", "--replicas", 2)
        self.assertLessEqual({"loss", "batch_tokens", "inner_lr", "outer_lr", "extrapolation"}, set(said))
        self.assertEqual(said["extrapolation"], 1)
        self.assertTrue(said["loss_range"][0] < 2.464 < said["loss_range"][1])
        far = run("predict", "--params", "1e11", "--replicas", 16)
        self.assertIn("41 times the largest size of the runs", far.stderr)
        self.assertIn("2 times as many as any run had", far.stderr)
        self.assertIsNone(self.json_of("predict", "--params", "1e9", "--replicas", 0)["outer_lr"])
        self.assertEqual(said["units"], {"loss": "nats per token", "batch_tokens": "tokens of a step, of all replicas",
                                         "inner_lr": "peak",
                                         "params": "vocab * hidden + layers * (4 hidden^2 + 2 hidden ff)"})
        # Nobody knows how many runs fall into a range that was widened.
        for params in "1.3e9", "1e11":
            said = self.json_of("predict", "--params", params, "--replicas", 2)
            self.assertEqual(said["law_confidence"], 0.95)
            self.assertEqual(said["confidence"], 0.95 if said["loss_range"] == said["law_range"] else None)
        self.assertIsNone(said["confidence"])
        self.assertLess(said["loss_range"][0], said["law_range"][0])

    def test_predict_from_a_table_and_from_what_fit_printed(self):
        printed = self.table(run("fit", PUBLISHED, "--json").stdout, "fit.json")
        question = ["predict", "--params", "1e9", "--replicas", 4]
        from_table = self.json_of(*question, "--fit", PUBLISHED)
        from_fit = self.json_of(*question, "--fit", printed)
        self.assertEqual(from_table["loss"], from_fit["loss"])
        self.assertEqual(from_table["loss"], self.json_of(*question)["loss"])
        self.assertIsNone(from_table["batch_tokens"])
        self.assertEqual(from_table["missing"][0]["what"], "batch")

    def test_predict_counts_both_ways(self):
        said = self.json_of("predict", "--shape", "24,2048,8192,32000", "--replicas", 0)
        self.assertEqual(said["params"], 1273495552)
        self.assertGreater(said["atoll_params"], said["params"])

    def test_predict_refuses(self):
        self.assert_refused(2, "--params or --shape", "predict", "--replicas", 2)
        self.assert_refused(2, "must be a number", "predict", "--params", "nan", "--replicas", 2)
        self.assert_refused(2, "must be a number", "predict", "--params", "-5", "--replicas", 2)
        self.assert_refused(2, "whole number", "predict", "--params", "1e9", "--replicas", 1.5)
        self.assert_refused(1, "no part of the joint law", "predict", "--params", "1e9", "--replicas", 0, "--law", "joint")
        self.assert_refused(1, "no rows of 3 replicas", "predict", "--params", "1e9", "--replicas", 3, "--law", "independent")

    # --- simulate ---

    def test_simulate_keeps_its_contract(self):
        said = self.json_of("simulate", *WORK, "--method", "streaming_diloco", "--sync-every", 100, "--fragments", 8,
                            "--delay", 1, "--bits", 16, "--targets", "0.5,0.8,1")
        self.assertEqual(said["targets"], [0.5, 0.8, 1])
        self.assertEqual(said["grid_index"][:2], [14, 20])
        for gbps, index in zip(said["gbps"], said["grid_index"]):
            self.assertAlmostEqual(gbps, 10 ** (-1 + 4 * index / 49), 9)
        none = self.json_of("simulate", *WORK, "--method", "data_parallel", "--targets", "0.999999", "--bits", 1000)
        self.assertEqual((none["gbps"], none["grid_index"]), ([None], [None]))

    def test_failures_are_simulated_without_steps(self):
        islands = ["--island", "speed=1", "--island", "speed=1"]
        words = ["simulate", *WORK, "--method", "diloco", "--gbps", 100, *islands]
        without = self.json_of(*words)
        self.assertNotIn("expected_failures", without)
        said = self.json_of(*words, "--failure-hours", 1)
        self.assertGreaterEqual(said["expected_failures"], 1000)
        # Each is away for 600 of 4200 seconds; the other waits 10 of them.
        expected = without["at"]["utilisation"] * 0.99 * 3600 / 4200
        self.assertAlmostEqual(said["at"]["utilisation"], expected, delta=0.02)
        done = run(*words, "--failure-hours", 1)
        self.assertEqual(done.stderr, "")
        self.assertIn("1000 failures or more are expected", done.stdout)
        # Too few of them are told of; steps that were asked for are simulated all.
        few = [*words, "--failure-hours", 1, "--steps", 10001]
        # Two islands, 10001 steps of 71/72 of 0.1 s, each fails once in 4200 s.
        self.assertIn("only 0.47 failures are expected", run(*few).stderr)
        self.assertEqual(self.json_of(*few)["steps"], 10001)
        self.assertIn("is left to chance", run(*words, "--failure-hours", 1, "--steps", 100001).stderr)
        self.assert_refused(2, "give fewer --steps", *words, "--failure-hours", 1, "--steps", 10**12)
        self.assertEqual(self.json_of(*words, "--failure-hours", "1e8", "--steps", 10**12)["steps"], 10**12)

    def test_the_first_point_is_a_bound(self):
        words = ["simulate", "--params", "1e6", "--layers", 4, "--step-time", 1, "--method", "data_parallel",
                 "--calibration", "none", "--targets", "0.5,0.99,1"]
        said = self.json_of(*words)
        self.assertEqual((said["grid_index"][0], said["at_most"]), (0, [True, False, False]))
        self.assertEqual(run(*words).stdout.split("\n")[2].split(), ["data_parallel", "<=0.1", "0.4498", "none"])

    def test_scaled_bits_are_said(self):
        said = "16 bits are counted as 13.35, as the papers' tables need"
        self.assertIn(said, run("simulate", *WORK).stdout)
        self.assertIn("4 bits are counted as 3.337", run("simulate", *WORK, "--bits", 4).stdout)
        self.assertNotIn("counted", run("simulate", *WORK, "--calibration", "none").stdout)

    def test_islands_are_weighed_by_speed(self):
        said = self.json_of("simulate", *WORK, "--method", "data_parallel", "--gbps", "1e9", "--island", "speed=1",
                            "--island", "speed=0.5")
        self.assertAlmostEqual(said["at"]["utilisation"], 2 / 3, 5)

    def test_neutral_values_go_with_every_method(self):
        self.json_of("simulate", *WORK, "--method", "data_parallel", "--sync-every", 1, "--fragments", 0, "--delay", 0)
        self.json_of("simulate", *WORK, "--method", "diloco", "--sync-every", 30, "--fragments", 1, "--delay", 0)

    def test_simulate_refuses(self):
        base = ["simulate", *WORK]
        self.assert_refused(2, "--delay does not go with it", *base, "--method", "diloco", "--delay", 1)
        self.assert_refused(2, "--fragments does not go with it", *base, "--method", "diloco", "--fragments", 4)
        self.assert_refused(2, "--sync-every does not go with it", *base, "--method", "data_parallel", "--sync-every", 30)
        self.assert_refused(2, "none of speed, up, down, latency", *base, "--island", "rate=3")
        self.assert_refused(2, "up must be a number", *base, "--island", "up=nan")
        self.assert_refused(2, "up is given twice", *base, "--island", "up=1,up=2")
        self.assert_refused(2, "--step-time is needed", "simulate", "--params", "1e9", "--layers", 24)
        self.assert_refused(2, "--batch-tokens", *base, "--tokens", "1e9")
        for words, least in ((["diloco", "--steps", 50], 101), (["diloco", "--steps", 100], 101),
                             (["data_parallel", "--steps", 1], 2), (["streaming_diloco", "--steps", 101], 102)):
            self.assert_refused(2, f"give {least} or more", *base, "--method", *words)
        self.json_of(*base, "--method", "diloco", "--steps", 101)
        chips = ["--tokens", "1e9", "--batch-tokens", "1e5", "--chips", 8]
        islands = ["--island", "speed=1", "--island", "speed=1"]
        self.assert_refused(2, "--replicas 5 contradicts 2 --island", *base, *chips, *islands, "--replicas", 5)
        for words, replicas in ((islands, 2), ([*islands, "--replicas", 2], 2), (["--replicas", 5], 5), ([], 2),
                                (islands[:2], 1)):
            self.assertEqual(self.json_of(*base, *chips, *words)["wall_clock"][-1]["replicas"], replicas)

    def test_wall_clock(self):
        said = self.json_of("simulate", "--params", "2.4e9", "--layers", 30, "--tokens", "48e9", "--batch-tokens", 262144,
                            "--chips", 256, "--sync-every", 30, "--method", "diloco")
        self.assertAlmostEqual(said["wall_clock"][0]["compute_s"], 9000, 6)
        self.assertAlmostEqual(said["step_s"], 9000 / said["wall_clock"][0]["steps"], 12)


if __name__ == "__main__":
    ATOLL = sys.argv.pop(1)
    unittest.main()
