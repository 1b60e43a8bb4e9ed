"""Servers that compute something else than their model, and honest ones that differ, for claims_serving.py: how many tokens pass a liar
until it is caught, and whether somebody is accused falsely."""
import concurrent.futures
import contextlib
import functools
import json
import os
import pathlib
import re
import shutil
import sys
import threading
import time

from claims import ATOLL, run
from lying_model import become, copy_of, in_4_bits, lie
from serving_swarm import Asked, ServingSwarm, ask, complete, post

TEXT = pathlib.Path(json.__file__).read_text()
LIES = {"int4": "weights in int4 for bf16", "other": "another checkpoint (8 steps on)", "noise": "1 % of noise"}
NUM_HONEST = int(os.environ.get("HONEST_TOKENS", 10_000))
WIRES = ("fp32", "bf16", "int8")  # Each has a third of the tokens.
NUM_STORED = 334_000  # By each wire: a million of them all.
NUM_AVX2, NUM_AVX2_MEASURED = 1000, 48  # Of these, and of what is measured: an emulated processor is some hundred times as slow.
THREADS = (1, 2, os.cpu_count())  # Of the three honest servers.
PROMPT_TOKENS = 400
AVX2_PROMPT_TOKENS, AVX2_MAX_TOKENS = 16, 8  # Of each text, so that a pass of the emulated server stays within a few seconds.
AUDITS_S = 2  # For audits to come to what was made.


def count(url, name):
    return int(re.search(rf"^{name}\{{.*\}} (\d+)$", ask(url, "/metrics"), re.M).group(1))


def other_checkpoint(model, work):
    """The model, trained on for some steps."""
    (work / "more.txt").write_text(TEXT * 4)
    run([ATOLL, "data", "pack", work / "more.txt", "--tokenizer", model, "--out", work / "more"])
    run(list(map(str, [ATOLL, "train", "--init", model, "--data", work / "more", "--run", work / "trained", "--train.steps=8", "--train.warmup_steps=0",
                       "--train.batch_rows=2", "--train.sequence_length=64", "--train.eval_rows=2", "--train.lr=0.0001"])))
    run(list(map(str, [ATOLL, "convert", work / "trained", work / "trained-bf16", "--dtype", "bf16"])))
    return work / "trained-bf16"


def start_liar(swarm, kind, span, model, work):
    if kind == "noise":
        begin, end = span.split(":")
        swarm.spans["liar"] = span
        program, swarm.atoll = swarm.atoll, f"{ATOLL}-rogue-server"
        swarm.start("liar", [swarm.port.address, model, "liar", begin, end, 1, "open"], r"serves at \S+")
        swarm.atoll = program
        return
    folder = copy_of(model, work / f"liar-{kind}")
    other = other_checkpoint(model, work) if kind != "int4" else None
    swarm.serve("liar", span, model=folder)
    if other is None:
        lie(folder, in_4_bits)
    else:
        become(folder, other)


def served_until_caught(kind, model, spans, work):
    """Tokens: one text after another, each of 20 tokens and 40 more, so that its span is the liar's for all of them."""
    swarm = ServingSwarm(ATOLL, model, work / f"swarm-{kind}")
    try:
        swarm.coordinate()
        swarm.serve("s0", spans[0])
        start_liar(swarm, kind, spans[1], model, work)
        swarm.serve("s2", spans[2])
        url = swarm.gateway("g")
        swarm.wait_whole(url)
        caught = threading.Event()

        def watch():
            while not caught.is_set():
                if count(url, "atoll_liars_total"):
                    caught.set()
                time.sleep(0.01)
        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        ids = post(url, "/tokenize", {"prompt": TEXT})["tokens"]
        served = 2.0
        for number in range(100):
            asked = Asked(url, prompt=ids[50 * number : 50 * number + 20], max_tokens=40, temperature=0.8, seed=number, logit_bias={"0": -100, "2": -100})
            while asked.is_under_way() and not caught.is_set():
                time.sleep(0.01)
            if caught.is_set():
                print(f"{kind}: {swarm.log('g').strip().splitlines()[-1]}", file=sys.stderr)
                return served + 20 + len(asked.pieces)
            served += 59  # The last one is not read.
        raise RuntimeError(f"the liar was not caught in {served} tokens")
    finally:
        caught.set()
        swarm.end()
        shutil.rmtree(swarm.folder)
        shutil.rmtree(work / f"liar-{kind}", ignore_errors=True)


@contextlib.contextmanager
def honest(model, spans, work, wire, others=()):
    """Servers with other numbers of threads, all of whose tokens are audited; `others`: what the middle one runs in."""
    swarm = ServingSwarm(ATOLL, model, work / "honest")
    try:
        swarm.coordinate()
        for number, (span, threads) in enumerate(zip(spans, THREADS)):
            swarm.threads = threads
            swarm.atoll = f"{ATOLL}-torch" if number == 1 and others else ATOLL  # The emulator follows into no other program.
            swarm.serve(f"s{number}", span, around=others if number == 1 else ())
        swarm.atoll = ATOLL
        url = swarm.gateway("g", "--audit", 1, "--wire", wire)
        swarm.wait_whole(url)
        yield url
    finally:
        swarm.end()
        shutil.rmtree(swarm.folder)


def false_alarms(model, spans, work, wire, wanted):
    """Servers that are accused in so many audited tokens of texts that are read 16 at a time."""
    with honest(model, spans, work, wire) as url, concurrent.futures.ThreadPoolExecutor(16) as pool:
        ids = post(url, "/tokenize", {"prompt": TEXT * 3})["tokens"]

        def one(number):
            begin = number * 17 % (len(ids) - PROMPT_TOKENS)
            complete(url, prompt=ids[begin : begin + PROMPT_TOKENS - number % 7], max_tokens=24, temperature=1, seed=number)
        number = 0
        while count(url, "atoll_audited_tokens_total") < wanted and not count(url, "atoll_liars_total"):
            list(pool.map(one, range(number, number + 16)))
            number += 16
            audits_settle(url)
        return reported(wire, url)


def audits_settle(url):
    """Audits yield to all else: while texts are read few of them come to their end, and what is not recomputed in time never is."""
    before = None
    while before != (before := count(url, "atoll_audited_tokens_total")):
        time.sleep(AUDITS_S)


def reported(what, url):
    print(f"{what}: {count(url, 'atoll_audited_tokens_total')} tokens were audited", file=sys.stderr)
    return count(url, "atoll_liars_total")


def emulator():
    """Words before a program that run it on a processor with AVX2 and no AVX-512; empty where there is no emulator."""
    qemu = shutil.which("qemu-x86_64-static") or shutil.which("qemu-x86_64")
    return (qemu, "-cpu", "Haswell") if qemu else ()


def with_small_middle(spans):
    """The same three spans, but two layers for the middle server."""
    num_layers = int(spans[-1].split(":")[1])
    middle = num_layers // 2
    return [f"0:{middle - 1}", f"{middle - 1}:{middle + 1}", f"{middle + 1}:{num_layers}"]


def false_alarms_on_avx2(model, spans, work, wire, wanted):
    """Servers that are accused in so many audited tokens, one short text after another, where the middle one computes two layers with AVX2 alone."""
    if not emulator():
        raise RuntimeError("there is no emulator: apt-get install qemu-user-static")
    with honest(model, with_small_middle(spans), work, wire, emulator()) as url:
        ids = post(url, "/tokenize", {"prompt": TEXT})["tokens"]
        number = 0
        while count(url, "atoll_audited_tokens_total") < wanted and not count(url, "atoll_liars_total"):
            begin = number * 17 % (len(ids) - AVX2_PROMPT_TOKENS)
            complete(url, prompt=ids[begin : begin + AVX2_PROMPT_TOKENS], max_tokens=AVX2_MAX_TOKENS, temperature=1, seed=number)
            number += 1
            if number > wanted:
                raise RuntimeError(f"{number} texts, and only {count(url, 'atoll_audited_tokens_total')} tokens are audited")
            time.sleep(AUDITS_S)
        return reported(f"AVX2, {wire}", url)


def all_false_alarms(model, spans, work, wire, wanted):
    """Those in so many tokens, of which NUM_AVX2 pass a server with AVX2 alone, where there is an emulator for it."""
    num_avx2 = NUM_AVX2 if emulator() else 0
    if not num_avx2:
        print("there is no emulator: all servers have one instruction set", file=sys.stderr)
    found = false_alarms(model, spans, work, wire, wanted - num_avx2)
    return found + (false_alarms_on_avx2(model, spans, work, wire, num_avx2) if num_avx2 else 0)


def add(claims, model, spans, work):
    """The claims about liars; `model()` is the folder, `spans()` the layers of three servers."""
    for kind, what in LIES.items():
        claims.measured(f"one token in eight audited: a server with {what}: tokens until caught",
                        functools.partial(lambda kind: served_until_caught(kind, model(), spans(), work), kind), lambda n: n <= 300, "<= 300", "{:.0f}")
    what = "other threads and batches"
    share = NUM_HONEST // len(WIRES)
    claims.measured(f"honest servers, {what}, {share:,} tokens each by {', '.join(WIRES)}: accused",
                    lambda: sum(false_alarms(model(), spans(), work, wire, share) for wire in WIRES), lambda n: n == 0, "0", "{}")
    claims.measured(f"one of them with AVX2 alone, which is emulated: accused in {NUM_AVX2_MEASURED} tokens",
                    lambda: false_alarms_on_avx2(model(), spans(), work, "fp32", NUM_AVX2_MEASURED), lambda n: n == 0, "0", "{}")
    for wire in WIRES:
        claims.stored(f"honest-{wire}", f"honest servers, {what}, {wire}, {NUM_AVX2:,} tokens by AVX2: accused in {NUM_STORED:,} tokens",
                      lambda wire=wire: all_false_alarms(model(), spans(), work, wire, NUM_STORED), lambda n: n == 0, "0", "{}",
                      "LONG=honest make claims-serving")
