#!/usr/bin/env python3
"""Data orders and files of NeoX, OLMo and OLMo-core beside plain numpy.

  orders_oracle.py ATOLL

Each project's rules are written down here a second time, with numpy's own generators and numpy.save; where there is a
choice, in another way than in Atoll (samples are cut by searching in running sums).
"""
import io
import itertools
import json
import math
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

import numpy
from tokenizers import Tokenizer

atoll = sys.argv[1]
scratch = tempfile.TemporaryDirectory(prefix="atoll-orders-")
folder = pathlib.Path(scratch.name)
dice = random.Random(6)


def run(*words, code=0):
    done = subprocess.run([atoll, *map(str, words)], capture_output=True, text=True, timeout=120)
    assert done.returncode == code, f"atoll {' '.join(map(str, words))}: exit {done.returncode}\n{done.stderr}"
    return done.stdout if code == 0 else done.stderr


def order(*words, code=0):
    text = run("data", "order", *words, "--json", code=code)
    return json.loads(text) if code == 0 else text


def saved(array):
    """The bytes of numpy.save."""
    file = io.BytesIO()
    numpy.save(file, array)
    return file.getvalue()


def fails(part, *words, code=1):
    message = run("data", *words, code=code)
    assert part in message, f"'{part}' is not in: {message}"


# --- the projects' rules ---

def olmo(rows, seed, epoch, world_size=1, drop_last=False):
    indices = numpy.arange(rows, dtype=numpy.uint32)
    numpy.random.Generator(numpy.random.PCG64(seed + epoch)).shuffle(indices)
    if drop_last:
        return indices[: rows // world_size * world_size]
    return numpy.resize(indices, -(-rows // world_size) * world_size)  # Repeats from the beginning.


def olmo_core(rows, seed, epoch, chunk=1, batch=0):
    chunks = numpy.arange(rows // chunk, dtype=numpy.uint32)
    numpy.random.Generator(numpy.random.PCG64(seed + epoch)).shuffle(chunks)
    indices = (chunks[:, None] * chunk + numpy.arange(chunk)).reshape(-1).astype(numpy.uint32)
    return indices[: rows // batch * batch] if batch else indices


def neox_maps(sizes, begin, end, samples, length, seed):
    sizes = numpy.asarray(sizes, dtype=numpy.int64)
    per_epoch = int(sizes[begin:end].sum())
    epochs = next(e for e in itertools.count(1) if (e * per_epoch - 1) // length >= samples)
    generator = numpy.random.RandomState(seed)
    documents = numpy.tile(numpy.arange(begin, end, dtype=numpy.int32), epochs)
    generator.shuffle(documents)
    ends = numpy.cumsum(sizes[documents])
    count = (epochs * per_epoch - 1) // length
    places = numpy.arange(count + 1) * length
    at = numpy.searchsorted(ends, places, side="right")
    offsets = places - (ends[at] - sizes[documents[at]])
    at[0] = offsets[0] = 0  # NeoX begins at the first document, even where that is empty.
    shuffled = numpy.arange(count, dtype=numpy.uint32)
    generator.shuffle(shuffled)
    return {"doc": documents, "sample": numpy.stack([at, offsets], 1).astype(numpy.int32), "shuffle": shuffled}


def neox_split(text, count):
    parts = [float(part) for part in text.split("," if "," in text else "/")]
    parts = (parts + [0.0, 0.0])[:3]
    bounds = [0]
    for part in parts:
        bounds.append(bounds[-1] + int(round(part / sum(parts) * float(count))))
    return [0] + [bound - (bounds[-1] - count) for bound in bounds[1:]]


def neox_blend(weights, lengths):
    total = 0.0
    for weight in weights:  # Python's own sum became exact in 3.12.
        total += weight
    shares = numpy.array([weight / total for weight in weights], dtype=numpy.float64)
    shares /= numpy.sum(shares)
    taken = numpy.zeros(len(shares))
    result = []
    for i in range(sum(length - 1 for length in lengths)):
        store = int(numpy.argmax(shares * max(i, 1.0) - taken))
        result.append((store, int(taken[store])))
        taken[store] += 1
    return result


def write_megatron(prefix, documents, dtype):
    codes = {numpy.uint8: 1, numpy.int8: 2, numpy.int16: 3, numpy.int32: 4, numpy.int64: 5, numpy.uint16: 8}
    sizes = [len(document) for document in documents]
    pointers = [0, *itertools.accumulate(size * numpy.dtype(dtype).itemsize for size in sizes)][: len(sizes)]
    with open(f"{prefix}.bin", "wb") as file:
        for document in documents:
            file.write(numpy.array(document, dtype=dtype).tobytes())
    with open(f"{prefix}.idx", "wb") as file:
        file.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, codes[dtype], len(sizes), len(sizes) + 1))
        file.write(numpy.array(sizes, dtype=numpy.int32).tobytes())
        file.write(numpy.array(pointers, dtype=numpy.int64).tobytes())
        file.write(numpy.arange(len(sizes) + 1, dtype=numpy.int64).tobytes())


def read_megatron(prefix):
    index = pathlib.Path(f"{prefix}.idx").read_bytes()
    assert index[:9] == b"MMIDIDX\0\0"
    version, code, count, starts = struct.unpack_from("<QBQQ", index, 9)
    assert version == 1 and starts == count + 1
    dtype = {4: numpy.int32, 8: numpy.uint16}[code]
    sizes = numpy.frombuffer(index, numpy.int32, count, 34)
    pointers = numpy.frombuffer(index, numpy.int64, count, 34 + 4 * count)
    tokens = pathlib.Path(f"{prefix}.bin").read_bytes()
    return [numpy.frombuffer(tokens, dtype, size, pointer) for size, pointer in zip(sizes, pointers)]


# --- the tests ---

def test_olmo():
    out = folder / "global_indices.npy"
    seeds = [0, 1, 6198, 2**32 - 1, 2**32, 2**64 - 1, *(dice.getrandbits(64) for _ in range(12))]
    num_orders = 0
    for seed in seeds:
        rows, epoch, world = dice.choice([1, 2, 3, 1000, 65537]), dice.randrange(4), dice.choice([1, 2, 7, 64])
        drop = dice.choice([True, False])
        order("--kind", "olmo", "--num-rows", rows, "--seed", seed, "--epoch", epoch, "--world-size", world,
              *(["--drop-last"] if drop else []), "--out", out, code=1 if drop and rows < world else 0)
        if drop and rows < world:
            continue
        assert out.read_bytes() == olmo(rows, seed, epoch, world, drop).tobytes(), (rows, seed, epoch, world, drop)
        chunk, batch = dice.choice([1, 2, 5, 8]), dice.choice([0, 1, 4])
        rows += 100
        result = order("--kind", "olmo-core", "--num-rows", rows, "--seed", seed, "--epoch", epoch + 1, "--chunk-rows",
                       chunk, *(["--batch-rows", batch] if batch else []), "--out", f"{folder}/core/")
        want = olmo_core(rows, seed, epoch + 1, chunk, batch)
        fields = {"chunk": chunk if chunk > 1 else None, "epoch": epoch + 1, "seed": seed}
        fields |= {"size": rows // batch * batch} if batch else {"dataset_size": rows, "v": 1}
        name = "_".join(["global_indices", *(f"{key}{fields[key]}" for key in sorted(fields) if fields[key] is not None)])
        assert [file["file"] for file in result["files"]] == [f"{folder}/core/{name}.npy"]
        assert (folder / "core" / f"{name}.npy").read_bytes() == want.tobytes(), (rows, seed, epoch, chunk, batch)
        num_orders += 2
    large = order("--kind", "olmo", "--num-rows", 1_000_003, "--seed", 34522, "--out", out)
    assert out.read_bytes() == olmo(1_000_003, 34522, 0).tobytes()
    order("--kind", "olmo", "--num-rows", 1_000_003, "--seed", 34522, "--check", out, "--sha256",
          large["files"][0]["sha256"].upper())
    damaged = numpy.fromfile(out, numpy.uint32)
    damaged[700:] = 0
    damaged.tofile(out)
    message = order("--kind", "olmo", "--num-rows", 1_000_003, "--seed", 34522, "--check", out, code=1)
    assert "numbers differ, the first at entry 700: it has 0" in message, message
    message = order("--kind", "olmo", "--num-rows", 9, "--seed", 1, "--sha256", "0" * 64, code=1)
    assert "nothing has the SHA-256 0000" in message
    return num_orders + 1


def test_olmo_rows():
    files, length = [], 16
    for number, size in enumerate((100, 15, 16, 333)):
        files.append(folder / f"part-{number}.npy")
        numpy.array([dice.randrange(100_000) for _ in range(size)], dtype=numpy.uint32).tofile(files[-1])
    rows = [(file, numpy.fromfile(file, numpy.uint32)[i * length : (i + 1) * length])
            for file in files for i in range(file.stat().st_size // 4 // length)]
    result = order(*files, "--kind", "olmo-core", "--seed", 5, "--dtype", "uint32", "--sequence-length", length,
                   "--show", f"0:{len(rows)}")
    want = olmo_core(len(rows), 5, 1)
    for row, index in zip(result["rows"], want, strict=True):
        file, ids = rows[index]
        assert row["index"] == index and row["file"] == str(file) and row["ids"] == ids.tolist()


def make_stores():
    """Megatron stores of random tokens, some documents empty or of one token."""
    stores = []
    for number, count in enumerate((40, 7, 200, 1)):
        documents = [[dice.randrange(60_000) for _ in range(dice.choice([0, 1, 2, 5, 30, 200]))] for _ in range(count)]
        documents[-1] = [7] * 50
        write_megatron(folder / f"store{number}", documents, dice.choice([numpy.uint16, numpy.int32, numpy.int64]))
        stores.append(documents)
    return stores


def check_maps(result, where, name, maps):
    for kind, array in maps.items():
        file = where / f"{name}_{kind}_idx.npy"
        assert str(file) in [entry["file"] for entry in result["files"]], (file, result["files"])
        assert file.read_bytes() == saved(array), file
        assert numpy.array_equal(numpy.load(file), array)
        run("data", "verify", file)


def test_neox(stores):
    num_orders = 0
    for number, documents in enumerate(stores):
        sizes = [len(document) for document in documents]
        for samples, length, seed, split in ((1, 1, 0, "1"), (50, 8, 1234, "969,30,1"), (700, 5, 2**32 - 1, "5/3/2"),
                                             (33, 64, 77, "1,1,1")):
            bounds = neox_split(split, len(sizes))
            for part, (begin, end) in zip(("train", "valid", "test"), zip(bounds, bounds[1:])):
                words = [folder / f"store{number}", "--kind", "neox", "--samples", samples, "--sequence-length", length,
                         "--seed", seed, "--split", split, "--part", part]
                if sum(sizes[begin:end]) < 2:
                    order(*words, code=1)
                    continue
                maps = neox_maps(sizes, begin, end, samples, length, seed)
                where = folder / f"maps{num_orders}"
                result = order(*words, "--out", f"{where}/", "--show", f"0:{min(samples, 60)}")
                name = f"store{number}_{part}_indexmap_{samples}ns_{length}sl_{seed}s_packedpi_ac"
                check_maps(result, where, name, maps)
                order(*words, *(word for kind in maps for word in ("--check", where / f"{name}_{kind}_idx.npy")))
                stream = [id for document in maps["doc"] for id in documents[document]]
                for row in result["rows"]:
                    sample = int(maps["shuffle"][row["row"]])
                    assert row["sample"] == sample
                    assert row["ids"] == stream[sample * length : (sample + 1) * length + 1]
                    pieces = [id for p in row["pieces"] for id in documents[p["document"]][p["begin"] : p["end"]]]
                    assert pieces == row["ids"]
                num_orders += 1
    return num_orders


def test_neox_counts():
    """The generator alone, over sizes and seeds, as for a store that nobody has any more."""
    for number in range(25):
        documents, tokens = dice.choice([1, 2, 100, 4097]), dice.randrange(5000, 90_000)
        samples, length = dice.randrange(1, 3000), dice.choice([1, 16, 100])
        seed = dice.choice([0, 2**32 - 1, dice.getrandbits(32)])
        sizes = [tokens - documents + 1] + [1] * (documents - 1)
        maps = neox_maps(sizes, 0, documents, samples, length, seed)
        del maps["sample"]
        where = folder / f"counts{number}"
        result = order("pile", "--kind", "neox", "--samples", samples, "--sequence-length", length, "--seed", seed,
                       "--documents", documents, "--tokens", tokens, "--old-names", "--out", f"{where}/")
        check_maps(result, where, f"pile_train_indexmap_{samples}ns_{length}sl_{seed}s", maps)


def test_blend(stores):
    die = random.Random(76)
    many = [float(die.randint(1, 6)) for _ in range(150)]
    for weights in ([1.0], [0.7, 0.3], [5.0, 2.0, 3.0], [1 / 3, 0.1, 1e-3, 0.4],
                    [4.0, 1.0, 3.0, 6.0, 5.0, 5.0, 5.0, 4.0, 6.0],
                    many):  # In these two, rows depend on the last bit of numpy's sum.
        numbers = [k % len(stores) for k in range(len(weights))]
        total, length, seed = 300, 6, 11
        sum_of = 0.0
        for weight in weights:
            sum_of += weight
        asked = [int(math.ceil(total * (weight / sum_of) * 1.005)) for weight in weights]
        maps = [neox_maps([len(d) for d in stores[n]], 0, len(stores[n]), samples, length, seed)
                for n, samples in zip(numbers, asked)]
        blend = neox_blend(weights, [len(m["shuffle"]) for m in maps])
        shown = min(len(blend) + 5, 400)
        where = folder / f"blend{len(weights)}"
        result = order(*(folder / f"store{n}" for n in numbers), "--kind", "neox", "--samples", total,
                       "--sequence-length", length, "--seed", seed, "--weights", ",".join(map(repr, weights)),
                       "--out", f"{where}/", "--show", f"0:{shown}")
        for k in (0, len(weights) - 1):
            name = f"store{numbers[k]}_train_{k}_indexmap_{asked[k]}ns_{length}sl_{seed}s_packedpi_ac"
            check_maps(result, where, name, maps[k])
        for row in result["rows"]:
            store, at = blend[row["row"] % len(blend)]
            shuffle = maps[store]["shuffle"]
            sample = int(shuffle[at] if at < len(shuffle) else shuffle[at % (len(shuffle) - 1)])
            assert row["store"] == str(folder / f"store{numbers[store]}") and row["sample"] == sample, row
            stream = [id for document in maps[store]["doc"] for id in stores[numbers[store]][document]]
            assert row["ids"] == stream[sample * length : (sample + 1) * length + 1]


def test_npy():
    for array in (numpy.arange(5, dtype=numpy.uint8), numpy.arange(6, dtype=numpy.uint16).reshape(3, 2),
                  numpy.zeros(0, numpy.int64), numpy.arange(100_000, dtype=numpy.int32)):
        for version in ((1, 0), (2, 0)):
            file = folder / "array.npy"
            with open(file, "wb") as out:
                numpy.lib.format.write_array(out, array, version=version)
            info = json.loads(run("data", "info", file, "--json"))
            assert (info["dtype"], info["shape"]) == (array.dtype.name, list(array.shape)), info
    numpy.save(file, numpy.arange(4.0))
    fails("numbers of the type '<f8'", "info", file)
    numpy.save(file, numpy.asfortranarray(numpy.arange(6, dtype=numpy.int32).reshape(2, 3)))
    fails("Fortran order", "verify", file)
    file.write_bytes(saved(numpy.arange(9, dtype=numpy.uint32))[:-1])
    fails("it was truncated", "verify", file)
    bare = folder / "bare.npy"
    numpy.arange(9, dtype=numpy.uint32).tofile(bare)
    assert json.loads(run("data", "info", bare, "--json")) == {"header": False, "file_bytes": 36}
    shuffled = folder / "x_shuffle_idx.npy"
    numpy.save(shuffled, numpy.zeros(100, numpy.uint32))  # A published file was mostly zeros.
    fails("0 comes 100 times", "verify", shuffled)
    fails("nothing has the SHA-256", "verify", bare, "--sha256", "f" * 64)
    fails("not a SHA-256", "verify", bare, "--sha256", "abc", code=2)


def test_exchange():
    (folder / "texts.jsonl").write_text("".join(
        json.dumps({"text": f"Document {i}: {'naïve words ' * (i % 30)}<|endoftext|> and its end.\n"}) + "\n"
        for i in range(200)))
    tokenizer = folder / "tokenizer.json"
    run("tokenizer", "train", folder / "texts.jsonl", "--vocab-size", 300, "--out", tokenizer)
    theirs = Tokenizer.from_file(str(tokenizer))
    eod = theirs.token_to_id("<|endoftext|>")
    texts = [f"Text {i}: {'größer ' * (i % 9)}!" for i in range(60)]
    documents = [[*theirs.encode(text).ids, eod] for text in texts]
    for dtype in (numpy.uint16, numpy.int32):
        prefix, store, back = folder / f"m-{dtype.__name__}", folder / f"s-{dtype.__name__}", folder / f"b-{dtype.__name__}"
        write_megatron(prefix, documents, dtype)
        run("data", "import", prefix, "--tokenizer", tokenizer, "--out", store)
        run("data", "verify", store)
        info = json.loads(run("data", "info", store, "--json"))
        assert info["bytes"] == sum(len(text.encode()) for text in texts) and info["documents"] == 60
        tokens = numpy.fromfile(store / "tokens-train.npy", numpy.uint16 if dtype == numpy.uint16 else numpy.uint32)
        assert tokens.tolist() == [id for document in documents for id in document]
        exported = json.loads(run("data", "export", store, back, "--json"))
        for ending in ("idx", "bin"):
            assert pathlib.Path(f"{back}.{ending}").read_bytes() == pathlib.Path(f"{prefix}.{ending}").read_bytes()
            run("data", "verify", f"{prefix}.idx", "--tokenizer", tokenizer, "--sha256", exported[f"{ending}_sha256"])
        about = json.loads(run("data", "info", f"{prefix}.idx", "--json"))
        assert (about["documents"], about["tokens"], about["dtype"]) == (60, len(tokens), dtype.__name__)

    # Atoll's own store, both parts, read without Atoll.
    own = folder / "own"
    run("data", "pack", folder / "texts.jsonl", "--tokenizer", tokenizer, "--out", own, "--validation-share", 0.2)
    for part, words in (("train", []), ("validation", ["--validation"])):
        run("data", "export", own, folder / part, *words)
        stream = numpy.concatenate(read_megatron(folder / part))
        assert numpy.array_equal(stream, numpy.fromfile(own / f"tokens-{part}.npy", numpy.uint16))

    fails("already exists", "export", own, folder / "train", code=2)
    run("data", "export", own, folder / "train", "--overwrite")
    write_megatron(folder / "bad", [[5, 6], [7, eod]], numpy.uint16)
    fails("document 0 does not end with end-of-text", "import", folder / "bad", "--tokenizer", tokenizer, "--out",
          folder / "bad-store")
    write_megatron(folder / "bad", [[5, 300, eod]], numpy.uint16)
    fails("token 1 is 300, but the vocabulary has 300", "import", folder / "bad", "--tokenizer", tokenizer, "--out",
          folder / "bad-store")
    fails("token 1 is 300", "verify", folder / "bad.idx", "--tokenizer", tokenizer)
    write_megatron(folder / "bad", [[5, eod]], numpy.int64)
    fails("tokens of int64", "import", folder / "bad", "--tokenizer", tokenizer, "--out", folder / "bad-store")
    write_megatron(folder / "bad", [[5, eod], [6, eod]], numpy.uint16)
    index = bytearray((folder / "bad.idx").read_bytes())
    index[26] = 2  # doc_idx ends early, as NeoX's merge tool leaves it.
    (folder / "bad.idx").write_bytes(index[:-8])
    run("data", "verify", folder / "bad.idx", "--tokenizer", tokenizer)
    fails("2 sequences in 1 documents", "import", folder / "bad", "--tokenizer", tokenizer, "--out", folder / "bad-store")
    assert not (folder / "bad-store").exists() and not (folder / "bad-store.tmp").exists()
    with open(folder / "m-uint16.bin", "r+b") as file:
        file.truncate(100)
    fails("past the end of the .bin", "verify", folder / "m-uint16.idx")


def test_usage():
    neox = ["order", folder / "store0", "--kind", "neox", "--seed", 1, "--samples", 5, "--sequence-length", 4]
    fails("--chunk-rows does not go with --kind neox", *neox, "--chunk-rows", 2, code=2)
    fails("--weights: NeoX blends whole stores", *neox, "--weights", "1", "--split", "1,0,0", code=2)
    fails("several need --weights", *neox[:2], folder / "store1", *neox[2:], code=2)
    fails("a weight must be a positive number", *neox, "--weights", "0", code=2)
    fails("--out must be a folder", *neox, "--out", folder / "file.npy", code=2)
    fails("its name does not say", *neox, "--check", folder / "array.npy", code=2)
    fails("seeds end at 2^32 - 1", *neox[:4], "--seed", 2**32, *neox[6:], code=2)
    fails("--show takes a row", *neox, "--show", "5:2", code=2)
    fails("needs either the token files or --num-rows", "order", "--kind", "olmo", "--seed", 1, code=2)
    fails("there is no row 3", "order", "--kind", "olmo", "--seed", 1, "--num-rows", 3, "--show", "3", code=2)
    fails("its epochs count from 1", "order", "--kind", "olmo-core", "--seed", 1, "--num-rows", 3, "--epoch", 0, code=2)
    fails("need --dtype and --sequence-length", "order", folder / "bare.npy", "--kind", "olmo", "--seed", 1, code=2)
    fails("is not a regular file", "order", "--kind", "olmo", "--seed", 1, "--num-rows", 3, "--out", "/dev/null",
          code=2)


def main():
    num_olmo = test_olmo()
    test_olmo_rows()
    stores = make_stores()
    num_neox = test_neox(stores)
    test_neox_counts()
    test_blend(stores)
    test_npy()
    test_exchange()
    test_usage()
    print(f"orders: {num_olmo} of OLMo and OLMo-core, {num_neox} of NeoX and its files are equal to numpy's")


main()
