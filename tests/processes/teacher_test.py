#!/usr/bin/env python3
"""Models that learn from another one's predictions: alone, on islands, and gone on with; and what is no teacher.

usage: teacher_test.py ATOLL STORE [unittest arguments]
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ATOLL = STORE = ""
DEADLINE_S = 120
SHAPE = {"hidden_size": 32, "intermediate_size": 48, "num_layers": 4, "num_heads": 2, "num_kv_heads": 1, "max_positions": 64}
TRAINING = {"sequence_length": 32, "batch_rows": 8, "eval_rows": 16, "threads": 1, "lr": 0.003, "warmup_steps": 1}


def run(*words):
    return subprocess.run([ATOLL, *map(str, words)], capture_output=True, text=True, timeout=DEADLINE_S)


def flags(**settings):
    return [f"--train.{key}={value}" for key, value in {**TRAINING, **settings}.items()]


class TeacherTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="atoll-teacher-test-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.teacher, cls.start = cls.folder / "teacher", cls.folder / "start"
        cls.good("train", "--run", cls.teacher, "--data", STORE, *flags(steps=60), *(f"--model.{key}={value}" for key, value in SHAPE.items()))
        cls.good("convert", cls.teacher, cls.start, "--layers", "0,3")

    @classmethod
    def good(cls, *words):
        done = run(*words)
        if done.returncode != 0:
            raise AssertionError(f"{words}: {done.stderr}")
        return done.stdout

    def learn(self, name, *words, **settings):
        settings = {"teacher": self.teacher, "teacher_share": 1, **settings}
        return ["train", "--run", self.folder / name, "--data", STORE, "--json", *(words or ["--init", self.start]), *flags(**settings)]

    def weights(self, name, step):
        return (self.folder / name / "checkpoints" / f"step-{step:08}" / "model.safetensors").read_bytes()

    def test_a_model_that_knows_nothing_learns_the_text_of_its_teacher(self):
        result = json.loads(self.good(*self.learn("new", *(f"--model.{key}={value}" for key, value in SHAPE.items()), steps=60)))
        self.assertLess(result["val_loss"], result["val_loss_start"] - 0.5)

    def test_fewer_layers_learn_and_go_on_to_the_same_bits(self):
        self.good(*self.learn("whole", steps=40, checkpoint_every=20))
        whole = self.weights("whole", 40)
        shutil.rmtree(self.folder / "whole" / "checkpoints" / "step-00000040")
        self.good("train", "--run", self.folder / "whole")
        self.assertEqual(self.weights("whole", 40), whole)
        self.good(*self.learn("without", steps=40, teacher="", teacher_share=0))
        self.assertNotEqual(self.weights("without", 40), whole)

    def test_islands_learn_from_teachers_of_their_own(self):
        self.good(*self.learn("islands", "--init", self.start, "--islands", 2, "--sync.sync_every=5", steps=10))
        weights = [(self.folder / "islands" / f"island-{number}" / "checkpoints" / "step-00000010" / "model.safetensors").read_bytes()
                   for number in (0, 1)]
        self.assertEqual(*weights)

    def test_who_cannot_teach_is_refused(self):
        def refused(*sayings, **settings):
            done = run(*self.learn("refused", steps=2, **settings))
            self.assertIn(done.returncode, (1, 2), done.stderr)
            for saying in sayings:
                self.assertIn(saying, done.stderr)
        refused("train.teacher_share", "--train.teacher=MODEL", teacher="")
        refused("train.teacher", "no effect", teacher_share=0)
        refused("nothing-there", teacher=self.folder / "nothing-there")
        refused("teacher_share", teacher_share=1.5)
        other = self.folder / "other"
        self.good("train", "--run", other, "--data", STORE, *flags(steps=1), "--model.vocab_size=5000", *(f"--model.{key}={value}" for key, value in SHAPE.items()))
        refused("train.teacher", "5000", teacher=other)
        short = self.folder / "short"
        self.good("train", "--run", short, "--data", STORE, *flags(steps=1, sequence_length=16), *(
            f"--model.{key}={value}" for key, value in {**SHAPE, "max_positions": 16}.items()))
        refused("train.teacher", "16 tokens at most", teacher=short)


if __name__ == "__main__":
    ATOLL, STORE = (os.path.abspath(sys.argv.pop(1)) for _ in range(2))
    unittest.main(verbosity=2)
