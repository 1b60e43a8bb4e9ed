"""A Slurm of one's own on this machine: munged, slurmctld and slurmd with their own configuration, key, ports and
folder. The system's Slurm is neither used nor changed; root is not needed, nor are control groups.

    with SlurmCluster(cpus=2) as slurm:
        subprocess.run(["sbatch", "--wrap", "hostname"], env=slurm.environment)

The daemons are children of a guard (this file, run as a program). Whatever they leave behind, jobs included, becomes
the guard's child too, and it ends them all when its stdin closes: so also when the test was killed.
"""
import ctypes
import os
import pathlib
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

DEADLINE_S = float(os.environ.get("DEADLINE", 120))  # Generous: nothing waits for it when all is well.
ATTEMPTS = 5  # A port that was free may be taken by the time it is used.
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "scontrol", "sinfo")
PR_SET_CHILD_SUBREAPER = 36

CONFIGURATION = """
ClusterName=atoll
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
# Control groups need rights that a container does not have.
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=1
SchedulerType=sched/builtin
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0
SlurmdParameters=config_overrides
KillWait=2
MinJobAge={min_job_age}
MaxArraySize={max_array_size}
MailProg=/bin/true
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory={memory_mb}
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE
"""


def search_path():
    """Daemons lie in sbin, which is not on everybody's path."""
    return os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])


def missing():
    """Those of PROGRAMS that are not installed."""
    return [name for name in PROGRAMS if not shutil.which(name, path=search_path())]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class SlurmCluster:
    def __init__(self, cpus=2, memory_mb=1000, max_array_size=1001, min_job_age=300):
        """`min_job_age`: seconds for which squeue still tells of a job that has ended."""
        self.settings = {"cpus": cpus, "memory_mb": memory_mb, "max_array_size": max_array_size,
                         "min_job_age": min_job_age, "host": socket.gethostname().split(".")[0],
                         "user": pwd.getpwuid(os.geteuid()).pw_name}
        self.guard = None

    def __enter__(self):
        # Short, whatever TMPDIR is: a socket's path has at most 107 characters.
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="atoll-slurm-", dir="/tmp"))
        self.folder.chmod(0o755)
        own = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "SBATCH", "SQUEUE"))}
        self.environment = {**own, "PATH": search_path(), "SLURM_CONF": str(self.folder / "slurm.conf")}
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if self.guard:
            self.guard.stdin.close()
            self.guard.wait(DEADLINE_S)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start(self):
        (self.folder / "munge").mkdir(mode=0o755)
        for name in "state", "spool":
            (self.folder / name).mkdir()
        with open(os.open(self.folder / "munge" / "key", os.O_WRONLY | os.O_CREAT, 0o600), "wb") as key:
            key.write(os.urandom(128))
        self.guard = subprocess.Popen([sys.executable, __file__, str(self.folder)], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, text=True, env=self.environment, start_new_session=True)
        self.tell("start munged")
        wait_for(lambda: (self.folder / "munge" / "socket").exists(), "munged", self.logs)
        for _ in range(ATTEMPTS):
            ports = {"controller_port": free_port(), "node_port": free_port()}
            text = CONFIGURATION.format(folder=self.folder, **ports, **self.settings)
            (self.folder / "slurm.conf").write_text(text)
            self.tell("start slurmctld")
            self.tell("start slurmd")
            if wait_for(self._is_ready_or_dead, "the node to be idle", self.logs) == "ready":
                return
            self.tell("stop slurmctld")
            self.tell("stop slurmd")
        raise AssertionError(f"slurmctld or slurmd did not start {ATTEMPTS} times\n{self.logs()}")

    def _is_ready_or_dead(self):
        if self.tell("running slurmctld") != "yes" or self.tell("running slurmd") != "yes":
            return "dead"
        return "ready" if self.run("sinfo", "-h", "-o", "%T", check=False).stdout.strip() == "idle" else None

    def tell(self, words):
        """Tells the guard: start, stop (kill -9) or running, and which daemon."""
        self.guard.stdin.write(words + "\n")
        self.guard.stdin.flush()
        return self.guard.stdout.readline().strip()

    def logs(self):
        return "\n".join(f"--- {path.name}\n{path.read_text()[-2000:]}" for path in sorted(self.folder.glob("*.log")))

    def run(self, *words, check=True):
        """A command of Slurm, to its end."""
        done = subprocess.run([str(word) for word in words], env=self.environment, capture_output=True, text=True,
                              timeout=DEADLINE_S)
        if check and done.returncode != 0:
            raise AssertionError(f"{words}: exit code {done.returncode}: {done.stderr}\n{self.logs()}")
        return done

    def tasks(self):
        """{(job, index): state} of all tasks of arrays that Slurm still tells of."""
        lines = self.run("squeue", "-h", "-r", "-t", "all", "-o", "%F|%K|%T").stdout.splitlines()
        return {(int(job), index if index == 'N/A' else int(index)): state for job, index, state in (line.split("|") for line in lines)}


def wait_for(condition, what, explain=lambda: "", deadline=DEADLINE_S):
    begin = time.monotonic()
    while not (value := condition()):
        if time.monotonic() - begin > deadline:
            raise AssertionError(f"waited {deadline} s for {what}\n{explain()}")
        time.sleep(0.05)
    return value


class Guard:
    """Starts the daemons and ends them, with all that came of them."""

    def __init__(self, folder):
        munge = folder / "munge"
        self.commands = {
            "munged": ["munged", "--foreground", "--force", f"--socket={munge}/socket", f"--key-file={munge}/key",
                       f"--pid-file={munge}/pid", f"--seed-file={munge}/seed"],
            "slurmctld": ["slurmctld", "-D", "-i"],
            "slurmd": ["slurmd", "-D"],
        }
        self.folder = folder
        self.daemons = {}

    def serve(self):
        for line in sys.stdin:
            verb, name = line.split()
            print({"start": self.start, "stop": self.stop, "running": self.running}[verb](name), flush=True)

    def start(self, name):
        with open(self.folder / f"{name}.out.log", "ab") as log:
            self.daemons[name] = subprocess.Popen(self.commands[name], stdin=subprocess.DEVNULL, stdout=log,
                                                  stderr=log)

    def stop(self, name):
        self.daemons[name].kill()
        self.daemons[name].wait()

    def running(self, name):
        return "yes" if self.daemons[name].poll() is None else "no"

    def end_all(self):
        """A killed child's own children become ours: go on until there are none."""
        while children := children_of(os.getpid()):
            for pid in children:
                os.kill(pid, signal.SIGKILL)
            for pid in children:
                os.waitpid(pid, 0)


def children_of(parent):
    children = []
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # It has ended.
            continue
        if int(fields[1]) == parent:
            children.append(int(path.parent.name))
    return children


if __name__ == "__main__":
    for ignored in signal.SIGINT, signal.SIGTERM, signal.SIGHUP:
        signal.signal(ignored, signal.SIG_IGN)
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    guard = Guard(pathlib.Path(sys.argv[1]))
    try:
        guard.serve()
    finally:
        guard.end_all()
        shutil.rmtree(sys.argv[1], ignore_errors=True)
