#!/usr/bin/env python3
"""How long a checkpoint of a 30 M model holds training up, at most. Each has the time to reach the disk before the next.

usage: checkpoint_stall.py [STORE]
"""
import json
import subprocess
import sys
import tempfile

from claims import ATOLL


def main():
    data = ["--data", sys.argv[1]] if len(sys.argv) > 1 else []
    settings = {"model.hidden_size": 512, "model.intermediate_size": 1536, "model.num_layers": 9,
                "model.num_heads": 8, "model.num_kv_heads": 4, "train.steps": 81, "train.batch_rows": 4,
                "train.sequence_length": 128, "train.warmup_steps": 1, "train.eval_rows": 1,
                "train.checkpoint_every": 40, "sync.method": "diloco"}
    with tempfile.TemporaryDirectory() as folder:
        command = [ATOLL, "train", "--run", f"{folder}/run", "--json", *data]
        command += [f"--{name}={value}" for name, value in settings.items()]
        summary = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    print(json.dumps({"stall_ms": summary["checkpoint_stall_ms"], "num_parameters": summary["num_parameters"]}))


if __name__ == "__main__":
    main()
