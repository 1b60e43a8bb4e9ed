#!/usr/bin/env python3
"""`atoll plan`: what it prints, what it refuses, that `atoll train` takes its settings, and what it measures.

usage: plan_test.py ATOLL [unittest arguments]
"""
import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
import unittest

ATOLL = ""
ISLAND = """[[island]]
name = "{name}"
devices = 8
tflops = 40
memory = "80GB"
up = "{rate}"
down = "{rate}"
latency = "30ms"
"""
TINY = """[[island]]
name = "{name}"
device = "cpu"
tflops = 0.001
memory = "2GB"
up = "1gbit"
down = "1gbit"
latency = "0.1ms"
"""
# "a"'s and "b"'s speed as trained; laws for two replicas alone, every second step: streaming between both.
PAIR = """[[island]]
name = "{name}"
device = "cpu"
tokens_per_s = {speed}
params = {params}
memory = "2GB"
up = "{rate}kbit"
down = "{rate}kbit"
latency = "1ms"
"""
PAIR_LAWS = "params,replicas,loss,tokens,sync_every\n" + "".join(
    f"{n},2,{20 * n**-0.12},{20 * n},2\n" for n in (100000, 200000, 400000))
LINE_TO_PAYLOAD = 1526 / 1448
SMALL_STEP = ["--model.hidden_size=32", "--model.intermediate_size=64", "--model.num_layers=1", "--model.num_heads=2",
              "--model.vocab_size=300", "--train.batch_rows=2", "--train.sequence_length=32", "--train.threads=1"]


def run(*words, command="plan", timeout=300):
    return subprocess.run([ATOLL, command, *map(str, words)], capture_output=True, text=True, timeout=timeout)


class PlanTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="atoll-plan-test-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def file(self, text, name="plan.toml"):
        path = self.folder / name
        path.write_text(text)
        return path

    def lab(self, goal, rate="200mbit", names=("a", "b", "c"), island=ISLAND):
        return self.file("".join(island.format(name=name, rate=rate) for name in names) + f"[goal]\n{goal}\n")

    def json_of(self, *words):
        done = run(*words, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.count("\n"), 1)
        return json.loads(done.stdout)

    def assert_refused(self, code, part, *words):
        done = run(*words)
        self.assertEqual((done.returncode, done.stdout), (code, ""), done)
        self.assertIn(part, done.stderr)

    # --- what it says ---

    def test_json_keeps_its_contract(self):
        plan = self.json_of(self.lab('time = "4d"'))
        self.assertLessEqual(
            {"recommended", "loss", "loss_range", "params", "atoll_params", "layers", "hidden", "heads", "ff", "vocab",
             "replicas", "islands", "left_out", "method", "codec", "sync_every", "num_fragments", "fragment_sync_delay",
             "inner_lr", "outer_lr", "batch_tokens", "batch_rows", "rows_per_island", "micro_batch_rows", "tokens",
             "steps", "wall_clock_s", "utilisation", "waiting_share", "bytes_sent", "bytes_received", "per_island",
             "precision", "activation_checkpointing", "why", "notes", "alternatives", "config"}, set(plan))
        self.assertEqual(plan["islands"], ["a", "b", "c"])
        self.assertEqual(len(plan["per_island"]), 3)
        for island in plan["per_island"]:
            self.assertLessEqual({"name", "processes", "shard", "start", "step_s", "computing_s", "waiting_s",
                                  "waiting_share", "bytes_sent", "bytes_received", "memory"}, set(island))
        self.assertGreaterEqual(len(plan["alternatives"]), 3)

    def test_text_says_what_json_does(self):
        path = self.lab('time = "4d"')
        plan, text = self.json_of(path), run(path).stdout
        for part in (plan["method"], plan["why"], f"{plan['loss']:.3f}", f"H {plan['sync_every']}",
                     f"{plan['layers']} layers of {plan['hidden']}", *plan["notes"], "precision  fp32",
                     "start  a, b, c: --processes-per-island 8 --train.device=cuda\n"):
            self.assertIn(part, text)

    def test_islands_of_eight_are_planned_sharded_and_in_bf16(self):
        island = ISLAND.replace("tflops = 40", 'tflops = 400\nprecision = "bf16"')
        goal = 'time = "10d"\nparams = 2.8e9'  # In that time both are needed.
        plan = self.json_of(self.lab(goal, names="ab", island=island))
        self.assertEqual((plan["islands"], plan["precision"]), (["a", "b"], "bf16"))
        for one in plan["per_island"]:
            self.assertEqual((one["processes"], one["shard"]), (8, "zero1"))
        settings = tomllib.loads(plan["config"])
        self.assertEqual((settings["train"]["shard"], settings["train"]["precision"]), ("zero1", "bf16"))
        self.assertIn("\n#   a, b: --processes-per-island 8 --train.device=cuda\n", plan["config"])
        # Where one has room for all of it, each has its own.
        large = island.format(name="b", rate="200mbit").replace("80GB", "8000GB")
        mixed = self.json_of(self.file(island.format(name="a", rate="200mbit") + large + "[goal]\n" + goal))
        self.assertEqual([one["shard"] for one in mixed["per_island"]], ["zero1", "none"])
        self.assertNotIn("shard", tomllib.loads(mixed["config"])["train"])
        self.assertIn("#   a: --processes-per-island 8 --train.device=cuda --train.shard=zero1\n", mixed["config"])

    def test_own_laws_come_from_beside_the_plan(self):
        rows = [f"{n},{m},{20 * n**-0.1 * max(m, 1)**0.01},{25 * n}" for n in (10**7, 10**8, 10**9) for m in (0, 1, 2, 4)]
        self.file("params,replicas,loss,tokens\n" + "\n".join(rows), "runs.csv")
        plan = self.json_of(self.lab('time = "4d"\n[laws]\nfit = "runs.csv"'))
        self.assertEqual(plan["laws"], "runs.csv")
        self.assertEqual(plan["laws_of"], {"runs_have": {"tokens_per_param": 25, "sync_every": None, "method": None},
                                           "left_out": []})
        # Runs that do not compare change nothing but what is said.
        self.file("params,replicas,loss,tokens\n" + "\n".join([*rows, *(f"{10 ** 8},{m},2.0,4e10" for m in (0, 1, 2, 4))]),
                  "runs.csv")
        path = self.lab('time = "4d"\n[laws]\nfit = "runs.csv"')
        mixed = self.json_of(path)
        self.assertEqual([entry["lines"] for entry in mixed.pop("laws_of")["left_out"]], [[14, 15, 16, 17]])
        self.assertEqual(mixed, {key: value for key, value in plan.items() if key != "laws_of"})
        self.assertIn("lines 14, 15, 16 and 17 are left out: 400 tokens a parameter", run(path).stderr)
        self.assertAlmostEqual(plan["tokens_per_param"], 25, delta=0.1)
        self.assertTrue(any("published" in note for note in plan["notes"]))
        self.assertEqual(plan["params"], plan["atoll_params"])

    # --- what it refuses ---

    def test_wrong_plans_are_usage_errors(self):
        self.assert_refused(2, "did you mean 'memory'", self.file(ISLAND.format(name="a", rate="1mbit").replace(
            "memory", "memry") + '[goal]\ntime = "1d"'))
        self.assert_refused(2, "as in \"14d\"", self.lab("time = 14"))
        self.assert_refused(2, "line 1", self.file("[[island"))
        self.assert_refused(2, "which PLAN.toml")
        self.assert_refused(2, "--coordinator", self.lab('time = "1d"'), "--coordinator", "127.0.0.1:1")
        self.assert_refused(2, "is for --measure", self.lab('time = "1d"'), "--model.num_layers=2")
        self.assert_refused(2, "--measure", self.lab('time = "1d"'), "--processes-per-island", 2)
        self.assert_refused(2, "is for CPUs", self.lab('time = "1d"\n[train]\nshard = "zero3"'))
        self.assert_refused(1, "nothing.csv", self.lab('time = "1d"\n[laws]\nfit = "nothing.csv"'))
        big = self.file("#" * (2 << 20))
        self.assert_refused(2, "larger than 1 MiB", big)

    def test_impossible_plans_say_what_is_short(self):
        self.assert_refused(1, "memory is short", self.lab("params = 8e11"))
        self.assert_refused(1, "times as long", self.lab('params = 1e9\ntime = "1h"', "10gbit"))
        self.assert_refused(1, "'a' up: ", self.lab('params = 1e9\ntime = "40h"', "1mbit"))
        self.assert_refused(1, "bandwidth is short", self.lab('params = 1e9\ntime = "40h"', "1mbit"))
        self.assert_refused(1, "beyond reach", self.lab("loss = 0.9"))
        self.assert_refused(1, "is reached, with", self.lab('loss = 2.3\ntime = "2d"'))

    def test_output_that_cannot_be_written_is_refused_first(self):
        done = run(self.lab('time = "1d"'), "--config-out", "/proc/nothing/run.toml")
        self.assertEqual((done.returncode, done.stdout), (1, ""), done)

    def test_no_plan_is_written_over(self):
        plan = self.lab('time = "1d"')
        before = plan.read_text()
        self.assert_refused(2, "is the plan itself", plan, "--config-out", self.folder / ".." / self.folder.name / plan.name)
        self.file("params,replicas,loss\n1e7,0,3\n1e8,0,2.5\n1e9,0,2.2\n", "runs.csv")
        own = self.lab('time = "1d"\n[laws]\nfit = "runs.csv"')
        self.assert_refused(2, "is the plan's runs", own, "--config-out", self.folder / "runs.csv")
        plan, before = own, own.read_text()
        self.assert_refused(2, "is there already", "--measure", "--name", "here", "--out", plan)
        self.assertEqual(plan.read_text(), before)

    # --- what comes of it ---

    def test_train_takes_every_kind_of_settings(self):
        methods = set()
        for goal, rate, names in (('time = "4d"', "200mbit", ("a", "b", "c")), ('time = "4d"', "200mbit", ("a",)),
                                  ("tokens = 5e8", "200mbit", ("a",)), ('time = "1d"', "800gbit", ("a", "b", "c")),
                                  ('params = 3e8\ntokens = 1e10', "400gbit", ("a", "b")),
                                  ("params = 1e8", "5mbit", ("a", "b", "c", "d", "e"))):
            config = self.folder / "run.toml"
            # What is far apart does not agree at every step.
            island = ISLAND.replace("30ms", "0.1ms") if rate == "800gbit" else ISLAND
            plan = self.json_of(self.lab(goal, rate, names, island), "--config-out", config)
            self.assertEqual(config.read_text(), plan["config"])
            dumped = run(config, "--dump-config", command="train")
            self.assertEqual(dumped.returncode, 0, dumped.stderr)
            settings = tomllib.loads(dumped.stdout)
            self.assertEqual(settings["sync"]["method"], plan["method"])
            self.assertEqual(settings["swarm"]["replicas"], plan["replicas"])
            self.assertEqual(settings["model"]["num_layers"], plan["layers"])
            self.assertEqual(settings["model"]["hidden_size"], plan["hidden"])
            self.assertEqual(settings["train"]["steps"], plan["steps"])
            self.assertEqual(settings["train"]["batch_rows"], plan["batch_rows"])
            self.assertAlmostEqual(settings["train"]["lr"] / plan["inner_lr"], 1, places=2)
            if plan["method"] == "streaming_diloco":
                self.assertEqual(settings["sync"]["num_fragments"], plan["num_fragments"])
                self.assertEqual(settings["sync"]["fragment_sync_delay"], plan["fragment_sync_delay"])
            methods.add(plan["method"])
        self.assertEqual(methods, {"single", "diloco", "streaming_diloco", "data_parallel"})

    def test_a_run_sends_and_takes_what_was_planned(self):
        self.file(PAIR_LAWS, "runs.csv")
        payload_kbit = 2500  # As --link-rate means it.
        config = self.folder / "run.toml"

        def plan_of(speeds, params):
            islands = "".join(PAIR.format(name=name, speed=speed, params=params, rate=payload_kbit * LINE_TO_PAYLOAD)
                              for name, speed in zip("ab", speeds))
            return self.json_of(self.file(islands + "[goal]\nparams = 250000\ntokens = 7e5\nvocab_size = 300\n"
                                          'sequence_length = 64\n[laws]\nfit = "runs.csv"'), "--config-out", config)

        planned = plan_of((20000, 20000), 250000)
        self.assertEqual((planned["method"], planned["replicas"], planned["sync_every"]), ("streaming_diloco", 2, 2))
        folder = self.folder / "run"
        done = run(config, "--data", self.text(), "--run", folder, "--json", "--train.threads=1",
                   "--link-rate", f"{payload_kbit}kbit", command="train")
        self.assertEqual(done.returncode, 0, done.stderr)
        trained = json.loads(done.stdout)
        for direction in "bytes_sent", "bytes_received":
            self.assertAlmostEqual(trained[direction] / planned[direction], 1, delta=0.03)
        spent, step_s = [], []
        for place, one in enumerate(planned["per_island"]):
            island = folder / f"island-{place}"
            rounds = [json.loads(line) for line in (island / "rounds.jsonl").read_text().splitlines()]
            for direction in "bytes_sent", "bytes_received":
                self.assertAlmostEqual(sum(line[direction] for line in rounds) / one[direction], 1, delta=0.03)
            seconds = json.loads((island / "metrics.jsonl").read_text().splitlines()[-1])["seconds"]
            spent.append((seconds["computing"], seconds["handling"] + seconds["waiting"]))
            step_s.append(seconds["computing"] / planned["steps"])
        # With the speed that these islands had, the plan says how long it took, and how much of it was waiting.
        tokens = planned["rows_per_island"] * planned["sequence_length"]
        again = plan_of([tokens / s for s in step_s], planned["atoll_params"])
        for key in "method", "steps", "num_fragments", "fragment_sync_delay", "batch_rows":
            self.assertEqual(again[key], planned[key])
        took = max(computing + waited for computing, waited in spent)
        waited = sum(waited for _, waited in spent) / sum(sum(island) for island in spent)
        self.assertTrue(0.5 < again["wall_clock_s"] / took < 1.3, (again["wall_clock_s"], took))
        self.assertAlmostEqual(again["waiting_share"], waited, delta=0.25)

    def text(self):
        folder = self.folder / "text"
        folder.mkdir()
        for number in range(40):
            (folder / f"{number}.txt").write_text(f"The sea is wide and the island {number} is small. " * 30)
        return folder

    def test_a_tiny_plan_trains(self):
        config = self.folder / "run.toml"
        path = self.lab("params = 22000\ntokens = 40000\nvocab_size = 300\nsequence_length = 32", names=("a", "b"),
                        island=TINY)
        plan = self.json_of(path, "--config-out", config)
        self.assertEqual(plan["replicas"], 2)
        done = run(config, "--data", self.text(), "--run", self.folder / "run", "--json", "--train.threads=1", command="train")
        self.assertEqual(done.returncode, 0, done.stderr)
        result = json.loads(done.stdout)
        self.assertEqual(result["steps"], plan["steps"])
        self.assertEqual(result["tokens"], plan["tokens"])
        # The planned bytes, and what frames and control messages add.
        self.assertGreater(result["bytes_sent"], 0.9 * plan["bytes_sent"])

    def test_a_tiny_plan_of_two_processes_trains(self):
        config = self.folder / "run.toml"
        island = TINY.replace("tflops", "devices = 2\ntflops")
        train = '\n[train]\nshard = "zero1"\nprecision = "bf16"'
        path = self.lab("params = 22000\ntokens = 40000\nvocab_size = 300\nsequence_length = 32" + train, names="a",
                        island=island)
        plan = self.json_of(path, "--config-out", config)
        [one] = plan["per_island"]
        self.assertEqual(one["start"], "--processes-per-island 2")
        done = run(config, "--data", self.text(), "--run", self.folder / "run", "--json", "--train.threads=1",
                   *one["start"].split(), command="train")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout)["steps"], plan["steps"])

    # --- what it measures ---

    def test_measures_this_machine(self):
        out = self.folder / "island.toml"
        done = run("--measure", "--name", "here", "--out", out, *SMALL_STEP)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("the line is not measured", done.stderr)
        self.assertEqual(done.stdout, out.read_text())
        island = tomllib.loads(done.stdout)["island"][0]
        self.assertEqual((island["name"], island["device"], island["devices"]), ("here", "cpu", 1))
        self.assertEqual(island["precision"], "fp32")
        self.assertGreater(island["tokens_per_s"], 0)
        self.assertGreater(island["params"], 10_000)
        self.assertNotIn("up", island)
        plan = run(self.file(done.stdout + '[goal]\ntime = "1h"\nvocab_size = 300\nsequence_length = 64\n'))
        self.assertEqual(plan.returncode, 0, plan.stderr)

    def test_measures_an_island_as_it_will_run(self):
        def measured(*words):
            done = run("--measure", "--json", *SMALL_STEP, *words)
            self.assertEqual(done.returncode, 0, done.stderr)
            return json.loads(done.stdout)

        one, two = measured(), measured("--processes-per-island", 2, "--train.precision=bf16")
        island = tomllib.loads(two["island"])["island"][0]
        self.assertEqual((island["devices"], island["precision"]), (2, "bf16"))
        self.assertIn("by each of 2 processes", two["island"])
        self.assertAlmostEqual(two["memory_bytes"] / one["memory_bytes"], 0.5, places=2)
        self.assertGreater(two["tokens_per_s"], 0)

    def test_measures_the_line_to_a_coordinator(self):
        coordinator = subprocess.Popen([ATOLL, "coordinate", "--listen", "127.0.0.1:0", "--http", "off"],
                                       stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            address = coordinator.stdout.readline().strip()
            done = run("--measure", "--coordinator", address, "--json", *SMALL_STEP)
        finally:
            coordinator.send_signal(signal.SIGKILL)
            coordinator.wait()
            coordinator.stdout.close()
        self.assertEqual(done.returncode, 0, done.stderr)
        measured = json.loads(done.stdout)
        self.assertGreater(measured["link"]["up_bits_per_s"], 1e6)
        self.assertGreater(measured["link"]["round_trip_s"], 0)
        island = tomllib.loads(measured["island"])["island"][0]
        # Of the line, headers included.
        rate = float(island["up"].removesuffix("kbit")) * 1e3
        self.assertAlmostEqual(rate / measured["link"]["up_bits_per_s"] / LINE_TO_PAYLOAD, 1, 2)
        # Nobody is there any more.
        gone = run("--measure", "--coordinator", address, *SMALL_STEP)
        self.assertEqual((gone.returncode, gone.stdout), (1, ""))
        self.assertIn("cannot be measured", gone.stderr)

    def test_measures_the_line_to_an_encrypted_coordinator_as_a_member(self):
        created, here = self.folder / "created", self.folder / "here"
        self.assertEqual(run(created, command="create").returncode, 0)
        coordinator = subprocess.Popen([ATOLL, "coordinate", "--run", created, "--listen", "127.0.0.1:0", "--http", "off"],
                                       stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            address = coordinator.stdout.readline().strip()
            self.assert_refused(1, "a run that is encrypted", "--measure", "--coordinator", address)
            self.assert_refused(2, "is a member", "--measure", "--coordinator", address, "--run", here)
            invite = self.file(run(created, "--address", address, "--role", "reader", command="invite").stdout, "invite.txt")
            self.assert_refused(2, "--run FOLDER", "--measure", "--coordinator", f"@{invite}")
            done = run("--measure", "--coordinator", f"@{invite}", "--run", here, "--name", "here", "--json", *SMALL_STEP)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertGreater(json.loads(done.stdout)["link"]["down_bits_per_s"], 1e6)
            self.assert_refused(1, "try again in", "--measure", "--run", here)  # Its limits hold for members too.
            self.assertEqual(run("here", "--run", created, command="revoke").returncode, 0)
            end = time.monotonic() + 60  # The coordinator looks twice a second.
            while "revoked" not in run("--measure", "--run", here).stderr:
                self.assertLess(time.monotonic(), end)
        finally:
            coordinator.send_signal(signal.SIGKILL)
            coordinator.wait()
            coordinator.stdout.close()

    def test_what_cannot_be_measured_is_refused(self):
        self.assert_refused(2, "only --model and --train", "--measure", "--sync.method=single")
        self.assert_refused(2, "not on this machine", "--measure", "--coordinator", "10.1.2.3:70")
        self.assert_refused(2, "--coordinator", "--measure", "--coordinator", "nowhere")
        # A name goes to terminals and into a file that plan reads.
        for name in ("a\nb", "a\x7fb", "a b", 'a"b', "\x1b[31m", "n" * 65):
            self.assert_refused(2, "--name must be", "--measure", "--name", name)
        self.assert_refused(2, "cannot be measured", "--measure", "--train.device=nonsense", *SMALL_STEP)


if __name__ == "__main__":
    ATOLL = sys.argv.pop(1)
    unittest.main(verbosity=1)
