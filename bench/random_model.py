#!/usr/bin/env python3
"""A Llama of random bf16 weights, written piece by piece: as large as the disk, in little memory.

  random_model.py FOLDER TOKENIZER_FOLDER HIDDEN_SIZE INTERMEDIATE_SIZE NUM_LAYERS      (the first a multiple of 256)

Vocabulary and tokenizer are those of another model's folder; heads have 64 values, four of them share keys and values. Prints the bytes.
"""
import json
import pathlib
import shutil
import sys

import numpy

HEAD, HEADS_PER_KV, FILE_BYTES = 64, 4, 1 << 30
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "generation_config.json")


def shapes(vocab_size, hidden, intermediate, num_layers):
    kv = hidden // HEADS_PER_KV
    found = {"model.embed_tokens.weight": (vocab_size, hidden), "model.norm.weight": (hidden,)}
    for layer in range(num_layers):
        parts = {"input_layernorm": (hidden,), "post_attention_layernorm": (hidden,), "self_attn.q_proj": (hidden, hidden), "self_attn.k_proj": (kv, hidden),
                 "self_attn.v_proj": (kv, hidden), "self_attn.o_proj": (hidden, hidden), "mlp.gate_proj": (intermediate, hidden),
                 "mlp.up_proj": (intermediate, hidden), "mlp.down_proj": (hidden, intermediate)}
        found |= {f"model.layers.{layer}.{part}.weight": shape for part, shape in parts.items()}
    return found


def bf16(values):
    return (values.view(numpy.uint32) >> 16).astype(numpy.uint16)


def values(shape, draws, first):
    """Of a norm ones; else draws from that place on, again and again, of a size that keeps activations where they are."""
    if len(shape) == 1:
        return bf16(numpy.ones(shape, numpy.float32))
    return bf16(numpy.resize(numpy.roll(draws, first), shape).astype(numpy.float32) * numpy.float32(shape[1] ** -0.5))


def write(folder, tokenizer, hidden, intermediate, num_layers, seed=1):
    """The bytes of the weights."""
    folder, theirs = pathlib.Path(folder), json.loads((pathlib.Path(tokenizer) / "config.json").read_text())
    folder.mkdir(parents=True)
    for name in TOKENIZER_FILES:
        if (pathlib.Path(tokenizer) / name).exists():
            shutil.copy(pathlib.Path(tokenizer) / name, folder)
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16", "vocab_size": theirs["vocab_size"],
              "hidden_size": hidden, "intermediate_size": intermediate, "num_hidden_layers": num_layers, "num_attention_heads": hidden // HEAD,
              "num_key_value_heads": hidden // HEAD // HEADS_PER_KV, "head_dim": HEAD, "max_position_embeddings": 2048, "rms_norm_eps": 1e-5,
              "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": True,
              "bos_token_id": theirs.get("bos_token_id"), "eos_token_id": theirs.get("eos_token_id")}
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    draws = numpy.random.default_rng(seed).standard_normal(1 << 22, dtype=numpy.float32)
    files, total = [{}], 0
    for name, shape in shapes(config["vocab_size"], hidden, intermediate, num_layers).items():
        size = 2 * int(numpy.prod(shape))
        if files[-1] and sum(2 * int(numpy.prod(one)) for one in files[-1].values()) + size > FILE_BYTES:
            files.append({})
        files[-1][name] = shape
        total += size
    places = {}
    for number, tensors in enumerate(files):
        file = f"model-{number + 1:05}-of-{len(files):05}.safetensors"
        offset, header = 0, {}
        for name, shape in tensors.items():
            size = 2 * int(numpy.prod(shape))
            header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [offset, offset + size]}
            offset, places[name] = offset + size, file
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with open(folder / file, "wb") as out:
            out.write(len(text).to_bytes(8, "little") + text)
            for index, shape in enumerate(tensors.values()):
                out.write(values(shape, draws, 7919 * (1000 * number + index)).tobytes())
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": total}, "weight_map": places}))
    return total


if __name__ == "__main__":
    print(write(*sys.argv[1:3], *map(int, sys.argv[3:6])))
