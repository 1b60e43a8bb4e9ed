#!/usr/bin/env python3
"""Atoll and Hugging Face transformers read each other's models and agree on every token.

  transformers_parity.py ATOLL

Random models made by transformers (FP32, BF16, FP16, in one file and sharded) go through `atoll eval`
and `atoll generate`; checkpoints made by `atoll train` go through transformers. Log-probabilities must
agree to 1e-4 in FP32. Nothing is downloaded.
"""
import contextlib
import functools
import json
import logging
import pathlib
import subprocess
import sys
import tempfile

import safetensors.torch
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

transformers.utils.logging.disable_progress_bar()
atoll = sys.argv[1]
tolerance = 1e-4
differences = []
gradient_differences = []
text = "\n".join(pathlib.Path(__file__).read_text().split("\n")[:32])
end_of_text = "<|endoftext|>"
greedy_models = []
converted_models = []


def run(*arguments):
    done = subprocess.run([atoll, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"atoll {' '.join(map(str, arguments))}: exit {done.returncode}\n{done.stderr}")
    return done.stdout


@contextlib.contextmanager
def no_warnings(name):
    """Of transformers."""
    said = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: said.append(record.getMessage())
    logger = logging.getLogger("transformers")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
    assert not said, f"{name}: transformers warns: {said}"


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


def gpt2(**extra):
    sizes = dict(vocab_size=400, n_embd=64, n_layer=3, n_head=4, n_positions=1024, initializer_range=0.15, bos_token_id=None,
                 eos_token_id=0, pad_token_id=None, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    return transformers.GPT2Config(**(sizes | extra))


def mixtures(plain, yarn):
    """Models with experts."""
    mixtral = functools.partial(small, transformers.MixtralConfig, num_local_experts=5, router_aux_loss_coef=0.5, output_router_logits=True)
    yield "mixtral", transformers.MixtralForCausalLM(mixtral()), {}
    yield "mixtral, window, one expert a token, tied", transformers.MixtralForCausalLM(mixtral(
        sliding_window=50, num_experts_per_tok=1, tie_word_embeddings=True)), {}
    olmoe = functools.partial(small, transformers.OlmoeConfig, num_experts=6, num_experts_per_tok=3, router_aux_loss_coef=0.5, output_router_logits=True)
    yield "olmoe", transformers.OlmoeForCausalLM(olmoe()), {}
    yield "olmoe, clipped, shares that add up to 1, biases, bf16, sharded", transformers.OlmoeForCausalLM(olmoe(
        clip_qkv=0.7, norm_topk_prob=True, attention_bias=True)).bfloat16(), {"max_shard_size": "60kB"}
    qwen3 = functools.partial(small, transformers.Qwen3MoeConfig, head_dim=24, moe_intermediate_size=40, num_experts=8,
                              num_experts_per_tok=2)
    yield "qwen3_moe", transformers.Qwen3MoeForCausalLM(qwen3(router_aux_loss_coef=0.5, output_router_logits=True, norm_topk_prob=True)), {}
    yield "qwen3_moe, all experts, no loss of the router, stretched", transformers.Qwen3MoeForCausalLM(qwen3(
        num_experts_per_tok=8, rope_parameters=yarn)), {}
    oss = functools.partial(small, transformers.GptOssConfig, num_hidden_layers=4, head_dim=24, sliding_window=50, num_local_experts=4,
                            num_experts_per_tok=2, router_aux_loss_coef=0.5, output_router_logits=True, rope_parameters=yarn | {"truncate": False})
    yield "gpt_oss", transformers.GptOssForCausalLM(oss()), {}
    yield "gpt_oss, other layers, not stretched, no biases, bf16", transformers.GptOssForCausalLM(oss(
        attention_bias=False, rope_parameters=plain,
        layer_types=["full_attention", "full_attention", "sliding_attention", "full_attention"])).bfloat16(), {}


def packed_experts(folder):
    """A gpt_oss model whose experts' matrices are in MXFP4, as its files have them, and what transformers makes of those."""
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors
    model = transformers.GptOssForCausalLM(small(transformers.GptOssConfig, head_dim=16, intermediate_size=96, num_local_experts=3,
                                                 num_experts_per_tok=2, sliding_window=50))
    rouse(model)
    state = {}
    for name, parameter in model.state_dict().items():
        if not name.endswith(("gate_up_proj", "down_proj")):
            state[name] = parameter.contiguous()
            continue
        experts, inputs, outputs = parameter.shape
        state[name + "_blocks"] = torch.randint(256, (experts, outputs, inputs // 32, 16), dtype=torch.uint8)
        state[name + "_scales"] = torch.randint(118, 122, (experts, outputs, inputs // 32), dtype=torch.uint8)
        parameter.copy_(convert_moe_packed_tensors(state[name + "_blocks"], state[name + "_scales"], dtype=torch.float32))
    model.config.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}
    (folder / "config.json").write_text(json.dumps(config))
    safetensors.torch.save_file(state, folder / "model.safetensors")
    return model


def compare_packed(root):
    folder = root / "packed"
    folder.mkdir()
    model = packed_experts(folder)
    tokenizer = train_tokenizer(folder / "tokenizer.json")
    name = "gpt_oss, experts in MXFP4"
    compare(name, folder, model, tokenizer)
    compare_greedy(name, folder, model, tokenizer)
    compare_gradients(name, folder, model, root)
    run("convert", folder, root / "unpacked", "--verify")
    found = transformers.AutoModelForCausalLM.from_pretrained(root / "unpacked", dtype=torch.float32).state_dict()
    for key, value in model.state_dict().items():
        assert torch.equal(found[key], value), f"{name}: {key} is another when it is converted"


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
    yield "qwen3, biases, a window in the last layers", transformers.Qwen3ForCausalLM(small(
        qwen, head_dim=16, attention_bias=True, use_sliding_window=True, sliding_window=50, max_window_layers=1)), {}
    yield "llama, biases", transformers.LlamaForCausalLM(small(llama, attention_bias=True, mlp_bias=True)), {}
    for name, rope in {
        "linear": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 3.0},
        "dynamic": {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0},
        "llama3": {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
                   "high_freq_factor": 4.0, "original_max_position_embeddings": 100},
    }.items():
        context = 256 if name == "dynamic" else 1024
        yield f"llama, {name} rotary positions", transformers.LlamaForCausalLM(
            small(llama, rope_parameters=rope, max_position_embeddings=context)), {}
    mistral = transformers.MistralConfig
    yield "mistral, window", transformers.MistralForCausalLM(small(mistral, sliding_window=60)), {}
    yield "mistral, no window, head_dim 24", transformers.MistralForCausalLM(
        small(mistral, sliding_window=None, head_dim=24)), {}
    qwen2 = transformers.Qwen2Config
    yield "qwen2", transformers.Qwen2ForCausalLM(small(qwen2)), {}
    yield "qwen2, tied, window", transformers.Qwen2ForCausalLM(small(
        qwen2, tie_word_embeddings=True, use_sliding_window=True, sliding_window=33, max_window_layers=2)), {}
    olmo2 = transformers.Olmo2Config
    yield "olmo2", transformers.Olmo2ForCausalLM(small(olmo2)), {}
    yield "olmo2, tied, biases", transformers.Olmo2ForCausalLM(small(olmo2, tie_word_embeddings=True, attention_bias=True)), {}
    olmo = transformers.OlmoConfig
    yield "olmo", transformers.OlmoForCausalLM(small(olmo)), {}
    yield "olmo, clipped, biases, tied, bf16", transformers.OlmoForCausalLM(small(
        olmo, clip_qkv=0.7, attention_bias=True, tie_word_embeddings=True)).bfloat16(), {}
    olmo3 = functools.partial(small, transformers.Olmo3Config, num_hidden_layers=5, sliding_window=60)
    yield "olmo3", transformers.Olmo3ForCausalLM(olmo3()), {}
    yarn = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 8.0, "original_max_position_embeddings": 128,
            "beta_fast": 8.0, "beta_slow": 1.0}
    plain = {"rope_type": "default", "rope_theta": 10000.0}
    yield "olmo3, stretched, other layers", transformers.Olmo3ForCausalLM(olmo3(
        layer_types=["full_attention", "sliding_attention", "sliding_attention", "full_attention", "full_attention"],
        rope_parameters={"sliding_attention": plain, "full_attention": yarn | {"attention_factor": 1.3}})), {}
    for name, extra in {"": {}, ", mscale": {"mscale": 1.0, "mscale_all_dim": 0.6}, ", not truncated": {"truncate": False}}.items():
        yield f"llama, yarn rotary positions{name}", transformers.LlamaForCausalLM(small(llama, rope_parameters=yarn | extra)), {}
    phi3 = transformers.Phi3Config
    yield "phi3", transformers.Phi3ForCausalLM(small(phi3)), {}
    yield "phi3, window, part of a head turns", transformers.Phi3ForCausalLM(small(
        phi3, sliding_window=70, rope_parameters=plain | {"partial_rotary_factor": 0.75})), {}
    for name, original, extra in (("short", 800, {}), ("long", 200, {"attention_factor": 1.3})):
        # With larger weights transformers' angles, which are in single precision, show.
        config = small(phi3, initializer_range=0.1, original_max_position_embeddings=original, rope_parameters=plain | extra | {
            "rope_type": "longrope", "short_factor": [1 + 0.1 * pair for pair in range(8)],
            "long_factor": [1.5 + pair for pair in range(8)]})
        yield f"phi3, longrope, {name}", transformers.Phi3ForCausalLM(config), {}
    smollm3 = functools.partial(small, transformers.SmolLM3Config, num_hidden_layers=5)
    yield "smollm3", transformers.SmolLM3ForCausalLM(smollm3()), {}
    yield "smollm3, other layers, biases, untied", transformers.SmolLM3ForCausalLM(smollm3(
        no_rope_layers=[1, 0, 0, 1, 1], attention_bias=True, mlp_bias=True, tie_word_embeddings=False)), {}
    granite = transformers.GraniteConfig
    yield "granite", transformers.GraniteForCausalLM(small(
        granite, embedding_multiplier=3.0, residual_multiplier=0.4, attention_multiplier=0.1, logits_scaling=1.7)), {}
    yield "granite, biases, few factors", transformers.GraniteForCausalLM(small(
        granite, attention_bias=True, mlp_bias=True, tie_word_embeddings=True, attention_multiplier=0.5)), {}
    gemma2 = functools.partial(small, transformers.Gemma2Config, num_hidden_layers=4, head_dim=24, sliding_window=50)
    yield "gemma2", transformers.Gemma2ForCausalLM(gemma2(query_pre_attn_scalar=20, attn_logit_softcapping=2.0,
                                                          final_logit_softcapping=3.0)), {}
    yield "gemma2, untied, no caps, biases", transformers.Gemma2ForCausalLM(gemma2(
        attn_logit_softcapping=None, final_logit_softcapping=None, tie_word_embeddings=False, attention_bias=True)), {}
    gemma3 = functools.partial(small, transformers.Gemma3TextConfig, num_hidden_layers=7, head_dim=24, sliding_window=50)
    yield "gemma3", transformers.Gemma3ForCausalLM(gemma3()), {}
    yield "gemma3, stretched, other scale", transformers.Gemma3ForCausalLM(gemma3(
        query_pre_attn_scalar=30, rope_parameters={
            "sliding_attention": plain, "full_attention": {"rope_type": "linear", "rope_theta": 50000.0, "factor": 4.0}})), {}
    yield from mixtures(plain, yarn)
    neox = functools.partial(small, transformers.GPTNeoXConfig, num_key_value_heads=None)
    quarter = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25}
    yield "gpt_neox", transformers.GPTNeoXForCausalLM(neox(rope_parameters=quarter)), {}
    yield "gpt_neox, sequential, tanh gelu, no biases in attention", transformers.GPTNeoXForCausalLM(neox(
        use_parallel_residual=False, hidden_act="gelu_new", attention_bias=False,
        rope_parameters=quarter | {"partial_rotary_factor": 1.0, "rope_theta": 500.0})), {}
    yield "gpt_neox, tied", transformers.GPTNeoXForCausalLM(neox(tie_word_embeddings=True, rope_parameters=quarter)), {}
    yield "gpt2", transformers.GPT2LMHeadModel(gpt2()), {}
    yield "gpt2, untied, narrow, erf gelu, sharded", transformers.GPT2LMHeadModel(gpt2(
        tie_word_embeddings=False, n_inner=112, activation_function="gelu")), {"max_shard_size": "60kB"}
    yield "gpt2, bf16", transformers.GPT2LMHeadModel(gpt2(n_head=2, layer_norm_epsilon=1e-3)).bfloat16(), {}


def rouse(model):
    """Biases and norms begin as 0 and 1, where a mistake in them would not show."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1 or name.endswith("bias"):
                parameter.add_(torch.randn_like(parameter) * 0.2)


def balance_loss(logits, experts_per_token):
    """Of one layer: experts times the sum of the tokens that each reads times its mean probability."""
    probabilities = torch.softmax(logits.double(), -1)
    chosen = torch.zeros_like(probabilities).scatter(1, probabilities.topk(experts_per_token).indices, 1.0)
    return logits.shape[1] * (chosen.mean(0) * probabilities.mean(0)).sum()


def compare_gradients(name, folder, model, root):
    """One step of SGD with a rate of 1 moves each parameter by its gradient."""
    store = root / "store"
    source = root / "source"
    if not source.exists():
        source.mkdir()
        for number in range(30):
            (source / f"{number}.txt").write_text(f"{number}\n" + text)
    run("data", "pack", source, "--tokenizer", folder / "tokenizer.json", "--out", store, "--overwrite",
        "--validation-share", 0.3, "--json")
    batch = json.loads(run("data", "batch", store, "--step", 0, "--batch-rows", 2, "--sequence-length", 96, "--seed", 1,
                           "--json"))
    trained = root / "trained" / folder.name
    run("train", "--init", folder, "--run", trained, "--data", store, "--train.steps=1", "--train.batch_rows=2",
        "--train.sequence_length=96", "--train.optimizer=sgd", "--train.lr=1", "--train.min_lr_ratio=1",
        "--train.warmup_steps=0", "--train.weight_decay=0", "--train.grad_clip=0", "--train.z_loss=0",
        "--train.threads=1", "--json")
    step = sorted((trained / "checkpoints").iterdir())[-1]
    after = transformers.AutoModelForCausalLM.from_pretrained(step, dtype=torch.float32).state_dict()
    rows = torch.tensor([row["ids"] for row in batch["rows"]])
    model = model.float().train()
    model.zero_grad()
    weight = model.config.router_aux_loss_coef if getattr(model.config, "output_router_logits", False) else None
    said = model(rows, **({} if weight is None else {"output_router_logits": True}))
    loss = torch.nn.functional.cross_entropy(said.logits[:, :-1].flatten(0, 1).double(), rows[:, 1:].flatten())
    if weight is not None:
        loss = loss + weight * torch.stack([balance_loss(layer, model.config.num_experts_per_tok) for layer in said.router_logits]).mean()
    loss.backward()
    worst = 0.0
    for key, parameter in model.named_parameters():
        found = parameter.detach().double() - after[key].double()
        wanted = parameter.grad.double()
        # Storing parameters in FP32 rounds their difference.
        rounding = 2 ** -23 * parameter.detach().double().norm()
        error = (found - wanted).norm()
        assert error <= tolerance * wanted.norm() + rounding, f"{name}: the gradient of {key} differs by {error / wanted.norm()}"
        worst = max(worst, (error / (wanted.norm() + rounding / tolerance)).item())
    print(f"{name}: gradients, largest difference {worst:.1e}")
    gradient_differences.append(worst)


def compare_converted(name, folder, root):
    """`atoll convert` keeps every bit, in as many files as asked for, and transformers reads them in silence."""
    out = root / "converted" / folder.name
    out.parent.mkdir(exist_ok=True)
    said = json.loads(run("convert", folder, out, "--max-shard-size", 0.0001, "--verify", "--json"))
    assert said["largest_logprob_difference"] == 0, said
    assert len(list(out.glob("*.safetensors"))) > 1

    def state(path):
        return transformers.AutoModelForCausalLM.from_pretrained(path, dtype="auto").state_dict()
    with no_warnings(name):
        found = state(out)
    wanted = state(folder)
    assert found.keys() == wanted.keys()
    for key, value in wanted.items():
        assert found[key].dtype == value.dtype and torch.equal(found[key], value), f"{name}: {key} changed"
    converted_models.append(name)


def compare(name, folder, model, tokenizer):
    """`atoll eval --per-token` of `folder` against `model`, token by token."""
    model = model.float().eval()
    text_file, out_file = folder / "text.txt", folder / "per_token.jsonl"
    text_file.write_text(text)
    summary = json.loads(run("eval", folder, "--text", text_file, "--per-token", out_file, "--threads", 1, "--kv-dtype", "fp32",
                             "--json"))
    lines = [json.loads(line) for line in out_file.read_text().splitlines()]
    ids = [line["id"] for line in lines]
    assert ids == tokenizer.encode(text).ids, f"{name}: other ids than tokenizers"
    assert 200 < len(ids) <= 1024, len(ids)
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
    out = json.loads(run("generate", folder, "--prompt", prompt, "--max-tokens", 64, "--greedy", "--threads", 1, "--kv-dtype", "fp32",
                         "--json"))
    ids = tokenizer.encode(prompt).ids
    for position, chosen in enumerate(out["ids"]):
        with torch.no_grad():
            logits = model(torch.tensor([ids + out["ids"][:position]])).logits[0, -1]
        assert logits[chosen] >= logits.max() - tolerance, f"{name}: token {position} is not the likeliest"
    assert out["text"] == tokenizer.decode(out["ids"], skip_special_tokens=False), name
    if out["finish_reason"] == "length":
        assert len(out["ids"]) == 64, name
    else:
        with torch.no_grad():
            logits = model(torch.tensor([ids + out["ids"]])).logits[0, -1]
        assert logits.argmax() == model.config.eos_token_id, name
    greedy_models.append(name)


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
    with no_warnings(name):
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
            rouse(model)
            model.save_pretrained(folder, **how)
            assert ("max_shard_size" in how) == (folder / "model.safetensors.index.json").exists()
            tokenizer = train_tokenizer(folder / "tokenizer.json")
            # Read anew: converting a model in memory also rounds its rotary frequencies.
            model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
            compare(name, folder, model, tokenizer)
            compare_greedy(name, folder, model, tokenizer)
            compare_gradients(name, folder, model, root)
            compare_converted(name, folder, root)
        compare_packed(root)
        for number, (name, options) in enumerate([("our llama", []), ("our qwen3, untied", [
                "--model.architecture=qwen3", "--model.tie_embeddings=false", "--model.head_dim=16"]),
                ("our mistral", ["--model.architecture=mistral", "--model.sliding_window=20"]),
                ("our qwen2", ["--model.architecture=qwen2", "--model.sliding_window=20", "--model.full_layers=1"]),
                ("our olmo2", ["--model.architecture=olmo2", "--model.tie_embeddings=false"]),
                ("our pythia", ["--model.architecture=gpt_neox", "--model.num_kv_heads=4", "--model.attention_bias=true",
                                "--model.partial_rotary_factor=0.25", "--model.tie_embeddings=false"]),
                ("our gpt2", ["--model.architecture=gpt2", "--model.num_kv_heads=4", "--model.activation=gelu_tanh"]),
                ("our olmoe", ["--model.architecture=olmoe", "--model.num_experts=6", "--model.router_aux_loss=0.01"]),
                ("our gpt_oss", ["--model.architecture=gpt_oss", "--model.num_experts=3", "--model.tie_embeddings=false"]),
                ("our llama, stretched", ["--model.rope_type=llama3", "--model.rope_factor=8",
                                          "--model.rope_original_positions=64"])]):
            folder = root / f"own-{number}"
            folder.mkdir()
            check_own_checkpoint(name, folder, options)
    print(json.dumps({"models": len(differences), "loaded_without_a_warning": number + 1, "greedy_texts": len(greedy_models),
                      "weights_back_byte_for_byte": len(converted_models), "max_difference": max(differences),
                      "max_gradient_difference": max(gradient_differences)}))


if __name__ == "__main__":
    main()
