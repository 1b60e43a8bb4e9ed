#!/usr/bin/env python3
"""`atoll tokenizer chat` beside transformers' apply_chat_template: text and ids, for templates laid out as those of the
open model families (in words of our own).

  chat_oracle.py ATOLL
"""
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

os.environ["TOKENIZERS_PARALLELISM"] = "false"
sys.path.insert(0, str(pathlib.Path(__file__).parent))
from chat_templates import TEMPLATES
from tokenizer_families import make, python_sources
from transformers import PreTrainedTokenizerFast

atoll = sys.argv[1]
rng = random.Random(5)
SPECIAL = ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|eot_id|>", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>",
           "[INST]", "[/INST]", "<|endoftext|>", "<|user|>", "<|assistant|>", "<|system|>", "<think>", "</think>"]
TEXTS = ["Hi", "  What is 2 + 2?\n", "Ünïcödé 日本 😀", "", "a <|im_end|> b [INST] </s>", "def f():\n    return {}\n", "\"quotes\" & <tags>", "<think>\nsome\n</think>\n\nFour."]
TOOL = {"type": "function", "function": {"name": "add", "description": "Adds two numbers: é", "parameters": {
    "type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number", "default": 1.5}}, "required": ["a"]}}}


def chats(count):
    for _ in range(count):
        messages = [{"role": "system", "content": rng.choice(TEXTS)}] if rng.random() < 0.5 else []
        for turn in range(rng.randrange(1, 6)):
            role = ("user", "assistant")[turn % 2] if rng.random() < 0.95 else rng.choice(["user", "tool", "assistant", "other"])
            message = {"role": role, "content": rng.choice(TEXTS)}
            if role == "assistant" and rng.random() < 0.2:
                message["tool_calls"] = [{"id": "abcdefghi", "type": "function", "function": {"name": "add", "arguments": {"a": 1, "b": [2, "x"]}}}]
                message["content"] = rng.choice([None, "", "Wait."])
            if role == "assistant" and rng.random() < 0.2:
                message[rng.choice(["reasoning_content", "thinking", "reasoning"])] = "hm\n"
            messages.append(message)
        chat = {"messages": messages}
        if rng.random() < 0.3:
            chat["tools"] = [TOOL] * rng.randrange(1, 3)
        if rng.random() < 0.2:
            chat["documents"] = [{"title": "T", "text": "words"}]
        if rng.random() < 0.5:
            chat["add_generation_prompt"] = rng.random() < 0.8
        if rng.random() < 0.3:
            chat["enable_thinking"] = rng.random() < 0.5
        yield chat


def reference(tokenizer, chat):
    options = {key: value for key, value in chat.items() if key != "messages"}
    try:
        text = tokenizer.apply_chat_template(chat["messages"], tokenize=False, **options)
        ids = tokenizer.apply_chat_template(chat["messages"], tokenize=True, return_dict=False, **options)
        return {"text": text, "ids": ids}
    except Exception:
        return None


def answers(folder, cases):
    """One process for all that render; each that is refused alone."""
    found = []
    for case in cases:
        done = subprocess.run([atoll, "tokenizer", "chat", "--tokenizer", folder, "--json"], input=json.dumps(case), capture_output=True, text=True)
        assert done.returncode in (0, 1), done.stderr
        found.append(json.loads(done.stdout) if done.returncode == 0 else done.stderr)
    return found


def write(folder, tokenizer, name, template, config):
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    if config.pop("as_file", False):
        (folder / "chat_template.jinja").write_text(template)
    else:
        config["chat_template"] = template
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **config}))


def main():
    wrong = compared = refused = 0
    with tempfile.TemporaryDirectory() as temporary:
        root = pathlib.Path(temporary)
        families = {}
        texts = python_sources(200_000)
        for number, (name, (family, template, config)) in enumerate(TEMPLATES.items()):
            if family not in families:
                made = make(family, texts, 1000)
                made.add_special_tokens(SPECIAL)
                families[family] = made
            folder = root / str(number)
            write(folder, families[family], name, template, dict(config))
            tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
            cases = list(chats(25))
            lines = [case for case in cases if reference(tokenizer, case)]
            done = subprocess.run([atoll, "tokenizer", "chat", "--tokenizer", folder, "--jsonl"], input="\n".join(map(json.dumps, lines)),
                                  capture_output=True, text=True)
            if done.returncode != 0:
                print(f"{name}: exit {done.returncode}: {done.stderr}")
                wrong += 1
                continue
            for case, line in zip(lines, done.stdout.splitlines(), strict=True):
                compared += 1
                want = reference(tokenizer, case)
                if json.loads(line) != want:
                    wrong += 1
                    print(f"{name}: {json.dumps(case)}:\n  {line}\n  {json.dumps(want)}")
            for case in [case for case in cases if not reference(tokenizer, case)][:3]:
                (answer,) = answers(folder, [case])
                refused += 1
                if not isinstance(answer, str):
                    wrong += 1
                    print(f"{name}: {json.dumps(case)} gives {answer}, an error in transformers")
    print(f"{len(TEMPLATES)} templates: {compared} chats equal in text and ids, {refused} refused by both, {wrong} wrong")
    sys.exit(1 if wrong or compared < 150 or not refused else 0)


if __name__ == "__main__":
    main()
