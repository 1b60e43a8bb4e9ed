"""How fast a model is served, beside transformers, llama.cpp and what the machine's memory can deliver, for claims_serving.py."""
import concurrent.futures
import ctypes
import functools
import json
import pathlib
import statistics
import sys
import time

from claims import ATOLL, run
from served import PROMPT, TEXT, THREADS, model, one, spans, swarm_of, work
from serving_swarm import Asked, complete, post

NUM_MADE, NUM_READ, NUM_AT_ONCE, NUM_MADE_AT_ONCE, TIMES = 128, 1024, 16, 64, 3
PLAIN = ("--max-guesses", 0)  # A pass for each token, as those have it that Atoll is compared with.
KINDS = {"bf16": 32, "q8_0": 7}  # llama.cpp's numbers of file types.


@functools.cache
def transformers_rates():
    """Tokens a second: made, one text, and read; in float32 or bfloat16, whichever is faster."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    tokenizer = AutoTokenizer.from_pretrained(model())
    torch.set_num_threads(THREADS)
    prompt = tokenizer(PROMPT, return_tensors="pt")
    text = tokenizer(TEXT * 2, return_tensors="pt").input_ids[:, :NUM_READ]
    made, read = [], []
    for dtype in (torch.float32, torch.bfloat16):
        theirs = AutoModelForCausalLM.from_pretrained(model(), dtype=dtype).eval()
        for _ in range(2):
            begin = time.monotonic()
            ids = theirs.generate(**prompt, do_sample=False, max_new_tokens=NUM_MADE, min_new_tokens=NUM_MADE)
            made.append((ids.shape[1] - prompt.input_ids.shape[1]) / (time.monotonic() - begin))
            begin = time.monotonic()
            with torch.no_grad():
                theirs(text, logits_to_keep=1)
            read.append(NUM_READ / (time.monotonic() - begin))
    return max(made), max(read)


@functools.cache
def memory_rate():
    """Bytes a second that all cores read together from memory, as sums of an array much larger than the caches do."""
    import torch
    torch.set_num_threads(THREADS)
    values = torch.ones(1 << 28)
    rates = []
    for _ in range(5):
        for total in (torch.sum, torch.amax):
            begin = time.monotonic()
            total(values)
            rates.append(values.nbytes / (time.monotonic() - begin))
    return max(rates)


def weight_bytes():
    return sum(file.stat().st_size for file in pathlib.Path(model()).glob("*.safetensors"))


def made_rate(url):
    """Between the first token and the last of one text, best of three."""
    rates = []
    for _ in range(TIMES):
        asked = Asked(url, prompt=PROMPT, max_tokens=NUM_MADE, temperature=0)
        asked.told()
        rates.append((len(asked.times) - 2) / (asked.times[-2] - asked.times[0]))
    return max(rates)


AT_ONCE = [{"prompt": f"{i} {PROMPT}", "max_tokens": NUM_MADE_AT_ONCE, "temperature": 0, "logit_bias": {"0": -100, "2": -100}}
           for i in range(NUM_AT_ONCE)]


def at_once_s(url, num_threads=NUM_AT_ONCE):
    """Until there are 16 answers, so many of them at once."""
    with concurrent.futures.ThreadPoolExecutor(num_threads) as pool:
        begin = time.monotonic()
        list(pool.map(lambda body: complete(url, **body), AT_ONCE))
        return time.monotonic() - begin


def at_once_rate(url):
    """Tokens a second of 16 answers at once, best of three."""
    return NUM_AT_ONCE * NUM_MADE_AT_ONCE / min(at_once_s(url) for _ in range(TIMES))


def gain(url):
    """Of the same 16 answers the time one after another by that at once: medians of three of each, by turns."""
    at_once_s(url)  # Warm.
    one_by_one, at_once = zip(*((at_once_s(url, 1), at_once_s(url)) for _ in range(TIMES)))
    print(f"seconds of 16 answers: one after another {one_by_one}, at once {at_once}", file=sys.stderr)
    return statistics.median(one_by_one) / statistics.median(at_once)


def read_rate(url):
    rates = []
    for number in range(TIMES):
        ids = post(url, "/tokenize", {"prompt": f"{number}{TEXT * 2}"})["tokens"][:NUM_READ]
        begin = time.monotonic()
        complete(url, prompt=ids, max_tokens=1, temperature=0)
        rates.append(NUM_READ / (time.monotonic() - begin))
    return max(rates)


@functools.cache
def rates():
    """One process and a chain of three, each with all cores: 16 at once, times as fast as one after another; tokens a second, made and read."""
    found = {}
    for name, served_by in (("one", one("speed", THREADS, *PLAIN)), ("chain", swarm_of("speed-chain", spans(3), THREADS))):
        with served_by as started:
            url = started if name == "one" else started[1]
            found[name] = {"gain": gain(url), "made": made_rate(url), "read": read_rate(url)}
    print(f"tokens a second: {found}, transformers {transformers_rates()}, memory {memory_rate() / 1e9:.1f} GB/s", file=sys.stderr)
    return found


# --- llama.cpp ---
class LlamaCpp:
    """The engine of llama.cpp's server, without HTTP: one batch holds the newest token of each sequence."""

    def __init__(self, path):
        import beside_llama_cpp
        self.api = beside_llama_cpp.llama_cpp()
        self.api.llama_backend_init()
        of_model, of_context = self.api.llama_model_default_params(), self.api.llama_context_default_params()
        of_model.n_gpu_layers = 0
        of_context.n_ctx, of_context.n_batch, of_context.n_seq_max = 512 * NUM_AT_ONCE, 512, NUM_AT_ONCE
        of_context.n_threads = of_context.n_threads_batch = THREADS
        self.model = self.api.llama_model_load_from_file(str(path).encode(), of_model)
        self.context = self.api.llama_init_from_model(self.model, of_context)
        self.vocab_size = self.api.llama_vocab_n_tokens(self.api.llama_model_get_vocab(self.model))
        self.batch = self.api.llama_batch_init(512, 0, 1)

    def read(self, tokens, position):
        """Of each sequence these tokens, which begin at that position; gives what follows each, the likeliest."""
        import numpy
        self.batch.n_tokens, ends = 0, []
        for sequence, ids in enumerate(tokens):
            for offset, id in enumerate(ids):
                at = self.batch.n_tokens
                self.batch.token[at], self.batch.pos[at], self.batch.n_seq_id[at], self.batch.seq_id[at][0] = id, position + offset, 1, sequence
                self.batch.logits[at] = offset == len(ids) - 1
                self.batch.n_tokens += 1
            ends.append(self.batch.n_tokens - 1)
        if self.api.llama_decode(self.context, self.batch) != 0:
            raise RuntimeError("llama.cpp does not decode")
        row = lambda end: numpy.ctypeslib.as_array(ctypes.cast(self.api.llama_get_logits_ith(self.context, end), ctypes.POINTER(ctypes.c_float)),
                                                   (self.vocab_size,))
        return [[int(row(end).argmax())] for end in ends]

    def rate(self, count, num_made):
        """Tokens a second of so many texts at once, from the first to the last, best of three."""
        found = []
        for _ in range(TIMES):
            self.api.llama_memory_clear(self.api.llama_get_memory(self.context), True)
            newest = self.read([[index + 5, 504, 30197] for index in range(count)], 0)
            begin = time.monotonic()
            for position in range(3, 3 + num_made):
                newest = self.read(newest, position)
            found.append(count * num_made / (time.monotonic() - begin))
        return max(found)

    def close(self):
        self.api.llama_batch_free(self.batch)
        self.api.llama_free(self.context)
        self.api.llama_model_free(self.model)


@functools.cache
def beside_llama_cpp(kind):
    """Of the same file: Atoll's rate through its API by llama.cpp's, of one text and of 16 at once."""
    import beside_llama_cpp as other
    wide, path = work / "wide.gguf", work / f"{kind}.gguf"
    run([ATOLL, "convert", model(), wide, "--type", "f32"])
    other.made_by_llama_cpp(wide, KINDS[kind], path)
    wide.unlink()
    ours, theirs = [], []
    with one(f"llama-{kind}", THREADS, *PLAIN, of=path) as url:
        llama = LlamaCpp(path)
        for _ in range(2):
            theirs.append((llama.rate(1, NUM_MADE), llama.rate(NUM_AT_ONCE, NUM_MADE_AT_ONCE)))
            ours.append((made_rate(url), at_once_rate(url)))
        llama.close()
    print(f"{kind}, tokens a second: {ours}, llama.cpp {theirs}", file=sys.stderr)
    return [max(a) / max(b) for a, b in zip(zip(*ours), zip(*theirs))]


def add(claims):
    claims.measured("one text: tokens a second, times transformers' generate", lambda: rates()["one"]["made"] / transformers_rates()[0],
                    lambda r: r >= 3, ">= 3", "{:.1f}")
    claims.measured("and of what memory allows, which reads all weights for a token", lambda: rates()["one"]["made"] * weight_bytes() / memory_rate(),
                    lambda share: share >= 0.7, ">= 70 %", "{:.0%}")
    claims.measured("16 answers at once, times as fast as the same 16 one after another", lambda: rates()["one"]["gain"], lambda r: r >= 5, ">= 5",
                    "{:.1f}")
    claims.measured("prompts: tokens a second, times transformers' forward pass", lambda: rates()["one"]["read"] / transformers_rates()[1],
                    lambda r: r >= 1, ">= 1", "{:.2f}")
    for kind in KINDS:
        for index, what in enumerate(("one text", "16 at once")):
            claims.measured(f"{kind}, {what}: tokens a second, times llama.cpp's", functools.partial(lambda kind, index: beside_llama_cpp(kind)[index], kind, index),
                            lambda r: r >= 1, ">= 1 (goal)", "{:.2f}")
    for figure, what in (("made", "one text"), ("gain", "16 at once"), ("read", "prompts")):
        claims.measured(f"3 servers on this machine, {what}: share of one process's" + (" gain" if figure == "gain" else " rate"),
                        functools.partial(lambda figure: rates()["chain"][figure] / rates()["one"][figure], figure), lambda r: True, "told", "{:.2f}")
