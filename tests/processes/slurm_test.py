#!/usr/bin/env python3
"""`atoll scaling sweep` through a real Slurm of one machine: the same results as on this machine alone, jobs that are
found again, points that are cancelled. Skipped (exit 77) where Slurm is not installed.

usage: slurm_test.py ATOLL STORE [unittest arguments]
"""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import slurm_cluster  # noqa: E402
from slurm_cluster import DEADLINE_S, SlurmCluster, wait_for  # noqa: E402

ATOLL, STORE = "", ""
SKIPPED = 77
MAX_ARRAY_SIZE = 3  # So that four points take two arrays.
SWEEP = """
[sweep]
tokens_per_param = {tokens}
extensions = 0
[settings.data]
path = "{store}"
[settings.train]
sequence_length = 16
eval_rows = 16
[settings.model]
max_positions = 16
num_heads = 2
num_kv_heads = 2
intermediate_size = 16
num_layers = 1
[sizes.a]
hidden_size = 8
[[grid]]
name = "rates"
replicas = 0
lr = [1e-3, 2e-3, 4e-3, 8e-3]
batch_tokens = 128
{slurm}
"""
SLURM = "[slurm]\npoll_seconds = 0.5\ncpus_per_task = 1\n"


class SlurmTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.slurm = cls.enterClassContext(SlurmCluster(cpus=2, max_array_size=MAX_ARRAY_SIZE))

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="atoll-slurm-test-")
        self.addCleanup(folder.cleanup)
        # A name that neither a shell nor Slurm's file name patterns may take apart.
        self.folder = pathlib.Path(folder.name) / "a 'sweep' of %a \\ $x"
        self.folder.mkdir()
        self.known = set(self.slurm.tasks())
        self.addCleanup(self.end_jobs)

    def end_jobs(self):
        self.slurm.run("scancel", f"--user={os.geteuid()}")
        wait_for(lambda: not self.slurm.run("squeue", "-h").stdout, "all jobs to end", self.slurm.logs)

    def command(self, slurm=SLURM, tokens=1, words=(), folder="out"):
        path = self.folder / "s.toml"
        path.write_text(SWEEP.format(store=STORE, tokens=tokens, slurm=slurm))
        return [ATOLL, "scaling", "sweep", str(path), "--folder", str(self.folder / folder), *words]

    def sweep(self, *arguments, code=0, environment=None, **options):
        done = subprocess.run(self.command(*arguments, **options), capture_output=True, text=True, timeout=DEADLINE_S,
                              env=environment or self.slurm.environment)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def start(self, **options):
        process = subprocess.Popen(self.command(**options), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                   text=True, env=self.slurm.environment)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def points(self, folder="out"):
        lines = (self.folder / folder / "points.jsonl").read_text().splitlines()
        return {point["key"]: point for point in map(json.loads, lines)}

    def results(self, folder="out"):
        return {key: (point["loss"], point["digest"]) for key, point in self.points(folder).items()}

    def tasks(self, state=None):
        """This test's tasks, those in `state` alone if one is given."""
        return {task: said for task, said in self.slurm.tasks().items()
                if task not in self.known and state in (None, said)}

    def wait_tasks(self, state, count=1):
        def found():
            tasks = self.tasks(state)
            return sorted(tasks) if len(tasks) >= count else None
        return wait_for(found, f"{count} {state}", self.slurm.logs)

    # --- the sweep ---

    def test_results_are_those_of_this_machine_alone(self):
        self.sweep(slurm="", folder="local")
        done = self.sweep(words=["--json"])
        said = json.loads(done.stdout)
        self.assertEqual((said["done"], said["failed"]), (True, 0))
        self.assertEqual(self.results(), self.results("local"))
        self.assertEqual(len(self.results()), 4)
        tasks = self.tasks()
        self.assertEqual((len(tasks), set(tasks.values())), (4, {"COMPLETED"}))
        self.assertEqual({index for _, index in tasks}, set(range(MAX_ARRAY_SIZE)))
        self.assertEqual(os.listdir(self.folder / "out" / "points"), [])
        self.assertEqual(os.listdir(self.folder / "out" / "slurm"), ["stderr"])

    def test_a_killed_sweep_finds_its_jobs_again(self):
        killed = self.start(tokens=20)
        self.wait_tasks("RUNNING")
        killed.kill()
        killed.wait()
        self.wait_tasks("COMPLETED")  # They go on without it.
        done = self.sweep(tokens=20, words=["--local"], code=1)
        self.assertIn("may still run under Slurm", done.stderr)
        self.sweep(tokens=20)
        self.assertEqual((len(self.tasks()), set(self.tasks().values())), (4, {"COMPLETED"}))  # Nothing was sent twice.
        self.sweep(slurm="", tokens=20, folder="local")
        self.assertEqual(self.results(), self.results("local"))

    def test_a_stopped_sweep_leaves_nothing_running_and_goes_on(self):
        stopped = self.start(tokens=20)
        self.wait_tasks("RUNNING")
        stopped.send_signal(signal.SIGINT)
        self.assertEqual(stopped.wait(DEADLINE_S), 130)
        wait_for(lambda: not self.tasks("RUNNING") and not self.tasks("PENDING"), "all to end", self.slurm.logs)
        self.sweep(tokens=20)
        self.sweep(slurm="", tokens=20, folder="local")
        self.assertEqual(self.results(), self.results("local"))

    def test_a_second_ctrl_c_leaves_nothing_that_failed(self):
        stopped = self.start(tokens=150)
        self.wait_tasks("RUNNING", 2)
        wait_for(lambda: len(list(self.folder.glob("out/points/*/run/metrics.jsonl"))) >= 2, "training")
        stopped.send_signal(signal.SIGINT)
        # Once the first has ended all were told; the sweep looks for ends each second, and is gone before.
        wait_for(lambda: list(self.folder.glob("out/slurm/*/exit-*")), "a point to end", self.slurm.logs)
        stopped.send_signal(signal.SIGINT)
        stopped.wait(DEADLINE_S)
        self.assertTrue(list(self.folder.glob("out/slurm/*/stopped")))
        wait_for(lambda: not self.tasks("RUNNING") and not self.tasks("PENDING"), "all to end", self.slurm.logs)
        kept = [step for step in self.folder.glob("out/points/*/run/checkpoints/step-*") if not step.name.endswith("-00000000")]
        self.assertGreaterEqual(len(kept), 1)
        self.sweep(tokens=150)
        self.assertEqual({point["status"] for point in self.points().values()}, {"done"})
        self.sweep(slurm="", tokens=150, folder="local")
        self.assertEqual(self.results(), self.results("local"))

    def test_a_running_point_that_slurm_starts_again_goes_on(self):
        process = self.start(tokens=60)
        job, index = self.wait_tasks("RUNNING", 2)[0]
        wait_for(lambda: len(list(self.folder.glob("out/points/*/run/metrics.jsonl"))) >= 2, "training")
        self.slurm.run("scontrol", "requeue", f"{job}_{index}")
        # Slurm would let it wait for two minutes.
        wait_for(lambda: self.tasks()[job, index] == "PENDING" and
                 self.slurm.run("scontrol", "update", f"JobId={job}_{index}", "StartTime=now", check=False).returncode == 0,
                 "the task to wait again", self.slurm.logs)
        _, error = process.communicate(timeout=DEADLINE_S)
        self.assertEqual(process.returncode, 0, error)
        self.assertEqual({point["status"] for point in self.points().values()}, {"done"})
        self.sweep(slurm="", tokens=60, folder="local")
        self.assertEqual(self.results(), self.results("local"))

    def test_a_point_that_is_cancelled_is_recorded_and_others_go_on(self):
        process = self.start(tokens=60)
        self.wait_tasks("RUNNING", 2)
        cancelled = self.wait_tasks("PENDING")[0]
        self.slurm.run("scancel", "%d_%s" % cancelled)
        _, error = process.communicate(timeout=DEADLINE_S)
        self.assertEqual(process.returncode, 0, error)
        failed = [point["message"] for point in self.points().values() if point["status"] == "failed"]
        self.assertEqual(len(failed), 1)
        self.assertIn("it was cancelled (CANCELLED", failed[0])
        self.assertIn("others go on", error)
        self.sweep(tokens=60, words=["--retry"])
        self.assertEqual({point["status"] for point in self.points().values()}, {"done"})

    def test_a_node_that_fails_is_named(self):
        process = self.start(slurm=SLURM + "extra = ['--no-requeue']\n", tokens=60)
        self.wait_tasks("RUNNING", 2)
        node = f"NodeName={self.slurm.settings['host']}"
        self.slurm.run("scontrol", "update", node, "State=DOWN", "Reason=test")
        # Refused where the node has answered in between: then it is back already.
        self.slurm.run("scontrol", "update", node, "State=RESUME", check=False)
        _, error = process.communicate(timeout=DEADLINE_S)
        self.assertEqual(process.returncode, 0, error)
        points = self.points().values()
        failed = [point["message"] for point in points if point["status"] == "failed"]
        self.assertEqual((len(points), len(failed)), (4, 2))
        for message in failed:
            self.assertIn("its node failed (NODE_FAIL", message)

    def test_no_more_run_than_may(self):
        process = self.start(slurm=SLURM + "max_running = 1\n", tokens=20)
        most = 0
        while process.poll() is None:
            most = max(most, len(self.tasks("RUNNING")))
        self.assertEqual((process.returncode, most), (0, 1))
        self.assertEqual(len(self.results()), 4)

    # --- refusals ---

    def test_without_slurm_the_commands_are_named(self):
        here = {**os.environ, "PATH": str(self.folder)}
        done = self.sweep(code=1, environment=here)
        self.assertIn("sbatch, squeue, scancel, scontrol not found on PATH", done.stderr)

    def test_what_sbatch_refuses_is_told_with_its_words(self):
        done = self.sweep(slurm=SLURM + "partition = 'none such'\n", code=1)
        for part in "sbatch", "'--partition=none such'", "exit code 1", "invalid partition specified: none such":
            self.assertIn(part, done.stderr)
        self.assertFalse(self.tasks())
        self.sweep()  # It can be mended.

    def test_mistakes_are_told_before_anything_is_sent(self):
        for slurm, words, part in ((SLURM + "partitoin = 'x'", [], "partition"),
                                   (SLURM + "extra = ['--array=1']", [], "max_running"),
                                   (SLURM + "time = 3", [], "slurm.time"),
                                   (SLURM, ["--cores", "2"], "max_running"),
                                   (SLURM, ["--memory", "2GB"], "mem"),
                                   ("", ["--local"], "no [slurm]")):
            with self.subTest(slurm + str(words)):
                self.assertIn(part, self.sweep(slurm=slurm, words=words, code=2).stderr)

    # --- the cluster of this test ---

    def test_a_cluster_ends_with_its_test(self):
        script = textwrap.dedent(f"""
            import sys
            sys.path.insert(0, {str(pathlib.Path(__file__).resolve().parent)!r})
            import slurm_cluster as s
            with s.SlurmCluster() as slurm:
                slurm.run("sbatch", "--output=/dev/null", "--wrap", "sleep 1000")
                s.wait_for(lambda: slurm.run("squeue", "-h", "-t", "R").stdout, "the job")
                print(slurm.folder, slurm.guard.pid, flush=True)
                sys.stdin.read()
        """)
        test = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        folder, guard = test.stdout.readline().split()
        of_cluster = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if in_cluster(pid, folder)]
        self.assertGreaterEqual(len(of_cluster), 5)  # Three daemons, the guard, the job.
        test.kill()
        test.communicate()
        wait_for(lambda: not any(in_cluster(pid, folder) for pid in [*of_cluster, int(guard)]), "all to end")
        self.assertFalse(os.path.exists(folder))


def in_cluster(pid, folder):
    try:
        return folder.encode() in pathlib.Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False


if __name__ == "__main__":
    if missing := slurm_cluster.missing():
        print("SKIPPED: not installed:", ", ".join(missing), "(Debian: slurmctld slurmd slurm-client munge)")
        sys.exit(SKIPPED)
    ATOLL, STORE = map(os.path.abspath, sys.argv[1:3])
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
