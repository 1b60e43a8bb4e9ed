#!/usr/bin/env python3
"""`atoll generate` and `atoll chat` beside transformers: repetition penalty, batches, min-p, stop strings, conversations.

  generate_oracle.py ATOLL
"""
import collections
import json
import math
import pathlib
import subprocess
import sys
import tempfile

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

atoll = sys.argv[1]
PROMPTS = ["def main():", "import torch", "The quick brown fox jumps over the lazy dog, and then", "a"]
TOKENS = 64
CHATML = ("{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")


def run(*arguments, stdin=None, code=0):
    done = subprocess.run([atoll, *map(str, arguments)], capture_output=True, text=True, input=stdin)
    assert done.returncode == code, f"atoll {' '.join(map(str, arguments))}: exit {done.returncode}\n{done.stderr}"
    return done.stdout if code == 0 else done.stderr


def small(config_class, **extra):
    sizes = dict(vocab_size=400, hidden_size=64, intermediate_size=112, num_hidden_layers=3, num_attention_heads=4,
                 num_key_value_heads=2, max_position_embeddings=512, initializer_range=0.15, bos_token_id=None,
                 eos_token_id=0, pad_token_id=None)
    return config_class(**(sizes | extra))


def make_models():
    yield "llama", transformers.LlamaForCausalLM(small(transformers.LlamaConfig))
    yield "mistral, window", transformers.MistralForCausalLM(small(transformers.MistralConfig, sliding_window=20))
    yield "llama, dynamic", transformers.LlamaForCausalLM(small(
        transformers.LlamaConfig, max_position_embeddings=48, rope_parameters={"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}))
    yield "qwen2", transformers.Qwen2ForCausalLM(small(transformers.Qwen2Config))
    yield "qwen3", transformers.Qwen3ForCausalLM(small(transformers.Qwen3Config, head_dim=24))
    yield "olmo2", transformers.Olmo2ForCausalLM(small(transformers.Olmo2Config))
    yield "gpt_neox", transformers.GPTNeoXForCausalLM(small(transformers.GPTNeoXConfig, num_key_value_heads=None))
    yield "gpt2", transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=400, n_embd=64, n_layer=3, n_head=4, n_positions=512, initializer_range=0.15, bos_token_id=None, eos_token_id=0,
        pad_token_id=None))


def train_tokenizer(folder):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator([pathlib.Path(__file__).read_text()], trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.save(str(folder / "tokenizer.json"))
    return tokenizer


def reference(model, ids, penalty, tokens=TOKENS):
    """transformers' generate(), greedy; and how near the second choice came. (With its cache: of dynamic rotary positions
    keys stay as they were turned when they were read, in both.)"""
    with torch.no_grad():
        made = model.generate(torch.tensor([list(ids)]), max_new_tokens=tokens, do_sample=False, repetition_penalty=penalty, pad_token_id=0,
                              return_dict_in_generate=True, output_scores=True)
    closest = min((scores.topk(2).values[0] @ torch.tensor([1.0, -1.0])).item() for scores in made.scores)
    found = made.sequences[0, len(ids):].tolist()
    return (found[: found.index(0)], "stop", closest) if 0 in found else (found, "length", closest)


def compare_batch(name, folder, model, tokenizer):
    """Rows of a batch against single prompts and against transformers."""
    prompts = folder / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in PROMPTS))
    equal = 0
    for penalty in (1.0, 1.3):
        found = json.loads(run("generate", folder, "--prompts", prompts, "--max-tokens", TOKENS, "--greedy", "--repetition-penalty", penalty,
                               "--threads", 1, "--json"))
        assert len(found["generations"]) == len(PROMPTS)
        for text, row in zip(PROMPTS, found["generations"], strict=True):
            ids, reason, closest = reference(model, tokenizer.encode(text).ids, penalty)
            if row["ids"] != ids and closest < 1e-4:
                continue  # Two logits tie.
            assert (row["ids"], row["finish_reason"]) == (ids, reason), f"{name}, {penalty}, {text!r}: {row}, not {ids}"
            equal += 1
        assert found["ids"] == found["generations"][0]["ids"]
    for text, row in zip(PROMPTS, found["generations"]):
        alone = json.loads(run("generate", folder, "--prompt", text, "--max-tokens", TOKENS, "--greedy", "--repetition-penalty", 1.3, "--threads", 1,
                               "--json"))
        assert alone == row, f"{name}: {alone} alone, {row} in the batch"
    assert equal >= 2 * len(PROMPTS) - 1
    print(f"{name}: {equal} texts of {TOKENS} tokens equal")


def compare_draws(folder, model, tokenizer):
    """Frequencies of the first token under each mixture of options against transformers' processors, in their order."""
    ids = tokenizer.encode(PROMPTS[0]).ids
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[:, -1]
    draws = 512
    prompts = folder / "same.txt"
    prompts.write_text((PROMPTS[0] + "\n") * draws)
    for temperature, top_k, top_p, min_p, penalty in [(1.0, 0, 1.0, 0.1, 1.0), (0.7, 0, 1.0, 0.3, 1.5), (1.5, 7, 0.8, 0.2, 1.0), (2.0, 5, 1.0, 0.5, 1.2)]:
        scores = transformers.RepetitionPenaltyLogitsProcessor(penalty)(torch.tensor([ids]), logits.clone())
        scores = transformers.TemperatureLogitsWarper(temperature)(None, scores)
        if top_k:
            scores = transformers.TopKLogitsWarper(top_k)(None, scores)
        if top_p < 1:
            scores = transformers.TopPLogitsWarper(top_p)(None, scores)
        scores = transformers.MinPLogitsWarper(min_p)(None, scores)
        wanted = torch.softmax(scores[0].double(), -1)
        found = json.loads(run("generate", folder, "--prompts", prompts, "--max-tokens", 1, "--temperature", temperature, "--top-k", top_k, "--top-p",
                               top_p, "--min-p", min_p, "--repetition-penalty", penalty, "--seed", 11, "--threads", 1, "--json"))
        counts = collections.Counter(row["ids"][0] if row["ids"] else 0 for row in found["generations"])
        assert all(wanted[token] > 0 for token in counts), "a token was drawn that transformers leaves out"
        for token, share in enumerate(wanted.tolist()):
            assert abs(counts[token] / draws - share) <= 4.5 * math.sqrt(share * (1 - share) / draws) + 1e-9, (token, counts[token] / draws, share)
        print(f"draws: {len(counts)} of {(wanted > 0).sum()} tokens, frequencies as wanted")


def compare_stops(folder, tokenizer):
    whole = json.loads(run("generate", folder, "--prompt", PROMPTS[1], "--max-tokens", 40, "--greedy", "--repetition-penalty", 1.3, "--json"))
    text = whole["text"]
    found = 0
    for begin, size in [(begin, size) for size in (5, 3, 2) for begin in range(3, len(text) - 6)]:
        stop = text[begin : begin + size]
        if "\ufffd" in stop or not stop.strip():
            continue
        made = json.loads(run("generate", folder, "--prompt", PROMPTS[1], "--max-tokens", 40, "--greedy", "--repetition-penalty", 1.3, "--json",
                              "--stop", "nothing of the kind", "--stop", stop))
        assert made["text"] == text[: text.index(stop)] and made["finish_reason"] == "stop", (stop, made, text)
        assert whole["ids"][: len(made["ids"])] == made["ids"]
        assert stop in tokenizer.decode(made["ids"], skip_special_tokens=False)
        printed = run("generate", folder, "--prompt", PROMPTS[1], "--max-tokens", 40, "--greedy", "--repetition-penalty", 1.3, "--stop", stop)
        assert printed == made["text"] + "\n"
        found += 1
        if found == 8:
            break
    assert found == 8, "too few stop strings were tried"
    print(f"{found} stop strings: the text ends before them")


def compare_chat(folder, model, tokenizer):
    """Each turn of a conversation against the whole of it read anew."""
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "chat_template": CHATML}))
    reference_tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    messages = ["Hello", "How are you?", "/reset", "Again", "and again"]
    options = ["--greedy", "--max-tokens", 12, "--repetition-penalty", 1.3, "--threads", 1, "--system", "Be kind."]
    lines = [json.loads(line) for line in run("chat", folder, *options, "--json", stdin="\n".join(messages) + "\n").splitlines()]
    assert len(lines) == 4
    chat, answers = [], iter(lines)
    for message in ["/reset", *messages]:
        if message == "/reset":
            chat, previous = [{"role": "system", "content": "Be kind."}], None
            continue
        chat.append({"role": "user", "content": message})
        ids = reference_tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
        line = next(answers)
        wanted, _, closest = reference(model, ids, 1.3, 12)
        end = tokenizer.token_to_id("<|im_end|>")
        wanted = wanted[: wanted.index(end)] if end in wanted else wanted
        assert line["ids"] == wanted or closest < 1e-4, (line, wanted)
        assert line["prompt_tokens"] == len(ids)
        if previous:
            assert line["reused_tokens"] >= previous - 1, line  # All that the turn before had read.
        previous = len(ids)
        chat.append({"role": "assistant", "content": line["text"]})
    printed = run("chat", folder, *options, stdin="\n".join(messages) + "\n/quit\nnot read\n")
    assert printed == "".join(line["text"] + "\n" for line in lines), printed
    said = run("chat", folder, "--greedy", "--json", stdin="word " * 600 + "\n", code=1)
    assert "/reset" in said and "context" in said, said
    (folder / "tokenizer_config.json").unlink()
    said = run("chat", folder, stdin="Hi\n", code=1)
    assert "has no chat template" in said and "--template" in said, said
    plain = run("chat", folder, "--template", "plain", "--greedy", "--max-tokens", 3, "--json", stdin="Hi\n")
    assert json.loads(plain)["prompt_tokens"] == len(tokenizer.encode("User: Hi\nAssistant:").ids)
    print("chat: every turn as if the conversation were read anew")


def main():
    torch.manual_seed(3)
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as temporary:
        for number, (name, model) in enumerate(make_models()):
            folder = pathlib.Path(temporary) / str(number)
            model.save_pretrained(folder)
            tokenizer = train_tokenizer(folder)
            model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
            compare_batch(name, folder, model, tokenizer)
            if number == 0:
                compare_draws(folder, model, tokenizer)
                compare_stops(folder, tokenizer)
                compare_chat(folder, model, tokenizer)


if __name__ == "__main__":
    main()
