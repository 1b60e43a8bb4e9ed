#!/usr/bin/env python3
"""Servers without files of the model, which fetch their layers from others, and servers whose layers compute in fewer bits: real processes.

usage: swarm_files_test.py ATOLL STORE [unittest arguments]
"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import urllib.error

from serving_swarm import ServingSwarm, ask, complete, told
from swarm_run import wait_for

ATOLL = STORE = ""
ROOT = None  # Removed at the end.
SHAPE = {"hidden_size": 256, "intermediate_size": 768, "num_layers": 4, "num_heads": 4, "num_kv_heads": 2, "max_positions": 512}  # 3 MB a layer.
SLOW = ("--upload-rate", "20mbit")  # A piece in 0.4 s, a layer in 1.3 s.
BODIES = ({"prompt": "def loads(", "max_tokens": 40, "temperature": 0}, {"prompt": "import json\n", "max_tokens": 40, "temperature": 0.9, "seed": 11})


class Served(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.root = pathlib.Path(tempfile.mkdtemp(dir=ROOT))
        cls.model = cls.root / "model"
        words = [ATOLL, "train", "--run", cls.model, "--data", STORE, "--train.steps=2", "--train.threads=1", "--train.sequence_length=32",
                 "--train.batch_rows=2", "--train.eval_rows=2", *(f"--model.{key}={value}" for key, value in SHAPE.items())]
        subprocess.run(list(map(str, words)), check=True, capture_output=True)
        cls.whole = ServingSwarm(ATOLL, cls.model, cls.root / "whole")
        cls.addClassCleanup(cls.whole.end)
        cls.one = cls.whole.alone("one")

    def swarm(self):
        swarm = ServingSwarm(ATOLL, self.model, pathlib.Path(tempfile.mkdtemp(dir=ROOT)) / "swarm")
        self.addCleanup(swarm.end)
        swarm.coordinate()
        return swarm

    def copied(self):
        """The weights in a folder of their own, to be damaged."""
        folder = pathlib.Path(tempfile.mkdtemp(dir=ROOT)) / "model"
        shutil.copytree(max((self.model / "checkpoints").iterdir()), folder)
        return folder

    def without_weights(self):
        folder = self.copied()
        for file in folder.glob("*.safetensors*"):
            file.unlink()
        return folder

    def check(self, url, one=None):
        for body in BODIES:
            wanted = told(complete(one or self.one, logprobs=2, **body))
            self.assertEqual(told(complete(url, logprobs=2, **body)), wanted)

    def wait_said(self, swarm, name, words):
        wait_for(lambda: words in swarm.log(name), f"'{words}' of {name}")

    def parts(self, swarm, name):
        """What is whole in its cache, and when it became so."""
        return {path.name: path.stat().st_mtime_ns for path in swarm.cache(name).glob("*/layer-*") if not path.suffix}


class FetchTest(Served):
    def test_without_files_the_same_bits_and_again_without_anybody(self):
        swarm = self.swarm()
        swarm.serve("a", "0:1")
        swarm.serve("f", "1:3", files=False)
        swarm.serve("g", "3:4", files=False)
        url = swarm.gateway("gate")
        swarm.wait_whole(url)
        self.check(url)
        before = self.parts(swarm, "f")
        self.assertEqual(sorted(before), ["layer-00001", "layer-00002"])
        swarm.kill("a", "f", "g")
        for name in "afg":
            self.wait_said(swarm, "coordinator", f"server '{name}' is gone")
        swarm.serve("f", "1:3", files=False)
        self.wait_said(swarm, "f", "was fetched before")
        self.wait_said(swarm, "f", "serving layers 1 to 2 of 4")
        swarm.serve("a", "0:1")
        swarm.serve("b", "3:4")
        swarm.wait_whole(url)
        self.check(url)
        self.assertEqual(self.parts(swarm, "f"), before, "nothing was fetched again")

    def test_the_source_is_killed_and_so_is_who_fetches(self):
        swarm = self.swarm()
        swarm.serve("a", "0:1", *SLOW)
        swarm.serve("f", "0:4", files=False)
        wait_for(lambda: self.parts(swarm, "f"), "the first layer")
        swarm.kill("a")
        first = self.parts(swarm, "f")
        self.assertLess(len(first), 4)
        self.wait_said(swarm, "f", "waiting until one does")
        swarm.serve("b", "0:1", *SLOW)
        wait_for(lambda: len(self.parts(swarm, "f")) > len(first), "another layer")
        swarm.kill("f")
        self.assertLess(len(self.parts(swarm, "f")), 4)
        swarm.serve("f", "0:4", files=False)
        self.wait_said(swarm, "f", "serving layers 0 to 3 of 4")
        self.assertEqual({**self.parts(swarm, "f"), **first}, self.parts(swarm, "f"), "what was whole is as it was")
        url = swarm.gateway("gate")
        swarm.wait_whole(url)
        swarm.kill("b")
        self.check(url)

    def test_serving_while_others_fetch_and_an_end_that_does_not_wait(self):
        swarm = self.swarm()
        swarm.serve("a", "0:4", *SLOW)
        url = swarm.gateway("gate")
        swarm.wait_whole(url)
        swarm.serve("f", "0:4", files=False)
        wait_for(lambda: self.parts(swarm, "f"), "the first layer")
        self.check(url)
        self.assertLess(len(self.parts(swarm, "f")), 4)
        self.assertEqual(swarm.finish("f"), 0, swarm.log("f"))
        self.assertLess(len(self.parts(swarm, "f")), 4)

    def test_a_damaged_cache_is_mended(self):
        swarm = self.swarm()
        swarm.serve("a", "0:1")
        swarm.serve("f", "1:4", files=False)
        self.wait_said(swarm, "f", "serving layers 1 to 3 of 4")
        swarm.kill("f")
        layer, cut = (next(swarm.cache("f").glob(f"*/layer-0000{number}")) for number in (2, 3))
        right = layer.read_bytes()
        layer.write_bytes(right[:1_500_000] + bytes([right[1_500_000] ^ 1]) + right[1_500_001:])
        cut.write_bytes(cut.read_bytes()[:-5])
        swarm.serve("f", "1:4", files=False)
        url = swarm.gateway("gate")
        swarm.wait_whole(url)
        self.check(url)
        self.assertEqual(layer.read_bytes(), right)

    def test_who_lies_is_found_out_and_another_is_asked(self):
        swarm = self.swarm()
        lies = self.copied()
        swarm.serve("liar", "0:1", model=lies)
        with open(lies / "model.safetensors", "r+b") as file:  # What was hashed is another now.
            file.seek(-3 << 20, 2)
            values = file.read(1 << 20)
            file.seek(-3 << 20, 2)
            file.write(bytes(value ^ 1 for value in values))
        swarm.serve("f", "0:4", files=False)
        self.wait_said(swarm, "f", "sends what is wrong, others are asked")
        swarm.serve("honest", "0:1")
        self.wait_said(swarm, "f", "serving layers 0 to 3 of 4")
        swarm.kill("liar", "honest")
        url = swarm.gateway("gate")
        swarm.wait_whole(url)
        self.check(url)

    def test_names(self):
        swarm = self.swarm()
        swarm.serve("a", "0:4")
        with self.assertRaisesRegex(AssertionError, "'other' is neither a model on this machine nor one of the swarm's: 'mine'"):
            swarm.serve("f", None, model="other")
        swarm.serve("f", None, "--model-cache", swarm.cache("f"), model="mine")
        with self.assertRaisesRegex(AssertionError, "neither a folder nor a GGUF file"):
            swarm.serve("g", None, model="./mine")

    def test_encrypted(self):
        swarm = ServingSwarm(ATOLL, self.model, pathlib.Path(tempfile.mkdtemp(dir=ROOT)) / "swarm")
        self.addCleanup(swarm.end)
        subprocess.run([ATOLL, "create", swarm.run, "--address", swarm.port.address], check=True, capture_output=True)
        swarm.coordinate("--no-discovery")
        swarm.serve("a", "0:1")
        swarm.serve("f", files=False)  # Which layers, it is told.
        url = swarm.gateway("gate")
        swarm.wait_whole(url)
        self.check(url)
        with self.assertRaises(urllib.error.HTTPError) as caught:
            complete(swarm.gateway("light", "--remote-head", model=self.without_weights(), called=None), prompt="a", max_tokens=2)
        with caught.exception as failed:
            self.assertEqual(failed.code, 503)
            self.assertIn("--head", json.loads(failed.read())["error"]["message"])
        swarm.serve("c", "0:2", "--head")
        swarm.serve("d", "2:4", "--head", files=False)
        swarm.wait_whole(swarm.urls["light"])
        self.check(swarm.urls["light"])
        self.assertEqual([model["id"] for model in json.loads(ask(swarm.urls["light"], "/v1/models"))["data"]], ["mine"])
        swarm.kill("a", "f")
        self.check(swarm.urls["light"])


class TypesTest(Served):
    def test_types_are_never_mixed(self):
        swarm = self.swarm()
        for dtype in ("int8", "int4"):
            swarm.serve(f"{dtype}-a", "0:2", "--dtype", dtype)
            swarm.serve(f"{dtype}-b", "2:4", "--dtype", dtype)
            url = swarm.gateway(f"{dtype}-gate", "--dtype", dtype)
            swarm.wait_whole(url)
            self.check(url, self.whole.alone(f"one-{dtype}", "--dtype", dtype))
            swarm.kill(f"{dtype}-a")
            swarm.serve(f"{dtype}-f", "0:2", *(["--dtype", dtype] if dtype == "int4" else []), files=False)
            swarm.wait_whole(url)
            self.check(url, self.whole.urls[f"one-{dtype}"])
        url = swarm.gateway("stored")
        with self.assertRaises(urllib.error.HTTPError) as caught:
            complete(url, prompt="a", max_tokens=2)
        with caught.exception as failed:
            self.assertEqual(failed.code, 503)
            self.assertIn("--dtype", json.loads(failed.read())["error"]["message"])


if __name__ == "__main__":
    ATOLL, STORE = (str(pathlib.Path(sys.argv.pop(1)).absolute()) for _ in range(2))
    ROOT = pathlib.Path(tempfile.mkdtemp(prefix="atoll-swarm-files-"))
    try:
        unittest.main(verbosity=2)
    finally:
        shutil.rmtree(ROOT, ignore_errors=True)
