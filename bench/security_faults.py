"""What an island costs the others that sends what spoils a mean: runs of real processes (tests/processes/swarm_run.py)."""
import sys
import time

from claims import ATOLL, ROOT

sys.path[:0] = [str(ROOT / "tests" / "processes")]
from swarm_run import SwarmRun  # noqa: E402

HONEST = "abcd"
ROWS = 4  # Of each island in each step, with the rogue or without it.
STEPS, PERIOD = 600, 20
# About 0.1 million parameters; a rogue changes values of FP32 (tests/processes/rogue_island.cpp).
SMALL = {"model.hidden_size": 64, "model.intermediate_size": 128, "model.num_layers": 2, "model.max_positions": 64,
         "train.sequence_length": 64, "train.steps": STEPS, "train.eval_rows": 256, "sync.sync_every": PERIOD,
         "sync.codec": "fp32", "train.lr": 3e-3, "train.warmup_steps": 60,
         # Plain means: with momentum so few rounds end at losses that other rows of the same text make 5 % higher or lower; so 0.3 %.
         "sync.outer_lr": 1, "sync.outer_momentum": 0}


def settings(num_islands):
    return {**SMALL, "train.batch_rows": ROWS * num_islands, "swarm.replicas": num_islands}


def clean(store, folder):
    """The loss of a run of the honest islands alone."""
    run = SwarmRun(ATOLL, store, folder, settings(len(HONEST)))
    try:
        run.coordinate()
        for name in HONEST:
            run.join(name)
        return run.finished()["a"]["val_loss"]
    finally:
        run.kill_all()


def poisoned(store, folder, how):
    """One of five contributes what is wrong in this way from its first round on, and comes back each time that it gives up; the
    coordinator is killed and started again on the way. The others' loss, in how many rounds it was and counted, and its offences."""
    run = SwarmRun(ATOLL, store, folder, settings(len(HONEST) + 1))
    try:
        run.coordinate()
        for name in HONEST:
            run.join(name)
        run.join_rogue("rogue", how, 0)
        run.wait_event("run_begun", step=0)
        is_killed = False
        while run.processes["a"].poll() is None:
            if run.processes["rogue"].poll() is not None:
                run.join_rogue("rogue", how, 0)
            if not is_killed and len(run.commits()) >= STEPS // PERIOD // 3:
                run.kill("coordinator")
                time.sleep(0.3)
                run.coordinate()
                is_killed = True
            time.sleep(0.05)
        run.kill("rogue")
        del run.processes["rogue"]
        summaries = run.finished()
        journal = run.journal()
        rogues = {number for number, name in journal.names.items() if name == "rogue"}
        parts = [weight for commit in journal.commits for number, weight in zip(commit.members, commit.weights) if number in rogues]
        left_out = [event for event in run.events().all() if event["kind"] == "island_left_out"]
        return {"loss": summaries["a"]["val_loss"], "rounds": len(journal.commits), "in": len(parts),
                "counted": sum(weight > 0 for weight in parts), "terms": len(journal.terms),
                "offences": sorted({event["offence"] for event in left_out if event["island"] == "rogue"}),
                "honest_left_out": sum(event["island"] != "rogue" for event in left_out)}
    finally:
        run.kill_all()
