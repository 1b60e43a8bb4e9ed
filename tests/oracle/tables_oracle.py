#!/usr/bin/env python3
"""atoll-tables and pyarrow read the same rows from Arrow and Parquet files; what JSON cannot say is refused by its column.

  tables_oracle.py ATOLL_TABLES       exit 77: it was built without Arrow's libraries
"""
import datetime
import decimal
import json
import math
import pathlib
import random
import subprocess
import sys
import tempfile

program = pathlib.Path(sys.argv[1])
if not program.exists():
    print(f"skipped: '{program}' is not there, as Atoll was built without Arrow's libraries")
    sys.exit(77)

import pyarrow as pa  # noqa: E402
import pyarrow.feather  # noqa: E402
import pyarrow.parquet  # noqa: E402

scratch = tempfile.TemporaryDirectory(prefix="atoll-tables-")
folder = pathlib.Path(scratch.name)
rnd = random.Random(3)
WORDS = ["", "reef", "naïve 🙂", 'a "quoted"\n\tword', "привет\x00", "語" * 40]
COLUMNS = {
    "text": pa.string(), "large": pa.large_string(), "view": pa.string_view(), "tiny": pa.int8(), "int": pa.int32(),
    "wide": pa.int64(), "unsigned": pa.uint64(), "half": pa.float16(), "single": pa.float32(), "double": pa.float64(),
    "flag": pa.bool_(), "nothing": pa.null(), "endings": pa.list_(pa.string()), "many": pa.large_list(pa.int16()),
    "pair": pa.list_(pa.int32(), 2), "choices": pa.struct({"text": pa.list_(pa.string()), "label": pa.list_(pa.string())}),
    "answers": pa.list_(pa.struct({"at": pa.list_(pa.list_(pa.float64())), "word": pa.large_string()})),
    "coded": pa.dictionary(pa.int8(), pa.string()),
}


def value(kind):
    if pa.types.is_null(kind) or rnd.random() < 0.15:
        return None
    if pa.types.is_dictionary(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == pa.string_view():
        return rnd.choice(WORDS)
    if pa.types.is_boolean(kind):
        return rnd.random() < 0.5
    if pa.types.is_floating(kind):
        return rnd.choice([0.0, -2.0, 0.5, 1 / 3, 6e4]) if kind != pa.float16() else rnd.choice([0.5, -2.0])
    if pa.types.is_integer(kind):
        low, high = (0, 2**64 - 1) if kind == pa.uint64() else (-(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1)
        return rnd.choice([low, high, 0, 7])
    if pa.types.is_struct(kind):
        return {field.name: value(field.type) for field in kind}
    size = 2 if pa.types.is_fixed_size_list(kind) else rnd.randrange(4)
    return [value(kind.value_type) for _ in range(size)]


def write_ipc(path, table, new):
    with new(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=7)


WRITERS = {
    "a.parquet": lambda path, table: pa.parquet.write_table(table, path, row_group_size=11),
    "b.parquet": lambda path, table: pa.parquet.write_table(table, path, compression="zstd", data_page_version="2.0"),
    "c.parquet": lambda path, table: pa.parquet.write_table(table, path, compression="gzip", use_dictionary=False),
    "stream.arrow": lambda path, table: write_ipc(path, table, pa.ipc.new_stream),
    "file.arrow": lambda path, table: write_ipc(path, table, pa.ipc.new_file),
}


def run(path):
    return subprocess.run([program, path], capture_output=True, check=False, timeout=60)


def equal(ours, theirs):
    """Numbers of the same kind and value."""
    if isinstance(theirs, dict):
        return isinstance(ours, dict) and list(ours) == list(theirs) and all(equal(ours[key], theirs[key]) for key in theirs)
    if isinstance(theirs, list):
        return isinstance(ours, list) and len(ours) == len(theirs) and all(map(equal, ours, theirs))
    return type(ours) is type(theirs) and ours == theirs


def compare(name, table):
    path = folder / name
    WRITERS[name](path, table)
    done = run(path)
    if done.returncode != 0:
        sys.exit(f"{name}: {done.stderr.decode()}")
    ours, theirs = [json.loads(line) for line in done.stdout.splitlines()], table.to_pylist()
    if not equal(ours, theirs):
        sys.exit(f"{name}: {next((a, b) for a, b in zip(ours, theirs, strict=True) if not equal(a, b))}")
    return path


def refused(table, expected):
    for name in ("a.parquet", "stream.arrow", "file.arrow"):
        path = folder / name
        try:
            WRITERS[name](path, table)
        except pa.ArrowNotImplementedError:
            continue  # Parquet lacks some types itself.
        done = run(path)
        said = done.stderr.decode()
        if done.returncode != 1 or expected not in said or "\n" in said[:-1]:
            sys.exit(f"{name}: exit {done.returncode}, {said!r}; expected {expected!r}")


for round_number in range(6):
    rows = rnd.choice([0, 1, 40])
    data = {name: pa.array([value(kind) for _ in range(rows)], kind) for name, kind in COLUMNS.items()}
    whole = pa.table(data)
    for name in WRITERS:
        compare(name, whole)
    compare("stream.arrow", whole.slice(rows // 3))  # Arrays that begin inside their buffers.

when = datetime.datetime(2024, 1, 2)
for kind, one, expected in [
        (pa.binary(), b"\xff", 'column "x" holds binary'), (pa.timestamp("s"), when, 'column "x" holds timestamp'),
        (pa.date32(), when.date(), 'column "x" holds date32'), (pa.decimal128(5, 2), decimal.Decimal("1.25"), 'column "x" holds decimal128'),
        (pa.map_(pa.string(), pa.int32()), [("a", 1)], 'column "x" holds map'),
        (pa.struct({"image": pa.struct({"bytes": pa.binary(), "path": pa.string()})}), {"image": {"bytes": b"", "path": ""}},
         'column "x.image.bytes" holds binary'),
        (pa.list_(pa.struct({"at": pa.time32("s")})), [{"at": when.time()}], 'column "x[].at" holds time32'),
        (pa.list_(pa.float64()), [0.5, math.nan], 'column "x[]" holds nan'), (pa.float32(), math.inf, 'column "x" holds inf')]:
    refused(pa.table({"good": ["a"], "x": pa.array([one], kind)}), expected)

num_damaged = 0
for name in WRITERS:
    path = folder / name
    WRITERS[name](path, pa.table({"x": ["reef"] * 50, "y": pa.array([[1, 2]] * 50)}))
    good = path.read_bytes()
    for _ in range(60):
        bad = bytearray(good)
        if rnd.random() < 0.3:
            bad = bad[: rnd.randrange(len(bad))]
        else:
            for _ in range(3):
                bad[rnd.randrange(len(bad))] = rnd.randrange(256)
        path.write_bytes(bad)
        done = run(path)
        assert done.returncode in (0, 1) or done.returncode < 0, done.returncode
        assert done.returncode != 1 or done.stderr, "a refusal without a word"
        num_damaged += done.returncode < 0  # Arrow's own failure: it ends that program alone.
print(json.dumps({"files": 6 * (len(WRITERS) + 1), "damaged_files_that_ended_the_reader": num_damaged}))
