#!/usr/bin/env python3
"""Adapters by real processes: here, through servers that die, by several islands, and what is refused.

usage: finetuning_test.py ATOLL STORE [unittest arguments]
"""
import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from serving_swarm import Asked, ServingSwarm

ATOLL = STORE = ""
ROOT = None
DEADLINE_S = 120
SHAPE = {"hidden_size": 32, "intermediate_size": 64, "num_layers": 3, "num_heads": 2, "num_kv_heads": 1, "max_positions": 128}
TRAIN = ["--train.batch_rows=4", "--train.micro_batch_rows=1", "--train.sequence_length=32", "--train.eval_rows=2", "--train.threads=1",
         "--train.lr=1e-2", "--train.log_every=1", "--json"]


def run(*words, code=0):
    done = subprocess.run([ATOLL, *map(str, words)], capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
    return done.stderr if code else json.loads(done.stdout.strip().split("\n")[-1])


def lora(name, *words, code=0, steps=12):
    return run("train", "--frozen", ROOT / "base", "--adapter", "lora", "--run", ROOT / name, "--data", STORE, f"--train.steps={steps}", *TRAIN,
               *words, code=code)


class FinetuningTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.make_base("base")

    @staticmethod
    def make_base(name, *words):
        run("train", "--run", ROOT / name, "--data", STORE, *words, "--train.steps=3", "--train.batch_rows=2", "--train.sequence_length=32",
            "--train.eval_rows=2", "--train.threads=1", "--json", *(f"--model.{key}={value}" for key, value in SHAPE.items()))

    def test_through_servers_that_die_it_learns_the_same_bits(self):
        here = lora("here")
        self.assertNotEqual(here["val_loss"], here["val_loss_start"])
        swarm = ServingSwarm(ATOLL, ROOT / "base", ROOT / "swarm")
        try:
            swarm.coordinate()
            for name, span in (("a", "0:1"), ("b", "1:2"), ("c", "2:3")):
                swarm.serve(name, span)

            def replace():
                metrics = ROOT / "there" / "metrics.jsonl"
                while not metrics.exists() or len(metrics.read_text().splitlines()) < 3:
                    time.sleep(0.02)
                swarm.kill("b")
                swarm.serve("d", "1:3")
            thread = threading.Thread(target=replace, daemon=True)
            thread.start()
            there = lora("there", "--servers", swarm.port.address)
            thread.join(DEADLINE_S)
            self.assertIn("d", swarm.spans)
        finally:
            swarm.end()
        self.assertEqual([here[key] for key in ("digest", "train_loss", "val_loss")], [there[key] for key in ("digest", "train_loss", "val_loss")])

    def test_asked_to_end_while_layers_are_with_nobody_it_keeps_what_it_learned(self):
        whole = lora("unasked", steps=300)
        swarm = ServingSwarm(ATOLL, ROOT / "base", ROOT / "left")
        self.addCleanup(swarm.end)
        swarm.coordinate()
        swarm.serve("a", "0:3")
        process = subprocess.Popen(list(map(str, [
            ATOLL, "train", "--frozen", ROOT / "base", "--adapter", "lora", "--run", ROOT / "asked", "--data", STORE, "--train.steps=300", *TRAIN,
            "--servers", swarm.port.address])), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.kill)
        metrics = ROOT / "asked" / "metrics.jsonl"
        while not metrics.exists() or len(metrics.read_text().splitlines()) < 3:
            self.assertIsNone(process.poll())
            time.sleep(0.02)
        swarm.kill("a")
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=DEADLINE_S)[1]
        self.assertEqual(process.returncode, 130, said)
        self.assertRegex(said, "with no server; what was learned is kept at step [0-9]+; resume: atoll train --run")
        swarm.serve("b", "0:3")
        self.assertEqual(run("train", "--run", ROOT / "asked", "--json")["digest"], whole["digest"])

    def test_a_swarm_answers_by_the_adapter_that_is_named(self):
        words = []
        for name, seed in (("one", 1), ("two", 2)):
            lora(f"adapter-{name}", f"--train.seed={seed}", "--train.lr=0.3", steps=3)
            words += ["--adapter", f"{name}={ROOT / f'adapter-{name}'}"]
        swarm = ServingSwarm(ATOLL, ROOT / "base", ROOT / "adapted")
        self.addCleanup(swarm.end)
        alone = swarm.alone("alone", *words)
        bodies = [{"model": model, "prompt": "import json  # all of them read the same prompt, and none of them", "max_tokens": 60, "temperature": temperature,
                   "seed": 3} for model in ("mine", "one", "two") for temperature in (0, 0.8)]
        wanted = [asked.told() for asked in [Asked(alone, **body) for body in bodies]]
        self.assertEqual(len({json.dumps(one) for one in wanted}), len(bodies))
        swarm.coordinate()
        for name, span in (("a", "0:1"), ("b", "1:2"), ("c", "2:3")):
            swarm.serve(name, span)
        url = swarm.gateway("g", "--audit", 1, *words)
        swarm.wait_whole(url)
        for answered in range(2):  # The second time what texts have in common is there.
            self.assertEqual([asked.told() for asked in [Asked(url, **body) for body in bodies]], wanted)
        under_way = [Asked(url, **body) for body in bodies]
        under_way[-1].wait_pieces(5)
        swarm.kill("b")
        swarm.serve("d", "1:3")
        self.assertEqual([asked.told() for asked in under_way], wanted)
        self.assertNotIn("does not compute", swarm.log("g"))

    def test_it_resumes_and_is_what_it_would_have_been(self):
        whole = lora("whole", "--train.warmup_steps=0", "--train.schedule=constant", "--train.checkpoint_every=6", "--train.keep_checkpoints=0")
        run("train", "--run", ROOT / "whole", "--json")  # Complete: nothing is done.
        newest = max((ROOT / "whole" / "checkpoints").iterdir())
        for path in newest.iterdir():
            path.unlink()
        newest.rmdir()
        begin = ROOT / "whole" / "checkpoints" / "step-00000006" / "state.json"
        written = begin.stat().st_mtime_ns
        self.make_base("another", "--train.seed=7")
        self.assertIn("of another model than that of --frozen", run("train", "--run", ROOT / "whole", "--frozen", ROOT / "another", code=1))
        self.assertEqual(run("train", "--run", ROOT / "whole", "--frozen", ROOT / "base", "--json")["digest"], whole["digest"])
        self.assertTrue(newest.exists())
        self.assertEqual(begin.stat().st_mtime_ns, written)  # It went on from there, and did not begin anew.

    def test_it_goes_on_from_an_adapter_that_was_trained(self):
        plain = ["--train.warmup_steps=0", "--train.schedule=constant"]
        first = lora("first", *plain, steps=4)
        self.assertIn("--init and this one", run("train", "--run", ROOT / "first", "--train.steps=8", code=2))
        second = lora("second", *plain, "--init", ROOT / "first", steps=4)
        self.assertEqual(second["val_loss_start"], first["val_loss"])
        self.assertNotEqual(second["digest"], first["digest"])
        newest = max((ROOT / "first" / "checkpoints").iterdir())
        peft = ROOT / "as-peft-has-it"
        peft.mkdir()
        for name in ("adapter_config.json", "adapter_model.safetensors"):
            (peft / name).write_bytes((newest / name).read_bytes())
        self.assertEqual(lora("third", *plain, "--init", peft, steps=4)["digest"], second["digest"])
        self.assertEqual(lora("fourth", *plain, "--init", peft, "--islands", 2, "--sync.sync_every=4", steps=4)["val_loss_start"], first["val_loss"])
        self.assertIn("of rank 8", lora("x", "--init", ROOT / "first", "--adapter.rank=4", code=2))
        self.assertIn("targets q_proj,v_proj", lora("x", "--init", ROOT / "first", "--adapter.targets=up_proj", code=2))
        self.make_base("unlike", "--train.seed=9")
        self.assertIn("an adapter of another model", run(
            "train", "--frozen", ROOT / "unlike", "--adapter", "lora", "--run", ROOT / "beside-unlike", "--data", STORE, "--train.steps=4", *TRAIN,
            "--init", ROOT / "first", code=1))

    def test_islands_agree_on_an_adapter(self):
        found = lora("islands", "--islands", 2, "--sync.sync_every=4", steps=8)
        self.assertNotEqual(found["val_loss"], found["val_loss_start"])
        self.assertTrue((max((ROOT / "islands" / "island-1" / "checkpoints").iterdir()) / "adapter_model.safetensors").exists())

    def test_what_cannot_be_is_refused(self):
        refused = lambda *words: run("train", "--run", ROOT / "x", "--data", STORE, *words, code=2)
        self.assertIn("add --adapter lora", refused("--frozen", ROOT / "base"))
        self.assertIn("name it, --frozen", refused("--adapter", "lora"))
        self.assertIn("no projection 'query'", lora("x", "--adapter.targets=query", code=2))
        self.assertIn("adapter.prompt_tokens has no effect", lora("x", "--adapter.prompt_tokens=3", code=2))
        self.assertIn("holds no adapter", lora("x", "--init", ROOT / "base", code=2))
        self.assertIn("--servers: not an address", lora("x", "--servers", "garbage", code=2))
        self.assertIn("--servers: nothing could be read from", lora("x", "--servers", "@nofile", code=1))
        self.assertIn("adapters are trained on the CPU", lora("x", "--train.device=cuda", code=2))

    def test_a_pickle_is_no_adapter(self):
        folder = ROOT / "pickle"
        folder.mkdir()
        (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 2, "target_modules": ["q_proj"]}))
        (folder / "adapter_model.bin").write_bytes(b"\x80\x02}q\x00.")
        said = run("serve", ROOT / "base", "--gateway", "--listen", "127.0.0.1:0", "--adapter", f"a={folder}", code=1)
        self.assertIn("is a pickle", said)
        said = run("serve", ROOT / "base", "--gateway", "--listen", "127.0.0.1:0", "--adapter", "a", code=2)
        self.assertIn("NAME=FOLDER", said)


if __name__ == "__main__":
    ATOLL, STORE = sys.argv[1:3]
    with tempfile.TemporaryDirectory() as folder:
        ROOT = pathlib.Path(folder)
        unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
