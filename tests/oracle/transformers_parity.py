#!/usr/bin/env python3
"""Atoll and Hugging Face transformers read each other's models and agree on every token.

  transformers_parity.py ATOLL

Random models made by transformers (FP32, BF16, FP16, in one file and sharded) go through `atoll eval`
and `atoll generate`; checkpoints made by `atoll train` go through transformers. Log-probabilities must
agree to 1e-4 in FP32. Nothing is downloaded.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

transformers.utils.logging.disable_progress_bar()
atoll = sys.argv[1]
tolerance = 1e-4
differences = []
text = "\n".join(pathlib.Path(__file__).read_text().split("\n")[:28])
end_of_text = "<|endoftext|>"


def run(*arguments):
    done = subprocess.run([atoll, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"atoll {' '.join(map(str, arguments))}: exit {done.returncode}\n{done.stderr}")
    return done.stdout


def train_tokenizer(path):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=[end_of_text], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator([pathlib.Path(__file__).read_text()], trainer)
    tokenizer.save(str(path))
    return tokenizer


def small(config_class, **extra):
    sizes = dict(vocab_size=400, hidden_size=64, intermediate_size=112, num_hidden_layers=3, num_attention_heads=4,
                 num_key_value_heads=2, max_position_embeddings=1024, initializer_range=0.15, bos_token_id=None,
                 eos_token_id=0, pad_token_id=None)
    return config_class(**(sizes | extra))


def foreign_models():
    llama, qwen = transformers.LlamaConfig, transformers.Qwen3Config
    yield "llama", transformers.LlamaForCausalLM(small(llama)), {}
    yield "llama, tied, 1 kv head, other base and epsilon", transformers.LlamaForCausalLM(
        small(llama, tie_word_embeddings=True, num_key_value_heads=1, rms_norm_eps=1e-3,
              rope_parameters={"rope_type": "default", "rope_theta": 500.0})), {}
    yield "llama, bf16, sharded", transformers.LlamaForCausalLM(small(llama)).bfloat16(), {"max_shard_size": "60kB"}
    yield "llama, fp16, head_dim 32", transformers.LlamaForCausalLM(small(llama, head_dim=32)).half(), {}
    yield "qwen3", transformers.Qwen3ForCausalLM(small(qwen, head_dim=24)), {}
    yield "qwen3, tied", transformers.Qwen3ForCausalLM(small(qwen, head_dim=16, tie_word_embeddings=True)), {}


def compare(name, folder, model, tokenizer):
    """`atoll eval --per-token` of `folder` against `model`, token by token."""
    model = model.float().eval()
    text_file, out_file = folder / "text.txt", folder / "per_token.jsonl"
    text_file.write_text(text)
    summary = json.loads(run("eval", folder, "--text", text_file, "--per-token", out_file, "--threads", 1,
                             "--json"))
    lines = [json.loads(line) for line in out_file.read_text().splitlines()]
    ids = [line["id"] for line in lines]
    assert ids == tokenizer.encode(text).ids, f"{name}: other ids than tokenizers"
    assert 200 < len(ids) <= model.config.max_position_embeddings, len(ids)
    with torch.no_grad():
        logprobs = torch.log_softmax(model(torch.tensor([ids])).logits[0].double(), -1)
    wanted = logprobs[torch.arange(len(ids) - 1), torch.tensor(ids[1:])]
    found = torch.tensor([line["logprob"] for line in lines[1:]], dtype=torch.float64)
    assert lines[0]["logprob"] is None and lines[0]["rank"] is None
    worst = (found - wanted).abs().max().item()
    assert worst <= tolerance, f"{name}: log-probabilities differ by {worst}"
    spread = wanted.std().item()
    assert spread > 0.1, f"{name}: the model is too flat to test anything ({spread})"
    ranks = 1 + (logprobs[:-1] > wanted[:, None] + tolerance).sum(-1)
    loosest = 1 + (logprobs[:-1] > wanted[:, None] - tolerance).sum(-1)
    for line, low, high in zip(lines[1:], ranks.tolist(), loosest.tolist()):
        assert low <= line["rank"] <= high, f"{name}: rank {line['rank']}, not {low} to {high}"
    assert abs(summary["loss"] + wanted.mean().item()) < tolerance
    bits = -wanted.sum().item() / torch.log(torch.tensor(2.0)).item() / len(text.encode())
    assert abs(summary["bits_per_byte"] - bits) < tolerance and summary["tokens"] == len(ids)
    print(f"{name}: {len(ids)} tokens, largest difference {worst:.1e}")
    differences.append(worst)


def compare_greedy(name, folder, model, tokenizer):
    """`atoll generate --greedy` against generate(): equal until two logits tie."""
    prompt = text[:60]
    out = json.loads(run("generate", folder, "--prompt", prompt, "--max-tokens", 40, "--greedy", "--threads", 1,
                         "--json"))
    ids = tokenizer.encode(prompt).ids
    for position, chosen in enumerate(out["ids"]):
        with torch.no_grad():
            logits = model(torch.tensor([ids + out["ids"][:position]])).logits[0, -1]
        assert logits[chosen] >= logits.max() - tolerance, f"{name}: token {position} is not the likeliest"
    assert out["text"] == tokenizer.decode(out["ids"], skip_special_tokens=False), name
    if out["finish_reason"] == "length":
        assert len(out["ids"]) == 40, name
    else:
        with torch.no_grad():
            logits = model(torch.tensor([ids + out["ids"]])).logits[0, -1]
        assert logits.argmax() == model.config.eos_token_id, name


def check_own_checkpoint(name, folder, options):
    source = folder / "source"
    source.mkdir()
    for number in range(40):
        (source / f"{number}.txt").write_text(f"{number}\n" + text)
    run("train", "--run", folder / "run", "--data", source, "--train.steps=3", "--train.batch_rows=2",
        "--train.threads=1", "--train.warmup_steps=0", "--train.lr=0.02", "--train.sequence_length=64",
        "--model.max_positions=1024", "--model.hidden_size=32", "--model.intermediate_size=48",
        "--model.num_layers=2", "--data.validation_share=0.3", *options, "--json")
    checkpoint = sorted((folder / "run" / "checkpoints").iterdir())[-1]
    model, info = transformers.AutoModelForCausalLM.from_pretrained(checkpoint, output_loading_info=True)
    for key in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not info[key], f"{name}: {key} {info[key]}"
    assert model.dtype == torch.float32
    tokenizer = Tokenizer.from_file(str(checkpoint / "tokenizer.json"))
    assert model.config.eos_token_id == tokenizer.token_to_id(end_of_text)
    assert transformers.AutoTokenizer.from_pretrained(checkpoint).eos_token == end_of_text
    assert model.generation_config.eos_token_id == model.config.eos_token_id
    compare(name, checkpoint, model, tokenizer)


def main():
    torch.manual_seed(1)
    torch.set_num_threads(1)  # Models this small only make threads wait for each other.
    with tempfile.TemporaryDirectory() as temporary:
        root = pathlib.Path(temporary)
        for number, (name, model, how) in enumerate(foreign_models()):
            folder = root / f"foreign-{number}"
            model.save_pretrained(folder, **how)
            assert ("max_shard_size" in how) == (folder / "model.safetensors.index.json").exists()
            tokenizer = train_tokenizer(folder / "tokenizer.json")
            # Read anew: converting a model in memory also rounds its rotary frequencies.
            model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
            compare(name, folder, model, tokenizer)
            compare_greedy(name, folder, model, tokenizer)
        for number, (name, options) in enumerate([("our llama", []), ("our qwen3, untied", [
                "--model.qk_norm=true", "--model.tie_embeddings=false", "--model.head_dim=16"])]):
            folder = root / f"own-{number}"
            folder.mkdir()
            check_own_checkpoint(name, folder, options)
    print(json.dumps({"max_difference": max(differences)}))


if __name__ == "__main__":
    main()
