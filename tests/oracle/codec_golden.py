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


def sign3(x):
    body, decoded = b"", []
    for block in blocks(x, 128):
        low_bytes, low = bf16(min(abs(block)))
        high_bytes, high = bf16(max(abs(block)))
        step = (high - low) / float32(7)
        inverse = float32(1) / step if high > low else float32(0)
        codes = [min(max(int(numpy.rint((abs(value) - low) * inverse)), 0), 7) for value in block]
        body += low_bytes + high_bytes + planes([c + 8 * int(v < 0) for c, v in zip(codes, block)], 4)
        decoded += [numpy.copysign(low + float32(c) * step, v) for c, v in zip(codes, block)]
    return body, numpy.array(decoded, dtype=float32)


def stat2(x):
    body, decoded = b"", []
    for block in blocks(x, 64):
        magnitudes = abs(block).astype(float64)
        is_high = magnitudes > sum(magnitudes) / len(block)
        low_bytes, low = bf16(float32(sum(magnitudes[~is_high]) / sum(~is_high)))
        high_bytes, high = low_bytes, low
        if is_high.any():
            high_bytes, high = bf16(float32(sum(magnitudes[is_high]) / sum(is_high)))
        body += low_bytes + high_bytes + planes([2 * int(v < 0) + int(h) for v, h in zip(block, is_high)], 2)
        decoded += [numpy.copysign(high if h else low, v) for v, h in zip(block, is_high)]
    return body, numpy.array(decoded, dtype=float32)


def golomb(positions, n):
    """The gaps between `positions` of n as bits, packed from the lowest on."""
    if not positions:
        return b""
    m = max(1, math.floor(math.log(2) * n / len(positions)))
    b = math.floor(math.log2(m))
    u = 2 ** (b + 1) - m
    bits, before = "", -1
    for position in positions:
        quotient, rest = divmod(position - before - 1, m)
        before = position
        bits += "0" * quotient + "1"
        number, width = (rest, b) if rest < u else (rest + u, b + 1)
        high = number if width == b else number >> 1  # b bits, from the lowest on; a last one follows.
        bits += f"{high:0{b}b}"[::-1] if b else ""
        bits += str(number & 1) if width > b else ""
    bits += "0" * (-len(bits) % 8)
    return bytes(int(bits[i : i + 8][::-1], 2) for i in range(0, len(bits), 8))


def rounded(number):
    return max(1, math.floor(number + 0.5))


def largest(x, k):
    return sorted(sorted(range(len(x)), key=lambda i: (-abs(x[i]), i))[:k])


def topk(share):
    def choose(x, sequence):
        positions = largest(x, rounded(share * len(x)))
        return positions, golomb(positions, len(x))

    return choose


def chunk_topk(kept, chunk):
    def choose(x, sequence):
        positions = []
        for begin in range(0, len(x), chunk):
            part = x[begin : begin + chunk]
            positions += [begin + i for i in largest(part, math.ceil(kept * len(part) / chunk))]
        return positions, golomb(positions, len(x))

    return choose


def rolling(stride):
    return lambda x, sequence: ([i for i in range(len(x)) if i % stride == sequence % stride], b"")


def splitmix(x):
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
    return x ^ (x >> 31)


def random(share):
    def choose(x, sequence):
        n, k, step = len(x), rounded(share * len(x)), 0x9E3779B97F4A7C15
        positions = []
        for j in range(k):
            state = splitmix(step) ^ (sequence + 2 * step) % 2**64
            bits = splitmix(splitmix(state) ^ (j // 2 + 3 * step) % 2**64)
            begin, end = j * n // k, (j + 1) * n // k
            positions.append(begin + ((bits >> 32 * (j % 2)) % 2**32 * (end - begin) >> 32))
        return positions, b""

    return choose


def compose(*stages, form):
    """The stages choose from what those before them left; the form encodes what is left at the end."""

    def encode(x, sequence):
        kept, told, values = list(range(len(x))), b"", x
        for choose in stages:
            positions, bits = choose(values, sequence)
            kept, told, values = [kept[i] for i in positions], told + bits, values[positions]
        body, decoded = form(values)
        result = numpy.zeros(len(x), dtype=float32)
        result[kept] = decoded
        return told + body, result

    return encode


FORMS = {"fp32": fp32, "fp16": fp16, "bf16": bf16_all, "e3m0": e3m0, "int8": int8, "int4": int4, "sign3": sign3,
         "stat2": stat2}
COMPOSITIONS = {
    "topk(0.2)+fp16": compose(topk(0.2), form=fp16),
    "topk(0.01)+sign3": compose(topk(0.01), form=sign3),
    "chunk_topk(5/100)+e3m0": compose(chunk_topk(5, 100), form=e3m0),
    "sparse_loco": compose(chunk_topk(64, 4096), form=stat2),
    "rolling(0.33)+int8": compose(rolling(3), form=int8),
    "random(0.05)+bf16": compose(random(0.05), form=bf16_all),
    "random(0.5)+topk(0.3)+sign3": compose(random(0.5), topk(0.3), form=sign3),
    "cocktail": compose(rolling(10), topk(0.2), form=int4),
}


def cases():
    """(name, encode, sequence, count, seed)"""
    for name, form in FORMS.items():
        for count, seed in [(1, 1), (7, 2), (257, 3), (300, 4)]:
            if name != "fp32" or count <= 7:
                yield name, compose(form=form), 0, count, seed
    for name, encode in COMPOSITIONS.items():
        for sequence, count, seed in [(0, 1, 1), (1, 100, 2), (0xFFFFFFFF, 5000, 3)]:
            yield name, encode, sequence, count, seed


def rows():
    for name, encode, sequence, count, seed in cases():
        body, decoded = encode(values_of(count, seed), sequence)
        digest = hashlib.sha256((decoded + float32(0)).tobytes()).hexdigest()  # -0 becomes 0.
        lines = [body.hex()[i : i + 100] for i in range(0, 2 * len(body), 100)]
        text = "\n     ".join(f'"{line}"' for line in lines)
        yield f'    {{"{name}", {sequence}U, {count}, {seed},\n     {text},\n     "{digest}"}},\n'


def main():
    text = f"// Made by {pathlib.Path(__file__).name}.\n" + "".join(rows())
    if sys.argv[1:] == ["--check"]:
        sys.exit(0 if target.read_text() == text else f"{target} is not what this program makes")
    target.write_text(text)


if __name__ == "__main__":
    main()
