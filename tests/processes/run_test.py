#!/usr/bin/env python3
"""The real command, as real processes: resume, Ctrl-C, kills, wrong input.

usage: run_test.py ATOLL [unittest arguments]
"""
import asyncio
import glob
import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from event_file import EventFile  # noqa: E402
from small_store import make_store  # noqa: E402

ATOLL = ""
ROOT = None  # A folder for everything; removed at the end.
STORE = ""
DEADLINE_S = 120  # Generous: machines are slow and shared. Nothing waits for it when all is well.

TINY = {
    "model.hidden_size": 32, "model.intermediate_size": 64, "model.num_layers": 2, "model.num_heads": 2,
    "model.num_kv_heads": 1, "model.max_positions": 64, "train.sequence_length": 32, "train.batch_rows": 4,
    "train.warmup_steps": 2, "train.eval_rows": 2, "train.log_every": 1, "train.threads": 1,
}

# What a step on its own has a use for.
STEP = ["--model.vocab_size=64", *(f"--{key}={value}" for key, value in TINY.items()
                                   if key not in ("train.warmup_steps", "train.eval_rows", "train.log_every"))]


def flags(**settings):
    merged = dict(TINY)
    merged.update({key.replace("__", "."): value for key, value in settings.items()})
    return [f"--{key}={value}" for key, value in merged.items()]


def start(*words):
    return subprocess.Popen([ATOLL, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process):
    try:
        out, err = process.communicate(timeout=DEADLINE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"no end after {DEADLINE_S} s: {out} {err}")
    return process.returncode, out, err


def run(*words):
    return finish(start(*words))


def train(folder, *words, islands=0, **settings):
    more = ["--islands", islands] if islands else []
    data = [] if "--data" in words else ["--data", STORE]
    return ["train", "--run", folder, *data, *more, *words, *flags(**settings)]


def wait_for(condition, what):
    begin = time.monotonic()
    while not (value := condition()):
        if time.monotonic() - begin > DEADLINE_S:
            raise AssertionError(f"waited {DEADLINE_S} s for {what}")
        time.sleep(0.01)
    return value


def last_step(folder):
    try:
        lines = (pathlib.Path(folder) / "metrics.jsonl").read_text().strip().split("\n")
        return json.loads(lines[-1])["step"]
    except (OSError, ValueError, IndexError):
        return 0


def tensors(folder, step):
    """The hashes of everything a checkpoint holds."""
    manifest = json.loads((pathlib.Path(folder) / "checkpoints" / f"step-{step:08}" / "manifest.json").read_text())
    return manifest["tensors"]


def rounds(folder):
    """Step, fragment and layers of each line of rounds.jsonl: what does not depend on the clock."""
    lines = [json.loads(line) for line in (pathlib.Path(folder) / "rounds.jsonl").read_text().splitlines()]
    assert all(line["stall_ms"] >= 0 and line["bytes_sent"] > 0 for line in lines)
    return [(line["step"], line["fragment"], line["layers"]) for line in lines]


def child_pids(process, word):
    """Children of a launcher whose command line has `word`."""
    found = []
    for path in glob.glob("/proc/[0-9]*/stat"):
        try:
            fields = pathlib.Path(path).read_text().rsplit(")", 1)[1].split()
            command = pathlib.Path(path).with_name("cmdline").read_text(errors="replace").split("\0")
        except OSError:
            continue
        if int(fields[1]) == process.pid and word in command:
            found.append(int(path.split("/")[2]))
    return found


class RunTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=ROOT))

    def assert_fails(self, result, code, *parts):
        self.assertEqual(result[0], code, result)
        for part in parts:
            self.assertIn(part, result[2])

    # --- resume ---

    def test_a_resumed_run_is_bit_identical(self):
        settings = {"train__steps": 30, "train__checkpoint_every": 10}
        straight, resumed = self.folder / "a", self.folder / "b"
        self.assertEqual(run(*train(straight, **settings))[0], 0)
        process = start(*train(resumed, **settings))
        wait_for(lambda: last_step(resumed) >= 5, "a few steps")
        process.send_signal(signal.SIGINT)
        self.assertEqual(finish(process)[0], 0)
        self.assertLess(last_step(resumed), 30)
        self.assertEqual(run(*train(resumed, **settings))[0], 0)
        self.assertEqual(tensors(straight, 30), tensors(resumed, 30))
        lines = (resumed / "metrics.jsonl").read_text().splitlines()
        steps = [json.loads(line)["step"] for line in lines]
        self.assertEqual(steps, sorted(set(steps)))

    def test_a_mixture_resumes_bit_identically_and_binds_the_run(self):
        email = pathlib.Path(os.__file__).parent / "email"
        packed = run("data", "pack", email, "--tokenizer", os.path.join(STORE, "tokenizer.json"), "--out", self.folder / "email",
                     "--validation-share", "0.1")
        self.assertEqual(packed[0], 0, packed)

        def mix(*weights):
            self.assertEqual(run("data", "mix", self.folder / "mix", *weights, "--overwrite")[0], 0)

        def mixed(folder):
            return train(folder, "--data", self.folder / "mix", **{"train__steps": 30, "train__checkpoint_every": 10})

        mix(f"{STORE}=1", f"{self.folder / 'email'}=2.5")
        straight, resumed = self.folder / "a", self.folder / "b"
        self.assertEqual(run(*mixed(straight))[0], 0)
        process = start(*mixed(resumed))
        wait_for(lambda: last_step(resumed) >= 5, "a few steps")
        process.send_signal(signal.SIGINT)
        self.assertEqual(finish(process)[0], 0)
        mix(f"{STORE}=1", f"{self.folder / 'email'}=2")
        self.assert_fails(run(*mixed(resumed)), 1, "another token store")
        mix(f"{STORE}=1", f"{self.folder / 'email'}=2.5")
        self.assertEqual(run(*mixed(resumed))[0], 0)
        self.assertEqual(tensors(straight, 30), tensors(resumed, 30))
        manifest = json.loads((resumed / "checkpoints/step-00000030/manifest.json").read_text())
        self.assertEqual([store["weight"] for store in manifest["data_order"]["mixture"]], [1, 2.5])

    def test_muon_and_outer_adam_resume_bit_identically(self):
        settings = {"train__steps": 12, "train__checkpoint_every": 6, "train__optimizer": "muon",
                    "sync__sync_every": 4, "sync__outer_optimizer": "adam", "sync__outer_lr": 0.1}
        straight, resumed = self.folder / "a", self.folder / "b"
        self.assertEqual(run(*train(straight, islands=2, **settings))[0], 0)
        shutil.copytree(straight, resumed)
        for island in ("island-0", "island-1"):
            shutil.rmtree(resumed / island / "checkpoints" / "step-00000012")
        self.assertEqual(run(*train(resumed, islands=2, **settings))[0], 0)
        for island in ("island-0", "island-1"):
            self.assertEqual(tensors(straight / island, 12), tensors(resumed / island, 12))

    def test_islands_stop_together_and_resume_bit_identically(self):
        settings = {"train__steps": 60, "sync__sync_every": 5, "train__checkpoint_every": 7}
        straight, resumed = self.folder / "a", self.folder / "b"
        code, out, err = run(*train(straight, "--json", islands=2, **settings))
        self.assertEqual(code, 0, err)
        process = start(*train(resumed, "--json", islands=2, **settings))
        wait_for(lambda: last_step(resumed / "island-0") >= 8, "a few steps")
        process.send_signal(signal.SIGINT)
        self.assertEqual(finish(process)[0], 0)
        stopped = last_step(resumed / "island-0")
        self.assertEqual(stopped % 5, 0)
        self.assertEqual(stopped, last_step(resumed / "island-1"))
        code, out_resumed, err = run(*train(resumed, "--json", islands=2, **settings))
        self.assertEqual(code, 0, err)
        for island in ("island-0", "island-1"):
            self.assertEqual(tensors(straight / island, 60), tensors(resumed / island, 60))
        self.assertEqual(json.loads(out)["digest"], json.loads(out_resumed)["digest"])

    def test_a_mid_period_checkpoint_resumes_bit_identically(self):
        # Checkpoints at 7, 14, ...: between syncs, where live and global parameters differ.
        settings = {"train__steps": 21, "sync__sync_every": 5, "train__checkpoint_every": 7,
                    "train__keep_checkpoints": 0}
        straight, resumed = self.folder / "a", self.folder / "b"
        self.assertEqual(run(*train(straight, islands=2, **settings))[0], 0)
        shutil.copytree(straight, resumed)
        for island in ("island-0", "island-1"):
            for step in (14, 21):
                shutil.rmtree(resumed / island / "checkpoints" / f"step-{step:08}")
        code, _, err = run(*train(resumed, islands=2, **settings))
        self.assertEqual(code, 0, err)
        for island in ("island-0", "island-1"):
            self.assertEqual(tensors(straight / island, 21), tensors(resumed / island, 21))

    def test_streaming_resumes_with_fragments_in_flight(self):
        # A fragment leaves after steps 6, 8, 10, ... and travels for 3: at the checkpoints of 9 and 18 one is on its way.
        settings = {"train__steps": 27, "train__checkpoint_every": 9, "train__keep_checkpoints": 0,
                    "sync__method": "streaming_diloco", "sync__sync_every": 6, "sync__num_fragments": 3,
                    "sync__fragment_sync_delay": 3, "sync__fragment_update_alpha": 0.5, "sync__layer_metrics": "true"}
        straight, resumed = self.folder / "a", self.folder / "b"
        code, out, err = run(*train(straight, "--json", islands=2, **settings))
        self.assertEqual(code, 0, err)
        shutil.copytree(straight, resumed)
        for island in ("island-0", "island-1"):
            for step in (18, 27):
                shutil.rmtree(resumed / island / "checkpoints" / f"step-{step:08}")
        code, out_resumed, err = run(*train(resumed, "--json", islands=2, **settings))
        self.assertEqual(code, 0, err)
        self.assertEqual(json.loads(out)["digest"], json.loads(out_resumed)["digest"])
        for island in ("island-0", "island-1"):
            self.assertEqual(tensors(straight / island, 27), tensors(resumed / island, 27))
            self.assertEqual(rounds(straight / island), rounds(resumed / island))
        # Every fragment after 6, 8, 10, ..., 26 and all three at the end; two islands have one cosine.
        mine, theirs = rounds(straight / "island-0"), rounds(straight / "island-1")
        self.assertEqual([fragment for _, fragment, _ in mine], [i % 3 for i in range(11)] + [0, 1, 2])
        for (_, _, ours), (_, _, others) in zip(mine, theirs):
            for one, other in zip(ours, others):
                self.assertAlmostEqual(one["cosine"], other["cosine"], places=4)
                self.assertEqual(one["mean_norm"], other["mean_norm"])

    def test_the_codec_is_chosen_by_measurement_and_kept(self):
        settings = {"train__steps": 24, "train__checkpoint_every": 8, "train__keep_checkpoints": 0, "sync__codec": "auto",
                    "sync__method": "streaming_diloco", "sync__sync_every": 6, "sync__num_fragments": 2}
        straight, resumed = self.folder / "a", self.folder / "b"
        code, out, err = run(*train(straight, "--json", "--link-rate", "2mbit", islands=2, **settings))
        self.assertEqual(code, 0, err)
        states = [json.loads(file.read_text()) for file in sorted(straight.glob("island-*/checkpoints/*/state.json"))]
        self.assertEqual(len({(state["codec"], state["fragment_sync_delay"]) for state in states}), 1)
        self.assertNotEqual(states[0]["codec"], "fp32")  # 0.7 Mbit in a few milliseconds a step do not hide.
        self.assertTrue(EventFile(straight / "island-0").find("codec_chosen", codec=states[0]["codec"]))
        # Resumed without the slow line, where another would be chosen.
        shutil.copytree(straight, resumed)
        for island in ("island-0", "island-1"):
            for step in (16, 24):
                shutil.rmtree(resumed / island / "checkpoints" / f"step-{step:08}")
        code, out_resumed, err = run(*train(resumed, "--json", islands=2, **settings))
        self.assertEqual(code, 0, err)
        self.assertEqual(json.loads(out)["digest"], json.loads(out_resumed)["digest"])

    def test_ctrl_c_waits_for_what_is_on_its_way(self):
        for method, more in (("streaming_diloco", {"sync__sync_every": 6, "sync__num_fragments": 3,
                                                   "sync__fragment_sync_delay": 4}),
                             ("eager_diloco", {"sync__sync_every": 6}), ("cocktail_sgd", {"sync__fragment_sync_delay": 1})):
            with self.subTest(method=method):
                settings = {"train__steps": 100000, "sync__method": method, **more}
                folder = self.folder / method
                for turn in (1, 2):  # The second resumes.
                    process = start(*train(folder, "--json", "--link-rate", "3mbit", islands=2, **settings))
                    wait_for(lambda: last_step(folder / "island-0") >= 15 * turn, "a few steps")
                    process.send_signal(signal.SIGINT)
                    code, out, err = finish(process)
                    self.assertEqual(code, 0, err)
                    self.assertTrue(json.loads(out)["stopped"])
                    self.assertEqual(last_step(folder / "island-0"), last_step(folder / "island-1"))

    # --- losses ---

    def start_two(self):
        folder = self.folder / "run"
        process = start(*train(folder, "--json", islands=2, train__steps=1000000, sync__sync_every=3,
                               train__checkpoint_every=600))
        self.addCleanup(process.kill)
        wait_for(lambda: last_step(folder / "island-1") >= 7, "a few steps")
        return folder, process

    def wait_for_steps(self, island, num_steps=30):
        begin = last_step(island)
        wait_for(lambda: last_step(island) >= begin + num_steps, f"steps of {island}")

    def stop(self, process, folder):
        """Ends the run by Ctrl-C; returns its result. Nothing may be left behind."""
        children = child_pids(process, "join") + child_pids(process, "coordinate")
        process.send_signal(signal.SIGINT)
        code, out, err = finish(process)
        self.assertEqual(code, 0, err)
        for pid in children:
            self.assertFalse(os.path.exists(f"/proc/{pid}"), "a process was left behind")
        return json.loads(out)

    def test_a_killed_island_is_started_again(self):
        folder, process = self.start_two()
        os.kill(child_pids(process, "island-1")[0], signal.SIGKILL)
        gone = last_step(folder / "island-1")
        self.wait_for_steps(folder / "island-0")
        wait_for(lambda: last_step(folder / "island-1") > gone, "the island that came back")
        self.wait_for_steps(folder / "island-1")
        summary = self.stop(process, folder)  # With one digest, or it fails.
        self.assertTrue(EventFile(folder).find("island_process_killed", island="island-1", signal=9, others_go_on=True))
        back = EventFile(folder).find("island_process_back", island="island-1")
        self.assertAlmostEqual(summary["away_seconds"], back["away_s"], delta=0.1)
        log = (folder / "island-1" / "log.txt").read_text()
        self.assertEqual(log.count("came as 'island-1'"), 2, "what the killed one said is kept")
        self.assertIn("the state is here and is the committed one", log)

    def test_an_island_killed_again_and_again_is_left_behind_and_comes_back_by_hand(self):
        folder, process = self.start_two()
        killed = set()
        while len(killed) < 4:
            (pid,) = wait_for(lambda: set(child_pids(process, "island-1")) - killed, "the island to be started")
            os.kill(pid, signal.SIGKILL)
            killed.add(pid)
        self.wait_for_steps(folder / "island-0")
        address = json.loads((folder / "coordinator.json").read_text())["control"]
        back = start("join", address, "--run", folder / "island-1", "--name", "island-1", "--data", STORE, "--json",
                     "--train.threads=1")
        self.addCleanup(back.kill)
        gone = last_step(folder / "island-1")
        wait_for(lambda: last_step(folder / "island-1") > gone, "the island that came back")
        self.wait_for_steps(folder / "island-1")
        summary = self.stop(process, folder)
        code, out, back_err = finish(back)
        self.assertEqual(code, 0, back_err)
        self.assertEqual(json.loads(out)["digest"], summary["digest"])
        lost = EventFile(folder).find("island_process_lost", island="island-1")
        self.assertEqual(lost["cause"], "island-1: killed by signal 9")
        self.assertTrue(lost["command"].startswith(f"atoll join {address} "), lost)
        self.assertTrue(EventFile(folder / "island-1").find("state_taken"))

    def test_a_frozen_island_catches_up(self):
        folder, process = self.start_two()
        frozen = child_pids(process, "island-1")[0]
        os.kill(frozen, signal.SIGSTOP)
        before = last_step(folder / "island-1")
        self.wait_for_steps(folder / "island-0")
        self.assertLess(last_step(folder / "island-1"), before + 30)
        os.kill(frozen, signal.SIGCONT)
        reached = last_step(folder / "island-0")
        wait_for(lambda: last_step(folder / "island-1") > reached, "the island to catch up")
        self.stop(process, folder)  # With one digest, or it fails.

    def test_a_killed_coordinator_is_started_again(self):
        folder, process = self.start_two()
        os.kill(child_pids(process, "coordinate")[0], signal.SIGKILL)
        for island in ("island-0", "island-1"):
            self.wait_for_steps(folder / island)
        self.stop(process, folder)
        self.assertTrue(EventFile(folder).find("coordinator_restarted", cause="coordinator: killed by signal 9"))

    def test_without_islands_a_run_ends_and_resumes(self):
        folder, process = self.start_two()
        wait_for(lambda: last_step(folder / "island-0") >= 700, "a checkpoint")
        for pid in child_pids(process, "join"):
            os.kill(pid, signal.SIGKILL)
        code, _, err = finish(process)
        self.assertEqual(code, 1, err)
        self.assertIn("resume it from the last checkpoint", err)
        process = start(*train(folder, "--json", islands=2, train__steps=1000000, sync__sync_every=3,
                               train__checkpoint_every=600))
        self.addCleanup(process.kill)
        resumed_from = last_step(folder / "island-0")
        wait_for(lambda: last_step(folder / "island-0") > resumed_from + 6, "progress after the resume")
        self.stop(process, folder)

    def test_a_closed_terminal_leaves_a_checkpoint(self):
        folder = self.folder / "run"
        process = start(*train(folder, train__steps=100000, train__checkpoint_every=0))
        wait_for(lambda: last_step(folder) >= 5, "a few steps")
        process.send_signal(signal.SIGHUP)
        self.assertEqual(finish(process)[0], 0)
        self.assertTrue((folder / "checkpoints" / f"step-{last_step(folder):08}").exists())

    # --- joining ---

    def coordinator(self, **settings):
        config = self.folder / "run.toml"
        sections = {}
        for name, value in {**TINY, "swarm.min_replicas": 2, **settings}.items():
            section, key = name.split(".")
            sections.setdefault(section, []).append(f"{key} = {value}")
        config.write_text("\n".join(f"[{s}]\n" + "\n".join(lines) for s, lines in sections.items()))
        process = start("coordinate", "--config", config, "--listen", "127.0.0.1:0", "--run", self.folder / "coordinator")
        self.addCleanup(lambda: (process.kill(), process.communicate()))
        return process, process.stdout.readline().strip()

    def wait_ready(self, name):
        wait_for(lambda: EventFile(self.folder / "coordinator").find("island_ready", island=name), f"island {name}")

    def join(self, address, name, *words):
        return start("join", address, "--name", name, "--run", self.folder / name, "--data", STORE,
                     "--train.threads=1", *words)

    def test_coordinate_and_join_by_hand(self):
        coordinator, address = self.coordinator(**{"train.steps": 6, "sync.sync_every": 3})
        islands = [self.join(address, name, "--json") for name in ("b", "a")]
        results = [finish(island) for island in islands]
        for code, _, err in results:
            self.assertEqual(code, 0, err)
        self.assertEqual(*(json.loads(out)["digest"] for _, out, _ in results))
        self.assertEqual(finish(coordinator)[0], 0)

    def test_other_settings_are_refused_by_name(self):
        _, address = self.coordinator(**{"sync.sync_every": 20})
        result = finish(self.join(address, "a", "--sync.sync_every=30"))
        self.assert_fails(result, 1, "sync.sync_every", "20", "30")

    def test_another_method_or_codec_is_refused_by_name(self):
        _, address = self.coordinator(**{"sync.method": "'diloco'", "sync.codec": "'bf16'"})
        result = finish(self.join(address, "a", "--sync.method=sparse_loco"))
        self.assert_fails(result, 1, "sync.method", "diloco", "sparse_loco")
        result = finish(self.join(address, "b", "--sync.codec=int8"))
        self.assert_fails(result, 1, "sync.codec", "bf16", "int8")

    def test_other_data_is_refused_by_name(self):
        other = self.folder / "other"
        make_store(ATOLL, other, ["email"])
        _, address = self.coordinator(**{"train.steps": 4})
        first = self.join(address, "a")
        second = start("join", address, "--name", "b", "--run", self.folder / "b", "--data", other,
                       "--train.threads=1")
        # Which of the two comes first is chance; the later one hears what differs.
        wait_for(lambda: first.poll() is not None or second.poll() is not None, "a refusal")
        refused = first if first.poll() is not None else second
        (second if refused is first else first).kill()
        self.assert_fails(finish(refused), 1, "data")
        finish(second if refused is first else first)

    def test_an_absent_coordinator_is_a_clear_end(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        result = finish(self.join(f"127.0.0.1:{port}", "a", "--swarm.join_patience=1"))
        self.assert_fails(result, 1, f"127.0.0.1:{port}")

    def test_a_port_in_use_is_said(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            config = self.folder / "run.toml"
            config.write_text("[swarm]\nmin_replicas = 2\n")
            result = run("coordinate", "--config", config, "--listen", address)
        self.assert_fails(result, 1, address)

    def test_garbage_on_the_port_does_not_disturb_the_run(self):
        _, address = self.coordinator(**{"train.steps": 6, "sync.sync_every": 3})
        host, port = address.rsplit(":", 1)
        for noise in (b"\0" * 1000, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + os.urandom(4000), b"GET / HTTP/1.1\r\n\r\n"):
            with socket.create_connection((host, int(port))) as stranger:
                stranger.sendall(noise)
        islands = [self.join(address, name) for name in ("a", "b")]
        for island in islands:
            code, _, err = finish(island)
            self.assertEqual(code, 0, err)

    def test_addresses_beyond_this_machine_need_insecure(self):
        config = self.folder / "run.toml"
        config.write_text("[swarm]\nmin_replicas = 2\n")
        self.assert_fails(run("coordinate", "--config", config, "--listen", "0.0.0.0:0"), 1, "--insecure")
        self.assert_fails(finish(self.join("192.0.2.1:7070", "a", "--swarm.join_patience=1")), 1, "--insecure")

    def test_an_address_that_is_none(self):
        for address, part in ("nowhere", "no port"), ("http://127.0.0.1:7812", "http://"):
            self.assert_fails(run("coordinate", "--listen", address), 2, "--listen", part)
            self.assert_fails(run("join", "127.0.0.1:1", "--run", self.folder / "x", "--listen", address), 2, "--listen")

    def test_an_address_that_others_cannot_reach_is_said(self):
        result = finish(self.join("192.0.2.1:7070", "a", "--insecure", "--listen", "127.0.0.1:0", "--swarm.join_patience=1"))
        self.assert_fails(result, 2, "--listen")

    def test_ctrl_c_ends_the_wait_for_others(self):
        _, address = self.coordinator(**{"train.steps": 4})
        island = self.join(address, "a")
        self.wait_ready("a")
        island.send_signal(signal.SIGINT)
        self.assert_fails(finish(island), 1, "interrupted")

    # --- wrong input ---

    def test_settings_that_are_wrong(self):
        folder = self.folder / "run"
        cases = [(["--train.stepz=3"], "train.steps"), (["--train.steps=0"], "at least 1"),
                 (["--train.lr=fast"], "a number"), (["--sync.method=magic"], "diloco"),
                 (["--train.batch_rows=5", "--islands", "2"], "train.batch_rows"),
                 (["--train.sequence_length=4096"], "max_positions"), (["oops"], "oops"),
                 (["--sync.method=streaming_diloco", "--sync.fragment_sync_delay=20"], "sync.fragment_sync_delay"),
                 (["--sync.method=streaming_diloco", "--sync.num_fragments=6"], "layers"),
                 (["--sync.fragment_update_alpha=2"], "sync.fragment_update_alpha"),
                 (["--sync.method=data_parallel", "--sync.sync_every=5"], "sync.sync_every has no effect")]
        for words, part in cases:
            with self.subTest(words=words):
                self.assert_fails(run("train", "--run", folder, "--data", STORE, *words), 2, part)
        self.assertFalse(folder.exists(), "a wrong command left something behind")

    def test_a_vocabulary_over_the_models(self):
        result = run(*train(self.folder / "run", model__vocab_size=100))
        self.assert_fails(result, 1, "vocabulary", "100")

    def test_data_that_is_missing_empty_or_too_small(self):
        missing = run("train", "--run", self.folder / "a", "--data", self.folder / "nowhere", *flags())
        self.assert_fails(missing, 1, "nowhere")
        (self.folder / "empty").mkdir()
        self.assert_fails(run("train", "--run", self.folder / "b", "--data", self.folder / "empty", *flags()), 1, "empty")

    def test_a_config_file_changes_only_what_it_names(self):
        file = self.folder / "c.toml"
        file.write_text("")
        for name, words in ("a", [file]), ("b", []):
            self.assertEqual(run(*train(self.folder / name, *words, train__steps=2))[0], 0)
            self.assertIn("method = 'single'", (self.folder / name / "config.toml").read_text())
        file.write_text(run("train", "--dump-config", *flags(train__steps=2))[1])
        code, _, err = run("train", file, "--run", self.folder / "c", "--data", STORE, "--islands", 2)
        self.assertEqual(code, 0, err)
        self.assertIn("method = 'diloco'", (self.folder / "c" / "config.toml").read_text())

    def test_a_refused_start_leaves_nothing(self):
        runs = self.folder / "runs"
        for words, part in [(["--link-rate", "20mbit"], "--islands 2"), (["--islands", 3], "train.batch_rows"),
                            (["--init", "nope"], "nope")]:
            with self.subTest(words=words):
                result = run(*train(runs / "x", *words))
                self.assertNotEqual(result[0], 0)
                self.assertIn(part, result[2])
        self.assert_fails(run("train", "--run", "", "--data", STORE, *flags()), 2, "--run")
        self.assert_fails(run("train", "--run", runs / "x", "--data", self.folder / "nowhere", *flags()), 1)
        self.assert_fails(run("join", "127.0.0.1:1", "--run", runs / "x", "--swarm.join_patience=0"), 1)
        self.assertFalse((runs / "x").exists())
        (self.folder / "notes").write_text("mine")
        self.assert_fails(run(*train(self.folder)), 2, "no run directory", "notes")
        self.assertFalse((self.folder / "lock").exists())

    def test_settings_bind_once_there_is_a_checkpoint(self):
        folder = self.folder / "run"
        texts = [self.folder / "small.txt", self.folder / "other.txt"]
        texts[0].write_text("hello\n" * 10)
        texts[1].write_text(pathlib.Path(asyncio.__file__).with_name("base_events.py").read_text())
        words = flags(train__steps=2, data__vocab_size=300)
        self.assert_fails(run("train", "--run", folder, "--data", texts[0], *words), 1, "data.validation_share")
        code, _, err = run("train", "--run", folder, "--data", texts[1], *words)
        self.assertEqual(code, 0, err)

    def test_few_documents_validate_all_the_same(self):
        text = self.folder / "text"
        text.mkdir()
        for i in range(8):
            (text / f"{i}.txt").write_text(f"{i} " + "some words and some more\n" * 40)
        result = run("train", "--run", self.folder / "run", "--data", text, "--data.validation_share=0.001",
                     *flags(train__steps=2, data__vocab_size=300))
        self.assertEqual(result[0], 0, result)
        self.assertIn("data.validation_share", result[2])

    def test_a_refused_join_can_be_mended(self):
        other = self.folder / "other"
        make_store(ATOLL, other, ["email"])
        _, address = self.coordinator(**{"train.steps": 4})
        first = self.join(address, "a")
        self.wait_ready("a")
        again = ["join", address, "--name", "b", "--run", self.folder / "b", "--train.threads=1", "--data"]
        self.assert_fails(run(*again, other), 1, "data")
        self.assertFalse((self.folder / "b").exists())
        code, _, err = run(*again, STORE)
        self.assertEqual(code, 0, err)
        self.assertEqual(finish(first)[0], 0)

    def test_a_finished_run_is_complete(self):
        folder = self.folder / "run"
        self.assertEqual(run(*train(folder, train__steps=2))[0], 0)
        code, out, _ = run(*train(folder, train__steps=2))
        self.assertEqual((code, "already complete" in out), (0, True), out)

    def test_a_run_keeps_its_settings(self):
        folder = self.folder / "run"
        self.assertEqual(run(*train(folder, train__steps=2))[0], 0)
        self.assert_fails(run(*train(folder, train__steps=3)), 2, "train.steps", "another --run")

    def test_a_run_keeps_its_text(self):
        texts = [self.folder / name for name in ("one", "other")]
        for text in texts:
            shutil.copytree(os.path.dirname(asyncio.__file__), text)
        folder = self.folder / "run"
        first = run("train", "--run", folder, "--data", texts[0],
                    *flags(train__steps=2, data__vocab_size=300, data__validation_share=0.3))
        self.assertEqual(first[0], 0, first)
        self.assert_fails(run("train", "--run", folder, "--data", texts[1]), 2, str(texts[0]), "another --run")
        self.assertEqual(run("train", "--run", folder, "--data", texts[0])[0], 0)

    def test_a_corpus_smaller_than_a_row(self):
        text = self.folder / "tiny.txt"
        text.write_text("hello\n" * 10)
        result = run("train", "--run", self.folder / "run", "--data", text, *flags())
        self.assert_fails(result, 1, "too small", "21 tokens")

    def test_a_run_without_a_name_makes_one_folder(self):
        result = subprocess.run([ATOLL, "train", "--data", STORE, *flags(train__steps=2)], cwd=self.folder,
                                capture_output=True, text=True, timeout=DEADLINE_S)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(len(list((self.folder / "runs").iterdir())), 1)

    def test_a_model_that_no_machine_holds(self):
        result = run(*train(self.folder / "run", model__hidden_size=1048576))
        self.assert_fails(result, 1, "too little memory", "choose a smaller model")
        self.assertLess(len(result[2].splitlines()), 4)

    def test_rows_that_no_machine_holds(self):
        result = run(*train(self.folder / "run", train__batch_rows=2**24))
        self.assert_fails(result, 1, "too little memory", f"{2**24} rows", "fewer would fit: --train.micro_batch_rows=")

    def test_memory_that_runs_out(self):
        """A limit that the program cannot know before."""
        words = train(self.folder / "run", model__hidden_size=4096, model__num_layers=8, model__num_heads=32)
        process = subprocess.Popen(["prlimit", f"--as={3 * 2**30}", ATOLL, *map(str, words)],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        code, _, err = finish(process)
        self.assertEqual(code, 1, err)
        self.assertRegex(err, "memory.*; choose a smaller model")
        self.assertNotIn("micro_batch_rows", err)

    def test_a_device_that_is_not_there(self):
        for device in ("cuda:77", "toaster", "meta"):
            option = "--train.device=" + device
            self.assert_fails(run(*train(self.folder / "run", option)), 2, "train.device", device)
            self.assert_fails(run("bench", "train-step", option), 2, "train.device", device)

    def test_bench_measures_this_machine(self):
        _, address = self.coordinator()
        code, out, err = run("bench", "--quick", "--sizes", "demo", "--threads", "1", "--coordinator", address, "--json")
        self.assertEqual((code, len(out.splitlines())), (0, 1), err)
        found = json.loads(out)
        self.assertEqual((found["device"], found["threads"]), ("cpu", 1))
        self.assertGreater(min(found["line"][way] for way in ("up_bits_per_s", "down_bits_per_s")), 1e6)
        self.assertLess(found["line"]["round_trip_s"], 1)
        self.assertEqual([product["precision"] for product in found["products"]], ["fp32", "bf16"])
        for product in found["products"]:
            self.assertEqual(product["flops_per_s"], max(product["fastest"].values()))
            self.assertEqual(set(product["fastest"]), {"atoll", "libtorch"})
        self.assertGreater(min(found["copy_bytes_per_s"], *found["loopback"].values()), 0)
        self.assertEqual(found["training"][0]["precision"], "fp32")
        for step in found["training"]:
            self.assertEqual((step["model"], step["left_out"]), ("demo", None))
            self.assertLess(step["peak_memory_bytes"], found["memory_bytes"])
            [peak] = [product["flops_per_s"] for product in found["products"] if product["precision"] == step["precision"]]
            self.assertAlmostEqual(step["share_of_peak"], step["tokens_per_s"] * step["operations_per_token"] / peak)

    def test_the_peak_of_a_larger_model_is_higher_by_its_parameters(self):
        """By 16 bytes each, at least; what the program takes by itself is in both."""
        small, large = (self.step("--model.vocab_size=64", f"--model.hidden_size={hidden}", f"--model.intermediate_size={4 * hidden}",
                                  "--model.num_layers=2", "--model.num_heads=2", "--model.num_kv_heads=2", "--train.batch_rows=1",
                                  "--train.sequence_length=8", "--train.threads=1") for hidden in (32, 768))
        bytes_more = 16 * (large["parameters"] - small["parameters"])
        self.assertGreater(bytes_more, 2e8)
        self.assertGreater(large["peak_memory_bytes"] - small["peak_memory_bytes"], 0.9 * bytes_more)

    def step(self, *words):
        code, out, err = run("bench", "train-step", "--steps=1", "--warmup=1", "--json", *words)
        self.assertEqual(code, 0, err)
        return json.loads(out)

    def test_bench_says_what_it_cannot_do(self):
        for setting in "train.teacher=x", "train.shard=zero1", "train.schedule=constant", "train.warmup_steps=3":
            self.assert_fails(run("bench", "train-step", "--" + setting), 2, setting.split("=")[0], "leave it out")
        self.assert_fails(run("bench", "--device", "toaster"), 2, "--device", "toaster")
        self.assert_fails(run("bench", "peak", "--device", "toaster"), 2, "--device", "toaster")
        self.assert_fails(run("bench", "--sizes", "demo,7b"), 2, "--sizes", "'7b'", "34m")
        self.assert_fails(run("bench", "--threads", "0"), 2, "--threads")
        self.assert_fails(run("bench", "train-step", "--model.hidden_size=1048576"), 1, "a training step of", "lower --model")
        self.assert_fails(run("bench", "--coordinator", "192.0.2.1:7070"), 2, "--coordinator")

    def test_steps_in_turns(self):
        done = subprocess.run([ATOLL, "bench", "train-step", "--in-turns", "--warmup=0", *STEP], input="\n\n",
                              capture_output=True, text=True, timeout=DEADLINE_S)
        self.assertEqual(done.returncode, 0, done.stderr)
        first, second, summary = map(json.loads, done.stdout.splitlines())
        self.assertLess(second["loss"], first["loss"])  # The same batch again, after an update.
        self.assertEqual(summary["loss"], second["loss"])
        self.assertIn(summary["step_ms"], (first["step_ms"], second["step_ms"]))
        self.assertGreater(summary["peak_memory_bytes"], 0)

    def test_a_damaged_checkpoint_names_the_tensor(self):
        folder = self.folder / "run"
        settings = {"train__steps": 4}
        self.assertEqual(run(*train(folder, **settings))[0], 0)
        file = folder / "checkpoints" / "step-00000004" / "model.safetensors"
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        file.write_bytes(content)
        result = run(*train(folder, **settings))
        self.assert_fails(result, 1, "tensor 'model.", "model.safetensors")

    def test_a_checkpoint_that_contradicts_itself_is_refused(self):
        folder = self.folder / "run"
        settings = {"train__steps": 4}
        self.assertEqual(run(*train(folder, **settings))[0], 0)
        checkpoint = folder / "checkpoints" / "step-00000004"
        good = {name: (checkpoint / name).read_text() for name in ("state.json", "manifest.json")}

        def refused(part, state=None, manifest=None):
            """Writes changed fields, the manifest's hash of state.json made to fit."""
            changed = json.dumps({**json.loads(good["state.json"]), **(state or {})})
            (checkpoint / "state.json").write_text(changed)
            listed = json.loads(good["manifest.json"])
            listed["files"]["state.json"] = hashlib.sha256(changed.encode()).hexdigest()
            (checkpoint / "manifest.json").write_text(json.dumps({**listed, **(manifest or {})}))
            with self.subTest(part=part, state=state, manifest=manifest):
                self.assert_fails(run(*train(folder, **settings)), 1, part, "remove this folder to go on")

        refused("step", state={"step": -1})
        refused("step", state={"step": 10**18})
        refused("step", state={"step": 2})
        refused("digest", state={"digest": "0" * 64})
        refused("updates", state={"num_updates": -7})
        refused("state.json", state={"step": "four"})
        refused("state.json", manifest={"files": {}})
        refused("format", manifest={"format": 99})
        refused("step", manifest={"step": 7})
        for name in ("state.json", "manifest.json", "model.safetensors", "optimizer.safetensors", "config.json"):
            for name_again, text in good.items():
                (checkpoint / name_again).write_text(text)
            kept = (checkpoint / name).read_bytes()
            for damaged in (b"", kept[:len(kept) // 2], None):
                (checkpoint / name).unlink() if damaged is None else (checkpoint / name).write_bytes(damaged)
                result = run(*train(folder, **settings))
                with self.subTest(name=name, damaged=damaged):
                    self.assert_fails(result, 1, str(checkpoint), "remove this folder to go on")
                    self.assertNotIn("json.exception", result[2])
            (checkpoint / name).write_bytes(kept)
        renamed = checkpoint.with_name("step-00000003")
        checkpoint.rename(renamed)
        self.assert_fails(run(*train(folder, **settings)), 1, "step", "remove this folder to go on")

    def test_two_processes_cannot_use_one_run_directory(self):
        folder = self.folder / "run"
        process = start(*train(folder, train__steps=100000))
        wait_for(lambda: last_step(folder) >= 1, "a step")
        self.assert_fails(run(*train(folder, train__steps=100000)), 1, "in use")
        process.send_signal(signal.SIGINT)
        self.assertEqual(finish(process)[0], 0)

    def test_init_from_a_hugging_face_model(self):
        first = self.folder / "first"
        self.assertEqual(run(*train(first, train__steps=5))[0], 0)
        checkpoint = first / "checkpoints" / "step-00000005"
        second = self.folder / "second"
        code, _, err = run("train", "--run", second, "--data", STORE, "--init", checkpoint, *flags(train__steps=2))
        self.assertEqual(code, 0, err)
        self.assertEqual(tensors(first, 5)["model.safetensors"], tensors(second, 0)["model.safetensors"])
        again = run("train", "--run", second, "--data", STORE, "--init", checkpoint)
        self.assert_fails(again, 2, "--init", "checkpoints")
        self.assert_fails(run("train", "--run", self.folder / "third", "--data", STORE, "--strict"), 2, "--init")
        other = run("train", "--run", self.folder / "third", "--data", STORE, "--init", checkpoint,
                    "--model.hidden_size=64")
        self.assert_fails(other, 2, "model.hidden_size", "32")

    def test_what_a_model_says_of_chats_stays_with_its_run(self):
        first = self.folder / "first"
        self.assertEqual(run(*train(first, train__steps=5))[0], 0)
        model = first / "checkpoints" / "step-00000005"
        (model / "manifest.json").unlink()  # From here on it is anybody's model.
        config = json.loads((model / "config.json").read_text())
        (model / "config.json").write_text(json.dumps(config | {"eos_token_id": [5, 7], "bos_token_id": 3}))
        texts = {"chat_template.jinja": "{{ messages[0].content }}", "generation_config.json": '{"eos_token_id": [7], "temperature": 0.6}',
                 "tokenizer_config.json": '{"eos_token": "no such text"}', "special_tokens_map.json": '{"bos_token": "the"}',
                 "added_tokens.json": '{"<|endoftext|>": 0}', "additional_chat_templates/tool_use.jinja": "tools: {{ tools | length }}"}
        (model / "additional_chat_templates").mkdir()
        for name, text in texts.items():
            (model / name).write_text(text)

        def keeps_texts(folder):
            for name, text in texts.items():
                self.assertEqual((folder / name).read_text(), text, f"{folder}: {name}")
            self.assertEqual((folder / "tokenizer.json").read_bytes(), (model / "tokenizer.json").read_bytes())

        second = self.folder / "second"
        settings = {"train__steps": 6, "train__checkpoint_every": 3}
        self.assertEqual(run("train", "--run", second, "--data", STORE, "--init", model, *flags(**settings))[0], 0)
        shutil.rmtree(second / "checkpoints" / "step-00000006")
        self.assertEqual(run("train", "--run", second)[0], 0)  # Goes on without --init.
        end = second / "checkpoints" / "step-00000006"
        keeps_texts(second / "checkpoints" / "step-00000003")
        keeps_texts(end)
        ids = json.loads((end / "config.json").read_text())
        self.assertEqual(ids["bos_token_id"], 3)
        self.assertEqual(ids["eos_token_id"][:2], [5, 7])
        self.assertEqual(len(ids["eos_token_id"]), 3)  # The store's own end of a text.
        messages = self.folder / "messages.json"
        messages.write_text('[{"role": "user", "content": "hello"}]')
        code, out, err = run("tokenizer", "chat", "--tokenizer", end, "--messages", messages)
        self.assertEqual((code, out), (0, "hello"), err)

        # Further on from the run, on two islands, and out of it as a model.
        third = self.folder / "third"
        code, _, err = run("train", "--run", third, "--data", STORE, "--init", second, "--islands", 2, *flags(train__steps=4, sync__sync_every=2))
        self.assertEqual(code, 0, err)
        for island in ("island-0", "island-1"):
            keeps_texts(third / island / "checkpoints" / "step-00000004")
            self.assertEqual(json.loads((third / island / "checkpoints" / "step-00000004" / "config.json").read_text())["eos_token_id"],
                             ids["eos_token_id"])
        self.assertEqual(run("convert", third, self.folder / "model")[0], 0)
        keeps_texts(self.folder / "model")


if __name__ == "__main__":
    ATOLL = sys.argv.pop(1)
    ROOT = tempfile.mkdtemp(prefix="atoll-run-test-")
    try:
        STORE = os.path.join(ROOT, "store")
        make_store(ATOLL, STORE, ["json", "logging", "asyncio"])
        unittest.main(verbosity=2)
    finally:
        shutil.rmtree(ROOT)
