#!/usr/bin/env python3
"""The edges of the command line: full disks, closed streams, numbers out of range, damaged checkpoints.

usage: command_line_test.py ATOLL [unittest arguments]
"""
import json
import os
import pathlib
import re
import resource
import shutil
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
DEADLINE_S = 120


def run(*words, stdin="", **more):
    more.setdefault("stdout", subprocess.PIPE)
    return subprocess.run([ATOLL, *map(str, words)], input=stdin, stderr=subprocess.PIPE, text=True,
                          timeout=DEADLINE_S, **more)


class CommandLineTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.store = ROOT / "store"
        cls.run_folder = ROOT / "run"
        make_store(ATOLL, cls.store, ["json"])
        shape = {"hidden_size": 32, "intermediate_size": 64, "num_layers": 1, "num_heads": 2, "num_kv_heads": 1,
                 "max_positions": 64}
        made = run("train", "--run", cls.run_folder, "--data", cls.store, "--train.steps=2", "--train.threads=1",
                   "--train.checkpoint_every=1", "--train.sequence_length=32", "--train.batch_rows=2",
                   "--train.eval_rows=2", *(f"--model.{key}={value}" for key, value in shape.items()))
        assert made.returncode == 0, made.stderr
        cls.checkpoint = cls.run_folder / "checkpoints" / "step-00000002"
        cls.text = ROOT / "text.txt"
        cls.text.write_text("def loads(text):\n    return json.loads(text)\n")

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=ROOT))

    def assert_fails(self, result, code, *parts):
        self.assertEqual(result.returncode, code, result)
        for part in parts:
            self.assertIn(part, result.stderr)

    # --- standard streams ---

    def test_results_lost_on_a_full_disk_are_a_failure(self):
        tokenizer = self.store / "tokenizer.json"
        for words in (["--version"], ["--help"], ["data", "pack", "--help"], ["train", "--dump-config"],
                      ["data", "info", self.store], ["data", "batch", self.store, "--sequence-length", 32],
                      ["tokenizer", "encode", "--tokenizer", tokenizer, "--text", self.text],
                      ["tokenizer", "decode", "--tokenizer", tokenizer, "--ids", "40,41"],
                      ["eval", self.run_folder, "--text", self.text],
                      ["generate", self.run_folder, "--prompt", "def", "--max-tokens", 4],
                      ["generate", self.run_folder, "--prompt", "def", "--max-tokens", 4, "--json"]):
            with self.subTest(words[:2]), open("/dev/full", "w") as full:
                self.assert_fails(run(*words, stdout=full), 1,
                                  "cannot write standard output: No space left on device")

    def test_closed_streams_are_not_given_to_files(self):
        out = self.folder / "tokens.jsonl"
        command = f"exec '{ATOLL}' eval '{self.run_folder}' --text '{self.text}' --per-token '{out}' <&- >&- 2>&-"
        self.assertEqual(subprocess.run(["sh", "-c", command], timeout=DEADLINE_S).returncode, 0)
        for line in out.read_text().splitlines():
            self.assertIn("logprob", json.loads(line))

    def test_the_limit_on_file_sizes_is_a_failure_with_a_reason(self):
        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it, and that is inherited.
            resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))

        result = run("tokenizer", "train", "--data", self.store.with_suffix(".corpus"), "--vocab-size", 300,
                     "--out", self.folder / "t.json", preexec_fn=limit)
        self.assert_fails(result, 1, "t.json': File too large")
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_a_reader_that_leaves_ends_the_command(self):
        result = subprocess.run(f"'{ATOLL}' data batch '{self.store}' --sequence-length 32 | head -n 1", shell=True,
                                capture_output=True, text=True, timeout=DEADLINE_S)
        self.assertEqual(result.returncode, 0)
        self.assertTrue(result.stdout.startswith("step 0"))
        self.assertNotIn("terminate", result.stderr)

    def test_ctrl_c_while_packing_leaves_nothing(self):
        corpus = self.folder / "corpus.jsonl"
        corpus.write_text('{"text": "' + "one two three " * 300 + '"}\n')
        with open(corpus, "a") as file:
            for _ in range(20000):
                file.write('{"text": "' + "one two three " * 300 + '"}\n')
        process = subprocess.Popen([ATOLL, "data", "pack", corpus, "--out", self.folder / "spk", "--tokenizer",
                                    self.store / "tokenizer.json"], stderr=subprocess.PIPE, text=True)
        begin = time.monotonic()
        while not (self.folder / "spk.tmp").exists() and time.monotonic() - begin < DEADLINE_S:
            time.sleep(0.001)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=DEADLINE_S)
        self.assertEqual(process.returncode, 130, err)
        self.assertEqual([path.name for path in self.folder.iterdir()], ["corpus.jsonl"])

    # --- words and numbers ---

    def test_unknown_commands_name_the_nearest(self):
        self.assert_fails(run("bogus"), 2, "unknown command 'bogus'")
        self.assert_fails(run("tokeniser"), 2, "'tokeniser'", "did you mean 'tokenizer'")
        self.assert_fails(run("data", "verfy", "x"), 2, "'verfy'", "did you mean 'verify'")

    def test_numbers_out_of_range_name_option_and_range(self):
        generate = ["generate", self.run_folder, "--prompt", "x"]
        batch = ["data", "batch", self.store]
        for words, option, bound in (([*generate, "--seed", "-1"], "--seed", "18446744073709551615"),
                                     ([*generate, "--seed", 2**64], "--seed", "18446744073709551615"),
                                     ([*generate, "--top-k", 10**23], "--top-k", "9223372036854775807"),
                                     ([*generate, "--max-tokens", 0], "--max-tokens", "from 1"),
                                     ([*batch, "--seed", 2**64], "--seed", "18446744073709551615"),
                                     ([*batch, "--step", 10**23], "--step", "9223372036854775807"),
                                     ([*batch, "--step", "-1"], "--step", "from 0"),
                                     (["tokenizer", "train", "--vocab-size", 0], "--vocab-size", "from 257"),
                                     (["tokenizer", "train", "--min-frequency", 0], "--min-frequency", "from 1")):
            with self.subTest(words[-2:]):
                result = run(*words)
                self.assert_fails(result, 2, option, bound)
                self.assertLess(len(result.stderr), 300)
        largest = run(*batch, "--sequence-length", 32, "--seed", 2**64 - 1, "--json")
        self.assertEqual(largest.returncode, 0, largest.stderr)

    def test_json_lines_of_texts_and_ids(self):
        tokenizer = self.store / "tokenizer.json"
        encode = ["tokenizer", "encode", "--tokenizer", tokenizer, "--text", "-", "--jsonl"]
        decode = ["tokenizer", "decode", "--tokenizer", tokenizer, "--ids", "-", "--jsonl"]
        ids = run(*encode, stdin='{"text": "def"}\n\n{"text": ""}\n')
        self.assertEqual(len(ids.stdout.splitlines()), 2, ids)
        self.assertEqual(run(*decode, stdin=ids.stdout).stdout, '{"text":"def"}\n{"text":""}\n')
        self.assert_fails(run(*encode, stdin='{"text": "a"}\n{"txt": "a"}\n'), 1, "'standard input' line 2", "\"text\"")
        self.assert_fails(run(*decode, stdin='{"ids": [1, -1]}\n'), 1, "'standard input' line 1", "\"ids\"")
        self.assert_fails(run(*decode, stdin='{"ids": [99999999]}\n'), 1, "99999999 is not in the vocabulary")
        self.assert_fails(run(*decode[:-2], "1,2", "--jsonl"), 2, "--ids must be -")

    # --- what an installation has ---

    def all_commands(self):
        """(words, help) of the root, the groups and the commands, as --help tells them."""
        waiting, found = [[]], []
        while waiting:
            words = waiting.pop(0)
            text = run(*words, "--help").stdout
            found.append((words, text))
            listed = text.partition("Subcommands:\n")[2].partition("\n\n")[0]
            waiting += [[*words, name] for name in re.findall(r"^  ([a-z]+) ", listed, re.M)]
        return found

    def test_man_page_and_completions_have_all_that_help_has(self):
        commands = self.all_commands()
        self.assertGreater(len(commands), 25)
        man = run("man").stdout
        scripts = {}
        for shell in ("bash", "zsh", "fish"):
            done = run("completion", shell)
            self.assertEqual(done.returncode, 0, done.stderr)
            scripts[shell] = self.folder / shell
            scripts[shell].write_text(done.stdout)
        ask = "".join(f"ask {' '.join(['atoll', *words])} --\n" for words, _ in commands)
        bash = f"source {scripts['bash']}\n" + """
            ask() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _atoll; echo "${COMPREPLY[*]}"; }
            """
        completed = subprocess.run(["bash", "-c", bash + ask], capture_output=True, text=True, timeout=DEADLINE_S).stdout
        for (words, text), offered in zip(commands, completed.splitlines(), strict=True):
            path = " ".join(["atoll", *words])
            options = set(re.findall(r"^  (?:-\w,)?(--[\w-]+)", text, re.M))
            self.assertIn("--help", options)
            self.assertLessEqual(options, set(offered.split()), path)
            for option in options:
                self.assertIn(f" -l {option[2:]}", scripts["fish"].read_text())
            if "Subcommands:" in text:
                continue
            self.assertIn(f'("{path}")', scripts["zsh"].read_text())
            part = man.partition(f".SS \\fB{path}\\fR")[2].partition("\n.S")[0].replace("\\-", "-")
            self.assertNotEqual(part, "", path)
            for option in options - {"--help"}:
                self.assertIn(f"\\fB{option}\\fR", part, path)
        self.assertIn("\\fB\\-\\-sync.method\\fR=", man)
        self.assertNotIn("completion", run("--help").stdout)
        self.assertNotIn("completion", run("bogus").stderr)
        self.assert_fails(run("completion", "tcsh"), 2, "tcsh")

    def test_completions_know_what_may_be_chosen(self):
        script = self.folder / "bash"
        script.write_text(run("completion", "bash").stdout)

        def complete(*words):
            ask = f'source {script}; COMP_WORDS=({" ".join(words)}); COMP_CWORD={len(words) - 1}; _atoll; echo "${{COMPREPLY[*]}}"'
            done = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, timeout=DEADLINE_S)
            return done.stdout.split()

        self.assertEqual(complete("atoll", "tok"), ["tokenizer"])
        self.assertEqual(complete("atoll", "data", "--x", "pa"), ["pack"])
        self.assertEqual(complete("atoll", "eval", "m", "--split", "v"), ["validation"])
        self.assertEqual(complete("atoll", "train", "--train.thr"), ["--train.threads="])
        self.assertIn("streaming_diloco", complete("atoll", "train", "--sync.method", "=", "s"))
        self.assertIn("diloco", complete("atoll", "train", "--sync.method", "="))
        self.assertEqual(complete("atoll", "eval", "model", "README"), [])  # Files: the shell's own.

    def test_an_installed_program_runs_from_anywhere(self):
        build = pathlib.Path(ATOLL).resolve().parent.parent
        done = subprocess.run(["cmake", "--install", build, "--prefix", self.folder / "usr"], capture_output=True, text=True,
                              timeout=DEADLINE_S)
        self.assertEqual(done.returncode, 0, done.stderr)
        atoll = self.folder / "usr" / "bin" / "atoll"
        done = subprocess.run([atoll, "eval", self.run_folder, "--text", self.text, "--json"], cwd="/", capture_output=True,
                              text=True, timeout=DEADLINE_S)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertGreater(json.loads(done.stdout)["loss"], 0)
        for name in ("man/man1/atoll.1", "bash-completion/completions/atoll", "zsh/site-functions/_atoll",
                     "fish/vendor_completions.d/atoll.fish", "doc/atoll/LICENSE"):
            self.assertGreater((self.folder / "usr" / "share" / name).stat().st_size, 500, name)

    def test_the_version_tells_commit_and_build(self):
        for program in (ATOLL, f"{ATOLL}-torch"):
            said = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=DEADLINE_S).stdout
            self.assertRegex(said, r"^atoll \d+\.\d+\.\d+\n")
            self.assertRegex(said, r"\ncommit:   ([0-9a-f]{12}( and changes)?|unknown)\n")
            self.assertRegex(said, r"\ncompiler: \w+ \d+\.\d+")
            self.assertRegex(said, r"\nLibTorch: \d+\.\d+")
            self.assertRegex(said, r"\nloops:    ")

    # --- checkpoints ---

    def copy_of_checkpoint(self):
        copy = self.folder / "checkpoints" / self.checkpoint.name
        shutil.copytree(self.checkpoint, copy)
        return copy

    def test_a_flipped_bit_is_found_by_every_reader(self):
        for name, named in (("model.safetensors", "tensor 'model."), ("config.json", "config.json"),
                            ("tokenizer.json", "tokenizer.json")):
            copy = self.copy_of_checkpoint()
            content = bytearray((copy / name).read_bytes())
            if name == "model.safetensors":
                content[-1] ^= 1
            else:
                content += b"\n"  # Still valid JSON.
            (copy / name).write_bytes(content)
            for words in (["generate", self.folder, "--prompt", "x"], ["eval", copy, "--text", self.text],
                          ["train", "--run", self.folder / f"from-{name}", "--data", self.store, "--init", copy,
                           "--train.sequence_length=32"]):
                with self.subTest(file=name, command=words[0]):
                    self.assert_fails(run(*words), 1, named, "manifest.json", str(copy))
            shutil.rmtree(copy)

    def test_without_a_manifest_it_is_a_hugging_face_folder(self):
        copy = self.copy_of_checkpoint()
        (copy / "manifest.json").unlink()
        with open(copy / "config.json", "a") as file:
            file.write("\n")
        self.assertEqual(run("generate", copy, "--prompt", "x", "--max-tokens", 1).returncode, 0)

    def test_an_older_checkpoint_is_not_taken_silently(self):
        copy = self.copy_of_checkpoint()
        newer = copy.with_name("step-00000003")
        newer.mkdir()
        self.assert_fails(run("generate", self.folder, "--prompt", "x"), 1, str(newer), "config.json")

    def test_a_full_context_is_noted(self):
        result = run("generate", self.run_folder, "--prompt", "x", "--max-tokens", 1000, "--json", "--seed", 3)
        found = json.loads(result.stdout)
        if found["finish_reason"] == "length":
            self.assertIn("context of 64", result.stderr)

    # --- eval ---

    def test_eval_refuses_options_that_it_would_not_use(self):
        per_token = self.folder / "tokens.jsonl"
        for words, option in ((["--text", self.text, "--rows", 1], "--rows"),
                              (["--text", self.text, "--split", "train"], "--split"),
                              (["--text", self.text, "--store", self.store], "--store"),
                              (["--store", self.store, "--per-token", per_token], "--per-token"),
                              (["--text", self.text, "--per-token", ""], "--per-token"),
                              (["--text", self.text, "--tasks", "x"], "--tasks"),
                              (["--store", self.store, "--tasks", "x"], "--tasks"),
                              (["--text", self.text, "--limit", 1], "--limit"),
                              (["--text", self.text, "--output", self.folder / "x"], "--output"),
                              (["--tasks", "x", "--rows", 1], "--rows"),
                              (["--text", self.text, "--data", "a=b"], "--data"),
                              (["--tasks", "x", "--data", "a"], "write NAME=FOLDER"),
                              (["--tasks", "x", "--data", "a=b", "--data", "a=c"], "named twice"),
                              (["--tasks", "x", "--per-token", per_token], "--per-token"),
                              (["--tasks", "x", "--output", ""], "--output"),
                              (["--tasks", "x", "--batch-size", 0], "--batch-size"),
                              ([], "--tasks"),
                              (["--text", self.text, "--per-token", self.text], "--per-token")):
            with self.subTest(option):
                self.assert_fails(run("eval", self.run_folder, *words), 2, option)
        self.assertTrue(self.text.read_text().startswith("def"))

    def test_eval_tries_the_output_before_the_work(self):
        # The model does not exist: were it read first, that would be the message.
        for path in ("/proc/nothing", self.text / "x", self.folder):
            result = run("eval", "/nowhere", "--text", self.text, "--per-token", path)
            self.assert_fails(result, 1, str(path) if path != self.text / "x" else str(self.text))
            self.assertNotIn(".tmp", result.stderr)

    def test_kv_looks_at_its_files_before_the_work(self):
        # The model does not exist: were it read first, that would be the message.
        missing = self.folder / "missing"
        self.assert_fails(run("kv", "fit", "/nowhere", "--text", self.text, "--out", missing / "x.kvp"), 2, "--out", str(missing))
        self.assertFalse(missing.exists())
        damaged = self.folder / "damaged.kvp"
        damaged.write_bytes(b"ATKP and less than there was")
        for profile, part in ((damaged, "make it again with `atoll kv fit`"), (missing, "No such file")):
            self.assert_fails(run("serve", "/nowhere", "--join", "127.0.0.1:1", "--kv-profile", profile), 1, "--kv-profile", part)

    def test_eval_refuses_tasks_that_ask_for_what_is_not_there(self):
        # The model does not exist: tasks are looked at first.
        data = self.folder / "d.jsonl"
        data.write_text(json.dumps({"q": "import", "a": 0}) + "\n")
        task = {"task": "t", "dataset_path": "json", "dataset_kwargs": {"data_files": {"test": "d.jsonl"}},
                "test_split": "test", "output_type": "multiple_choice", "doc_to_text": "q", "doc_to_choice": ["x", "y"],
                "doc_to_target": "a"}
        file = self.folder / "t.json"
        for more, said in (({"output_type": "generate_until"}, "output_type \"generate_until\" is not supported"),
                           ({"process_docs": "x"}, "\"process_docs\" is no !function"),
                           ({"colour": 1}, "unknown setting \"colour\""),
                           ({"dataset_path": "EleutherAI/sciq"}, "--data EleutherAI/sciq=FOLDER says where it lies"),
                           ({"doc_to_text": "{{nothing}}"}, "nothing"),
                           ({"doc_to_text": "{% import 'x' %}"}, "import"),
                           ({"dataset_kwargs": {"data_files": {"test": "no.jsonl"}}}, "no.jsonl")):
            with self.subTest(said):
                file.write_text(json.dumps(task | more))
                self.assert_fails(run("eval", "/nowhere", "--tasks", file), 1, said)
        file.write_text(json.dumps(task))
        self.assert_fails(run("eval", "/nowhere", "--tasks", file), 1, "/nowhere")
        done = run("eval", self.run_folder, "--tasks", file, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("acc,none", json.loads(done.stdout)["results"]["t"])
        self.assert_fails(run("eval", self.run_folder, "--tasks", file, "--window", 65), 2, "--window 65")
        for words in (["--output", file], ["--log-samples", data]):
            self.assert_fails(run("eval", self.run_folder, "--tasks", file, *words), 2, "would be overwritten")
        self.assert_fails(run("eval", self.run_folder, "--tasks", file, "--bootstrap-iters", 1), 2, "one sample")
        # An answer that the model cannot read at a time.
        file.write_text(json.dumps(task | {"doc_to_choice": ["x", "y " * 200]}))
        self.assert_fails(run("eval", self.run_folder, "--tasks", file), 1, "task 't', document 0", "the model reads 64")

    def test_eval_reads_standard_input(self):
        piped = run("eval", self.run_folder, "--text", "-", "--json", stdin=self.text.read_text())
        named = run("eval", self.run_folder, "--text", self.text, "--json")
        self.assertEqual(named.returncode, 0, named.stderr)
        self.assertEqual(piped.stdout, named.stdout)

    def test_bad_utf8_is_told(self):
        bad = self.folder / "bad.txt"
        bad.write_bytes(b"abc \xff abc abc\n")
        for words in (["eval", self.run_folder, "--text", bad],
                      ["generate", self.run_folder, "--prompt", os.fsdecode(b"ab\xff"), "--max-tokens", 1],
                      ["tokenizer", "train", bad, "--vocab-size", 257, "--out", self.folder / "new" / "t.json"]):
            with self.subTest(words[0]):
                result = run(*words)
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertIn("1 byte sequences are not UTF-8", result.stderr)


if __name__ == "__main__":
    ATOLL = sys.argv.pop(1)
    ROOT = pathlib.Path(tempfile.mkdtemp(prefix="atoll-command-line-test-"))
    try:
        unittest.main(verbosity=2)
    finally:
        shutil.rmtree(ROOT)
