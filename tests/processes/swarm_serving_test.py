#!/usr/bin/env python3
"""A model whose layers several servers have: the answers of one process to the last bit, whatever happens to servers, gateways and coordinator.

usage: swarm_serving_test.py ATOLL STORE [unittest arguments]
"""
import concurrent.futures
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request

import jsonschema

from kept_port import KeptPort
from lying_model import copy_of, in_4_bits, lie
from serving_swarm import Asked, ServingSwarm, ask, client_of, complete, told
from swarm_run import DEADLINE_S, established_to, wait_for

ATOLL = STORE = ""
ROOT = None  # Removed at the end.
SEED = int(os.environ.get("SEED", random.randrange(10_000)))
SHAPE = {"hidden_size": 64, "intermediate_size": 128, "num_layers": 6, "num_heads": 4, "num_kv_heads": 2, "max_positions": 2048}
SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "maximum": 99, "minimum": 0},
                                           "tags": {"type": "array", "items": {"enum": ["reef", "lagoon"]}, "maxItems": 6}},
          "required": ["name", "age", "tags"], "additionalProperties": False}
LONG = "def loads(text):\n    return json." * 100  # Some 1,400 tokens.
GREEDY = {"prompt": "def loads(", "max_tokens": 120, "temperature": 0}
SEEDED = {"prompt": "import json\n", "max_tokens": 120, "temperature": 0.9, "seed": 11}
FOUR = {**SEEDED, "max_tokens": 60, "n": 4}
FORM = {"prompt": "class", "max_tokens": 200, "temperature": 1, "seed": 5, "guided_json": SCHEMA}
READING = {"prompt": LONG, "max_tokens": 8, "temperature": 0}
PREFIX = {"prompt": LONG[:500], "max_tokens": 100, "temperature": 0.8, "seed": 3}


def made_model(name, seed):
    model = ROOT / name
    words = [ATOLL, "train", "--run", model, "--data", STORE, "--train.steps=3", "--train.threads=1", "--train.sequence_length=32", f"--train.seed={seed}",
             "--train.batch_rows=2", "--train.eval_rows=2", *(f"--model.{key}={value}" for key, value in SHAPE.items())]
    subprocess.run(list(map(str, words)), check=True, capture_output=True)
    return model


def recoveries(url):
    """By kind."""
    return {kind: int(count) for kind, count in re.findall(r'atoll_recoveries_total\{.*kind="(\w+)"\} (\d+)', ask(url, "/metrics"))}


class Serving(unittest.TestCase):
    """One process with all of the model, and a swarm without servers."""

    @classmethod
    def setUpClass(cls):
        cls.random = random.Random(SEED)
        cls.model = cls.make_model()
        cls.whole = ServingSwarm(ATOLL, cls.model, ROOT / "whole")
        cls.addClassCleanup(cls.whole.end)
        cls.one = cls.whole.alone("one")
        cls.wanted_by_body = {}

    @classmethod
    def make_model(cls):
        return made_model("model", 1)

    def swarm(self, *spans, gateways=1):
        """Servers a, b, ... of these layers, and gateways g0, g1, ..."""
        swarm = ServingSwarm(ATOLL, self.model, pathlib.Path(tempfile.mkdtemp(dir=ROOT)) / "swarm")
        self.addCleanup(swarm.end)
        swarm.coordinate()
        for name, span in zip("abcdefgh", spans):
            swarm.serve(name, span)
        for number in range(gateways):
            swarm.gateway(f"g{number}")
        for url in swarm.urls.values():
            swarm.wait_whole(url)
        return swarm

    def wanted(self, body):
        key = json.dumps(body)
        if key not in self.wanted_by_body:
            self.wanted_by_body[key] = Asked(self.one, **body).told()
        return self.wanted_by_body[key]

    def check(self, asked, body, what):
        wanted = self.wanted(body)
        try:
            found = asked.told()
        except AssertionError as error:
            self.fail(f"SEED={SEED}, {what}: {error}")
        self.assertEqual(found, wanted, f"SEED={SEED}, {what}")


class SameAnswersTest(Serving):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.swarm_of_class = ServingSwarm(ATOLL, cls.model, ROOT / "same")
        cls.addClassCleanup(cls.swarm_of_class.end)
        swarm = cls.swarm_of_class
        swarm.coordinate()
        for name, span in zip("abcd", ("0:2", "2:4", "4:6", "2:6")):
            swarm.serve(name, span)
        cls.url = swarm.gateway("g")
        swarm.wait_whole(cls.url)
        cls.clients = [client_of(cls.url), client_of(cls.one)]
        for client in cls.clients:
            cls.addClassCleanup(client.close)

    def same(self, asked):
        """What both say, without what names each reply; a seed that nobody gave is another one each time."""
        found = []
        for client in self.clients:
            reply = asked(client).model_dump()
            for key in ("id", "created", "usage", "seed"):
                reply.pop(key, None)
            found.append(reply)
        self.assertEqual(found[0], found[1])
        return found[0]

    def test_completions(self):
        for body in (GREEDY, SEEDED, FOUR, READING):
            self.same(lambda client: client.completions.create(model="mine", logprobs=4, **body))
        self.same(lambda client: client.completions.create(model="mine", prompt=LONG, echo=True, max_tokens=0, logprobs=1))
        self.same(lambda client: client.completions.create(model="mine", prompt=["class", "a"], max_tokens=9, seed=1, logit_bias={"9": 5},
                                                           frequency_penalty=1, echo=True, logprobs=2))

    def test_of_a_form(self):
        for seed in range(3):
            made = self.same(lambda client: client.completions.create(
                model="mine", prompt="class", max_tokens=200, seed=seed, logprobs=2, n=2, extra_body={"guided_json": SCHEMA}))
            for choice in made["choices"]:
                jsonschema.validate(json.loads(choice["text"]), SCHEMA)

    def test_chats_and_embeddings(self):
        messages = [{"role": "user", "content": "What is json?"}]
        for more in ({"temperature": 0}, {"seed": 4, "n": 3}):
            self.same(lambda client: client.chat.completions.create(model="mine", messages=messages, max_tokens=40, logprobs=True, top_logprobs=3, **more))
        self.same(lambda client: client.embeddings.create(model="mine", input=["a", "def loads(", LONG]))

    def test_many_at_once(self):
        bodies = [{"prompt": LONG[: 7 * i + 1], "max_tokens": 30, "temperature": 0.8, "seed": i, "logprobs": 2} for i in range(16)]
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            alone = [told(complete(self.one, **body)) for body in bodies]
            for _ in range(2):  # Then with keys and values that are there.
                self.assertEqual(list(pool.map(lambda body: told(complete(self.url, **body)), bodies)), alone)


class LostServersTest(Serving):
    SPANS = ("0:2", "0:2", "2:4", "2:4", "4:6", "4:6")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.num_under_way = cls.num_lost = 0

    @classmethod
    def tearDownClass(cls):
        assert 4 * cls.num_under_way >= 3 * cls.num_lost, f"of {cls.num_lost} texts {cls.num_under_way} were under way"

    def used(self, swarm, index, seconds=0.01):
        """Which of the two with the layers of that number computes."""
        pair = "abcdef"[2 * index : 2 * index + 2]
        busy = swarm.busy(seconds)
        return max(pair, key=lambda name: busy.get(name, 0))

    def lose(self, asked, lose, *names):
        """Servers of the chain of a text, which is under way."""
        type(self).num_under_way += asked.is_under_way()
        type(self).num_lost += 1
        return lose(*names)

    def start_again(self, swarm, url):
        """Those that are gone come back, as others."""
        for name, span in zip("abcdef", self.SPANS):
            if not swarm.is_alive(name):
                swarm.serve(name, span)
        swarm.wait_whole(url)
        time.sleep(0.3)  # Until the gateway has heard of them.

    def test_killed_while_tokens_are_made(self):
        swarm = self.swarm(*self.SPANS)
        url = swarm.urls["g0"]
        for number, body in enumerate((GREEDY, SEEDED, FOUR, FORM, PREFIX)):
            asked = Asked(url, **body)
            asked.wait_pieces(self.random.randrange(1, 12))
            used = self.used(swarm, number % 3)
            self.lose(asked, swarm.kill, used)
            self.check(asked, body, f"{used} of {body}")
            self.start_again(swarm, url)
        self.assertGreaterEqual(sum(recoveries(url).values()), 3, recoveries(url))

    def test_killed_while_a_prompt_is_read(self):
        swarm = self.swarm(*self.SPANS)
        url = swarm.urls["g0"]
        num_before = 0
        for number in range(3):
            body = {**READING, "prompt": f"{number} {LONG}"}
            begin = time.monotonic()
            self.wanted(body)
            wanted = time.monotonic() - begin
            asked = Asked(url, **body)
            time.sleep(wanted * self.random.uniform(0.1, 0.5))
            used = self.used(swarm, number, 0.01)
            self.lose(asked, swarm.kill, used)
            num_before += not asked.pieces
            self.check(asked, body, f"{used} while it reads")
            self.start_again(swarm, url)
        self.assertGreater(num_before, 0)

    def test_two_killed_at_once(self):
        swarm = self.swarm(*self.SPANS)
        url = swarm.urls["g0"]
        for pair, body in (((0, 1), SEEDED), ((1, 2), PREFIX), ((0, 2), FORM)):
            asked = Asked(url, **body)
            asked.wait_pieces(self.random.randrange(1, 12))
            used = [self.used(swarm, index) for index in pair]
            self.lose(asked, swarm.kill, *used)
            self.check(asked, body, f"{used}")
            self.start_again(swarm, url)

    def test_one_that_hangs_and_comes_to_itself(self):
        swarm = self.swarm(*self.SPANS)
        url = swarm.urls["g0"]
        for index in (1, 2):
            asked = Asked(url, **SEEDED)
            asked.wait_pieces(self.random.randrange(1, 12))
            used = self.used(swarm, index)
            self.lose(asked, swarm.send, used, signal.SIGSTOP)
            self.check(asked, SEEDED, f"{used} hangs")
            swarm.send(used, signal.SIGCONT)
            self.check(Asked(url, **GREEDY), GREEDY, f"{used} goes on")

    def test_one_that_is_asked_to_end_gives_its_texts_away(self):
        swarm = self.swarm(*self.SPANS)
        url = swarm.urls["g0"]
        for index in range(3):
            asked = Asked(url, **FOUR)
            asked.wait_pieces(2)
            used = self.used(swarm, index)
            self.assertEqual(self.lose(asked, swarm.finish, used), 0, swarm.log(used))
            self.check(asked, FOUR, f"{used} leaves")

    def test_a_gap_that_is_filled_in_time(self):
        swarm = self.swarm("0:2", "2:4", "4:6")
        asked = Asked(swarm.urls["g0"], **SEEDED)
        asked.wait_pieces(4)
        swarm.kill("b")
        swarm.serve("x", "1:5")
        self.check(asked, SEEDED, "another with other bounds")


class SwarmTest(Serving):
    def test_a_coordinator_that_was_killed(self):
        swarm = self.swarm("0:2", "2:4", "4:6")
        url = swarm.urls["g0"]
        asked = Asked(url, **SEEDED)
        asked.wait_pieces(2)
        swarm.kill("coordinator")
        self.check(asked, SEEDED, "the coordinator is killed")
        self.check(Asked(url, **GREEDY), GREEDY, "without a coordinator")
        swarm.coordinate()
        swarm.serve("d", "2:4")
        wait_for(lambda: "d serves" in swarm.log("coordinator") or "'d' serves" in swarm.log("coordinator"), "d's layers")
        asked = Asked(url, **SEEDED)
        asked.wait_pieces(2)
        swarm.kill("b")
        self.check(asked, SEEDED, "with one that came later")

    def test_two_gateways_and_one_that_is_killed(self):
        swarm = self.swarm("0:3", "3:6", gateways=2)
        bodies = {"g0": SEEDED, "g1": FOUR}
        asked = {name: Asked(swarm.urls[name], **body) for name, body in bodies.items()}
        for name, body in bodies.items():
            self.check(asked[name], body, name)
        Asked(swarm.urls["g0"], prompt=LONG, max_tokens=500, temperature=0).wait_pieces(1)
        swarm.kill("g0")
        wait_for(lambda: max(swarm.busy(0.2).values()) < 0.02, "servers that compute no more")
        self.check(Asked(swarm.urls["g1"], **PREFIX), PREFIX, "the other gateway")

    def test_layers_that_nobody_has(self):
        swarm = self.swarm("0:2", "2:4", "4:6")
        swarm.kill("b")
        with self.assertRaises(urllib.error.HTTPError) as caught:
            complete(swarm.urls["g0"], prompt="a", max_tokens=2)
        with caught.exception as failed:
            self.assertEqual(failed.code, 503)
            message = json.loads(failed.read())["error"]["message"]
        self.assertRegex(message, r"layers? 2(:4| to 3|-3)", message)
        swarm.serve("x", "2:4")
        swarm.wait_whole(swarm.urls["g0"])
        self.check(Asked(swarm.urls["g0"], **GREEDY), GREEDY, "x")

    def test_other_weights_are_never_mixed_in_and_the_coordinator_gives_layers(self):
        swarm = ServingSwarm(ATOLL, self.model, pathlib.Path(tempfile.mkdtemp(dir=ROOT)) / "swarm")
        self.addCleanup(swarm.end)
        swarm.coordinate()
        swarm.serve("other", "0:6", model=made_model("other", 2))
        swarm.serve("a", "0:3")
        url = swarm.gateway("g")
        time.sleep(0.5)
        with self.assertRaises(urllib.error.HTTPError) as caught:
            complete(url, prompt="a", max_tokens=2)
        with caught.exception as failed:
            self.assertEqual(failed.code, 503)
        swarm.serve("b")  # Which layers, it is told.
        swarm.wait_whole(url)
        self.check(Asked(url, **SEEDED), SEEDED, "given layers")
        self.assertLess(swarm.busy()["other"], 0.01)
        self.assertTrue(swarm.is_alive("other"))
        self.assertIn("servers of a model's layers", swarm.log("coordinator"))
        self.assertEqual(swarm.finish("coordinator"), 0)  # Nobody trained.

    def test_where_no_coordinator_answers_nobody_says_that_it_serves(self):
        folder = pathlib.Path(tempfile.mkdtemp(dir=ROOT))
        port = KeptPort()
        self.addCleanup(port.give_back)
        for command in ("serve", "gateway"):
            out, log = folder / f"{command}.out", folder / f"{command}.log"
            with open(out, "wb") as stdout, open(log, "wb") as stderr:
                process = subprocess.Popen([ATOLL, command, self.model, "--join", port.address, "--listen", "127.0.0.1:0"], stdout=stdout,
                                           stderr=stderr)
            self.addCleanup(process.wait, DEADLINE_S)
            self.addCleanup(process.kill)
            wait_for(lambda log=log: "nobody answers at " + port.address in log.read_text(), f"{command} to say that nobody answers")
            self.assertIn(f"joining the swarm of {port.address}", log.read_text())
            self.assertNotRegex(out.read_text(), "has joined|is served at")


class LiarsTest(Serving):
    """Servers with the digest of the gateway's model, which compute something else."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.folder = ROOT / "folder"  # Without the hashes of a checkpoint.
        subprocess.run([ATOLL, "convert", cls.model, cls.folder], check=True, capture_output=True)

    def without_liar(self, liar, layers):
        """Servers of all else, and a gateway; `liar(swarm)` starts the server of those layers."""
        swarm = ServingSwarm(ATOLL, self.folder, pathlib.Path(tempfile.mkdtemp(dir=ROOT)) / "swarm")
        self.addCleanup(swarm.end)
        swarm.coordinate()
        for name, span in zip("ac", (span for span in ("0:2", "2:4", "4:6") if span != layers)):
            swarm.serve(name, span)
        liar(swarm)
        swarm.wait_whole(swarm.gateway("g"))
        return swarm

    def check_caught(self, swarm, layers, reason):
        url = swarm.urls["g"]
        asked = Asked(url, prompt="def loads(", max_tokens=400, temperature=1, seed=1, logit_bias={"0": -100})
        wait_for(lambda: "server 'liar' does not compute what its model says" in swarm.log("g"), f"the gateway's word; SEED={SEED}")
        asked.wait_pieces(1)
        num_made = len(asked.pieces)
        self.assertLess(num_made, 300)
        wait_for(lambda: "a gateway does not use this server any more" in swarm.log("liar"), "what the liar is told")
        wait_for(lambda: "1 of 1 gateways report" in swarm.log("liar"), "the coordinator's word")
        wait_for(lambda: "server 'liar' is gone" in swarm.log("coordinator"), "its end")
        events = map(json.loads, (swarm.run / "events.jsonl").read_text().splitlines())
        [reported] = [event for event in events if event["kind"] == "server_reported"]
        self.assertEqual(reported["server"], "liar")
        self.assertIn(reason, reported["reason"])
        swarm.serve("honest", layers)
        self.assertGreater(len(asked.told()[0]["tokens"]), num_made)  # It goes on.
        for body in (GREEDY, SEEDED, FOUR):
            self.check(Asked(url, **body), body, "after the liar")
        self.assertRegex(ask(url, "/metrics"), r"atoll_liars_total\{.*\} 1\n")
        self.assertRegex(ask(url, "/metrics"), r"atoll_audited_tokens_total\{.*\} [1-9]")

    def serve_in_4_bits(self, swarm, layers):
        folder = copy_of(self.folder, swarm.folder / "lying")
        swarm.serve("liar", layers, model=folder)
        lie(folder, in_4_bits)

    def rogue(self, first, end, how):
        def start(swarm):
            swarm.spans["liar"] = f"{first}:{end}"
            program, swarm.atoll = swarm.atoll, f"{ATOLL}-rogue-server"
            swarm.start("liar", [swarm.port.address, self.folder, "liar", first, end, 1, how], r"serves at \S+")
            swarm.atoll = program
        return start

    def test_weights_in_4_bits(self):
        swarm = self.without_liar(lambda swarm: self.serve_in_4_bits(swarm, "2:4"), "2:4")
        self.check_caught(swarm, "2:4", "its rows are off by")

    def test_noise(self):
        self.check_caught(self.without_liar(self.rogue(2, 4, "open"), "2:4"), "2:4", "its rows are off by")

    def test_noise_behind_honest_words(self):
        self.check_caught(self.without_liar(self.rogue(4, 6, "honest"), "4:6"), "4:6", "it sent other rows than came from it")

    def test_one_gateway_of_two_shuts_nobody_out(self):
        swarm = ServingSwarm(ATOLL, self.folder, pathlib.Path(tempfile.mkdtemp(dir=ROOT)) / "swarm")
        self.addCleanup(swarm.end)
        subprocess.run([ATOLL, "create", swarm.run, "--address", swarm.port.address], check=True, capture_output=True)
        swarm.coordinate("--no-discovery")
        self.serve_in_4_bits(swarm, "0:6")
        text = {"prompt": "def", "max_tokens": 300, "temperature": 1, "seed": 2, "logit_bias": {"0": -100}}
        for name in ("g0", "g1"):
            swarm.wait_whole(swarm.gateway(name))
        num_gone = []
        for name in ("g0", "g1"):
            Asked(swarm.urls[name], **text)  # It waits for another server to the end.
            wait_for(lambda name=name: f"gateway '{name}' reports that server 'liar'" in swarm.log("coordinator"), f"{name}'s report")
            time.sleep(0.5)
            num_gone.append(swarm.log("coordinator").count("server 'liar' is gone"))
        self.assertEqual(num_gone, [0, 1])
        self.assertIn("the gateway 'g0' does not use this server any more", swarm.log("liar"))
        self.assertIn("2 of 2 gateways report", swarm.log("liar"))

    def test_without_audits_nobody_is_asked(self):
        swarm = ServingSwarm(ATOLL, self.folder, pathlib.Path(tempfile.mkdtemp(dir=ROOT)) / "swarm")
        self.addCleanup(swarm.end)
        swarm.coordinate()
        self.serve_in_4_bits(swarm, "0:6")
        url = swarm.gateway("g", "--audit", "0")
        swarm.wait_whole(url)
        Asked(url, prompt="def", max_tokens=300, temperature=1, seed=2, logit_bias={"0": -100}).told()
        self.assertRegex(ask(url, "/metrics"), r"atoll_audited_tokens_total\{.*\} 0\n")


def counted(url, name):
    return sum(float(line.rsplit(" ", 1)[1]) for line in ask(url, "/metrics").splitlines() if line.startswith(f"atoll_{name}_tokens_total"))


class DraftModelTest(Serving):
    """A gateway with a model that guesses: some of the model's own layers."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.draft = ROOT / "draft"
        subprocess.run([ATOLL, "convert", cls.model, cls.draft, "--layers", "0,1,2,4,5", "--verify"], check=True, capture_output=True)

    def test_answers_are_the_same_while_servers_are_killed(self):
        swarm = self.swarm("0:3", "3:6", "3:6", "0:3", gateways=0)
        url = swarm.gateway("g", "--draft-model", self.draft, "--draft-kv-gib", "0.01")
        swarm.wait_whole(url)
        bodies = (GREEDY, SEEDED, FOUR, FORM, READING, PREFIX)
        for body in bodies:
            self.check(Asked(url, **body), body, "guessed")
        self.assertGreater(counted(url, "accepted"), 20)
        self.assertLess(counted(url, "accepted"), counted(url, "drafted"))
        asked = [Asked(url, **body) for body in bodies]
        asked[0].wait_pieces(self.random.randrange(1, 60))
        swarm.kill(self.random.choice(list(swarm.busy(0.05))))
        for one, body in zip(asked, bodies):
            self.check(one, body, "guessed while a server was killed")

    def test_what_cannot_guess_is_refused(self):
        def refused(*words):
            done = subprocess.run([ATOLL, *map(str, words)], capture_output=True, text=True, timeout=DEADLINE_S)
            self.assertIn(done.returncode, (1, 2))
            return done.stderr
        gateway = ["gateway", self.model, "--join", "127.0.0.1:1", "--listen", "127.0.0.1:0"]
        other = ROOT / "other-tokenizer"
        shutil.copytree(self.draft, other)
        tokenizer = json.loads((other / "tokenizer.json").read_text())
        vocabulary = tokenizer["model"]["vocab"]
        one, two = sorted(vocabulary, key=vocabulary.get)[300:302]
        vocabulary[one], vocabulary[two] = vocabulary[two], vocabulary[one]
        (other / "tokenizer.json").write_text(json.dumps(tokenizer))
        self.assertRegex(refused(*gateway, "--draft-model", other), "another tokenizer")
        self.assertRegex(refused(*gateway, "--draft-model", ROOT / "nothing"), "nothing")
        self.assertRegex(refused(*gateway, "--draft-model", self.draft, "--draft-kv-gib", "0.000001"), "draft-kv-gib")
        self.assertRegex(refused(*gateway, "--draft-kv-gib", "1"), "draft-model")
        self.assertRegex(refused(*gateway, "--strict"), "draft-model")
        self.assertRegex(refused("convert", self.model, ROOT / "none", "--layers", "0,6"), "from 0 to 5")
        self.assertRegex(refused("convert", self.model, ROOT / "none.gguf", "--layers", "0"), "--layers")


class KeptTest(Serving):
    """Keys and values of texts outlive their texts, and those who made them."""

    BODY = {"prompt": LONG, "max_tokens": 40, "temperature": 0.7, "seed": 4}

    @classmethod
    def make_model(cls):
        model = ROOT / "bf16"
        subprocess.run([ATOLL, "convert", made_model("model", 1), model, "--dtype", "bf16"], check=True, capture_output=True)
        return model

    def setUp(self):
        self.swarm_of_test = swarm = ServingSwarm(ATOLL, self.model, pathlib.Path(tempfile.mkdtemp(dir=ROOT)) / "swarm")
        self.addCleanup(swarm.end)
        swarm.coordinate()

    def serve(self, *names_and_spans):
        for name, span in names_and_spans:
            self.swarm_of_test.serve(name, span, "--kv-store", self.swarm_of_test.folder / f"{name}-kv")

    def gateway(self, name, *words, secret="secret"):
        url = self.swarm_of_test.gateway(name, "--kv-secret", self.swarm_of_test.folder / secret, "--max-guesses", 0, *words)
        self.swarm_of_test.wait_whole(url)
        return url

    def answered(self, url, key=None, **more):
        request = urllib.request.Request(url + "/v1/completions", data=json.dumps({"model": "mine", "logprobs": 2, **self.BODY, **more}).encode(),
                                         headers={"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})})
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as reply:
            return json.loads(reply.read())

    def cached(self, url, key=None, **more):
        """How many of the prompt's tokens were not read; the answer is that of one process."""
        said = self.answered(url, key, **more)
        self.assertEqual(told(said), told(complete(self.one, logprobs=2, **self.BODY)))
        self.assertNotIn("lossy_tokens", said["usage"]["prompt_tokens_details"])
        return said["usage"]["prompt_tokens_details"]["cached_tokens"]

    def wait_kept(self, names, count):
        """Until each has so many chunks on its disk."""
        def all_have():
            return all(len(list((self.swarm_of_test.folder / f"{name}-kv").glob("*/*"))) >= count for name in names)
        wait_for(all_have, "what is kept")

    def test_after_restarts_it_is_read_from_disk_and_damage_is_read_anew(self):
        spans = (("a", "0:3"), ("b", "3:6"))
        self.serve(*spans)
        self.assertEqual(self.cached(self.gateway("g")), 0)
        num_chunks = (len(self.tokens()) - 1) // 128
        self.wait_kept("ab", 6 * num_chunks)  # Their own, and the other one's.
        for name in ("g", "a", "b"):
            self.assertEqual(self.swarm_of_test.finish(name), 0)
        self.serve(*spans)
        self.check_found(self.gateway, 128 * num_chunks)
        self.assertEqual(self.cached(self.gateway("other", secret="other-secret")), 0)
        self.swarm_of_test.kill("found", "a", "b")
        # Of what is damaged at one of them the other one may have a copy.
        for file in self.swarm_of_test.folder.glob("[ab]-kv/*/*"):
            if self.random.random() < 0.5:
                data = bytearray(file.read_bytes() or b"cut off")
                data[self.random.randrange(len(data))] ^= 1 << self.random.randrange(8)
                file.write_bytes(data)
        self.serve(*spans)
        self.assertLess(self.cached(self.gateway("g3")), 128 * num_chunks)

    def check_found(self, start, count, **more):
        """By a process that has read nothing yet. On a machine that stalls it may seem quicker to read."""
        for _ in range(10):
            found = self.cached(start("found"), **more)
            if found == count:
                return
            self.swarm_of_test.kill("found")
        self.fail(f"{found} tokens were found, not {count}")

    def test_one_process_has_it_after_a_restart(self):
        words = ("--kv-store", self.swarm_of_test.folder / "one-kv")
        num_chunks = (len(self.tokens()) - 1) // 128
        self.assertEqual(self.cached(self.swarm_of_test.alone("one", *words)), 0)
        self.wait_kept(["one"], 6 * num_chunks)
        self.assertEqual(self.swarm_of_test.finish("one"), 0)
        self.assertEqual(self.cached(self.swarm_of_test.alone("one", *words)), 128 * num_chunks)

    def profile(self):
        """Fitted, measured, and refused where it is another model's."""
        profile, text = ROOT / "bf16.kvp", ROOT / "text.txt"
        text.write_text(pathlib.Path(unittest.__file__).with_name("mock.py").read_text())
        words = [ATOLL, "kv", "fit", self.model, "--text", text, "--prefix", "128", "--windows", "4", "--sensitivity-windows", "2", "--group-layers", "2",
                 "--bits", "3,2", "--out", profile]
        subprocess.run(words, check=True, capture_output=True)
        words = [ATOLL, "kv", "measure", self.model, "--profile", profile, "--text", text, "--prefix", "128", "--scored", "64", "--windows", "3", "--json"]
        measured = json.loads(subprocess.run(words, check=True, capture_output=True).stdout)
        bits = {level["name"]: level["bits"] for level in measured["levels"]}
        self.assertLess(bits["transform 1"], bits["transform 0"])
        self.assertLess(bits["transform 0"], bits["8-bit"])
        refused = subprocess.run([ATOLL, "serve", made_model("other", 2), "--join", "127.0.0.1:1", "--kv-dtype", "bf16", "--kv-profile", profile],
                                 capture_output=True, text=True)
        self.assertNotEqual(refused.returncode, 0)
        self.assertRegex(refused.stderr, "--kv-profile.*is of the model")
        return profile

    def test_what_another_server_has_comes_rounded_where_that_is_asked_for(self):
        swarm, words = self.swarm_of_test, ("--kv-profile", self.profile())
        kept = ("--kv-store", swarm.folder / "a-kv", *words)
        swarm.serve("a", "0:6", *kept)
        self.assertEqual(self.cached(self.gateway("g")), 0)
        num_chunks = (len(self.tokens()) - 1) // 128
        self.wait_kept("a", num_chunks * (6 + 2 * 3))  # Layers to the bit, and pairs of them at two levels.
        swarm.finish("a")
        swarm.kill("g")
        # It has all of it, and serves one layer: the other one has to ask for the rest.
        swarm.serve("a", "0:1", *kept)
        swarm.serve("b", "0:6", *words)
        wanted = {"cached_tokens": 128 * num_chunks, "lossy_tokens": 128 * (num_chunks - 1)}

        url, before = self.gateway("rounded", "--audit", 1, *words), 0

        def audited():
            return int(re.search(r"atoll_audited_tokens_total\{.*\} (\d+)", ask(url, "/metrics"))[1])

        def is_rounded(**more):
            return self.answered(url, lossy_kv=0, **more)["usage"]["prompt_tokens_details"] == wanted

        def is_audited():
            nonlocal before
            if is_rounded(max_tokens=200):
                return audited() > before
            # On a machine that stalls it may seem quicker to read; that is audited as well, a moment later.
            time.sleep(1)
            before = audited()
            return False
        wait_for(is_audited, "an audit of a text that began rounded")
        # Where something was found wrong all that was kept would be forgotten.
        wait_for(is_rounded, "what is kept on")
        # Who wants to the bit what came rounded has it so.
        self.check_found(lambda name: self.gateway(name, "--lossy-kv", 0), 128 * num_chunks, lossy_kv=False)
        strict = self.gateway("strict", "--deterministic")
        with self.assertRaises(urllib.error.HTTPError) as refused:
            self.answered(strict, lossy_kv=0.5)
        self.assertEqual(refused.exception.code, 400)
        self.assertIn("lossy_kv", refused.exception.read().decode())
        self.assertGreater(self.cached(strict), 0)

    def tokens(self):
        made = subprocess.run([ATOLL, "tokenizer", "encode", "--tokenizer", self.model, "--text", "-"], input=LONG, check=True, capture_output=True, text=True)
        return made.stdout.split(",")

    def test_of_another_key_nothing_is_found(self):
        keys = self.swarm_of_test.folder / "keys"
        keys.write_text("ann the-secret-of-ann\nbob the-secret-of-bob\n")
        self.serve(("a", "0:6"))
        url = self.swarm_of_test.gateway("g", "--keys", keys, "--max-guesses", 0)
        wait_for(lambda: "ok" in ask(url, "/health"), "the gateway")
        self.assertEqual(self.cached(url, "the-secret-of-ann"), 0)
        self.wait_kept("a", 6)
        self.assertEqual(self.cached(url, "the-secret-of-bob"), 0)
        wait_for(lambda: self.cached(url, "the-secret-of-ann") > 0, "what was read for the same key")
        def groups():
            return [path for path in (self.swarm_of_test.folder / "a-kv").iterdir() if path.is_dir()]
        wait_for(lambda: len(groups()) == 2, "what was read for both")
        request = urllib.request.Request(url + "/v1/kept_texts", method="DELETE", headers={"Authorization": "Bearer the-secret-of-ann"})
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as reply:
            self.assertEqual(json.loads(reply.read())["deleted"], True)
        wait_for(lambda: len(groups()) == 1, "the purge")
        self.assertEqual(self.cached(url, "the-secret-of-ann"), 0)
        self.assertGreater(self.cached(url, "the-secret-of-bob"), 0)

    def test_who_takes_a_place_has_it_from_a_neighbour(self):
        spans = (("a", "0:2"), ("b", "2:4"), ("c", "4:6"), ("b2", "2:4"))
        self.serve(*spans)
        url = self.gateway("g")
        body = {"prompt": LONG, "max_tokens": 300, "temperature": 0.7, "seed": 4}
        asked = Asked(url, **body)
        asked.wait_pieces(20)
        busy = self.swarm_of_test.busy(0.05)
        used = max(("b", "b2"), key=lambda name: busy[name])
        self.wait_kept(["b", "b2"], 2 * 8)
        self.swarm_of_test.kill(used)
        self.check(asked, body, f"{used} was killed")


class EncryptedTest(Serving):
    def test_who_is_invited_and_who_is_not(self):
        swarm = ServingSwarm(ATOLL, self.model, pathlib.Path(tempfile.mkdtemp(dir=ROOT)) / "swarm")
        self.addCleanup(swarm.end)
        subprocess.run([ATOLL, "create", swarm.run, "--address", swarm.port.address], check=True, capture_output=True)
        swarm.coordinate("--no-discovery")
        ports = {}
        for name, span in zip("abcd", ("0:2", "2:4", "4:6", "2:4")):
            ports[name] = int(swarm.serve(name, span).rsplit(":", 1)[1])
        url = swarm.gateway("g")
        swarm.wait_whole(url)
        for body in (GREEDY, FOUR, FORM):
            asked = Asked(url, **body)
            asked.wait_pieces(3)
            self.check(asked, body, "encrypted")
        asked = Asked(url, **SEEDED)
        asked.wait_pieces(3)
        busy = swarm.busy(0.03)
        swarm.kill(max("bd", key=lambda name: busy[name]))
        self.check(asked, SEEDED, "encrypted, one is killed")
        for start, role in ((swarm.gateway, "server"), (swarm.gateway, "island"), (swarm.serve, "gateway"), (swarm.serve, "island")):
            with self.assertRaisesRegex(AssertionError, "invite"):
                start(f"wrong-{role}", join=swarm.invite(role))
        # A server's certificate does not make a gateway, in the clear nobody is let in.
        for words in (["gateway", self.model, "--run", swarm.folder / "a"], ["gateway", self.model, "--join", swarm.port.address]):
            process = subprocess.Popen([ATOLL, *map(str, words), "--listen", "127.0.0.1:0", "--name", "mine"], stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE, text=True)
            self.addCleanup(process.communicate, timeout=DEADLINE_S)
            self.addCleanup(process.kill)
            said = process.stdout.readline()
            if not said:
                self.assertNotEqual(process.wait(DEADLINE_S), 0)
                continue
            with self.assertRaises(urllib.error.HTTPError) as caught:
                complete(said[said.index("http") :].split()[0].rstrip("/"), prompt="a", max_tokens=1)
            with caught.exception as failed:
                self.assertEqual(failed.code, 503)
            process.kill()
        self.assertTrue(established_to(ports["c"]))
        subprocess.run([ATOLL, "revoke", "c", "--run", swarm.run], check=True, capture_output=True)
        wait_for(lambda: not established_to(ports["c"]), "the gateway and the other servers to hang up")
        self.assertTrue(swarm.is_alive("c"))


if __name__ == "__main__":
    ATOLL, STORE = (str(pathlib.Path(sys.argv.pop(1)).absolute()) for _ in range(2))
    ROOT = pathlib.Path(tempfile.mkdtemp(prefix="atoll-swarm-serving-"))
    try:
        unittest.main(verbosity=2)
    finally:
        shutil.rmtree(ROOT, ignore_errors=True)
