#!/usr/bin/env python3
"""GGUF files that Atoll writes, read by PyPI `gguf` and transformers: values of each type bit for bit, models, tokenizers.

  gguf_write_oracle.py ATOLL [FILE]

Small models of each family become files of each type. FILE: a real GGUF file, which is written anew; transformers continues a text
with it as Atoll does.
"""
import argparse
import collections
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import gguf
import numpy
import torch
import transformers
from gguf import GGMLQuantizationType as Type
from safetensors.numpy import load_file
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

HIDDEN, INNER, HEADS, VOCAB = 64, 256, 4, 320
SIZES = {"hidden_size": HIDDEN, "intermediate_size": INNER, "num_hidden_layers": 2, "num_attention_heads": HEADS, "vocab_size": VOCAB,
         "max_position_embeddings": 1024, "bos_token_id": 1, "eos_token_id": 2}
GATED = SIZES | {"num_key_value_heads": 2}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
TEXT = "It's 12345 naïve  words,\n\n e\u0301 don't <|end|> 你好 🙂\t x"
# name -> (transformers' config, architecture of the file, whether transformers reads it)
MODELS = {
    "llama": (transformers.LlamaConfig(**GATED, rope_theta=500000.0), "llama", True),
    "llama-biases": (transformers.LlamaConfig(**GATED, attention_bias=True, mlp_bias=True, tie_word_embeddings=True), "llama", False),
    "llama-stretched": (transformers.LlamaConfig(**GATED | {"head_dim": 32}, rope_theta=500000.0, rope_scaling=LLAMA3), "llama", False),
    "llama-linear": (transformers.LlamaConfig(**GATED, rope_scaling={"rope_type": "linear", "factor": 4.0}), "llama", False),
    "mistral": (transformers.MistralConfig(**GATED, sliding_window=7), "llama", False),
    "qwen2": (transformers.Qwen2Config(**GATED, tie_word_embeddings=True), "qwen2", True),
    "qwen3": (transformers.Qwen3Config(**GATED, head_dim=128), "qwen3", True),  # transformers reads no other size of a head.
    "olmo2": (transformers.Olmo2Config(**GATED), "olmo2", False),
    "gpt2": (transformers.GPT2Config(n_embd=HIDDEN, n_layer=2, n_head=HEADS, vocab_size=VOCAB, bos_token_id=1, eos_token_id=2), "gpt2", True),
    "gptneox": (transformers.GPTNeoXConfig(**SIZES, use_parallel_residual=False), "gptneox", False),
    "gptneox-tied": (transformers.GPTNeoXConfig(**SIZES, tie_word_embeddings=True, hidden_act="gelu_fast"), "gptneox", False),
    "mixtral": (transformers.MixtralConfig(**GATED, num_local_experts=3), "llama", False),
    # transformers reads no other size of a head.
    "qwen3moe": (transformers.Qwen3MoeConfig(**GATED, head_dim=128, moe_intermediate_size=768, num_experts=4, num_experts_per_tok=2,
                                             norm_topk_prob=True), "qwen3moe", True),
    "olmoe": (transformers.OlmoeConfig(**SIZES, num_experts=4, num_experts_per_tok=3), "olmoe", False),
    "olmo": (transformers.OlmoConfig(**GATED, clip_qkv=0.5), "olmo", False),
    # By that name, since llama.cpp looks for tokens of its own in what is called phi3.
    "joined": (transformers.Phi3Config(**GATED, pad_token_id=0, rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}), "phi3", False),
    "smollm3": (transformers.SmolLM3Config(**GATED | {"num_hidden_layers": 5}, pad_token_id=0), "smollm3", False),
    "granite": (transformers.GraniteConfig(**GATED, embedding_multiplier=6.0, residual_multiplier=0.25, attention_multiplier=0.125,
                                           logits_scaling=4.0, attention_bias=True), "granite", False),
    "gemma2": (transformers.Gemma2Config(**GATED | {"num_hidden_layers": 3}, head_dim=32, query_pre_attn_scalar=32, sliding_window=9), "gemma2", False),
    "gemma3": (transformers.Gemma3TextConfig(**GATED | {"num_hidden_layers": 7}, head_dim=32, query_pre_attn_scalar=32, sliding_window=9),
               "gemma3", False),
    "narrow": (transformers.LlamaConfig(**GATED | {"hidden_size": 48}), "llama", False),
}
TURNING_NEIGHBOURS = ("llama", "olmo", "smollm3", "granite")  # Pairs of queries and keys that turn together lie side by side.
TYPES = {"f32": Type.F32, "f16": Type.F16, "bf16": Type.BF16, "q8_0": Type.Q8_0, "q4_0": Type.Q4_0}


def run(*command, **options):
    done = subprocess.run([str(one) for one in command], capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


def byte_level(cut, normalizer=None):
    """A tokenizer that is trained on a little text which was not cut: so it matters how it cuts."""
    tokenizer = Tokenizer(models.BPE())
    bytes_only = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = bytes_only
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=310, special_tokens=["<|pad|>", "<|start|>", "<|end|>"], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(["12345", "it's", "  more", ",\n\n", "IT'S", "The words", "e\u0301", "12 12"] * 20, trainer)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*cut, bytes_only])
    if normalizer:
        tokenizer.normalizer = normalizer
    return tokenizer


def with_unmade(token, tokenizer):
    """One that no merge makes, so that it matters whether a word that is a token is taken whole."""
    file = json.loads(tokenizer.to_str())
    file["model"]["vocab"][token] = len(file["model"]["vocab"])
    return Tokenizer.from_str(json.dumps(file))


GPT2 = pre_tokenizers.Split(Regex(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"), "isolated")
LLAMA3_WORDS = pre_tokenizers.Split(Regex(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
                                          r"|\s*[\r\n]+|\s+(?!\S)|\s+"), "isolated")
# The name that must be found -> the tokenizer.
TOKENIZERS = {"gpt-2": lambda: byte_level([GPT2]), "olmo": lambda: byte_level([GPT2], normalizers.NFC()),
              "smollm": lambda: byte_level([pre_tokenizers.Digits(individual_digits=True), GPT2]), "llama-bpe": lambda: byte_level([LLAMA3_WORDS]), "dbrx": lambda: with_unmade("zz", byte_level([LLAMA3_WORDS]))}


def edge_values(width):
    """Rows that quantisers find hard."""
    generator = numpy.random.default_rng(5)
    rows = [numpy.zeros(width), -numpy.zeros(width), numpy.full(width, 1e-41), numpy.full(width, -1e-45)]
    rows += [generator.standard_normal(width) * 10.0**power for power in range(-44, 5)]
    rows += [numpy.arange(width) % 17 / 2, -(numpy.arange(width) % 17) / 2, numpy.arange(width) % 255 / 2 - 63.5]  # Ties.
    alone = numpy.zeros(width)
    alone[3] = 7.0
    signs = numpy.where(numpy.arange(width) % 2, 1.0, -1.0)
    return numpy.array([*rows, alone, -alone, signs, -signs], dtype=numpy.float32)


def make_folder(folder, config, tokenizer):
    torch.manual_seed(3)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += torch.randn_like(parameter) * 0.1
        embedding = model.get_input_embeddings().weight
        edges = edge_values(embedding.shape[1])
        edges = edges[abs(edges).max(axis=1) < 1]  # Wild ones make all else the same.
        embedding[260 : 260 + min(len(edges), VOCAB - 260)] = torch.from_numpy(edges[: VOCAB - 260])
    model.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<|start|>", "eos_token": "<|end|>", "chat_template": "{{ bos_token }}x"}))
    return model


def expected_tensors(architecture, folder):
    """By llama.cpp's names, as its converter lays them out."""
    arch = next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    names = gguf.get_tensor_name_map(arch, 8)
    expected, experts = {}, collections.defaultdict(list)
    for ours, values in load_file(folder / "model.safetensors").items():
        heads = {"q": HEADS, "k": 2}.get(ours.split(".")[-2][0]) if architecture in TURNING_NEIGHBOURS and ours.split(".")[-2] in ("q_proj", "k_proj") else None
        if heads:
            values = values.reshape(heads, 2, values.shape[0] // heads // 2, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)
        if "query_key_value" in ours:
            values = values.reshape(HEADS, 3, -1, *values.shape[1:]).swapaxes(0, 1).reshape(values.shape)
        if architecture.startswith("gemma") and ours.endswith("norm.weight"):
            values = values + numpy.float32(1)
        if architecture == "gpt2" and values.ndim == 2 and ".h." in ours:
            values = values.T
        theirs = names.get_name(re.sub(r"experts\.\d+", "experts", ours), try_suffixes=(".weight", ".bias"))
        if ".experts." in ours:
            experts[theirs].append((int(ours.split(".experts.")[1].split(".")[0]), values))
            continue
        expected[theirs] = numpy.ascontiguousarray(values)
    for theirs, of_each in experts.items():
        expected[theirs] = numpy.stack([values for _, values in sorted(of_each, key=lambda one: one[0])])
    if architecture == "gptneox" and "output.weight" not in expected:
        expected["output.weight"] = expected["token_embd.weight"]
    return expected


def check_values(what, path, type, expected):
    found = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    found.pop("rope_freqs.weight", None)
    assert set(found) == set(expected), f"{what}: {set(found) ^ set(expected)}"
    for name, values in expected.items():
        kind = Type.F32 if values.ndim == 1 or name == "position_embd.weight" or "ffn_gate_inp" in name else type
        if values.shape[-1] % gguf.GGML_QUANT_SIZES[kind][0]:
            kind = Type.F16
        assert found[name].tensor_type == kind, f"{what}: {name} is {found[name].tensor_type}"
        with numpy.errstate(all="ignore"):
            wanted = gguf.quants.quantize(values, kind)
        same = numpy.array_equal(found[name].data.view(numpy.uint8).reshape(-1), wanted.view(numpy.uint8).reshape(-1))
        assert same, f"{what}: {name} differs"


def check_quantizers(atoll, folder):
    """A model whose embedding is all of the hard values."""
    source, rows = folder / "edges", edge_values(HIDDEN)
    config = transformers.LlamaConfig(**GATED | {"vocab_size": len(rows)}, tie_word_embeddings=True)
    model = transformers.AutoModelForCausalLM.from_config(config)
    model.get_input_embeddings().weight.data = torch.from_numpy(rows)
    model.save_pretrained(source)
    for name in ("q8_0", "q4_0", "bf16"):
        path = folder / f"edges-{name}.gguf"
        run(atoll, "convert", source, path, "--type", name)
        check_values(f"hard values, {name}", path, TYPES[name], expected_tensors("llama", source))
        print(f"hard values, {name}: equal bit for bit", flush=True)


def log_probabilities(model):
    with torch.no_grad():
        return torch.log_softmax(model(torch.arange(40).unsqueeze(0) * 7 % 250).logits, -1)


def check_model(atoll, folder, name, words):
    config, architecture, is_read = MODELS[name]
    source = folder / name
    model = make_folder(source, config, TOKENIZERS[words]())
    expected = expected_tensors(architecture, source)
    for kind, type in TYPES.items():
        path = folder / f"{name}-{kind}.gguf"
        report = json.loads(run(atoll, "convert", source, path, "--type", kind, "--verify", "--json"))
        assert report["dtype"] == type.name, report
        assert kind != "f32" or report["largest_logprob_difference"] == 0, report
        check_values(f"{name}, {kind}", path, type, expected)
    path = folder / f"{name}-f32.gguf"
    run(atoll, "convert", path, folder / f"{name}-back", "--dtype", "fp32")
    back = transformers.AutoModelForCausalLM.from_pretrained(folder / f"{name}-back", dtype=torch.float32)
    difference = (log_probabilities(back) - log_probabilities(model)).abs().max()
    assert difference < 1e-5, f"{name}: written and read again, log-probabilities differ by {difference}"
    if is_read:
        theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=path.name, dtype=torch.float32)
        difference = (log_probabilities(theirs) - log_probabilities(model)).abs().max()
        assert difference < 1e-5, f"{name}: transformers' log-probabilities differ by {difference}"
    check_texts(atoll, source, path, words)
    print(f"{name}: {len(expected)} tensors equal in {len(TYPES)} types{', as transformers loads it' if is_read else ''}, pre {words}", flush=True)


def check_texts(atoll, source, path, words):
    fields = {name: field.contents() for name, field in gguf.GGUFReader(path).fields.items()}
    assert fields["tokenizer.ggml.pre"] == words, fields["tokenizer.ggml.pre"]
    assert (fields["tokenizer.ggml.bos_token_id"], fields["tokenizer.ggml.eos_token_id"]) == (1, 2)
    assert len(fields["tokenizer.ggml.tokens"]) == VOCAB and fields["tokenizer.chat_template"] == "{{ bos_token }}x"
    wanted = Tokenizer.from_file(str(source / "tokenizer.json")).encode(TEXT, add_special_tokens=False).ids
    for one in (source, path):
        found = run(atoll, "tokenizer", "encode", "--tokenizer", one, "--text", "-", input=TEXT).strip()
        assert found == ",".join(map(str, wanted)), f"{one}: {found}"


def check_pieces(atoll, folder):
    """SentencePiece's kinds, with scores."""
    source = folder / "llama"
    for kind, name in (("BPE", "llama"), ("Unigram", "t5")):
        letters = [chr(code) for code in range(97, 123)]
        pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581", *letters, "th", "the", "\u2581the"]
        if kind == "BPE":
            model = models.BPE({piece: id for id, piece in enumerate(pieces)}, [("t", "h"), ("th", "e"), ("\u2581", "the")], unk_token="<unk>",
                               fuse_unk=True, byte_fallback=True)
        else:
            model = models.Unigram([(piece, -float(len(pieces) - id) / 8) for id, piece in enumerate(pieces)], 0, True)
        tokenizer = Tokenizer(model)
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
        tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
        tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
        tokenizer.save(str(source / "tokenizer.json"))
        path = folder / f"{name}.gguf"
        run(atoll, "convert", source, path)
        fields = {key: field.contents() for key, field in gguf.GGUFReader(path).fields.items()}
        assert fields["tokenizer.ggml.model"] == name, fields["tokenizer.ggml.model"]
        text = "the other 12 th\u00e9  thethe"
        found = run(atoll, "tokenizer", "encode", "--tokenizer", path, "--text", "-", input=text).strip()
        assert found == ",".join(map(str, tokenizer.encode(text, add_special_tokens=False).ids)), found
        print(f"pieces of {kind}: written as {name}", flush=True)


def check_refusals(atoll, folder):
    def refused(source, path, *more):
        done = subprocess.run([atoll, "convert", source, path, *more], capture_output=True, text=True)
        assert done.returncode != 0, done.stdout
        return done.stderr

    source, target = folder / "llama", folder / "refused.gguf"
    odd = byte_level([pre_tokenizers.Split(Regex(r"\p{L}\p{L}|[^\p{L}]+|\p{L}"), "isolated")])
    odd.save(str(source / "tokenizer.json"))
    assert "cuts words as nothing that such files can say" in refused(source, target)
    (source / "tokenizer.json").unlink()
    (source / "tokenizer_config.json").unlink()
    dynamic = folder / "dynamic"
    transformers.AutoModelForCausalLM.from_config(transformers.LlamaConfig(**GATED, rope_scaling={"rope_type": "dynamic", "factor": 2.0})).save_pretrained(dynamic)
    assert "dynamic scaling of positions" in refused(dynamic, target)
    assert "--dtype is for folders" in refused(source, target, "--dtype", "bf16")
    assert "--type is for files" in refused(source, folder / "refused", "--type", "f16")
    assert "q9 not in" in refused(source, target, "--type", "q9")
    assert "cannot write" in refused(source, folder / "nowhere" / "x.gguf")
    assert "exists; name a file that does not" in refused(source, folder / "llama-f32.gguf")
    assert not list(folder.glob("refused*"))
    done = subprocess.run([atoll, "convert", source, target], capture_output=True, text=True, check=True)
    assert "no tokenizer was written" in done.stderr, done.stderr
    print("what such files cannot say is refused", flush=True)


def check_real(atoll, path, folder):
    prompt = "The capital of France is"
    for kind in ("f16", "q8_0"):
        written = folder / f"real-{kind}.gguf"
        run(atoll, "convert", path, written, "--type", kind, "--verify")
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=written.name, dtype=torch.float32)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=written.name)
        ids = tokenizer(prompt, return_tensors="pt")
        answer = model.generate(**ids, max_new_tokens=32, do_sample=False)[0, ids.input_ids.shape[1]:]
        theirs = tokenizer.decode(answer, skip_special_tokens=True)
        ours = run(atoll, "generate", written, "--prompt", prompt, "--max-tokens", 32, "--greedy", "--kv-dtype", "fp32").rstrip("\n")
        assert ours == theirs.rstrip("\n"), f"{kind}: {ours!r}, and transformers {theirs!r}"
        before, after = ({name: field.contents() for name, field in gguf.GGUFReader(one).fields.items()} for one in (path, written))
        for name in ("pre", "tokens", "token_type", "merges", "bos_token_id", "eos_token_id"):
            assert before[f"tokenizer.ggml.{name}"] == after[f"tokenizer.ggml.{name}"], name
        assert before["tokenizer.chat_template"] == after["tokenizer.chat_template"]
        print(f"{path.name} as {kind}: transformers continues as Atoll does: {ours!r}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("atoll", type=pathlib.Path)
    parser.add_argument("file", nargs="?", type=pathlib.Path)
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()
    with tempfile.TemporaryDirectory(prefix="atoll-gguf-") as scratch:
        folder = pathlib.Path(scratch)
        if arguments.file:
            return check_real(arguments.atoll, arguments.file, folder)
        check_quantizers(arguments.atoll, folder)
        words = list(TOKENIZERS)
        for place, name in enumerate(MODELS):
            check_model(arguments.atoll, folder, name, words[place % len(words)])
        check_pieces(arguments.atoll, folder)
        check_refusals(arguments.atoll, folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
