"""Local tasks for lm_eval_oracle.py: made of seeded words, one for each thing that a task file may ask for."""
import gzip
import json
import random

WORDS = ("island wave model gradient répétition naïve привет кот 語言 数据 🙂 coral tide harbour drift signal "
         "token merge sailor lantern north south deep shallow rope knot").split()


def sentence(rnd, low, high):
    return " ".join(rnd.choice(WORDS) for _ in range(rnd.randint(low, high)))


def questions(rnd, count, low=3, high=9):
    """Rows of four answers of unequal lengths, with characters that Python's repr has to quote."""
    rows = []
    for number in range(count):
        texts = [sentence(rnd, 1, 6) for _ in range(4)]
        texts[number % 4] += rnd.choice(["'s end", ' "quoted"', " it's \"both\"", "\\n", " ünï", "\ttab"])
        rows.append({"question": sentence(rnd, low, high) + "?", "options": {"text": texts, "label": list("ABCD")},
                     "answer": rnd.randrange(4), "right": rnd.random() < 0.5, "weight": 0.5 * rnd.randrange(5),
                     "hint": None if number % 3 else "a hint"})
    return rows


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row, ensure_ascii=bool(n % 2)) + "\n" for n, row in enumerate(rows)))


# Everything that follows is the text of a task file. DATA stands for the folder of the data files.
BASE = """
dataset_path: json
dataset_kwargs:
  data_files: {train: [DATA/train.jsonl, DATA/more.jsonl.gz], validation: DATA/validation.jsonl, test: DATA/test.jsonl}
metadata:
  version: 1.0
"""

LETTERS = """
include: base_yaml
tag: [choices, lettered]
task: letters
test_split: test
fewshot_split: validation
fewshot_config:
  sampler: first_n
num_fewshot: 2
output_type: multiple_choice
description: "The following are questions about {{ 'the sea' }}.\\n\\n"
doc_to_text: |-
  {{question.strip()}}
  {% for letter in options.label %}{{letter}}. {{options.text[loop.index0]}}
  {% endfor %}Answer:
doc_to_choice: ["A", "B", "C", "D"]
doc_to_target: answer
metric_list:
  - metric: acc
    aggregation: mean
    higher_is_better: true
  - metric: acc_norm
    aggregation: mean
    higher_is_better: true
"""

SENTENCES = """
include: base_yaml
tag: choices
task: sentences
task_alias: whole sentences
test_split: test
training_split: train
num_fewshot: 5
output_type: multiple_choice
doc_to_text: "Q: {{question}}{% if hint %} ({{hint}}){% endif %}\\nA:"
doc_to_choice: "{{options.text}}"
doc_to_target: "{{answer}}"
should_decontaminate: true
doc_to_decontamination_query: question
metric_list:
  - metric: acc
  - metric: acc_norm
  - metric: acc_bytes
  - metric: acc_mutual_info
  - metric: exact_match
  - metric: brier_score
metadata:
  version: 2
"""

# The examples come from the split that is asked, and the document asked is left out.
SAME_SPLIT = """
include: base_yaml
task: same_split
validation_split: validation
num_fewshot: 2
output_type: multiple_choice
doc_to_text: question
doc_to_choice: {first: "no", second: "yes"}
doc_to_target: right
target_delimiter: "\\n=> "
fewshot_delimiter: "\\n###\\n"
metric_list:
  - {metric: acc, aggregation: mean, higher_is_better: yes}
"""

# The answer is a text among the choices; sometimes it is none of them.
BY_TEXT = """
include: base_yaml
task: by_text
test_split: test
fewshot_split: train
num_fewshot: 3
output_type: multiple_choice
doc_to_text: "{{question}} Is it so?{{ '' if right else '  ' }}"
doc_to_choice: ["true", "false", "maybe so"]
doc_to_target: "{{ ('true' if right else 'false') if answer > 0 else 'neither' }}"
metric_list:
  - metric: acc
  - metric: acc_norm
fewshot_config:
  sampler: default
  doc_to_text: "{{question}} Really?"
  doc_to_target: "{{ right | lower }}"
  target_delimiter: ": "
"""

# As in Winogrande: the choices are the contexts, the continuation is the same.
CONTEXTS = """
include: base_yaml
task: contexts
test_split: test
training_split: train
num_fewshot: 1
output_type: multiple_choice
doc_to_text: "{{answer}}"
doc_to_choice: "{{ [options.text[0] + ' a', options.text[1] + ' b', options.text[2], options.text[3]] }}"
doc_to_target: question
metric_list:
  - metric: acc
  - metric: exact_match
"""

SEVERAL_RIGHT = """
include: base_yaml
task: several_right
test_split: test
num_fewshot: 0
output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_choice: ["1", "2", "3", "4"]
doc_to_target: "[{{answer}}, {{(answer + 1) % 4}}]"
gen_prefix: "I say"
metric_list:
  - metric: acc
  - metric: acc_norm
  - metric: exact_match
"""

# Contexts longer than the models' 192 and 256 positions.
LONG = """
include: base_yaml
task: long
test_split: test
fewshot_split: test
num_fewshot: 6
output_type: multiple_choice
doc_to_text: "{{question}} {{question | upper}} {{question}}"
doc_to_choice: "{{options.label}}"
doc_to_target: "{{'ABCD'[answer]}}"
metric_list:
  - metric: acc
  - metric: acc_norm
"""

LAST_WORDS = """
task: last_words
dataset_path: json
dataset_kwargs: {data_files: {test: DATA/last_words.jsonl}}
test_split: test
output_type: loglikelihood
doc_to_text: "{{text}}"
doc_to_target: "{{last}}"
metric_list:
  - {metric: perplexity, aggregation: perplexity, higher_is_better: false}
  - {metric: acc, aggregation: mean, higher_is_better: true}
metadata: {version: 1}
"""

# Examples and the answer's begin are given; the documents asked about are no examples.
PREFIXED = """
include: base_yaml
task: prefixed
test_split: test
fewshot_split: test
fewshot_config: {sampler: first_n}
num_fewshot: 2
output_type: multiple_choice
description: question
doc_to_text: "{{question}}{{ '\\n' if right else '' }}"
doc_to_choice: "{{options.text[:3] + ['none of ' ~ (options.text | length)]}}"
doc_to_target: "{{ [0, 3][right] }}"
gen_prefix: "{{ (hint or 'So') | title }}:"
target_delimiter: "\n"
"""

WRITTEN_EXAMPLES = """
include: base_yaml
task: written_examples
test_split: test
fewshot_config:
  samples:
    - {question: "one 🙂", text: first}
    - {question: two, text: "second "}
    - {question: three, text: third}
  doc_to_target: " {{text}}"
num_fewshot: 2
output_type: loglikelihood
doc_to_text: "{{question}}"
doc_to_target: " {{options.text[answer]}}"
target_delimiter: " ->"
"""

NO_CONTEXT = """
task: no_context
dataset_path: json
dataset_kwargs: {data_files: {test: DATA/last_words.jsonl}}
test_split: test
output_type: loglikelihood
doc_to_text: ""
doc_to_target: "{% if loop is undefined %}{{last}}{% endif %}"
"""

ROLLING = """
task: rolling
dataset_path: json
dataset_kwargs: {data_files: {validation: DATA/pages.json}}
validation_split: validation
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: page
metric_list:
  - metric: word_perplexity
  - metric: byte_perplexity
  - metric: bits_per_byte
"""

BINARY = """
include: base_yaml
task: binary
test_split: test
output_type: multiple_choice
doc_to_text: question
doc_to_choice: ["no", "yes"]
doc_to_target: "{{right | int}}"
metric_list:
  - metric: acc
  - metric: f1
  - metric: mcc
"""

GROUP = """
group: sea
group_alias: All of the sea
task:
  - letters
  - task: same_split
    num_fewshot: 1
  - group: inner
    task: [long, several_right]
    aggregate_metric_list:
      - {metric: acc, weight_by_size: false}
aggregate_metric_list:
  - {metric: acc, aggregation: mean, weight_by_size: true}
  - {metric: acc_norm, filter_list: none}
metadata:
  version: 3
"""

ALONE = {"letters": LETTERS, "sentences": SENTENCES, "same_split": SAME_SPLIT, "by_text": BY_TEXT, "contexts": CONTEXTS,
         "several_right": SEVERAL_RIGHT, "long": LONG, "last_words": LAST_WORDS,
         "prefixed": PREFIXED, "written_examples": WRITTEN_EXAMPLES, "no_context": NO_CONTEXT,
         "rolling": ROLLING, "binary": BINARY}


def write(folder, greedy):
    """`greedy(context)`: the text that the model goes on with, so that some answers are its own."""
    rnd = random.Random(7)
    folder.mkdir()
    write_lines(folder / "train.jsonl", questions(rnd, 45))
    with gzip.open(folder / "more.jsonl.gz", "wt") as file:
        file.writelines(json.dumps(row) + "\n" for row in questions(rnd, 15))
    rows = questions(rnd, 9)
    write_lines(folder / "validation.jsonl", rows + rows[:3])  # Some documents are there twice.
    write_lines(folder / "test.jsonl", questions(rnd, 26))
    rows = []
    for number in range(24):
        text = sentence(rnd, 2, 25) + " " * (number % 3)
        rows.append({"text": text, "last": greedy(text) if number % 2 else " " + rnd.choice(WORDS)})
    write_lines(folder / "last_words.jsonl", rows)
    pages = [{"page": sentence(rnd, low, 2 * low).replace(" ", " \n", 1)} for low in (1, 3, 12, 40, 150)]
    pages.append({"page": " two  spaces\u00a0and\u2003more\x1cat the end \n"})
    (folder / "pages.json").write_text(json.dumps(pages))
    (folder / "base_yaml").write_text(BASE.replace("DATA", str(folder)))
    for name, text in ALONE.items():
        (folder / f"{name}.yaml").write_text(text.replace("DATA", str(folder)))
    (folder / "sea.yaml").write_text(GROUP)
