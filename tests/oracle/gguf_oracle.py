#!/usr/bin/env python3
"""GGUF files beside PyPI `gguf` and transformers: values of each type bit for bit, models, tokenizers.

  gguf_oracle.py ATOLL [FILE]

Small models of each architecture are written with `gguf`, one for each type of tensor, and read by Atoll; gguf_write_oracle.py has the
other way round. FILE: a real one, loaded by transformers.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import gguf
import numpy
from gguf import GGMLQuantizationType as Type
from safetensors.numpy import load_file

HIDDEN, INNER, HEADS, KV_HEADS, VOCAB, LAYERS, CONTEXT, EXPERTS = 256, 512, 4, 2, 256 + 5, 2, 512, 3
# Where the scales of a block are (half precision), so that random ones are finite.
SCALES = {Type.Q4_0: [0], Type.Q4_1: [0, 2], Type.Q5_0: [0], Type.Q5_1: [0, 2], Type.Q8_0: [0], Type.Q2_K: [80, 82], Type.Q3_K: [108],
          Type.Q4_K: [0, 2], Type.Q5_K: [0, 2], Type.Q6_K: [208], Type.IQ4_NL: [0], Type.IQ4_XS: [0],
          Type.MXFP4: []}
TYPES = [Type.F32, Type.F16, Type.BF16, *SCALES]
generator = numpy.random.default_rng(7)


def random_tensor(shape, type):
    """Bytes of whole blocks, and what they mean."""
    if type in (Type.F32, Type.F16):
        values = (generator.standard_normal(shape) * 0.1).astype(numpy.float32 if type == Type.F32 else numpy.float16)
        return values, values.astype(numpy.float32)
    if type == Type.BF16:
        raw = gguf.quants.quantize((generator.standard_normal(shape) * 0.1).astype(numpy.float32), type)
        return raw, gguf.quants.dequantize(raw, type)
    num_values, num_bytes = gguf.GGML_QUANT_SIZES[type]
    raw = generator.integers(0, 256, (*shape[:-1], shape[-1] // num_values, num_bytes), dtype=numpy.uint8)
    for at in SCALES[type]:
        raw[..., at : at + 2] = (generator.standard_normal((*raw.shape[:-1], 1)) * 0.01).astype(numpy.float16).view(numpy.uint8)
    if type == Type.MXFP4:
        raw[..., 0] = generator.integers(0, 130, raw.shape[:-1])
    raw = raw.reshape(*shape[:-1], -1)
    return raw, gguf.quants.dequantize(raw, type)


def by_head(rows, num_heads):
    """GPT-NeoX's rows: llama.cpp has all queries first, Hugging Face query, key and value of each head."""
    return rows.reshape(3, num_heads, -1, *rows.shape[1:]).swapaxes(0, 1).reshape(rows.shape)


def halves_together(rows, num_heads):
    """What llama.cpp's converter does to queries and keys of some architectures, undone."""
    head = rows.shape[0] // num_heads
    return rows.reshape(num_heads, head // 2, 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def plain_tensors_of(architecture):
    """GPT-2 and GPT-NeoX: LayerNorm and biases, and one matrix for queries, keys and values."""
    is_gpt2 = architecture == "gpt2"
    tensors = {"token_embd.weight": ("transformer.wte.weight" if is_gpt2 else "gpt_neox.embed_in.weight", (VOCAB, HIDDEN))}
    if is_gpt2:
        tensors["position_embd.weight"] = ("transformer.wpe.weight", (CONTEXT, HIDDEN))
    else:
        tensors["output.weight"] = ("embed_out.weight", (VOCAB, HIDDEN))
    pairs = [("output_norm", "transformer.ln_f" if is_gpt2 else "gpt_neox.final_layer_norm", (HIDDEN,))]
    for layer in range(LAYERS):
        theirs, ours = f"blk.{layer}.", f"transformer.h.{layer}." if is_gpt2 else f"gpt_neox.layers.{layer}."
        names = ("ln_1", "ln_2", "attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj") if is_gpt2 else (
            "input_layernorm", "post_attention_layernorm", "attention.query_key_value", "attention.dense", "mlp.dense_h_to_4h",
            "mlp.dense_4h_to_h")
        shapes = ((HIDDEN,), (HIDDEN,), (3 * HIDDEN, HIDDEN), (HIDDEN, HIDDEN), (INNER, HIDDEN), (HIDDEN, INNER))
        stems = ("attn_norm", "ffn_norm", "attn_qkv", "attn_output", "ffn_up", "ffn_down")
        pairs += [(theirs + a, ours + b, shape) for a, b, shape in zip(stems, names, shapes)]
    for a, b, shape in pairs:
        tensors[f"{a}.weight"] = (f"{b}.weight", shape)
        tensors[f"{a}.bias"] = (f"{b}.bias", shape[:1])
    return tensors


def as_hugging_face(architecture, ours, values):
    """What llama.cpp's converter does to some tensors, undone."""
    if architecture == "llama" and ("q_proj" in ours or "k_proj" in ours):
        return halves_together(values, HEADS if "q_proj" in ours else KV_HEADS)
    if architecture == "gptneox" and "query_key_value" in ours:
        return by_head(values, HEADS)
    if architecture == "gpt2" and values.ndim == 2 and ".h." in ours:
        return values.T
    return values


# name -> (Hugging Face's name, shape)
def tensors_of(architecture):
    if architecture in ("gpt2", "gptneox"):
        return plain_tensors_of(architecture)
    head = HIDDEN // HEADS
    tensors = {"token_embd.weight": ("model.embed_tokens.weight", (VOCAB, HIDDEN)), "output_norm.weight": ("model.norm.weight", (HIDDEN,)),
               "output.weight": ("lm_head.weight", (VOCAB, HIDDEN))}
    is_olmo = architecture == "olmo2"
    for layer in range(LAYERS):
        theirs, ours = f"blk.{layer}.", f"model.layers.{layer}."
        parts = {"attn_q": ("self_attn.q_proj", (HIDDEN, HIDDEN)), "attn_k": ("self_attn.k_proj", (KV_HEADS * head, HIDDEN)),
                 "attn_v": ("self_attn.v_proj", (KV_HEADS * head, HIDDEN)), "attn_output": ("self_attn.o_proj", (HIDDEN, HIDDEN)),
                 "ffn_gate": ("mlp.gate_proj", (INNER, HIDDEN)), "ffn_up": ("mlp.up_proj", (INNER, HIDDEN)),
                 "ffn_down": ("mlp.down_proj", (HIDDEN, INNER)),
                 "post_attention_norm" if is_olmo else "attn_norm": ("post_attention_layernorm" if is_olmo else "input_layernorm", (HIDDEN,)),
                 "post_ffw_norm" if is_olmo else "ffn_norm": ("post_feedforward_layernorm" if is_olmo else "post_attention_layernorm", (HIDDEN,))}
        if is_olmo:
            parts |= {"attn_q_norm": ("self_attn.q_norm", (HIDDEN,)), "attn_k_norm": ("self_attn.k_norm", (KV_HEADS * head,))}
        if architecture == "qwen3moe":
            for part in ("ffn_gate", "ffn_up", "ffn_down"):
                of_one, shape = parts.pop(part)
                parts[f"{part}_exps"] = (of_one.replace("mlp.", "mlp.experts.{}."), (EXPERTS, *shape))
            parts["ffn_gate_inp"] = ("mlp.gate", (EXPERTS, HIDDEN))
        if architecture in ("qwen3", "qwen3moe"):
            parts |= {"attn_q_norm": ("self_attn.q_norm", (head,)), "attn_k_norm": ("self_attn.k_norm", (head,))}
        tensors |= {f"{theirs}{a}.weight": (f"{ours}{b}.weight", shape) for a, (b, shape) in parts.items()}
        if architecture == "qwen2":
            tensors |= {f"{theirs}{a}.bias": (f"{ours}self_attn.{b}_proj.bias", (HIDDEN if b == "q" else KV_HEADS * head,))
                        for a, b in (("attn_q", "q"), ("attn_k", "k"), ("attn_v", "v"))}
    return tensors


def add_tokenizer(writer):
    spelled = {**{byte: chr(byte) for byte in [*range(33, 127), *range(161, 173), *range(174, 256)]}}
    others = iter(range(256, 512))
    tokens = [spelled.get(byte) or chr(next(others)) for byte in range(256)] + ["th", "the", "<|end|>", "<|start|>", "<pad>"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([1] * 258 + [3] * 3)
    writer.add_token_merges(["t h", "th e"])
    writer.add_bos_token_id(259)
    writer.add_eos_token_id(258)
    writer.add_chat_template("{% for m in messages %}<|start|>{{ m.content }}<|end|>{% endfor %}")


def write_model(path, architecture, type):
    """Returns what each of Hugging Face's tensors is."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INNER)
    writer.add_block_count(LAYERS)
    writer.add_head_count(HEADS)
    if architecture in ("gpt2", "gptneox"):
        writer.add_layer_norm_eps(1e-6)
    else:
        writer.add_head_count_kv(KV_HEADS)
        writer.add_layer_norm_rms_eps(1e-6)
        writer.add_rope_freq_base(500000.0)
    if architecture == "qwen3moe":
        writer.add_expert_count(EXPERTS)
        writer.add_expert_used_count(2)
        writer.add_expert_feed_forward_length(INNER)
    if architecture == "gptneox":
        writer.add_rope_dimension_count(HIDDEN // HEADS // 4)
        writer.add_parallel_residual(False)
    add_tokenizer(writer)
    expected = {}
    for name, (ours, shape) in tensors_of(architecture).items():
        kind = type if len(shape) > 1 else Type.F32
        raw, values = random_tensor(shape, kind)
        writer.add_tensor(name, raw, raw_dtype=kind)
        if len(shape) == 3:
            expected |= {ours.format(expert): of_one for expert, of_one in enumerate(values)}
            continue
        expected[ours] = as_hugging_face(architecture, ours, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return expected


def converted(atoll, path, folder):
    subprocess.run([atoll, "convert", path, folder, "--dtype", "fp32"], check=True, capture_output=True)
    return load_file(folder / "model.safetensors")


def compare(what, found, expected):
    assert set(found) == set(expected), f"{what}: {set(found) ^ set(expected)}"
    for name, values in expected.items():
        same = found[name].view(numpy.uint32) == numpy.ascontiguousarray(values, dtype=numpy.float32).view(numpy.uint32)
        assert same.all(), f"{what}: {name}: {(~same).sum()} of {same.size} values differ"
    print(f"{what}: {len(expected)} tensors equal bit for bit", flush=True)


def check_texts(atoll, path, folder):
    config = json.loads((folder / "config.json").read_text())
    assert (config["rope_theta"], config["rms_norm_eps"], config["eos_token_id"]) == (500000.0, 1e-6, 258), config
    ids = subprocess.run([atoll, "tokenizer", "encode", "--tokenizer", path, "--text", "-"], input="the 12<|end|>", check=True,
                         capture_output=True, text=True).stdout.strip()
    assert ids == "257,32,49,50,258", ids
    chat = subprocess.run([atoll, "tokenizer", "chat", "--tokenizer", path, "--messages", "-"], check=True, capture_output=True, text=True,
                          input=json.dumps([{"role": "user", "content": "hi"}])).stdout
    assert chat == "<|start|>hi<|end|>", chat


def check_real(atoll, path, folder):
    import torch
    from transformers import AutoModelForCausalLM
    model = AutoModelForCausalLM.from_pretrained(str(path.parent), gguf_file=path.name, dtype=torch.float32)
    state = {name: values.numpy() for name, values in model.state_dict().items()}
    found = converted(atoll, path, folder / "real")
    compare(path.name, found, {name: values for name, values in state.items() if name in found or name != "lm_head.weight"})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("atoll", type=pathlib.Path)
    parser.add_argument("file", nargs="?", type=pathlib.Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="atoll-gguf-") as scratch:
        folder = pathlib.Path(scratch)
        if arguments.file:
            return check_real(arguments.atoll, arguments.file, folder)
        cases = [("llama", type) for type in TYPES] + [(name, Type.F16) for name in ("gptneox", "gpt2", "qwen2", "qwen3", "qwen3moe", "olmo2")]
        cases += [("gptneox", Type.Q5_0), ("gpt2", Type.Q4_K), ("qwen3moe", Type.Q6_K)]
        for architecture, type in cases:
            path, target = folder / "model.gguf", folder / f"{architecture}-{type.name}"
            expected = write_model(path, architecture, type)
            compare(f"{architecture}, {type.name}", converted(arguments.atoll, path, target), expected)
        config = json.loads((folder / "gptneox-F16" / "config.json").read_text())
        assert (config["rotary_pct"], config["use_parallel_residual"], config["layer_norm_eps"]) == (0.25, False, 1e-6), config
        path = folder / "texts.gguf"
        write_model(path, "olmo2", Type.F32)
        check_texts(arguments.atoll, path, folder / "olmo2-F16")
    return 0


if __name__ == "__main__":
    sys.exit(main())
