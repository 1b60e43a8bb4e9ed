"""Atoll beside llama.cpp (PyPI llama-cpp-python) on the same GGUF files, for claims_models.py.

With weights in FP32 and an FP32 cache both must say the same tokens. With other types llama.cpp rounds activations to the weights'
type (quantised ones to 8 bits) before it multiplies and Atoll does not. So two comparisons: on the file as it is, and on the same values
widened to FP32, which tells whether both read them alike.
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
NUM_GREEDY, NUM_PLACES = 200, 2000
PROMPT = "The atoll lies"
# Types that Atoll writes, and those that llama.cpp itself makes of FP32, by its numbers (LLAMA_FTYPE_MOSTLY_*).
OURS = ("f16", "bf16", "q8_0", "q4_0")
THEIRS = {"q4_1": 3, "q5_0": 8, "q5_1": 9, "q2_k": 10, "q3_k_m": 12, "q4_k_m": 15, "q5_k_m": 17, "q6_k": 18, "iq4_nl": 25, "iq4_xs": 30}

scratch = tempfile.TemporaryDirectory(prefix="atoll-llama-")
folder = pathlib.Path(scratch.name)


@functools.cache
def llama_cpp():
    module = real.llama_cpp()
    quiet = module.llama_log_callback(lambda *_: None)
    module.llama_log_set(quiet, ctypes.c_void_p(0))
    module.quiet = quiet  # It must live as long as the library may call it.
    return module


@contextlib.contextmanager
def opened(path, num_positions):
    module = llama_cpp()
    float32 = module.GGML_TYPE_F32
    model = module.Llama(str(path), n_ctx=num_positions, n_batch=512, n_gpu_layers=0, n_threads=os.cpu_count(), n_threads_batch=os.cpu_count(),
                         logits_all=True, type_k=float32, type_v=float32, flash_attn=False, verbose=False)
    yield model
    model.close()


def their_logits(path, ids):
    with opened(path, len(ids)) as model:
        model.eval(ids)
        return model.scores[: len(ids)].copy()


def our_logits(path, ids):
    done = subprocess.run([PRINT_LOGITS, path], input=" ".join(map(str, ids)).encode(), check=True, capture_output=True)
    return numpy.frombuffer(done.stdout, dtype=numpy.float32).reshape(len(ids), -1)


def ids_of(path, text):
    return [int(id) for id in run([ATOLL, "tokenizer", "encode", "--tokenizer", path, "--text", "-"], input=text).strip().split(",")]


def greedy_different(path, count):
    """Of `count` greedy tokens, how many are others; who stops before does not say the end."""
    told = json.loads(run([ATOLL, "generate", path, "--prompt", PROMPT, "--greedy", "--max-tokens", str(count), "--json"]))["ids"]
    prompt = ids_of(path, PROMPT)
    found, new = [], prompt
    with opened(path, len(prompt) + count) as model:
        for _ in told:
            model.eval(new)
            new = [int(model.scores[model.n_tokens - 1].argmax())]
            found += new
    return sum(a != b for a, b in zip(told, found))


def log_softmax(logits):
    logits = logits.astype(numpy.float64)
    logits -= logits.max(axis=1, keepdims=True)
    return logits - numpy.log(numpy.exp(logits).sum(axis=1, keepdims=True))


def compared(path, ids):
    """Share of places with the same likeliest token, mean divergence in nats, largest difference of a log-probability that counts."""
    ours, theirs = our_logits(path, ids), their_logits(path, ids)
    same = float((ours.argmax(axis=1) == theirs.argmax(axis=1)).mean())
    divergence, largest = 0.0, 0.0
    for begin in range(0, len(ids), 100):
        p, q = (log_softmax(one[begin : begin + 100]) for one in (ours, theirs))
        divergence += float((numpy.exp(p) * (p - q)).sum())
        largest = max(largest, float(abs(p - q)[p > -20].max()))
    return {"same": same, "divergence": divergence / len(ids), "largest": largest}


@functools.cache
def real_in(kind):
    """SmolLM2 as a file of this type."""
    path = folder / f"real-{kind}.gguf"
    if kind in THEIRS:
        module = llama_cpp()
        options = module.llama_model_quantize_default_params()
        options.ftype, options.nthread = THEIRS[kind], os.cpu_count()
        if module.llama_model_quantize(str(real_in("f32")).encode(), str(path).encode(), ctypes.byref(options)) != 0:
            raise RuntimeError(f"llama.cpp makes no {kind} of SmolLM2")
    else:
        run([ATOLL, "convert", real.smollm2(), path, "--type", kind])
    return path


@functools.cache
def text():
    return "\n".join(tokenizer_families.python_sources(100_000))[: 8 * NUM_PLACES]


@functools.cache
def real_ids():
    return ids_of(real.smollm2(), text())[:NUM_PLACES]


@functools.cache
def family(name):
    """A small model of random weights; without a window, which llama.cpp does not heed in Mistral's files (Atoll warns)."""
    words = "llama-bpe"
    path, config = folder / f"{name}.gguf", copy.deepcopy(small.MODELS[name][0])
    if name == "mistral":
        config.sliding_window = None
    small.make_folder(folder / name, config, small.TOKENIZERS[words]())
    run([ATOLL, "convert", folder / name, path, "--type", "f32"])
    return path


@functools.cache
def in_f32():
    """Of SmolLM2 and each family that both have: name -> what is found."""
    found = {}
    found["SmolLM2"] = {"others": greedy_different(real_in("f32"), NUM_GREEDY)} | compared(real_in("f32"), real_ids())
    for name in small.MODELS:
        path = family(name)
        found[name] = {"others": greedy_different(path, 64)} | compared(path, ids_of(path, text())[:500])
    for name, one in found.items():
        print(f"{name}: {one}", file=sys.stderr, flush=True)
    return found


@functools.cache
def in_types():
    found = {}
    for kind in (*OURS, *THEIRS):
        widened = folder / "widened.gguf"
        run([ATOLL, "convert", real_in(kind), widened, "--type", "f32"])
        found[kind] = compared(real_in(kind), real_ids())
        found[kind]["same_widened"] = float((our_logits(real_in(kind), real_ids()).argmax(axis=1) ==
                                             their_logits(widened, real_ids()).argmax(axis=1)).mean())
        widened.unlink()
        print(f"SmolLM2 in {kind}: {found[kind]}", file=sys.stderr, flush=True)
    return found


if __name__ == "__main__":
    print(json.dumps({"f32": in_f32(), "types": in_types()}, indent=1))
