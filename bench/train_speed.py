#!/usr/bin/env python3
"""Training speed of Atoll beside plain PyTorch: same model, batch and threads, in turns, in one run.

  train_speed.py ATOLL [--size demo|30m|34m|135m] [--precision fp32|tf32|bf16] [--threads 1,2] [--rounds 5] [--steps 1]
                 [--beside eager,compile] [--device cpu|cuda] [--only-pytorch]

PyTorch is given its best (bench/pytorch_step.py): eager mode and torch.compile in its default mode, each with separate and with merged
projections, in BF16 by autocast and with BF16 weights. First each variant makes a few steps alone, after which the fastest of each mode
stay, and those within 3 % of them if memory allows. Then all programs that stayed wait side by side, and in each round each makes its
steps, one program after the other. A variant's figure is the median over the rounds; a ratio is the median of the rounds' ratios to the
mode's best variant. Memory is the process's VmHWM; on a device the most that the allocator gave out. The share is of the fastest product
of matrices that Atoll or PyTorch makes here in that precision, by the count of `atoll bench --help`. tf32: Atoll's products stay FP32.
Prints one JSON object.
"""
import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from pytorch_step import SIZES, operations_per_token

WORKER = str(pathlib.Path(__file__).resolve().parent / "pytorch_step.py")
KEYS = {"hidden": "model.hidden_size", "intermediate": "model.intermediate_size", "layers": "model.num_layers",
        "heads": "model.num_heads", "kv_heads": "model.num_kv_heads", "vocab": "model.vocab_size",
        "rows": "train.batch_rows", "length": "train.sequence_length"}
CLOSE = 1.03  # A variant this much slower than the best of its mode may be the best on another day.
MEMORY_SHARE = 0.7  # Of the machine's, for all that wait side by side.


def pytorch_variants(precision, modes):
    """(mode, name, words for pytorch_step.py)."""
    ways = {"fp32": ("fp32",), "tf32": ("tf32",), "bf16": ("autocast", "bf16")}[precision]
    for mode in modes:
        for way in ways:
            for merged in ("separate", "merged"):
                words = ["--precision", way] + ["--merged"] * (merged == "merged") + ["--compile"] * (mode == "compile")
                yield mode, f"{mode}, {way}, {merged}", words


class Program:
    """Makes steps when it is told to."""

    def __init__(self, mode, name, command, threads, tokens):
        self.mode, self.name, self.tokens = mode, name, tokens
        self.rates = []
        self.errors = tempfile.TemporaryFile(mode="w+")
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True,
                                        env=os.environ | {"OMP_NUM_THREADS": str(threads)})

    def said(self):
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            self.errors.seek(0)
            raise RuntimeError(f"{self.name} ended with {self.process.returncode}: {self.errors.read()[-1500:]}")
        return json.loads(line)

    def steps(self, count, warms_up=False):
        """Tokens per second of so many steps."""
        took_ms = 0
        for _ in range(count):
            with contextlib.suppress(BrokenPipeError):  # said() tells why.
                self.process.stdin.write("\n")
                self.process.stdin.flush()
            took_ms += self.said()["step_ms"]
        rate = count * self.tokens / took_ms * 1e3
        if not warms_up:
            self.rates.append(rate)
        return rate

    def summary(self):
        self.process.stdin.close()
        summary = self.said()
        self.process.wait()
        return summary

    def end(self):
        self.process.kill()
        self.process.wait()
        self.errors.close()


def atoll_command(arguments, size, threads):
    settings = [f"--{KEYS[key]}={value}" for key, value in size.items() if key in KEYS]
    if not size["tied"]:
        settings.append("--model.tie_embeddings=false")
    if arguments.precision == "bf16":
        settings.append("--train.precision=bf16")
    return [arguments.atoll, "bench", "train-step", "--in-turns", "--warmup=0", f"--train.threads={threads}",
            f"--train.device={arguments.device}", *settings]


def start(arguments, variant, threads):
    size = SIZES[arguments.size]
    mode, name, words = variant
    command = words if mode == "atoll" else [sys.executable, WORKER, arguments.size, "--threads", str(threads), "--device", arguments.device, *words]
    return Program(mode, name, command, threads, size["rows"] * size["length"])


def say(text):
    print(text, file=sys.stderr, flush=True)


def probe(arguments, variant, threads):
    """Tokens per second of a few steps, and peak memory."""
    program = start(arguments, variant, threads)
    try:
        program.steps(2, warms_up=True)  # torch.compile compiles in the first one.
        rate = max(program.steps(1), program.steps(1))
        memory = program.summary()["peak_memory_bytes"]
        say(f"  alone: {variant[1]}: {rate:.0f} tokens/s, {memory / 1e9:.2f} GB")
        return rate, memory
    finally:
        program.end()


def machine_bytes():
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def chosen(arguments, modes, threads):
    """The variants that take part in the rounds, the fastest of each mode first."""
    probed = {}
    for variant in pytorch_variants(arguments.precision, modes):
        probed[variant[1]] = (variant, *probe(arguments, variant, threads))
    best, others, held = [], [], 0
    for mode in modes:
        ranked = sorted((one for one in probed.values() if one[0][0] == mode), key=lambda one: -one[1])
        best.append(ranked[0][0])
        held += ranked[0][2]
        others += [one for one in ranked[1:] if one[1] * CLOSE >= ranked[0][1]]
    held += max((one[2] for one in probed.values()), default=0)  # Atoll's, which takes less.
    for variant, _, memory in others:
        if arguments.device == "cpu" and held + memory > MEMORY_SHARE * machine_bytes():
            say(f"  left out, as memory would not do for all: {variant[1]}")
            continue
        held += memory
        best.append(variant)
    return best


def side_by_side(arguments, variants, threads):
    """All programs after the rounds, and their summaries."""
    with contextlib.ExitStack() as stack:
        programs = []
        for variant in variants:
            programs.append(start(arguments, variant, threads))
            stack.callback(programs[-1].end)
            programs[-1].steps(2, warms_up=True)
        for number in range(arguments.rounds):
            rates = [program.steps(arguments.steps) for program in programs]
            say(f"  round {number + 1}: " + "; ".join(f"{program.name} {rate:.0f}" for program, rate in zip(programs, rates)))
        return programs, [program.summary() for program in programs]


def peaks(arguments, threads):
    """Operations per second by precision, the larger of both programs', and the device's name."""
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    theirs = subprocess.run([sys.executable, WORKER, arguments.size, "--peak", "--threads", str(threads), "--device", arguments.device],
                            capture_output=True, text=True, check=True, env=environment).stdout
    found = json.loads(theirs)
    if not arguments.only_pytorch:
        ours = subprocess.run([arguments.atoll, "bench", "peak", "--json", "--threads", str(threads), "--device", arguments.device],
                              capture_output=True, text=True, check=True, env=environment).stdout
        for product in json.loads(ours)["products"]:
            name = product["precision"]
            found["flops_per_s"][name] = max(found["flops_per_s"][name], product["flops_per_s"])
    return found["name"], found["flops_per_s"]


def measure(arguments, threads, variants):
    say(f"{arguments.size}, {arguments.precision}, {threads} thread(s)")
    name, peak = peaks(arguments, threads)
    ours = [] if arguments.only_pytorch else [("atoll", "atoll", atoll_command(arguments, SIZES[arguments.size], threads))]
    programs, summaries = side_by_side(arguments, ours + variants, threads)
    if len({summary["parameters"] for summary in summaries}) != 1:
        raise RuntimeError(f"the models differ: {[(p.name, s['parameters']) for p, s in zip(programs, summaries)]}")
    operations = operations_per_token(SIZES[arguments.size])
    table = {"device_name": name, "peak_flops_per_s": peak, "parameters": summaries[0]["parameters"], "programs": {}}
    best = {}
    for program, summary in zip(programs, summaries):
        rate = statistics.median(program.rates)
        table["programs"][program.name] = {
            "mode": program.mode, "tokens_per_s": rate, "rounds": program.rates, "peak_memory_bytes": summary["peak_memory_bytes"],
            "share_of_peak": rate * operations / peak["fp32" if arguments.precision == "tf32" and program.mode == "atoll" else arguments.precision]}
        if program.mode not in best or rate > statistics.median(best[program.mode].rates):
            best[program.mode] = program
    for mode, program in best.items():
        table[mode] = {"name": program.name, **{key: value for key, value in table["programs"][program.name].items() if key != "rounds"}}
        if mode != "atoll" and "atoll" in best:
            ratios = [us / them for us, them in zip(best["atoll"].rates, program.rates)]
            table[mode] |= {"ratio": statistics.median(ratios), "ratio_min": min(ratios), "ratio_max": max(ratios)}
            table[mode]["memory_ratio"] = (table["programs"]["atoll"]["peak_memory_bytes"] /
                                           table["programs"][program.name]["peak_memory_bytes"])
    return table


def results(arguments):
    modes = arguments.beside.split(",")
    threads = list(map(int, arguments.threads.split(",")))
    with tempfile.TemporaryDirectory(prefix="atoll-inductor-") as cache:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache  # The second start of a variant need not compile.
        say(f"{arguments.size}, {arguments.precision}: which variants of PyTorch are its best, {max(threads)} thread(s)")
        variants = chosen(arguments, modes, max(threads))
        found = {"size": arguments.size, "precision": arguments.precision, "device": arguments.device, "rounds": arguments.rounds,
                 "threads": {str(count): measure(arguments, count, variants) for count in threads}}
    for mode in modes:
        if not arguments.only_pytorch:
            found["ratio" if mode == "eager" else f"ratio_{mode}"] = min(table[mode]["ratio"] for table in found["threads"].values())
    return found


def parsed(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("atoll", nargs="?")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=0, help="in each turn; 0: one, eight of the demo's")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--size", choices=SIZES, default="demo")
    parser.add_argument("--precision", choices=("fp32", "tf32", "bf16"), default="fp32")
    parser.add_argument("--beside", default="eager", help="eager, compile, or both with a comma")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only-pytorch", action="store_true")
    arguments = parser.parse_args(words)
    if not arguments.atoll and not arguments.only_pytorch:
        parser.error("which ATOLL? build/bin/atoll, or --only-pytorch")
    if not set(arguments.beside.split(",")) <= {"eager", "compile"}:
        parser.error("--beside: eager, compile, or both with a comma")
    if arguments.precision == "tf32" and arguments.device == "cpu":
        parser.error("--precision tf32 is for CUDA")
    if arguments.steps == 0:
        arguments.steps = 8 if arguments.size == "demo" or arguments.device != "cpu" else 1
    return arguments


def main():
    try:
        print(json.dumps(results(parsed())))
    except RuntimeError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
