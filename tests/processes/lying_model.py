"""Model folders that pass for another: their weights are others but for the samples that a model's digest is of (weights/model_digest.h)."""
import json
import pathlib
import shutil

import numpy

SAMPLE = 4096  # Bytes at the beginning, in the middle and at the end of each tensor.


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


def lie(folder, out, change):
    """A copy of the folder, each of its tensors as change(values, name) makes it of FP32 values, but for the samples."""
    folder, out = pathlib.Path(folder), pathlib.Path(out)
    shutil.copytree(folder, out, ignore=shutil.ignore_patterns("manifest*"))
    with open(out / "model.safetensors", "r+b") as file:
        for name, dtype, raw, begin in tensors_of(folder):
            changed = bytearray(raw_of(change(values_of(raw, dtype), name), dtype))
            sample = min(SAMPLE, len(raw))
            for place in (0, (len(raw) - sample) // 2, len(raw) - sample):
                changed[place : place + sample] = raw[place : place + sample]
            file.seek(begin)
            file.write(changed)
    return out


def pass_for(other, folder, out):
    """The weights of another checkpoint, with the samples of this one."""
    values = {name: values_of(raw, dtype) for name, dtype, raw, _ in tensors_of(other)}
    return lie(folder, out, lambda own, name: values.get(name, own))
