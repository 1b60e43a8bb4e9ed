"""Tokens that were guessed and verified by a chain, for claims_serving.py: whether they are drawn from the same distribution as those of one
process, which guesses none, and what they gain over slow lines.

Draws: the model is small and random: what is drawn matters, not what it means. Only four tokens may be drawn, and the prompt has each of them
behind each: so there always is a guess, and it is often wrong.

Gain: texts that repeat themselves, each asked of a gateway that guesses and of one that does not (--max-guesses 0), on one chain of three servers
on slow lines.
"""
import collections
import contextlib
import functools
import json
import sys

import random_model
import served
import wan
from claims import ROOT
from scipy.stats import chi2_contingency
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from served import TEXT, one, swarm_of, work
from serving_links import ROUND_TRIP_MS, LinkedSwarm, counted, inside
from serving_swarm import Asked, complete

NUM_DRAWS, PER_REQUEST = 10000, 8  # Of more at once each has no guesses: a pass has room for 16.
VOCAB_SIZE, TOKENS = 400, (300, 301, 302, 303)
BODY = {"prompt": [a if side else b for a in TOKENS for b in TOKENS for side in (0, 1)], "max_tokens": 3, "temperature": 1, "logprobs": 0,
        "n": PER_REQUEST, "logit_bias": {str(token): 100 for token in TOKENS}}
LINK = ROOT / "build" / "bin" / "atoll-wan-link"
SERVERS, GATEWAYS = ("s0", "s1", "s2"), {"guesses": (), "plain": ("--max-guesses", 0)}
REPEATING = ("One shark, two sharks, three sharks. " * 12, '{"kind": "island", "size": 1, "palms": [2, 3]}\n' * 8, "for i in range(10):\n    print(i)\n" * 8)
NUM_TOKENS = 64  # Of each text, none of which ends earlier.
LEAST_EXPECTED = 10  # Draws; what is rarer counts together.


def small_model():
    """Its folder; with a large vocabulary most of the time would go to tokens that cannot be drawn."""
    source, model = work / "small-tokenizer", work / "small"
    source.mkdir()
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator([TEXT], trainers.BpeTrainer(vocab_size=VOCAB_SIZE, special_tokens=["<|end|>"], show_progress=False,
                                                              initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.save(str(source / "tokenizer.json"))
    (source / "config.json").write_text(json.dumps({"vocab_size": VOCAB_SIZE, "eos_token_id": 0}))
    random_model.write(model, source, 256, 512, 4)
    return model


def draws(url, first_seed):
    """The second and the third token of each."""
    found = []
    for seed in range(first_seed, first_seed + NUM_DRAWS, PER_REQUEST):
        reply = complete(url, **BODY, seed=seed)
        found += [tuple(choice["logprobs"]["tokens"][1:3]) for choice in sorted(reply["choices"], key=lambda choice: choice["index"])]
    return found


def chance(found, others):
    """That samples of one distribution differ as much as these (chi-square)."""
    of = [collections.Counter(sample) for sample in (found, others)]
    table = [[], []]
    rare = [0, 0]
    for pair in sorted(of[0] | of[1]):
        row = table if of[0][pair] + of[1][pair] >= 2 * LEAST_EXPECTED else None
        for sample in (0, 1):
            if row:
                row[sample].append(of[sample][pair])
            else:
                rare[sample] += of[sample][pair]
    if sum(rare):
        for sample in (0, 1):
            table[sample].append(rare[sample])
    return chi2_contingency(table).pvalue, len(table[0])


@functools.cache
def guesses():
    model = small_model()
    with swarm_of("guesses", ["0:2", "2:4"], of=model) as (_, url):
        found = draws(url, 0)
        made, right = counted(url, "drafted"), counted(url, "accepted")
    with one("guesses-one", of=model) as url:
        same, others = draws(url, 0), draws(url, NUM_DRAWS)
    p, num_kinds = chance(found, others)
    result = {"p": p, "kinds": num_kinds, "guessed": made, "right": right, "others": sum(a != b for a, b in zip(found, same))}
    print(f"guesses: {json.dumps(result)}", file=sys.stderr)
    if made < NUM_DRAWS:
        raise RuntimeError(f"only {made} tokens were guessed")
    return result


def repeated(url):
    """Of each text that repeats itself: the answer with its scores, and the seconds from its first token to its last."""
    found = []
    for text in REPEATING:
        asked = Asked(url, prompt=text, max_tokens=NUM_TOKENS, temperature=0, logprobs=20, logit_bias={"0": -100, "2": -100})
        told = asked.told()
        found.append((told, asked.times[-1] - asked.times[0]))
    return found


@functools.cache
def gain():
    """How many times as many tokens a second guesses give over lines of ROUND_TRIP_MS, of the same texts, and answers that they change."""
    if reason := wan.unavailable(str(LINK)):
        raise RuntimeError(reason)
    with one("repeats-one") as url:
        wanted = [told for told, _ in repeated(url)]
    hosts = ("coordinator", *SERVERS, *GATEWAYS)
    found, drafted = {}, {}
    # A packet crosses the lines of both.
    with wan.Network(str(LINK), {host: wan.Link(delay=ROUND_TRIP_MS / 4) for host in hosts}) as net, contextlib.ExitStack() as stack:
        swarm = LinkedSwarm(net, work / "repeats")
        stack.callback(swarm.end)
        swarm.coordinate()
        for name, span in zip(SERVERS, served.spans(len(SERVERS))):
            swarm.serve(name, span)
        for name, words in GATEWAYS.items():
            url = swarm.gateway(name, *words)
            with inside(net, name):
                swarm.wait_whole(url)
                found[name], drafted[name] = repeated(url), counted(url, "drafted")
    seconds = {name: [spent for _, spent in found[name]] for name in GATEWAYS}
    result = {"seconds": seconds, "drafted": drafted, "times": sum(seconds["plain"]) / sum(seconds["guesses"]),
              "others": sum(told != right for name in GATEWAYS for (told, _), right in zip(found[name], wanted))}
    print(f"repeating texts: {json.dumps(result)}", file=sys.stderr)
    if drafted["plain"] or not drafted["guesses"]:
        raise RuntimeError(f"guesses were not as asked: {drafted}")
    return result


def add(claims):
    claims.measured(f"{NUM_DRAWS} draws with guesses: 2nd and 3rd tokens beside other draws without, p", lambda: guesses()["p"], lambda p: p >= 0.01,
                    ">= 0.01", "{:.2f}")
    claims.measured("and draws that are others than those of the same seeds without", lambda: guesses()["others"], lambda n: n == 0, "0", "{}")
    what = f"{len(REPEATING)} texts that repeat themselves, {ROUND_TRIP_MS} ms round trips"
    claims.measured(f"{what}: tokens a second with guesses, times those without", lambda: gain()["times"],
                    lambda times: times >= 2, ">= 2", "{:.2f}")
    claims.measured(f"and of {2 * len(REPEATING)} answers, with and without, those with another bit than one process's", lambda: gain()["others"],
                    lambda n: n == 0, "0", "{}")
