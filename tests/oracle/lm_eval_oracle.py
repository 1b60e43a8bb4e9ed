#!/usr/bin/env python3
"""`atoll eval --tasks` and lm-evaluation-harness give the same scores on the same weights.

  lm_eval_oracle.py ATOLL

Local tasks (lm_eval_tasks.py), five of lm-evaluation-harness's own with made-up data (lm_eval_real_tasks.py), and small random models of two families, one whose tokenizer puts a token
before each text and one whose does not. Compared are scores and standard errors, and for every request its text,
its log-likelihood and whether it is what the model would say. All within 1e-4, of what is larger than 1 relative. Nothing
is downloaded.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false",
               "LMEVAL_LOG_LEVEL": "ERROR", "DISABLE_MULTIPROC": "1", "TQDM_DISABLE": "1"}
scratch = tempfile.TemporaryDirectory(prefix="atoll-lm-eval-")
folder = pathlib.Path(scratch.name)
os.environ["HF_HOME"] = str(folder / "hugging-face")

import lm_eval  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from lm_eval.models.huggingface import HFLM  # noqa: E402
from lm_eval.tasks import TaskManager  # noqa: E402
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers  # noqa: E402

import lm_eval_real_tasks  # noqa: E402
import lm_eval_tasks  # noqa: E402

transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
atoll = sys.argv[1]
tolerance = 1e-4
worst = {"score": 0.0, "log-likelihood": 0.0}
num_requests = 0
problems = []


def train_tokenizer(begin, end):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=420, special_tokens=sorted({begin, end}), show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator([pathlib.Path(lm_eval_tasks.__file__).read_text()], trainer)
    if begin != end:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{begin} $A", special_tokens=[(begin, tokenizer.token_to_id(begin))])
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=begin, eos_token=end)


def make_model(name):
    """Written to a folder."""
    torch.manual_seed(5)
    sizes = dict(vocab_size=420, hidden_size=64, intermediate_size=112, num_hidden_layers=2, num_attention_heads=4,
                 initializer_range=0.06, pad_token_id=None)
    if name == "gpt_neox":
        tokenizer = train_tokenizer("<|endoftext|>", "<|endoftext|>")
        model = transformers.GPTNeoXForCausalLM(transformers.GPTNeoXConfig(
            **sizes, max_position_embeddings=256, bos_token_id=0, eos_token_id=0))
    else:
        tokenizer = train_tokenizer("<s>", "</s>")
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
            **sizes, max_position_embeddings=192, num_key_value_heads=2, bos_token_id=1, eos_token_id=0))
    model.save_pretrained(folder / name)
    tokenizer.save_pretrained(folder / name)
    return folder / name


def continuation(lm):
    """Of a text, two tokens; a word where they do not come back from their text."""
    def greedy(text):
        stem = text.rstrip()
        ids = lm.tokenizer.encode(stem)
        said = []
        for _ in range(2):
            said.append(int(lm.model(torch.tensor([ids + said])).logits[0, -1].argmax()))
        more = lm.tokenizer.decode(said)
        if lm.tokenizer.encode(stem + more) == ids + said and more.startswith(text[len(stem):]):
            return more[len(text) - len(stem):]
        return " coral"
    return greedy


def near(kind, where, ours, theirs):
    if not isinstance(theirs, (int, float)) or isinstance(theirs, bool):
        if ours != theirs:
            problems.append(f"{where}: {ours!r}, not {theirs!r}")
        return
    if not isinstance(ours, (int, float)):
        problems.append(f"{where}: {ours!r}, not {theirs!r}")
        return
    # Perplexities of random models are large: a difference relative to them.
    difference = abs(ours - theirs) / max(1.0, abs(theirs))
    worst[kind] = max(worst[kind], difference)
    if not difference <= tolerance:
        problems.append(f"{where}: {ours}, not {theirs}")


def compare_samples(where, ours, theirs):
    global num_requests
    if len(ours) != len(theirs):
        problems.append(f"{where}: {len(ours)} samples, not {len(theirs)}")
    for mine, other in zip(ours, theirs):
        place = f"{where}, document {other['doc_id']}"
        for key in ("doc_id", "target"):
            near("score", f"{place}: {key}", mine[key], other[key])
        if mine["doc"] != other["doc"]:
            problems.append(f"{place}: another document")
        ours_asked = [list(request.values()) for request in mine["arguments"].values()]
        asked = [list(request) for request in other["arguments"]]
        if ours_asked != asked:
            problems.append(f"{place}: asked {ours_asked!r}, not {asked!r}")
        for got, answer in zip(mine["filtered_resps"], other["filtered_resps"], strict=True):
            num_requests += 1
            if isinstance(answer, float):
                near("log-likelihood", place, float(got[0] if isinstance(got, list) else got), answer)
            else:
                near("log-likelihood", place, float(got[0]), answer[0])
                near("score", f"{place}: greedy", got[1], str(answer[1]))
        for metric in other["metrics"]:
            if not isinstance(other[metric], tuple):
                near("score", f"{place}: {metric}", mine[metric], other[metric])


def include_paths(folders):
    return [word for path in folders for word in ("--include-path", path)]


def compare(model, lm, folders, tasks, more=(), **options):
    manager = TaskManager(include_path=[str(folder) for folder in folders], include_defaults=False)
    theirs = lm_eval.simple_evaluate(model=lm, tasks=tasks, task_manager=manager, **options)
    arguments = [atoll, "eval", model, "--tasks", ",".join(tasks), *include_paths(folders), "--output",
                 folder / "results.json", "--log-samples", folder / "samples.jsonl", "--json", *more]
    for key, value in options.items():
        arguments += ["--" + key.replace("_", "-"), str(value)]
    done = subprocess.run(list(map(str, arguments)), capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{arguments}: exit {done.returncode}\n{done.stderr}")
    ours = json.loads((folder / "results.json").read_text())
    assert ours == json.loads(done.stdout)
    where = f"{model.name} {options or ''}"
    for key in ("results", "groups"):
        if ours.get(key, {}).keys() != theirs.get(key, {}).keys():
            problems.append(f"{where}: {key} of {list(ours.get(key, {}))}, not {list(theirs.get(key, {}))}")
    for key in ("results", "groups"):
        for task, scores in theirs.get(key, {}).items():
            mine = ours[key][task]
            if mine.keys() != scores.keys():
                problems.append(f"{where} {task}: {list(mine)}, not {list(scores)}")
                continue
            for metric, value in scores.items():
                near("score", f"{where} {task} {metric}", mine[metric], value)
    for key in ("group_subtasks", "versions", "n-shot", "higher_is_better", "n-samples"):
        if ours[key] != theirs[key]:
            problems.append(f"{where}: {key} {ours[key]}, not {theirs[key]}")
    for task, config in theirs["configs"].items():
        config = json.loads(json.dumps(config, default=str))
        config.get("metadata", {}).pop("config_source", None)
        mine = ours["configs"][task]
        for key, value in list(config["fewshot_config"].items()):
            if str(value).startswith("<function"):  # The harness prints its address; Atoll its text.
                del config["fewshot_config"][key]
                mine["fewshot_config"].pop(key)
        for key, value in config.items():
            if ours["configs"][task].get(key) != value:
                problems.append(f"{where} {task}: configs.{key}: {ours['configs'][task].get(key)!r}, not {value!r}")
    samples = {}
    for line in (folder / "samples.jsonl").read_text().splitlines():
        row = json.loads(line)
        samples.setdefault(row["task"], []).append(row)
    for task, rows in theirs["samples"].items():
        compare_samples(f"{where} {task}", samples[task], rows)


def check_refusals(model, data):
    """All of lm-evaluation-harness's files are looked through, and only those that are asked for must be in order."""
    def refused(tasks, expected, more=data):
        command = [atoll, "eval", model, "--tasks", tasks, "--include-path", lm_eval_real_tasks.HARNESS, *more]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        if done.returncode != 1 or expected not in done.stderr:
            problems.append(f"{tasks}: exit {done.returncode}, {done.stderr!r}, not {expected!r}")
    refused("piqa,wikitext", "\"process_results\" is not supported")
    refused("gsm8k", "is not supported")
    refused("hellaswag_ar", "dataset_path \"alexandrainst/m_hellaswag\"")
    # A file with one line more than HellaSwag's.
    (folder / "other").mkdir(exist_ok=True)
    (folder / "other" / "utils.py").write_text((lm_eval_real_tasks.HARNESS / "hellaswag/utils.py").read_text() + "preprocess = str\n")
    (folder / "other" / "other.yaml").write_text(f"include: {lm_eval_real_tasks.HARNESS}/hellaswag/hellaswag.yaml\ntask: other\n"
                                                 "process_docs: !function utils.process_docs\n")
    refused("other", "functions in Python are not run", more=[*data, "--include-path", folder / "other"])
    refused("hellaswag", "--data Rowan/hellaswag=FOLDER", more=[])
    refused("arc_easy", "is not a folder", more=["--data", "allenai/ai2_arc=/nowhere"])


def main():
    with_tables = pathlib.Path(atoll).with_name("atoll-tables").exists()
    if not with_tables:
        print("Arrow and Parquet files are left out: Atoll was built without Arrow's libraries")
    data = [word for name, path in lm_eval_real_tasks.write(folder / "data", with_tables).items() for word in ("--data", f"{name}={path}")]
    for name in ("gpt_neox", "llama"):
        model = make_model(name)
        lm = HFLM(pretrained=str(model), device="cpu", dtype="float32", batch_size=5)
        tasks = folder / f"tasks-{name}"
        with torch.no_grad():
            lm_eval_tasks.write(tasks, continuation(lm))
        compare(model, lm, [tasks], [task for task in lm_eval_tasks.ALONE], bootstrap_iters=1500)
        compare(model, lm, [tasks], ["sea", "sentences"], num_fewshot=3, limit=7, bootstrap_iters=0)
        compare(model, lm, [tasks], ["choices"], limit=1)
        narrow = HFLM(pretrained=str(model), device="cpu", dtype="float32", batch_size=5, max_length=70)
        compare(model, narrow, [tasks], ["rolling", "long"], more=["--window", "70", "--batch-size", "3"])
        # With examples for one of the two families, as their texts do not depend on it.
        options = {"limit": 6} if name == "gpt_neox" else {"num_fewshot": 2, "limit": 4}
        compare(model, lm, lm_eval_real_tasks.INCLUDED, lm_eval_real_tasks.NAMES, more=data, bootstrap_iters=0, **options)
    check_refusals(model, data)
    for problem in problems[:40]:
        print(problem[:600])
    print(json.dumps({"requests": num_requests, "max_score_difference": worst["score"],
                      "max_log_likelihood_difference": worst["log-likelihood"]}))
    sys.exit(1 if problems else 0)


main()
