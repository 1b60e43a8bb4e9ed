#!/usr/bin/env python3
"""How much of their speed two islands keep on a slow line, method by method.

  limited_link.py ATOLL STORE [--steps 121]

Two islands of one thread train a model of about 2 M parameters. First without a limit and without an exchange before the
end: that is the compute speed. From it follows the rate at which plain DiLoCo (FP32, H = 30) would travel as long as it
computes, and the one at which FP32 data-parallel would travel nine times as long. Then each method trains at its rate
(`--link-rate`, the sender's own pacing). The run's last sync, which nothing can hide, is left out: speed and stall are
those of the step before it. Stall is the mean of the two islands, as in a run's summary; it holds what the faster one waits
for the slower (their speeds without an exchange are in the output). Prints one JSON object; utilisation is tokens per second
over the compute speed.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

H = 30
MODEL = {"model.hidden_size": 192, "model.intermediate_size": 512, "model.num_layers": 4, "model.num_heads": 6,
         "model.num_kv_heads": 2, "model.max_positions": 128, "train.sequence_length": 128, "train.batch_rows": 32,
         "train.threads": 1, "train.log_every": 1, "train.eval_rows": 8, "train.checkpoint_every": 0}


def train(arguments, name, rate, **settings):
    """Speed and stall before the last sync, and the parameter count."""
    with tempfile.TemporaryDirectory() as folder:
        words = [arguments.atoll, "train", "--islands", "2", "--run", folder + "/run", "--data", arguments.store, "--json"]
        if rate:
            words += ["--link-rate", f"{rate / 1e6:.4f}mbit"]
        every = MODEL | {"train.steps": arguments.steps} | {key.replace("__", "."): value for key, value in settings.items()}
        words += [f"--{key}={value}" for key, value in every.items()]
        summary = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip().split("\n")[-1])
        lines = [json.loads(line) for island in sorted(pathlib.Path(folder).glob("run/island-*/metrics.jsonl"))
                 for line in island.read_text().splitlines()]
    last = [line for line in lines if line["step"] == arguments.steps - 1]
    return {"method": name, "rate_mbit": rate / 1e6 if rate else None, "parameters": summary["num_parameters"],
            "tokens_per_s": sum(line["tokens_per_s"] for line in last),
            "island_tokens_per_s": [line["tokens_per_s"] for line in last],
            "island_stall_share": [line["stall_share"] for line in last],
            "stall_share": statistics.mean(line["stall_share"] for line in last)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("atoll")
    parser.add_argument("store")
    parser.add_argument("--steps", type=int, default=121)
    arguments = parser.parse_args()
    free = train(arguments, "no exchange", None, sync__method="diloco", sync__sync_every=10 ** 6)
    bits = 32 * free["parameters"]
    tokens = MODEL["train.batch_rows"] * MODEL["train.sequence_length"]
    step_s = tokens / free["tokens_per_s"]
    half, tenth = bits / (H * step_s), bits / (9 * step_s)
    streaming = {"sync__method": "streaming_diloco", "sync__sync_every": H, "sync__codec": "e3m0", "sync__num_fragments": 8,
                 "sync__fragment_pattern": "balanced", "sync__fragment_sync_delay": 1}
    out = {"no_exchange": free}
    for key, name, rate, settings in (
            ("diloco", "diloco fp32", half, {"sync__method": "diloco", "sync__sync_every": H, "sync__codec": "fp32"}),
            ("streaming", "streaming_diloco e3m0 tau=1", half, streaming),
            ("data_parallel", "data_parallel fp32", tenth, {"sync__method": "data_parallel", "sync__codec": "fp32"}),
            ("cocktail", "cocktail_sgd", tenth, {"sync__method": "cocktail_sgd"})):
        if key == "data_parallel":  # Every step waits: a few are enough.
            settings = settings | {"train__steps": 13}
            few = argparse.Namespace(**{**vars(arguments), "steps": 13})
            out[key] = train(few, name, rate, **settings)
        else:
            out[key] = train(arguments, name, rate, **settings)
        out[key]["utilisation"] = out[key]["tokens_per_s"] / free["tokens_per_s"]
    print(json.dumps(out))


if __name__ == "__main__":
    main()
