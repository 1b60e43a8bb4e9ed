#!/usr/bin/env python3
"""A small token store from a few packages of the standard library.

usage: small_store.py ATOLL FOLDER
"""
import os
import pathlib
import shutil
import subprocess
import sys


def make_store(atoll, folder, packages):
    """Trains a tokenizer of 384 ids and packs `folder`; the intermediate files lie beside it."""
    folder = pathlib.Path(folder)
    corpus, tokenizer = folder.with_suffix(".corpus"), folder.with_suffix(".tokenizer.json")
    for old in (folder, corpus):
        shutil.rmtree(old, ignore_errors=True)
    for package in packages:
        shutil.copytree(pathlib.Path(os.__file__).parent / package, corpus / package,
                        ignore=shutil.ignore_patterns("__pycache__", "tests"))
    for words in (["tokenizer", "train", corpus, "--vocab-size", "384", "--out", tokenizer],
                  ["data", "pack", corpus, "--tokenizer", tokenizer, "--out", folder, "--validation-share", "0.1"]):
        done = subprocess.run([atoll, *map(str, words)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


if __name__ == "__main__":
    make_store(sys.argv[1], sys.argv[2], ["json", "logging", "asyncio"])
