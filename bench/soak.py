#!/usr/bin/env python3
"""make soak: seeds of the simulation for MINUTES (60), from where the last soak ended; keeps what came of
them in bench/results/soak.json. Exit 1 and the line that replays it when an invariant does not hold.

All stored seeds were run by the program whose code hash stands with them; other code begins again at 0.
"""
import json
import os
import platform
import sys
import time

from claims import RESULTS, ROOT, code_hash, last_json, run

import subprocess

PATHS = ("atoll/base", "atoll/codec", "atoll/collective", "atoll/net", "atoll/sim", "atoll/swarm", "atoll/testing",
         "cmake")
BINARY = "build/bin/collective_simulation_seeds_test"


def main():
    minutes = os.environ.get("MINUTES", "60")
    file = RESULTS / "soak.json"
    code = code_hash(PATHS)
    before = json.loads(file.read_text()) if file.exists() else {}
    if before.get("code") != code or before.get("violations"):
        before = {"seeds": 0, "commits": 0, "simulated_hours": 0, "seconds": 0}
    environment = dict(os.environ, ATOLL_SIM_MINUTES=minutes, ATOLL_SIM_FIRST=str(before["seeds"]))
    environment.pop("ATOLL_SIM_SEED", None)
    environment.pop("ATOLL_SIM_SEEDS", None)
    command = [BINARY, "--gtest_filter=SimulationTest.Seeds"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    lines = [line for line in done.stdout.split("\n") if line.startswith("{")]
    if not lines:
        sys.exit(f"the simulation ended without a result:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    result = last_json(lines[-1])
    kept = {
        "seeds": before["seeds"] + result["seeds"],
        "violations": result["violations"],
        "commits": before["commits"] + result["commits"],
        "simulated_hours": round(before["simulated_hours"] + result["simulated_hours"], 1),
        "seconds": before["seconds"] + result["seconds"],
        "commit": run(["git", "rev-parse", "--short", "HEAD"]).strip(),
        "command": f"make soak MINUTES={minutes}",
        "code": code,
        "machine": f"{os.cpu_count()} cores, {platform.machine()}",
        "date": time.strftime("%Y-%m-%d"),
    }
    RESULTS.mkdir(exist_ok=True)
    file.write_text(json.dumps(kept, indent=1) + "\n")
    print(json.dumps(kept))
    if result["violations"]:
        sys.exit(done.stdout[-6000:])


if __name__ == "__main__":
    main()
