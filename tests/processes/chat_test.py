#!/usr/bin/env python3
"""`atoll chat` and Ctrl-C: the first ends the answer, the program goes on; while it waits, Ctrl-C ends it.

usage: chat_test.py ATOLL [unittest arguments]
"""
import json
import os
import pathlib
import select
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from small_store import make_store  # noqa: E402

ATOLL = ""
ROOT = None  # Removed at the end.
DEADLINE_S = 60


class ChatTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        make_store(ATOLL, ROOT / "store", ["json"])
        made = subprocess.run([ATOLL, "train", "--run", ROOT / "run", "--data", ROOT / "store", "--train.steps=1", "--train.threads=1",
                               "--train.sequence_length=32", "--train.batch_rows=2", "--train.eval_rows=2", "--model.hidden_size=32",
                               "--model.intermediate_size=64", "--model.num_layers=1", "--model.num_heads=2", "--model.num_kv_heads=1",
                               "--model.max_positions=30000"], capture_output=True, text=True, timeout=DEADLINE_S)
        assert made.returncode == 0, made.stderr
        # No answer may end by itself: only what the tests do may end it.
        checkpoint = sorted((ROOT / "run" / "checkpoints").iterdir())[-1]
        (checkpoint / "generation_config.json").write_text(json.dumps({"eos_token_id": 999_999}))
        path = checkpoint / "tokenizer_config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "eos_token": None}))  # It would end a turn.

    def begin(self, *words):
        chat = subprocess.Popen([ATOLL, "chat", ROOT / "run", "--template", "plain", "--threads", "1", "--max-tokens", "29000", *words],
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(chat.wait)
        self.addCleanup(chat.kill)
        return chat

    def say(self, chat, text):
        chat.stdin.write(text.encode() + b"\n")
        chat.stdin.flush()

    def read_some(self, chat):
        ready, _, _ = select.select([chat.stdout], [], [], DEADLINE_S)
        self.assertTrue(ready, "no answer came")
        return os.read(chat.stdout.fileno(), 65536)

    def test_the_first_stops_the_answer_and_the_conversation_goes_on(self):
        chat = self.begin("--temperature", "1")
        self.say(chat, "Hello")
        self.read_some(chat)
        chat.send_signal(signal.SIGINT)
        self.say(chat, "/reset")
        self.say(chat, "And now?")
        deadline = time.time() + DEADLINE_S
        said = b""
        while b"the answer was stopped" not in said and time.time() < deadline:
            ready, _, _ = select.select([chat.stdout, chat.stderr], [], [], DEADLINE_S)
            for stream in ready:
                part = os.read(stream.fileno(), 65536)
                said += part if stream is chat.stderr else b""
        self.assertIn(b"the answer was stopped", said)
        self.read_some(chat)  # Of the second answer.
        self.assertIsNone(chat.poll())

    def test_a_second_one_ends_the_program(self):
        chat = self.begin("--temperature", "1")
        self.say(chat, "Hello")
        self.read_some(chat)
        for _ in range(2):  # Apart, or the system makes one of them.
            chat.send_signal(signal.SIGINT)
            time.sleep(0.3)
        _, errors = chat.communicate(timeout=DEADLINE_S)
        self.assertNotEqual(chat.returncode, 0, errors)

    def test_while_it_waits_it_ends_the_program(self):
        chat = self.begin("--stop", "e", "--json")
        self.say(chat, "Hello")
        self.assertEqual(json.loads(self.read_some(chat))["finish_reason"], "stop")
        time.sleep(0.3)
        chat.send_signal(signal.SIGINT)
        chat.wait(timeout=DEADLINE_S)
        self.assertEqual(chat.returncode, -signal.SIGINT)


if __name__ == "__main__":
    ATOLL = str(pathlib.Path(sys.argv.pop(1)).resolve())
    with tempfile.TemporaryDirectory(prefix="atoll-chat-") as temporary:
        ROOT = pathlib.Path(temporary)
        unittest.main()
