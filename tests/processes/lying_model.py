"""Weights that change under a server which has them mapped: it goes on to say that it serves what it has read at its start."""
import json
import pathlib
import shutil

import numpy


def values_of(raw, dtype):
    if dtype == "BF16":
        return (numpy.frombuffer(raw, numpy.uint16).astype(numpy.uint32) << 16).view(numpy.float32)
    return numpy.frombuffer(raw, {"F32": numpy.float32, "F16": numpy.float16}[dtype]).astype(numpy.float32)


def raw_of(values, dtype):
    if dtype == "BF16":
        bits = values.astype(numpy.float32).view(numpy.uint32)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(numpy.uint16).tobytes()
    return values.astype({"F32": numpy.float32, "F16": numpy.float16}[dtype]).tobytes()


def in_4_bits(values, name):
    """Of a matrix: each block of 32 as whole numbers from -7 to 7 times one scale."""
    if "norm" in name or values.size % 32:
        return values
    blocks = values.reshape(-1, 32)
    scales = numpy.abs(blocks).max(axis=1, keepdims=True) / 7
    scales[scales == 0] = 1
    return (numpy.round(blocks / scales) * scales).reshape(-1)


def tensors_of(folder):
    """Name, type and bytes of each, and where they lie in the file."""
    data = (pathlib.Path(folder) / "model.safetensors").read_bytes()
    size = int.from_bytes(data[:8], "little")
    for name, entry in json.loads(data[8 : 8 + size]).items():
        if name != "__metadata__":
            begin, end = (8 + size + place for place in entry["data_offsets"])
            yield name, entry["dtype"], data[begin:end], begin


def copy_of(folder, out):
    return pathlib.Path(shutil.copytree(folder, out, ignore=shutil.ignore_patterns("manifest*")))


def lie(folder, change):
    """In place, each of its tensors becomes what change(values, name) makes of it in FP32."""
    with open(pathlib.Path(folder) / "model.safetensors", "r+b") as file:
        for name, dtype, raw, begin in tensors_of(folder):
            file.seek(begin)
            file.write(raw_of(change(values_of(raw, dtype), name), dtype))


def become(folder, other):
    """Its weights become those of another checkpoint."""
    values = {name: values_of(raw, dtype) for name, dtype, raw, _ in tensors_of(other)}
    lie(folder, lambda own, name: values.get(name, own))
