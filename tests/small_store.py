#!/usr/bin/env python3
"""A small token store from a few packages of the standard library.

usage: small_store.py ATOLL FOLDER
"""
import os
import pathlib
import shutil
import subprocess
import sys


def corpus_of(folder):
    """Where the text of a store lies: beside it, and nothing from before."""
    folder = pathlib.Path(folder)
    corpus = folder.with_suffix(".corpus")
    for old in (folder, corpus):
        shutil.rmtree(old, ignore_errors=True)
    return corpus


def pack(atoll, folder):
    """Trains a tokenizer of 384 ids on the corpus of `folder` and packs it."""
    folder = pathlib.Path(folder)
    corpus, tokenizer = folder.with_suffix(".corpus"), folder.with_suffix(".tokenizer.json")
    for words in (["tokenizer", "train", corpus, "--vocab-size", "384", "--out", tokenizer],
                  ["data", "pack", corpus, "--tokenizer", tokenizer, "--out", folder, "--validation-share", "0.1"]):
        done = subprocess.run([atoll, *map(str, words)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def make_store(atoll, folder, packages):
    """Of packages of the standard library; the intermediate files lie beside the store."""
    corpus = corpus_of(folder)
    for package in packages:
        shutil.copytree(pathlib.Path(os.__file__).parent / package, corpus / package,
                        ignore=shutil.ignore_patterns("__pycache__", "tests"))
    pack(atoll, folder)


if __name__ == "__main__":
    make_store(sys.argv[1], sys.argv[2], ["json", "logging", "asyncio"])
