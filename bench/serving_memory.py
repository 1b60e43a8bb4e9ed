"""Random weights behind four servers, the memory of each bounded to a third of them by a control group, for claims_serving.py: needs root.

No server is told its memory: each finds its group's bound. It uses 0.9 of that, and keeps a quarter of a GiB for the program: a third of 4 GB
would not have room for a quarter of the layers. A third of 6.7 GB has room for 19 of 72. Each has files of its own, as on a machine of its own: a
page that two groups read is charged to one of them, which does not see that the other one still needs it.
"""
import contextlib
import functools
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

import random_model
import served
from claims import ATOLL
from serving_swarm import ServingSwarm, complete, told

HIDDEN, INTERMEDIATE, NUM_LAYERS, NUM_SERVERS = 2048, 5632, 72, 4
WHAT = "6.7 GB of weights"  # What these sizes come to with a vocabulary of 49,152.
KV_GIB = 0.02
LENGTHS = (20, 80, 160, 40)  # Of prompts, in characters.


def bodies(first):
    """Of other prompts for another place in the text, but as long."""
    return [{"prompt": served.TEXT[first + 200 * number :][:length], "max_tokens": 4, "temperature": 0, "logprobs": 20}
            for number, length in enumerate(LENGTHS)]


WARM, MEASURED = bodies(0), bodies(5000)


class MemoryGroup:
    """A control group, of version 1 or 2, with a bound for memory."""

    def __init__(self, name, limit):
        root = pathlib.Path("/sys/fs/cgroup")
        is_first = (root / "memory").is_dir()
        self.folder = root / ("memory" if is_first else ".") / f"atoll-claims-{os.getpid()}-{name}"
        try:
            self.folder.mkdir()
            (self.folder / ("memory.limit_in_bytes" if is_first else "memory.max")).write_text(str(int(limit)))
        except OSError as error:
            self.remove()
            raise RuntimeError(f"there can be no control group for memory here: {error}") from error

    def around(self):
        """Words before a command that put it in."""
        return ["sh", "-c", f'echo $$ > {self.folder}/cgroup.procs && exec "$@"', "sh"]

    def remove(self):
        with contextlib.suppress(OSError):
            self.folder.rmdir()


def num_major_faults(process):
    """Pages that it had to wait for."""
    return int(pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()[9])


def forget_pages(folder):
    """What the system keeps of these files was charged to whoever wrote them: servers are to read them themselves."""
    for file in folder.iterdir():
        with open(file, "rb") as opened:
            os.fdatasync(opened.fileno())
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def refusal(group, model):
    """What one of them says to all of the model."""
    found = []
    for words in (["--gateway", "--listen", "127.0.0.1:0"], ["--join", "127.0.0.1:1", "--blocks", f"0:{NUM_LAYERS}"]):
        command = [*group.around(), ATOLL, "serve", model, *words, "--kv-gib", KV_GIB]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300)
        found.append((done.returncode, done.stderr.strip()))
    return found


@functools.cache
def memory():
    """Major page faults of all servers while they answer prompts that they have not seen, and answers that one process, with all of the
    memory, gives otherwise."""
    folder = served.work / "large"
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        size = random_model.write(folder, served.model(), HIDDEN, INTERMEDIATE, NUM_LAYERS)
        limit = size / 3
        groups = []
        for number in range(NUM_SERVERS):
            groups.append(MemoryGroup(f"s{number}", limit))
            stack.callback(groups[-1].remove)
        refusals = refusal(groups[0], folder)
        copies = [folder]
        for number in range(1, NUM_SERVERS):
            copies.append(folder.with_name(f"large-{number}"))
            stack.callback(shutil.rmtree, copies[-1], ignore_errors=True)
            shutil.copytree(folder, copies[-1])
        for copy in copies:
            forget_pages(copy)
        found = by_servers(copies, groups)
        with served.one("memory-one", served.THREADS, of=folder) as url:
            wanted = [told(complete(url, **body)) for body in WARM + MEASURED]
        result = {"gb": size / 1e9, "limit_gb": limit / 1e9, "refusals": refusals,
                  "others": sum(a != b for a, b in zip(found.pop("answers"), wanted)), **found}
    print(f"memory: {json.dumps(result)}", file=sys.stderr)
    return result


def by_servers(folders, groups):
    """One in each group, with a folder of its own and the layers that the coordinator gives it."""
    swarm = ServingSwarm(ATOLL, folders[0], served.work / "memory", served.THREADS)
    swarm.kv_gib = KV_GIB
    try:
        swarm.coordinate()
        for number, (folder, group) in enumerate(zip(folders, groups)):
            swarm.serve(f"s{number}", None, model=folder, around=group.around())
        url = swarm.gateway("g")
        swarm.wait_whole(url)
        servers = [swarm.processes[f"s{number}"] for number in range(NUM_SERVERS)]
        answers = [told(complete(url, **body)) for body in WARM]
        before, begin = sum(map(num_major_faults, servers)), time.monotonic()
        answers += [told(complete(url, **body)) for body in MEASURED]
        seconds = time.monotonic() - begin
        return {"answers": answers, "faults_before": before, "faults": sum(map(num_major_faults, servers)) - before,
                "s_per_token": seconds / sum(body["max_tokens"] for body in MEASURED)}
    finally:
        swarm.end()


def add(claims):
    claims.measured(f"{WHAT}, 4 servers in a third of that each, which they find: major page faults of new prompts, once warm",
                    lambda: memory()["faults"], lambda n: n == 0, "0", "{}")
    claims.measured(f"and of {len(WARM + MEASURED)} answers those with another bit than one process's, which has all of the memory",
                    lambda: memory()["others"], lambda n: n == 0, "0", "{}")
    claims.measured("and one of them is refused all of it, alone and in a swarm: refusals of 2",
                    lambda: sum(code == 1 and "may be used here" in said for code, said in memory()["refusals"]), lambda n: n == 2, "2", "{}")
