#!/usr/bin/env python3
"""make claims-lora: an adapter of SmolLM2-135M trained here, and through three servers of its layers; served.py says which model.

The text is that of claims: Python files of pinned packages.
"""
import functools
import hashlib
import json
import pathlib
import shutil
import sys
import threading
import time

import corpus
from claims import ATOLL, ROOT, Claims, run
from served import CODE, THREADS, model, spans, work
from serving_swarm import ServingSwarm

TEXT_BYTES = 1_500_000
claims = Claims("lora", (*CODE, "atoll/island", "atoll/run", "atoll/sync", "atoll/train"))
LORA = ["--adapter", "lora", "--adapter.rank=8", "--train.optimizer=adamw", "--train.lr=1e-3", "--train.weight_decay=0", "--train.eval_rows=8",
        "--train.z_loss=0"]


@functools.cache
def store():
    texts = work / "texts"
    corpus.write(texts, TEXT_BYTES)
    run([ATOLL, "data", "pack", texts, "--tokenizer", pathlib.Path(model()) / "tokenizer.json", "--out", work / "store", "--validation-share", "0.2",
         "--json"])
    return work / "store"


def command(name, *words):
    return [ATOLL, "train", "--frozen", model(), "--run", work / name, "--data", store(), *LORA, f"--train.threads={THREADS}", "--json", *words]


def train(name, *words):
    """The summary, and the digest of the adapter's file."""
    summary = json.loads(run(list(map(str, command(name, *words)))).strip().split("\n")[-1])
    folder = max((work / name / "checkpoints").iterdir())
    return summary, hashlib.sha256((folder / "adapter_model.safetensors").read_bytes()).hexdigest()


class Swarm:
    """Three servers of the model's layers, and one more of the middle third where that is to die."""

    def __init__(self, spare=False):
        self.swarm = ServingSwarm(ATOLL, model(), work / "swarm", THREADS)
        self.spare = spare

    def __enter__(self):
        self.swarm.coordinate()
        for number, span in enumerate(spans(3)):
            self.swarm.serve(f"s{number}", span)
        if self.spare:
            self.swarm.serve("spare", spans(3)[1])
        return self.swarm

    def __exit__(self, *error):
        self.swarm.end()
        shutil.rmtree(self.swarm.folder)


# --- the same bits ---
STEPS = 200
SHORT = ("--train.steps=200", "--train.batch_rows=2", "--train.micro_batch_rows=1", "--train.sequence_length=32", "--train.log_every=5")


@functools.cache
def here():
    return train("here", *SHORT)


def busiest(swarm):
    """Of the two servers of the middle third the one that computes."""
    spent = swarm.busy(2.0)
    return max(("s1", "spare"), key=spent.get)


@functools.cache
def through_servers():
    """200 steps, a kill of the server in use after some 60 of them."""
    killed = []
    with Swarm(spare=True) as swarm:
        def kill():
            metrics = work / "there" / "metrics.jsonl"
            while not metrics.exists() or len(metrics.read_text().splitlines()) < 12:
                time.sleep(0.2)
            killed.append(busiest(swarm))
            swarm.kill(killed[0])
        thread = threading.Thread(target=kill, daemon=True)
        thread.start()
        found = train("there", "--servers", swarm.port.address, *SHORT)
        thread.join(1)
    if not killed:
        raise RuntimeError("training was over before a server was killed")
    return found


def num_other_bits():
    (one, one_digest), (other, other_digest) = here(), through_servers()
    same = one_digest == other_digest and one["train_loss"] == other["train_loss"] and one["val_loss"] == other["val_loss"]
    assert one["steps"] == other["steps"] == STEPS
    return 0 if same else 1


# --- speed ---
WIDE = ("--train.steps=6", "--train.batch_rows=8", "--train.micro_batch_rows=2", "--train.sequence_length=128", "--train.log_every=1",
        "--train.eval_rows=1")


def share_of_local_speed():
    alone, _ = train("fast-here", *WIDE)
    with Swarm() as swarm:
        there, _ = train("fast-there", "--servers", swarm.port.address, *WIDE)
    return there["tokens_per_s"] / alone["tokens_per_s"]


# --- PEFT ---
def largest_difference():
    """Between the loss that Atoll says of the last step's batch and PEFT's, by the adapter from before that step."""
    code = """
import json, sys, peft, torch, transformers
base, adapter, rows = sys.argv[1:]
plain = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
model = peft.PeftModel.from_pretrained(plain, adapter).eval()
ids = torch.tensor(json.loads(rows))
with torch.no_grad():
    logits = model(ids).logits[:, :-1]
print(torch.nn.functional.cross_entropy(logits.flatten(0, 1).double(), ids[:, 1:].flatten()).item())
"""
    summary, _ = train("peft", "--train.steps=20", "--train.batch_rows=2", "--train.sequence_length=64", "--train.checkpoint_every=1",
                       "--train.keep_checkpoints=0", "--train.log_every=1", "--train.min_lr_ratio=1")
    batch = json.loads(run([ATOLL, "data", "batch", store(), "--step", "19", "--batch-rows", "2", "--sequence-length", "64", "--seed", "1", "--json"]))
    rows = json.dumps([row["ids"] for row in batch["rows"]])
    found = float(run([sys.executable, "-c", code, model(), work / "peft" / "checkpoints" / "step-00000019", rows]).split()[-1])
    return abs(found - summary["train_loss"])


# --- islands ---
def share_of_waiting():
    """Of three islands with links of 56 kbit/s, one thread each, whose rounds are on their way while they go on."""
    words = ["--islands", 3, "--link-rate", "56kbit", "--sync.method=streaming_diloco", "--sync.codec=int4", "--sync.sync_every=20",
             "--sync.num_fragments=2", "--sync.fragment_sync_delay=9", "--train.steps=40", "--train.batch_rows=6", "--train.micro_batch_rows=2",
             "--train.sequence_length=64", "--adapter.rank=2", "--train.threads=1", "--train.eval_rows=4"]
    done = run([str(word) for word in command("islands", *words)])
    return json.loads(done.strip().split("\n")[-1])["stall_share"]


def main():
    try:
        claims.measured("200 steps through three servers, one killed: other bits than here", num_other_bits, lambda n: n == 0, "0", "{:.0f}")
        claims.measured("tokens/s through three servers, of those here", share_of_local_speed, lambda share: share >= 0.5, ">= 0.5", "{:.2f}")
        claims.measured("validation loss after 200 steps, less than at the start by", lambda: here()[0]["val_loss_start"] - here()[0]["val_loss"],
                        lambda fall: fall > 0.02, "> 0.02 nats", "{:.3f}")
        claims.measured("PEFT's loss by the adapter's files, beside Atoll's: difference", largest_difference, lambda diff: diff < 1e-4, "< 1e-4", "{:.1e}")
        claims.stored("islands", "three islands over 56 kbit/s wait, of their time", share_of_waiting, lambda share: share <= 0.1, "<= 0.10", "{:.3f}",
                      "LONG=islands make claims-lora")
        return claims.end()
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
