"""Islands of several processes, for claims_speed.py: the same losses as one process, however they are started; memory of a shard;
a process that is killed; BF16 beside FP32 on the demo's model.

How they are started: by Atoll (`--processes-per-island N`), by torchrun's variables (a process for each rank, its place in the
environment), by Slurm (`srun -n N`, in a Slurm of this machine's own).
"""
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

import corpus
from claims import ATOLL, ROOT, run

sys.path.insert(0, str(ROOT / "tests" / "processes"))
import slurm_cluster  # noqa: E402

DEADLINE_S = 900
SMALL = {"model.hidden_size": 128, "model.intermediate_size": 352, "model.num_layers": 3, "model.num_heads": 4, "model.num_kv_heads": 2,
         "model.max_positions": 128, "train.sequence_length": 128, "train.batch_rows": 8, "train.threads": 1, "train.log_every": 1,
         "train.eval_rows": 8}
# Parameters and what belongs to them are most of the memory: 120 M, and a step of few tokens.
LARGE = {"model.hidden_size": 1024, "model.intermediate_size": 2816, "model.num_layers": 9, "model.num_heads": 16, "model.num_kv_heads": 16,
         "model.max_positions": 32, "train.sequence_length": 32, "train.batch_rows": 4, "train.threads": 1, "train.steps": 3, "train.eval_rows": 4}


def flags(settings):
    return [f"--{key}={value}" for key, value in settings.items()]


def losses(folder):
    """Of a run's island, by step."""
    lines = map(json.loads, (pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines())
    return {line["step"]: line["loss"] for line in lines}


def command(folder, store, settings):
    return [ATOLL, "train", "--run", str(folder), "--data", str(store), "--json", *flags(settings)]


def summary_of(outputs):
    """Of the process that prints one."""
    for text in outputs:
        for line in reversed(text.strip().split("\n")):
            if line.startswith("{"):
                return json.loads(line)
    raise RuntimeError(f"no process printed a summary: {outputs}")


def by_atoll(folder, store, settings, count):
    return summary_of([run([*command(folder, store, settings), "--processes-per-island", str(count)], timeout=DEADLINE_S)])


def by_torchrun(folder, store, settings, count):
    """As torchrun starts its workers."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    common = os.environ | {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    ranks = [subprocess.Popen(command(folder, store, settings), env=common | {"RANK": str(rank), "LOCAL_RANK": str(rank)}, cwd=ROOT,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for rank in range(count)]
    try:
        said = [process.communicate(timeout=DEADLINE_S) for process in ranks]
    finally:
        for process in ranks:
            process.kill()
    for rank, process in enumerate(ranks):
        if process.returncode != 0:
            raise RuntimeError(f"rank {rank} of {count} ended with {process.returncode}: {said[rank][1][-1500:]}")
    return summary_of([out for out, _ in said])


def by_slurm(folder, store, settings, count):
    reason = slurm_cluster.missing()
    if reason:
        raise RuntimeError(f"no Slurm here: {reason}")
    with slurm_cluster.SlurmCluster(cpus=count, memory_mb=4000) as slurm:
        return summary_of([slurm.run("srun", "-n", str(count), *command(folder, store, settings)).stdout])


STARTS = {"atoll": by_atoll, "torchrun": by_torchrun, "slurm": by_slurm}
_alone = {}


def differences(work, store, start, optimizer, shard="none", count=2):
    """Between `count` processes and one: the largest of a step's losses, and of the final validation loss as a share."""
    settings = SMALL | {"train.optimizer": optimizer, "train.steps": 20 if optimizer == "adamw" else 50}
    if optimizer not in _alone:
        folder = work / f"alone-{optimizer}"
        _alone[optimizer] = (summary_of([run(command(folder, store, settings), timeout=DEADLINE_S)]), losses(folder))
    alone, alone_losses = _alone[optimizer]
    folder = work / f"{start}-{optimizer}-{shard}"
    sharded = {} if shard == "none" else {"train.shard": shard}
    together = STARTS[start](folder, store, settings | sharded, count)
    found = losses(folder)
    if set(found) != set(alone_losses) or len(found) < settings["train.steps"]:
        raise RuntimeError(f"{len(found)} steps were logged, {len(alone_losses)} alone")
    return (max(abs(found[step] - alone_losses[step]) for step in found), abs(together["val_loss"] / alone["val_loss"] - 1))


def processes_of(folder):
    """Ids of those in whose command line the folder stands, with their environment."""
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if str(folder).encode() in (entry / "cmdline").read_bytes():
                yield int(entry.name), (entry / "environ").read_bytes().split(b"\0")
        except OSError:  # It ended meanwhile.
            continue


def peak_bytes(folder, words):
    """VmHWM of the command's processes, the largest, while it runs."""
    process = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    most = {}
    while process.poll() is None:
        for number, _ in processes_of(folder):
            try:
                found = re.search(r"VmHWM:\s+(\d+)", pathlib.Path(f"/proc/{number}/status").read_text())
            except OSError:
                continue
            if found:
                most[number] = max(most.get(number, 0), int(found.group(1)) * 1024)
        time.sleep(0.05)
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(words)} ended with {process.returncode}: {process.stderr.read()[-1500:]}")
    return max(most.values())


def shard_memory(work, store, count=4):
    """Of a process under ZeRO-3, over that of one process alone, same batch."""
    alone = peak_bytes(work / "memory-1", command(work / "memory-1", store, LARGE))
    words = [*command(work / f"memory-{count}", store, LARGE | {"train.shard": "zero3"}), "--processes-per-island", str(count)]
    return peak_bytes(work / f"memory-{count}", words) / alone


def outer_memory(work, store):
    """Of process 0, under ZeRO-3 over that under ZeRO-1: two islands of two processes, which exchange what they learn twice."""
    settings = LARGE | {"train.steps": 8, "train.batch_rows": 8, "sync.method": "diloco", "sync.sync_every": 4, "sync.codec": "int4",
                        "swarm.min_replicas": 2}
    peaks = {}
    for shard in ("zero3", "zero1"):
        folder = work / f"outer-{shard}"
        words = [*command(folder, store, settings | {"train.shard": shard}), "--islands", "2", "--processes-per-island", "2"]
        peaks[shard] = peak_bytes(folder, words)
    return peaks["zero3"] / peaks["zero1"]


def digests(folder):
    """Of the islands' last checkpoints, those that differ."""
    found = {}
    for state in sorted(folder.glob("island-*/checkpoints/step-*/state.json")):
        found[state.parts[-4]] = re.search(r'"digest": ?"(\w+)"', state.read_text()).group(1)
    if len(found) < 2:
        raise RuntimeError(f"{len(found)} islands left a checkpoint in {folder}")
    return len(set(found.values()))


def digests_after_a_kill(work, store):
    """Of two islands of two processes; one process of the second island is killed on the way. Both have to reach the end."""
    folder, steps = work / "killed", 240
    settings = SMALL | {"train.steps": steps, "sync.method": "diloco", "sync.sync_every": 20, "swarm.min_replicas": 1, "train.batch_rows": 16,
                        "train.checkpoint_every": 40}
    process = subprocess.Popen([*command(folder, store, settings), "--islands", "2", "--processes-per-island", "2"], cwd=ROOT,
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        metrics, deadline = folder / "island-1" / "metrics.jsonl", time.monotonic() + DEADLINE_S
        while not metrics.exists() or metrics.read_text().count("\n") < 60:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"no sixty steps before the kill: {process.stderr.read()[-1500:] if process.poll() is not None else ''}")
            time.sleep(0.2)
        victims = [number for number, environment in processes_of(folder / "island-1") if b"RANK=1" in environment]
        if not victims:
            raise RuntimeError("island-1 has no process of rank 1")
        os.kill(victims[0], signal.SIGKILL)
        if process.wait(DEADLINE_S) != 0:
            raise RuntimeError(f"the run ended with {process.returncode}: {process.stderr.read()[-1500:]}")
    finally:
        process.kill()
    for island in ("island-0", "island-1"):
        if max(losses(folder / island)) < steps - 1:
            raise RuntimeError(f"{island} did not reach step {steps - 1}")
    return digests(folder)


def demo_store(work):
    """What `make demo` trains on."""
    store = work / "demo-data"
    if not store.exists():
        run([ATOLL, "tokenizer", "train", "--vocab-size", "2048", "--out", work / "demo-tokenizer.json"])
        run([ATOLL, "data", "pack", "--tokenizer", work / "demo-tokenizer.json", "--out", store])
    return store


def demo(work, precision):
    """The demo's run without its kill: validation loss, and how many digests its islands hold."""
    folder = work / f"demo-{precision}"
    words = ["--train.precision=bf16"] if precision == "bf16" else []
    said = run([ATOLL, "train", str(ROOT / "configs" / "demo.toml"), "--run", str(folder), "--data", str(demo_store(work)), "--json",
                "--swarm.pace=lockstep", *words])
    return json.loads(said.strip().split("\n")[-1])["val_loss"], digests(folder)


def small_store(work):
    store = work / "store"
    if not store.exists():
        corpus.make_store(ATOLL, str(store), corpus.SMALL_BYTES)
    return store


def folder():
    return pathlib.Path(tempfile.mkdtemp(prefix="atoll-claims-"))
