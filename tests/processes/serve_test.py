#!/usr/bin/env python3
"""`atoll serve` as a process, with the openai package: the tokens of `atoll generate`, alone and beside others.

usage: serve_test.py ATOLL [unittest arguments]
"""
import concurrent.futures
import json
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

import jsonschema
import openai

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from small_store import make_store  # noqa: E402

ATOLL = ""
ROOT = None  # Removed at the end.
DEADLINE_S = 120
PROMPTS = ["def loads(", "import json\n", "class", "x = [1, 2", "def loads(text):\n    return json.", "a"]


def run(*words):
    return subprocess.run([ATOLL, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=DEADLINE_S)


def generated(model, prompt, *words):
    """What the command makes of it, which reads nothing beside it."""
    made = run("generate", model, "--prompt", prompt, "--threads", 1, "--json", *words)
    assert made.returncode == 0, made.stderr
    return json.loads(made.stdout)["text"]


class ServeTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = ROOT / "run"
        make_store(ATOLL, ROOT / "store", ["json"])
        shape = {"hidden_size": 32, "intermediate_size": 64, "num_layers": 3, "num_heads": 2, "num_kv_heads": 1, "max_positions": 128}
        made = run("train", "--run", cls.model, "--data", ROOT / "store", "--train.steps=3", "--train.threads=1", "--train.sequence_length=32",
                   "--train.batch_rows=2", "--train.eval_rows=2", *(f"--model.{key}={value}" for key, value in shape.items()))
        assert made.returncode == 0, made.stderr
        cls.process = subprocess.Popen([ATOLL, "serve", cls.model, "--gateway", "--listen", "127.0.0.1:0", "--name", "mine", "--threads", "1",
                                        "--template", "plain", "--kv-gib", "0.01"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        said = cls.process.stdout.readline()
        cls.url = re.search(r"http://\S+", said).group()
        cls.client = openai.OpenAI(base_url=f"{cls.url}/v1", api_key="none", max_retries=0)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        cls.process.send_signal(signal.SIGTERM)
        out, err = cls.process.communicate(timeout=DEADLINE_S)
        assert cls.process.returncode == 0, (cls.process.returncode, out, err)

    def complete(self, prompt, **more):
        return self.client.completions.create(model="mine", prompt=prompt, max_tokens=24, **more).choices[0].text

    def test_each_answer_has_the_tokens_that_it_has_alone(self):
        wanted = {}
        for number, prompt in enumerate(PROMPTS):
            wanted[prompt] = generated(self.model, prompt, "--max-tokens", 24, "--temperature", 0.8, "--seed", number)
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            for _ in range(2):  # Then with keys and values that are there.
                made = {prompt: [pool.submit(self.complete, prompt, temperature=0.8, seed=number) for _ in range(2)]
                        for number, prompt in enumerate(PROMPTS)}
                for prompt, answers in made.items():
                    for answer in answers:
                        self.assertEqual(answer.result(), wanted[prompt], prompt)

    def test_answers_of_a_form_have_the_tokens_that_they_have_alone(self):
        schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 6}, "age": {"type": "integer", "maximum": 99, "minimum": 0}},
                  "required": ["name", "age"], "additionalProperties": False}

        def asked(seed):
            return self.client.completions.create(model="mine", prompt=PROMPTS[seed % 3], max_tokens=100, temperature=1, seed=seed,
                                                  extra_body={"guided_json": schema}).choices[0]
        alone = [asked(seed).text for seed in range(8)]
        for text in alone:
            jsonschema.validate(json.loads(text), schema)
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            others = [pool.submit(self.complete, prompt, temperature=0.8, seed=1) for prompt in PROMPTS[:4]]
            self.assertEqual([one.text for one in pool.map(asked, range(8))], alone)
            self.assertEqual(len([one.result() for one in others]), 4)

    def test_a_stream_is_the_answer_in_pieces(self):
        whole = self.complete(PROMPTS[0], temperature=0)
        pieces = self.client.completions.create(model="mine", prompt=PROMPTS[0], max_tokens=24, temperature=0, stream=True)
        self.assertEqual("".join(piece.choices[0].text for piece in pieces), whole)
        self.assertEqual(whole, generated(self.model, PROMPTS[0], "--max-tokens", 24, "--greedy"))

    def test_chats_scores_and_embeddings(self):
        chat = self.client.chat.completions.create(model="mine", messages=[{"role": "user", "content": "a"}], max_tokens=5, logprobs=True,
                                                   top_logprobs=2, temperature=0)
        scores = chat.choices[0].logprobs.content
        self.assertEqual(len(scores), chat.usage.completion_tokens)
        for score in scores:
            self.assertEqual(score.token, score.top_logprobs[0].token)
        echoed = self.client.completions.create(model="mine", prompt=PROMPTS[0], max_tokens=0, echo=True, logprobs=1).choices[0]
        self.assertEqual(echoed.text, PROMPTS[0])
        self.assertIsNone(echoed.logprobs.token_logprobs[0])
        self.assertTrue(all(value < 0 for value in echoed.logprobs.token_logprobs[1:]))
        self.assertEqual(len(self.client.embeddings.create(model="mine", input="a").data[0].embedding), 32)

    def test_what_the_model_cannot_do_is_refused(self):
        with self.assertRaisesRegex(openai.BadRequestError, "context"):
            self.client.completions.create(model="mine", prompt=[1] * 200)
        with self.assertRaises(openai.BadRequestError):
            self.client.completions.create(model="mine", prompt=[10**6])
        with self.assertRaises(openai.NotFoundError):
            self.client.completions.create(model="yours", prompt="a")

    def test_a_model_that_is_larger_than_the_memory(self):
        for words in (["--gateway", "--listen", "127.0.0.1:0"], ["--join", "127.0.0.1:1", "--blocks", "0:2"]):
            failed = run("serve", self.model, *words, "--memory-gib", 0.26, "--kv-gib", 0.01)
            self.assertEqual(failed.returncode, 1, failed)
            self.assertRegex(failed.stderr, r"have .*, keys and values 1[02]\.[17] MB and the program 268\.4 MB: that is more than the 279\.2 MB that may be used here")

    def test_wrong_usage(self):
        gateway = ["gateway", self.model, "--join", "127.0.0.1:1"]
        for words, part in ((["serve", self.model], "--gateway"), ([*gateway, "--deterministic", "--wire", "int8"], "--deterministic"),
                            (["serve", self.model, "--gateway", "--deterministic", "--device", "cuda"], "--deterministic"),
                            ([*gateway, "--swarm-name", "m"], "--swarm-name"), ([*gateway, "--remote-head", "--audit", "1"], "--audit"),
                            (["serve", self.model, "--gateway", "--head"], "--head"), (["serve", self.model, "--gateway", "--listen", "0.0.0.0:0"], "--insecure"),
                            (["serve", self.model, "--gateway", "--kv-gib", 0], "--kv-gib"),
                            (["serve", self.model, "--gateway", "--kv-store-gib", 1], "--kv-store"),
                            *((["serve", self.model, "--join", "127.0.0.1:1", *wrong], wrong[-1]) for wrong in (
                                ["--neighbour-rate", "fast"], ["--neighbour-rate", "0"], ["--neighbour-rate", "0bit", "--blocks", "0:99"],
                                ["--upload-rate", "fast"], ["--blocks", "1"], ["--blocks", "2:1"], ["--blocks", "0:99"], ["--advertise", "x"])),
                            (["serve", self.model, "--join", "127.0.0.1:1", "--head", "--blocks", "1:2"], "--head"),
                            (["serve", self.model, "--gateway", "--join", "127.0.0.1:1"], "one of them")):
            failed = run(*words)
            self.assertEqual(failed.returncode, 2, failed)
            self.assertIn(part, failed.stderr)


if __name__ == "__main__":
    ATOLL = str(pathlib.Path(sys.argv.pop(1)).absolute())
    ROOT = pathlib.Path(tempfile.mkdtemp(prefix="atoll-serve-test-"))
    try:
        unittest.main(verbosity=2)
    finally:
        shutil.rmtree(ROOT, ignore_errors=True)
