#!/usr/bin/env python3
"""Atoll and PEFT train the same adapters of the same models, and read each other's.

  peft_parity.py ATOLL

A step of `atoll train --frozen MODEL --adapter lora` moves an adapter by the gradient that PyTorch has of it; the loss is that of the
adapter as PEFT loads it from the checkpoint. Soft prompts likewise. Nothing is downloaded.
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import urllib.request

import peft
import safetensors.torch
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

transformers.utils.logging.disable_progress_bar()
atoll = sys.argv[1]
text = "\n".join(pathlib.Path(__file__).read_text().split("\n")[:40])
BATCH = ["--batch-rows", 4, "--sequence-length", 64, "--seed", 1]
TRAIN = ["--train.steps=2", "--train.batch_rows=4", "--train.micro_batch_rows=2", "--train.sequence_length=64", "--train.optimizer=sgd",
         "--train.lr=1", "--train.min_lr_ratio=1", "--train.warmup_steps=0", "--train.weight_decay=0", "--train.grad_clip=0",
         "--train.z_loss=0", "--train.threads=1", "--train.checkpoint_every=1", "--train.log_every=1", "--json"]


def run(*arguments):
    done = subprocess.run([atoll, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"atoll {' '.join(map(str, arguments))}: exit {done.returncode}\n{done.stderr}")
    return done.stdout


def make_store(root):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator([text], trainers.BpeTrainer(vocab_size=400, special_tokens=["<|endoftext|>"], show_progress=False,
                                                              initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.save(str(root / "tokenizer.json"))
    source = root / "source"
    source.mkdir()
    for number in range(30):
        (source / f"{number}.txt").write_text(f"{number}\n" + text)
    run("data", "pack", source, "--tokenizer", root / "tokenizer.json", "--out", root / "store", "--validation-share", 0.3, "--json")


def kinds():
    sizes = dict(vocab_size=400, hidden_size=64, intermediate_size=112, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                 max_position_embeddings=256, initializer_range=0.15, bos_token_id=None, eos_token_id=0, pad_token_id=None)
    own = {key: sizes[key] for key in sizes if key != "num_key_value_heads"}
    yield "llama", transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes)), "all-linear"
    yield "llama, tied, bf16", transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, tie_word_embeddings=True)).bfloat16(), ""
    yield "qwen3", transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**sizes, head_dim=16)), "q_proj,k_proj,up_proj"
    yield "gpt_neox", transformers.GPTNeoXForCausalLM(transformers.GPTNeoXConfig(**own, hidden_dropout=0, attention_dropout=0)), "all-linear"
    yield "gpt2", transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=400, n_embd=64, n_layer=2, n_head=4, n_positions=256, initializer_range=0.15, bos_token_id=None, eos_token_id=0,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)), "all-linear"


def tensors(step):
    return safetensors.torch.load_file(step / "adapter_model.safetensors")


def loss_of(model, rows, num_before):
    logits = model(rows).logits[:, num_before:-1]
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1).double(), rows[:, 1:].flatten())


def compare(name, base, root, words, num_before=0):
    """The second step: A's gradient is zero before B is anything."""
    trained = root / "runs" / name
    run("train", "--frozen", base, "--run", trained, "--data", root / "store", *words, *TRAIN)
    before, after = (trained / "checkpoints" / f"step-0000000{step}" for step in (1, 2))
    lines = [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()]
    loss = next(line["loss"] for line in lines if line.get("step") == 2)
    batch = json.loads(run("data", "batch", root / "store", "--step", 1, *BATCH, "--json"))
    rows = torch.tensor([row["ids"] for row in batch["rows"]])
    plain = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    model = peft.PeftModel.from_pretrained(plain, before, is_trainable=num_before == 0)
    if num_before:
        model.prompt_encoder["default"].embedding.weight.requires_grad_(True)
    found = loss_of(model, rows, num_before)
    assert abs(found.item() - loss) < 2e-5 * loss, f"{name}: PEFT's loss is {found.item()}, and Atoll's {loss}"
    found.backward()
    if num_before:
        gradients = {"prompt_embeddings": model.prompt_encoder["default"].embedding.weight.grad}
    else:
        gradients = peft.get_peft_model_state_dict(model, {key: value.grad for key, value in model.named_parameters() if value.grad is not None})
    first, second = tensors(before), tensors(after)
    assert first.keys() == gradients.keys() == second.keys(), (first.keys(), gradients.keys())
    worst = 0.0
    for key, wanted in gradients.items():
        moved = first[key].double() - second[key].double()
        error = (moved - wanted.double()).norm() / (wanted.double().norm() + 1e-6)
        worst = max(worst, error.item())
        assert error < 1e-3, f"{name}: the gradient of {key} differs by {error}"
    print(f"{name}: loss {loss:.5f}, PEFT's {found.item():.5f}; gradients differ by {worst:.1e}")


def compare_served(name, base, adapter):
    """Of a run. Behind the API, by the name of the adapter: each token's log-probability is PEFT's; by the model's own name, the model's."""
    ids = [(7 * number) % 399 + 1 for number in range(40)]
    plain = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    process = subprocess.Popen([atoll, "serve", base, "--gateway", "--listen", "127.0.0.1:0", "--name", "plain", "--adapter", f"mine={adapter}",
                                "--threads", "1", "--kv-gib", "0.01", "--kv-dtype", "fp32"], stdout=subprocess.PIPE, text=True)
    try:
        url = re.search(r"http://[\d.:]+", process.stdout.readline()).group()
        for called in ("mine", "plain", "mine"):
            model = peft.PeftModel.from_pretrained(plain, max((adapter / "checkpoints").iterdir())).eval() if called == "mine" else plain.eval()
            with torch.no_grad():
                wanted = model(torch.tensor([ids])).logits[0, :-1].log_softmax(1).gather(1, torch.tensor(ids[1:])[:, None])[:, 0]
            if called == "mine":
                plain = model.unload()
            body = {"model": called, "prompt": ids, "max_tokens": 0, "echo": True, "logprobs": 1}
            request = urllib.request.Request(f"{url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=60) as reply:
                found = torch.tensor(json.load(reply)["choices"][0]["logprobs"]["token_logprobs"][1:])
            worst = (found - wanted).abs().max().item()
            assert worst < 2e-4, f"{name}, {called}: log-probabilities differ by {worst}"
            print(f"{name}, served as '{called}': log-probabilities differ by {worst:.1e}")
    finally:
        process.terminate()
        process.wait()


def main():
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        make_store(root)
        for number, (kind, model, targets) in enumerate(kinds()):
            base = root / f"base{number}"
            model.save_pretrained(base)
            (base / "tokenizer.json").write_text((root / "tokenizer.json").read_text())
            compare(kind, base, root, ["--adapter", "lora", "--adapter.rank=4", "--adapter.alpha=12", *([f"--adapter.targets={targets}"] if targets else [])])
            if number in (0, 1):
                compare_served(kind, base, root / "runs" / kind)
        compare("a soft prompt", root / "base0", root, ["--adapter", "prompt", "--adapter.prompt_tokens=5"], num_before=5)
        return 0


if __name__ == "__main__":
    sys.exit(main())
