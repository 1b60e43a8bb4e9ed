#!/usr/bin/env python3
"""How fast `atoll generate` makes tokens, and transformers' generate, in turns: SmolLM2-135M in BF16.

  generate_speed.py ATOLL [--threads 2] [--rounds 3]
"""
import argparse
import json
import statistics
import subprocess
import sys
import time

import real

PROMPT = "The atoll lies in the middle of the ocean, and"
FEW, MANY, AT_ONCE = 16, 144, 8  # What begins with the program is the same for few tokens and for many.


def folder():
    """As Hugging Face has models."""
    made = real.FOLDER / "smollm2-bf16"
    if not made.exists():
        import torch
        from transformers import AutoTokenizer, LlamaForCausalLM
        source, name = real.smollm2().parent, real.smollm2().name
        read = LlamaForCausalLM.from_pretrained(source, gguf_file=name, dtype=torch.bfloat16)
        del read.config.quantization_config
        model = LlamaForCausalLM(read.config).to(torch.bfloat16)
        model.load_state_dict(read.state_dict())
        AutoTokenizer.from_pretrained(source, gguf_file=name).save_pretrained(made)
        model.save_pretrained(made)
    return made


def made_in(atoll, threads, count, prompts, *words):
    """Tokens and seconds; a text may end before."""
    begin = time.monotonic()
    asked = [word for i in range(prompts) for word in ("--prompt", PROMPT if prompts == 1 else f"{i} {PROMPT}")]
    told = json.loads(subprocess.run([atoll, "generate", folder(), *asked, "--threads", str(threads), "--max-tokens", str(count), "--greedy", "--json",
                                      *words], check=True, capture_output=True, text=True).stdout)
    return sum(len(one["ids"]) for one in told.get("generations", [told])), time.monotonic() - begin


def atoll_rate(atoll, threads, prompts, *words):
    (few, few_s), (many, many_s) = (made_in(atoll, threads, count, prompts, *words) for count in (FEW, MANY))
    return (many - few) / (many_s - few_s)


def transformers_rate(model, inputs):
    took = []
    for count in (FEW, MANY):
        begin = time.monotonic()
        model.generate(**inputs, do_sample=False, max_new_tokens=count, min_new_tokens=count)
        took.append(time.monotonic() - begin)
    return len(inputs.input_ids) * (MANY - FEW) / (took[1] - took[0])


def rates(atoll, threads=2, rounds=3):
    """Tokens a second, medians: name -> rate. transformers in FP32 or BF16, whichever is faster."""
    import torch
    from transformers import AutoTokenizer, LlamaForCausalLM
    torch.set_num_threads(threads)
    tokenizer = AutoTokenizer.from_pretrained(folder())
    inputs = tokenizer(PROMPT, return_tensors="pt")
    theirs = {kind: LlamaForCausalLM.from_pretrained(folder(), dtype=getattr(torch, kind)).eval() for kind in ("float32", "bfloat16")}
    found = {}
    for _ in range(rounds):
        for name, rate in (("a token a pass", atoll_rate(atoll, threads, 1, "--max-guesses", "0")), ("with guesses", atoll_rate(atoll, threads, 1)),
                           (f"{AT_ONCE} texts at once", atoll_rate(atoll, threads, AT_ONCE)),
                           ("transformers", max(transformers_rate(model, inputs) for model in theirs.values()))):
            found.setdefault(name, []).append(rate)
    return {name: statistics.median(all_rates) for name, all_rates in found.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("atoll")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    for name, rate in rates(arguments.atoll, arguments.threads, arguments.rounds).items():
        print(f"{name:<20} {rate:7.1f} tokens/s")


if __name__ == "__main__":
    sys.exit(main())
