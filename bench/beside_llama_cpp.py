"""Atoll beside llama.cpp (PyPI llama-cpp-python) on the same GGUF files, for claims_models.py.

With weights in FP32 and an FP32 cache both must say the same tokens; the GELU of GPT-2, GPT-NeoX and Gemma is a table in half precision there. With
other types llama.cpp rounds activations to 8 bits (F16, BF16: to 16) before it multiplies and Atoll does not. So there are three
comparisons: the values that each takes from a file, what both say with the values that llama.cpp took, and what both say with the file.
"""
import contextlib
import copy
import ctypes
import functools
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy
import real
from claims import ATOLL, ROOT, run

sys.path.append(str(ROOT / "tests" / "oracle"))
import gguf_write_oracle as small  # noqa: E402
import tokenizer_families  # noqa: E402

PRINT_LOGITS = ROOT / "build" / "bin" / "atoll-print-logits"
NUM_GREEDY, NUM_PLACES, NUM_SMALL_GREEDY, NUM_SMALL_PLACES = 200, 2000, 64, 500
PROMPT = "The atoll lies"
GELU = ("gpt2", "gptneox", "gptneox-tied", "gemma2", "gemma3")
# llama.cpp's numbers of file types. A type alone, for all matrices of a model whose rows are whole blocks of each:
ALONE = {"F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q5_0": 8, "Q5_1": 9, "Q2_K": 10, "Q3_K": 11, "Q4_K": 14, "Q5_K": 16, "Q6_K": 18,
         "IQ4_NL": 25, "IQ4_XS": 30, "BF16": 32}
# What people choose, a mix of types each; rows that are no whole blocks get others:
MIXES = {"F16": 1, "BF16": 32, "Q8_0": 7, "Q4_0": 2, "Q4_1": 3, "Q5_0": 8, "Q5_1": 9, "Q2_K": 10, "Q3_K_M": 12, "Q4_K_M": 15, "Q5_K_M": 17,
         "Q6_K": 18, "IQ4_NL": 25, "IQ4_XS": 30}

scratch = tempfile.TemporaryDirectory(prefix="atoll-llama-")
folder = pathlib.Path(scratch.name)


@functools.cache
def llama_cpp():
    module = real.llama_cpp()
    quiet = module.llama_log_callback(lambda *_: None)
    module.llama_log_set(quiet, ctypes.c_void_p(0))
    module.quiet = quiet  # It must live as long as the library may call it.
    return module


def opened(path, num_positions):
    module = llama_cpp()
    float32, threads = module.GGML_TYPE_F32, os.cpu_count()
    return contextlib.closing(module.Llama(str(path), n_ctx=num_positions, n_batch=512, n_gpu_layers=0, n_threads=threads,
                                           n_threads_batch=threads, logits_all=True, type_k=float32, type_v=float32, flash_attn=False,
                                           verbose=False))


def their_logits(path, ids):
    with opened(path, len(ids)) as model:
        model.eval(ids)
        return finite(model.scores[: len(ids)].copy())


def our_logits(path, ids):
    done = subprocess.run([PRINT_LOGITS, path], input=" ".join(map(str, ids)).encode(), check=True, capture_output=True)
    return finite(numpy.frombuffer(done.stdout, dtype=numpy.float32).reshape(len(ids), -1))


def finite(logits):
    if not numpy.isfinite(logits).all():
        raise RuntimeError("logits that are no numbers")
    return logits


def ids_of(path, text):
    told = run([ATOLL, "tokenizer", "encode", "--tokenizer", path, "--text", "-", "--special"], input=text)
    return [int(id) for id in told.strip().split(",")]


def greedy_different(path, count):
    """Of `count` greedy tokens, how many are others; where Atoll ends, llama.cpp must end too."""
    told = json.loads(run([ATOLL, "generate", path, "--prompt", PROMPT, "--greedy", "--max-tokens", str(count), "--json"]))
    prompt, ends = ids_of(path, PROMPT), told["finish_reason"] != "length"
    found, new = [], prompt
    with opened(path, len(prompt) + count) as model:
        for _ in range(len(told["ids"]) + ends):
            model.eval(new)
            new = [int(model.scores[model.n_tokens - 1].argmax())]
            found += new
        others = sum(a != b for a, b in zip(told["ids"], found))
        if ends:
            module = llama_cpp()
            others += not module.llama_vocab_is_eog(module.llama_model_get_vocab(model.model), found[-1])
    return {"greedy": len(found), "others": others}


def log_softmax(logits):
    logits = logits.astype(numpy.float64)
    logits -= logits.max(axis=1, keepdims=True)
    return logits - numpy.log(numpy.exp(logits).sum(axis=1, keepdims=True))


def same_places(ours, theirs):
    """Share of places with the same likeliest token."""
    return float((ours.argmax(axis=1) == theirs.argmax(axis=1)).mean())


def compared(ours, theirs):
    """That share, the mean divergence of theirs in nats, and by how much the log-probability of a token over e^-20 differs at most."""
    divergence, largest = 0.0, 0.0
    for begin in range(0, len(ours), 100):
        p, q = (log_softmax(one[begin : begin + 100]) for one in (ours, theirs))
        divergence += float((numpy.exp(p) * (p - q)).sum())
        largest = max(largest, float(abs(p - q)[p > -20].max()))
    return {"same": same_places(ours, theirs), "divergence": divergence / len(ours), "largest": largest}


def made_by_llama_cpp(source, file_type, path, alone=False):
    module = llama_cpp()
    options = module.llama_model_quantize_default_params()
    options.ftype, options.nthread, options.allow_requantize, options.pure = file_type, os.cpu_count(), True, alone
    if module.llama_model_quantize(str(source).encode(), str(path).encode(), ctypes.byref(options)) != 0:
        raise RuntimeError(f"llama.cpp does not make {path.name} of {source.name}")
    return path


def tensors(path):
    return {tensor.name: tensor for tensor in small.gguf.GGUFReader(path).tensors}


def num_other_tensors(path, widened):
    """How many tensors of a file Atoll widens to other bits than llama.cpp did."""
    ours = folder / "ours.gguf"
    run([ATOLL, "convert", path, ours, "--type", "f32"])
    a, b = tensors(ours), tensors(widened)
    num = len(set(a) ^ set(b)) + sum(a[name].data.tobytes() != b[name].data.tobytes() for name in set(a) & set(b))
    ours.unlink()
    return num


@functools.cache
def text():
    return "\n".join(tokenizer_families.python_sources(100_000))[: 8 * NUM_PLACES]


@functools.cache
def smollm2():
    """SmolLM2 in FP32, and ids of a text."""
    path = folder / "smollm2.gguf"
    run([ATOLL, "convert", real.smollm2(), path, "--type", "f32"])
    return path, ids_of(path, text())[:NUM_PLACES]


def model_file(name, config):
    """A small model of random weights."""
    path = folder / f"{name}.gguf"
    small.make_folder(folder / name, config, small.TOKENIZERS["llama-bpe"]())
    run([ATOLL, "convert", folder / name, path, "--type", "f32"])
    return path


@functools.cache
def in_f32():
    """SmolLM2 and a model of each family that both have: name -> what is found."""
    found = {}
    path, ids = smollm2()
    found["SmolLM2"] = greedy_different(path, NUM_GREEDY) | compared(our_logits(path, ids), their_logits(path, ids))
    for name, (config, _, _) in small.MODELS.items():
        config = copy.deepcopy(config)
        if name == "mistral":
            config.sliding_window = None  # llama.cpp does not heed Mistral's: Atoll warns.
        path = model_file(name, config)
        ids = ids_of(path, text())[:NUM_SMALL_PLACES]
        found[name] = greedy_different(path, NUM_SMALL_GREEDY) | compared(our_logits(path, ids), their_logits(path, ids))
    for name, one in found.items():
        print(f"{name}: {one}", file=sys.stderr, flush=True)
    return found


@functools.cache
def other_tensors():
    """Each type alone: name -> tensors with other bits than llama.cpp's."""
    config = small.transformers.LlamaConfig(**small.GATED | {"hidden_size": 256, "intermediate_size": 512})
    source, found = model_file("blocks", config), {}
    for name, file_type in ALONE.items():
        path = made_by_llama_cpp(source, file_type, folder / f"blocks-{name}.gguf", alone=True)
        if not any(tensor.tensor_type.name == name for tensor in tensors(path).values()):
            raise RuntimeError(f"llama.cpp put no {name} into {path.name}")
        found[name] = num_other_tensors(path, made_by_llama_cpp(path, 0, folder / "widened.gguf"))
    print(f"tensors with other bits: {found}", file=sys.stderr, flush=True)
    return found


@functools.cache
def in_mixes():
    """SmolLM2 in what people choose: name -> what is found."""
    found = {}
    source, ids = smollm2()
    for name, file_type in MIXES.items():
        path = made_by_llama_cpp(source, file_type, folder / "mix.gguf")
        widened = made_by_llama_cpp(path, 0, folder / "widened.gguf")
        ours = our_logits(path, ids)
        found[name] = compared(ours, their_logits(path, ids)) | {"same_widened": same_places(ours, their_logits(widened, ids)),
                                                                 "other_tensors": num_other_tensors(path, widened)}
        print(f"SmolLM2 in {name}: {found[name]}", file=sys.stderr, flush=True)
    return found


if __name__ == "__main__":
    print(json.dumps({"f32": in_f32(), "types": other_tensors(), "mixes": in_mixes()}, indent=1))
