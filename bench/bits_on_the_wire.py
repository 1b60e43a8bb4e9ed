#!/usr/bin/env python3
"""Bits per parameter and direction between two islands that train a 30 M model, as handed to the socket.

  bits_on_the_wire.py ATOLL STORE

Framing is included, TCP/IP headers are not. Each codec trains twice, with one and with three compressed exchanges: the
difference has no handshakes in it. Prints one JSON object.
"""
import json
import subprocess
import sys
import tempfile

MODEL = {"model.hidden_size": 512, "model.intermediate_size": 1408, "model.num_layers": 8, "model.num_heads": 8,
         "model.num_kv_heads": 4, "model.max_positions": 32, "model.vocab_size": 8192, "train.sequence_length": 16,
         "train.batch_rows": 2, "train.threads": 1, "train.eval_rows": 1, "train.checkpoint_every": 0,
         "train.keep_checkpoints": 1}


def train(atoll, store, steps, settings):
    with tempfile.TemporaryDirectory() as folder:
        words = [atoll, "train", "--islands", "2", "--run", folder + "/run", "--data", store, "--json"]
        words += [f"--{key}={value}" for key, value in (MODEL | {"train.steps": steps} | settings).items()]
        return json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip().split("\n")[-1])


def main():
    atoll, store = sys.argv[1:3]
    out = {}
    for codec, method, last_is_exact in (("e3m0", "diloco", 0), ("int8", "diloco", 0), ("sparse_loco", "sparse_loco", 0),
                                         ("cocktail", "cocktail_sgd", 1)):
        settings = {"sync.method": method, "sync.codec": codec}
        if method != "cocktail_sgd":  # Which syncs at every step anyway.
            settings["sync.sync_every"] = 1
        one = train(atoll, store, 1 + last_is_exact, settings)
        three = train(atoll, store, 3 + last_is_exact, settings)
        bytes_more = three["bytes_sent"] - one["bytes_sent"]  # Of two exchanges and two islands.
        out[codec] = 8 * bytes_more / 4 / three["num_parameters"]
        out["parameters"] = three["num_parameters"]
    print(json.dumps(out))


if __name__ == "__main__":
    main()
