#!/usr/bin/env python3
"""What the codecs must write and read, worked out by numpy from the formats' definitions in the headers.

  codec_golden.py [--check]

Writes atoll/codec/golden.inc, rows of {codec, sequence, count, seed, body in hex, SHA-256 of the decoded floats} for
codec_golden_test.cpp, or with --check fails unless the file is what it would write. Nothing here is shared with the
codecs: they work on the bits of floats, this on numbers; `nearest` searches where they round.
"""
import hashlib
import math
import pathlib
import struct
import sys

import numpy
from numpy import float32, float64

target = pathlib.Path(__file__).resolve().parent.parent.parent / "atoll/codec/golden.inc"


def values_of(count, seed):
    """Random bits for sign, 16 exponents and the mantissa; even seeds keep 2 bits of the latter, so ties happen."""
    state, result = seed, []
    for _ in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        bits = state >> 32
        mantissa = bits & (0x7FFFFF if seed % 2 else 0x600000)
        exponent = 110 + (bits >> 23 & 15)
        result.append((bits & 0x80000000) | exponent << 23 | mantissa)
    return numpy.array(result, dtype=numpy.uint32).view(float32)


def nearest(x, candidates):
    """The index of the candidate nearest to x, exactly; on ties the one that `candidates` names first."""
    return min(range(len(candidates)), key=lambda i: abs(float64(candidates[i]) - float64(x)))


def bf16(x):
    """(the two bytes, the float): of the neighbours the nearest, the even one first."""
    low = struct.unpack("<I", struct.pack("<f", x))[0] >> 16
    pair = sorted([low, low + 1], key=lambda half: half & 1)
    floats = [struct.unpack("<f", struct.pack("<I", half << 16))[0] for half in pair]
    best = nearest(x, floats)
    return struct.pack("<H", pair[best]), float32(floats[best])


def planes(codes, bits):
    """Codes of `bits` bits: byte j has those of the values j, j + h, ..., h bytes in all, low bits first."""
    per_byte = 8 // bits
    height = -(-len(codes) // per_byte)
    padded = list(codes) + [0] * (height * per_byte - len(codes))
    return bytes(sum(padded[j + plane * height] << (bits * plane) for plane in range(per_byte)) for j in range(height))


def blocks(x, size):
    return [x[begin : begin + size] for begin in range(0, len(x), size)]


def fp32(x):
    return x.tobytes(), x


def fp16(x):
    half = x.astype(numpy.float16)
    return half.tobytes(), half.astype(float32)


def bf16_all(x):
    pairs = [bf16(value) for value in x]
    return b"".join(p[0] for p in pairs), numpy.array([p[1] for p in pairs], dtype=float32)


def e3m0(x):
    body, decoded = b"", []
    for block in blocks(x, 128):
        largest = max(abs(float64(block)))
        exponents = list(range(254, 0, -1))  # The larger first: it wins a tie.
        top = exponents[nearest(largest, [2.0 ** (e - 127) for e in exponents])]
        powers = [2.0 ** (top - 127 - 7 + c) for c in range(1, 8)]
        codes = []
        for value in map(float64, block):
            magnitude = abs(value)
            if magnitude < powers[0] / 2:
                code = 0
            else:
                code = 7 - nearest(magnitude, powers[::-1])
            codes.append(code + (8 if value < 0 and code else 0))
            decoded.append(math.copysign(powers[code - 1], value) if code else 0.0)
        body += bytes([top]) + planes(codes, 4)
    return body, numpy.array(decoded, dtype=float32)


def whole_numbers(x, size, scale_of, lowest, highest, bits):
    body, decoded = b"", []
    for block in blocks(x, size):
        scale_bytes, scale = scale_of(block)
        inverse = float32(1) / scale
        codes = [min(max(int(numpy.rint(value * inverse)), lowest), highest) for value in block]
        packed = [code % 2**bits for code in codes]
        body += scale_bytes + planes(packed, bits)
        decoded += [float32(code) * scale for code in codes]
    return body, numpy.array(decoded, dtype=float32)


def int8(x):
    return whole_numbers(x, 256, lambda block: bf16(max(abs(block)) / float32(127)), -127, 127, 8)


def int4(x):
    def scale_of(block):
        furthest = -min(block) if -min(block) >= max(block) else -max(block)
        encoded, scale = bf16(abs(furthest))
        scale = math.copysign(scale, furthest) / 8
        return struct.pack("<f", scale)[2:], float32(scale)

    return whole_numbers(x, 128, scale_of, -8, 7, 4)


CODECS = {"fp32": fp32, "fp16": fp16, "bf16": bf16_all, "e3m0": e3m0, "int8": int8, "int4": int4}
CASES = [(1, 1), (7, 2), (257, 3), (300, 4)]


def rows():
    for name, encode in CODECS.items():
        for count, seed in CASES:
            if name == "fp32" and count > 7:
                continue
            body, decoded = encode(values_of(count, seed))
            digest = hashlib.sha256((decoded + float32(0)).tobytes()).hexdigest()  # -0 becomes 0.
            lines = [body.hex()[i : i + 100] for i in range(0, 2 * len(body), 100)]
            text = "\n     ".join(f'"{line}"' for line in lines)
            yield f'    {{"{name}", 0, {count}, {seed},\n     {text},\n     "{digest}"}},\n'


def main():
    text = f"// Made by {pathlib.Path(__file__).name}.\n" + "".join(rows())
    if sys.argv[1:] == ["--check"]:
        sys.exit(0 if target.read_text() == text else f"{target} is not what this program makes")
    target.write_text(text)


if __name__ == "__main__":
    main()
