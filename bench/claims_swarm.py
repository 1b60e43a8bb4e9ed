#!/usr/bin/env python3
"""make claims-swarm: what faults cost, measured again (about 4 minutes on 2 cores; LONG=1 takes half an hour more)."""
import functools
import json
import pathlib
import shutil
import sys
import tempfile

import link_speed
import swarm_faults
from claims import ATOLL, RESULTS, ROOT, Claims, code_hash
from soak import PATHS as soak_paths

sys.path.append(str(ROOT / "tests"))
import small_store  # noqa: E402

claims = Claims("swarm")
work = pathlib.Path(tempfile.mkdtemp(prefix="atoll-claims-"))
store = str(work / "store")
small_store.make_store(ATOLL, store, ["json", "logging", "asyncio"])
STORM_S, CUT_EVERY_S, CUTS = 600, 30, 10
PROTOCOL = ("atoll/swarm", "atoll/collective", "atoll/run", "atoll/island", "atoll/method",
            "atoll/sync", "atoll/net", "bench/swarm_faults.py")

# --- kill -9 of one of three islands ---


@functools.cache
def killed():
    return swarm_faults.kill_one(store, work / "kill")


claims.measured("one of three islands killed: the next commit is late by, seconds", lambda: killed()["delay_s"],
                lambda s: s <= 1, "<= 1.0", "{:.2f}")
claims.measured("the island again: from process start to verified member, seconds", lambda: killed()["return_s"],
                lambda s: s <= 3, "<= 3", "{:.2f}")
claims.measured("times its first commit was not the first that its rule allows", lambda: killed()["wrong_rounds"],
                lambda n: n == 0, "0", "{}")

# --- the coordinator killed again and again ---


@functools.cache
def coordinator_killed(every_s, turns):
    return swarm_faults.kill_coordinator(store, work / f"coordinator-{every_s}", every_s, turns)


claims.measured("coordinator killed 4 times: commits lost or doubled", lambda: coordinator_killed(5, 4)["wrong_commits"],
                lambda n: n == 0, "0", "{}")
claims.measured("and islands idle beyond its absence, seconds", lambda: coordinator_killed(5, 4)["idle_s"],
                lambda s: s <= 1, "<= 1.0", "{:.2f}")
claims.stored("coordinator-commits", f"coordinator killed each {CUT_EVERY_S} s, {CUTS} times: commits lost or doubled",
              lambda: coordinator_killed(CUT_EVERY_S, CUTS)["wrong_commits"], lambda n: n == 0, "0", "{}",
              "make claims-swarm LONG=1", PROTOCOL)
claims.stored("coordinator-idle", "and islands idle beyond its absence, seconds",
              lambda: coordinator_killed(CUT_EVERY_S, CUTS)["idle_s"], lambda s: s <= 1, "<= 1.0", "{:.2f}",
              "make claims-swarm LONG=1", PROTOCOL)

# --- a storm ---


@functools.cache
def storm(pace):
    # Of the small store a storm takes fifty passes, and what is compared then is how well it is known by heart.
    large = str(work / "large")
    small_store.make_store(ATOLL, large, ["asyncio", "collections", "concurrent", "ctypes", "email", "encodings", "html", "http", "importlib",
                                          "json", "logging", "multiprocessing", "unittest", "urllib", "wsgiref", "xml", "xmlrpc"])
    result = swarm_faults.storm(large, work / f"storm-{pace}", pace, STORM_S)
    print(f"storm, {pace}: {json.dumps(result)}", file=sys.stderr)
    return result


for pace, unit, least in (("elastic", "tokens", 0.97), ("lockstep", "commits", 0.93)):
    claims.stored(f"storm-{pace}", f"storm (4 islands of 0.45 core, {pace}): {unit}, of rate x share alive",
                  functools.partial(lambda pace, unit: storm(pace)[unit], pace, unit),
                  functools.partial(lambda least, share: share >= least, least), f">= {least}", "{:.3f}",
                  "make claims-swarm LONG=1", PROTOCOL)
    claims.stored(f"storm-{pace}-loss", "its loss above that of the run without faults, equal committed tokens",
                  functools.partial(lambda pace: storm(pace)["loss"], pace),
                  lambda difference: difference <= 0.005, "<= +0.5 %", "{:+.2%}", "make claims-swarm LONG=1", PROTOCOL)

# --- unequal speeds, a newcomer ---


@functools.cache
def one_slow():
    return swarm_faults.one_slow(store, work / "slow", "elastic")


claims.measured("two islands, one slowed 4x, elastic: share of their solo rates' sum", lambda: one_slow()["share"],
                lambda share: share >= 0.95, ">= 0.95", "{:.3f}")
claims.measured("and the share of its time that one waited for the other or for rows", lambda: one_slow()["waits"],
                lambda share: share <= 0.02, "<= 2 %", "{:.1%}")
# Below is no loss: of the same number of tokens the fast island takes more steps one after another than two equal ones.
claims.measured("and their loss above that of two equal islands in lockstep, equal committed tokens",
                lambda: swarm_faults.slow_loss(store, work / "slow-loss"), lambda above: above <= 0.01, "<= +1 %", "{:+.2%}")
claims.measured("a join over 100 Mbit/s: how much longer the others' rounds take",
                lambda: swarm_faults.join_cost(store, work / "join")["cost"], lambda cost: cost <= 0.05, "<= 5 %", "{:+.1%}")

# --- the exchange where one of four lines is slow, and on fast ones ---


@functools.cache
def slow_line():
    result = swarm_faults.slow_line(store, work / "slow-line")
    print("exchange with a slow line: {equal_s:.2f} s with equal shares, {later_s:.2f} s by what lines carry".format(**result), file=sys.stderr)
    return result


claims.measured("exchange of 4 islands, one on 20 Mbit/s: times what that line needs at least",
                lambda: slow_line()["later_s"] / slow_line()["least_s"], lambda times: times <= 1.1, "<= 1.1")

LINK_ROUNDS = 7
claims.measured("share of 500 Mbit/s, 100 ms round trip, that an exchange carries",
                lambda: link_speed.wan_share(LINK_ROUNDS), lambda share: share >= 0.9, ">= 0.9")
claims.measured("GB/s of encoded bytes over loopback, both directions",
                lambda: link_speed.loopback_gigabytes(LINK_ROUNDS), lambda rate: rate >= 1, ">= 1")

# --- the simulator: bench/results/soak.json, kept by make soak ---


def soak():
    return json.loads((RESULTS / "soak.json").read_text())


if (RESULTS / "soak.json").exists():
    claims.kept("simulator seeds without a violation", lambda: soak()["seeds"] if not soak()["violations"] else 0,
                lambda seeds: seeds >= 10000, ">= 10000", lambda: soak()["code"] == code_hash(soak_paths), "{:,}")
else:
    print("bench/results/soak.json is not there: no simulator seeds are stored", file=sys.stderr)
shutil.rmtree(work)
sys.exit(claims.end())
