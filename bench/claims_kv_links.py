#!/usr/bin/env python3
"""Part of make claims-kv: prefixes that come over a line, beside 8-bit keys and values and beside reading them anew; and what a lost server's
place is begun with. SmolLM2-135M, or what served.py says, in emulated networks (tests/wan)."""
import contextlib
import functools
import json
import shutil
import statistics
import sys
import time

import claims_kv_reuse
import kv_codec
import kv_texts
import scatter
import serving_links
from claims import RESULTS, ROOT, Claims, run
from claims_kv_reuse import CHUNK, NUM_TOKENS, first_token, ids, prompt
from served import THREADS, model, num_layers, spans, work

# The next are found in tests/, which served.py names.
import wan
from serving_swarm import Asked, complete

claims = Claims("kv", claims_kv_reuse.claims.paths)
REPEATS = 3
RATES = (10, 30, 100, 300, 1000)  # Mbit/s.
WITHIN = 1  # Seconds in which a prefix is to be there, where that needs rounding.
TRIALS, SLOW_TRIALS, SLOW = 20, 5, 20  # On a slow line, in Mbit/s, reading is the quicker way.
GROUP_LAYERS, NUM_LEVELS = 5, 3  # Of the profile.
EIGHT_BITS = 8.08  # Of an element, with its scales (docs/kv_cache.md).


@functools.cache
def profile():
    """Fitted once: it is kept in build/kv, as bench/kv_codec.py's is."""
    kv_codec.WORK.mkdir(parents=True, exist_ok=True)
    return kv_codec.profile_of(model(), kv_texts.write(kv_codec.WORK / "texts")[0])


def prefix(number):
    """And a token behind it, which is read."""
    return ids()[number * (NUM_TOKENS + 1) :][: NUM_TOKENS + 1]


class PeerSwarm(claims_kv_reuse.KeptSwarm):
    """A peer that has kept prompts, and serves one layer; and a server that has just started, with all layers and nothing kept."""

    def kept(self):
        return ("--kv-store", self.folder / "p-kv", "--kv-profile", profile())

    def gateway_of_secret(self, *words):
        return self.gateway("g", "--max-guesses", 0, "--kv-secret", self.folder / "secret", *words)

    def fill(self, url, count):
        """Seconds to the first token of prompts that nobody has read, the median, and their answers; the peer has them then."""
        self.serve("p", f"0:{num_layers()}", *self.kept())
        self.wait_whole(url)
        found = []
        for number in range(count):
            found.append(first_token(url, prefix(number)))
            groups = -(-num_layers() // GROUP_LAYERS) * NUM_LEVELS
            self.wait_kept((number + 1) * (NUM_TOKENS // CHUNK) * (num_layers() + groups))
        self.finish("p")
        self.serve("p", "0:1", *self.kept())
        return statistics.median(took for took, _ in found), [told for _, told in found]

    def wait_kept(self, count):
        deadline = time.monotonic() + 300
        while (found := len(list((self.folder / "p-kv").glob("*/????????*")))) < count:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{found} blobs are kept, and not {count}")
            time.sleep(0.2)

    def load(self, url, number, **more):
        self.serve("s", f"0:{num_layers()}", "--kv-profile", profile())
        self.wait_whole(url)
        took, told = first_token(url, prefix(number), **more)
        self.finish("s")
        return took, told


@contextlib.contextmanager
def peers():
    if reason := wan.unavailable(str(ROOT / "build/bin/atoll-wan-link")):
        raise RuntimeError(reason)
    hosts = ("coordinator", "p", "s", "g")
    with wan.Network(str(ROOT / "build/bin/atoll-wan-link"), {host: wan.Link(rate=1000, delay=1) for host in hosts}) as net, \
            contextlib.ExitStack() as stack:
        swarm = PeerSwarm(net, work / "peers")
        swarm.threads = THREADS
        stack.callback(shutil.rmtree, swarm.folder)
        stack.callback(swarm.end)
        swarm.coordinate()
        stack.enter_context(serving_links.inside(net, "g"))
        yield swarm, swarm.gateway_of_secret("--audit", 0)


@functools.cache
def loads():
    """Medians of seconds to the first token: `read` anew, and by rate `exact` and `lossy`; tokens of `exact` ones that are others."""
    found = {"exact": {}, "lossy": {}, "other": 0}
    with peers() as (swarm, url):
        found["read"], wanted = swarm.fill(url, REPEATS)
        for rate in RATES:
            for host in ("p", "s"):
                swarm.net.set(host, rate=rate)
            for way, more in (("exact", {}), ("lossy", {"lossy_kv": WITHIN})):
                times = []
                for number in range(REPEATS):
                    took, told = swarm.load(url, number, **more)
                    times.append(took)
                    if way == "exact":
                        found["other"] += told != wanted[number]
                found[way][rate] = statistics.median(times)
            print(f"{rate} Mbit/s: {found['exact'][rate]:.2f} s to the bit, {found['lossy'][rate]:.2f} s rounded, {found['read']:.2f} s read",
                  file=sys.stderr)
    keep_picture(found)
    return found


@functools.cache
def audits():
    """Of texts that began rounded, with servers that are honest: tokens that were recomputed, and whether something was found wrong."""
    with peers() as (swarm, url):
        swarm.fill(url, 1)
        swarm.finish("g")
        url = swarm.gateway_of_secret("--audit", 1, "--kv-profile", profile())
        swarm.serve("s", f"0:{num_layers()}", "--kv-profile", profile())
        swarm.wait_whole(url)
        def num_rounded():
            details = complete(url, prompt=prefix(0), max_tokens=100, temperature=0, lossy_kv=0)["usage"]["prompt_tokens_details"]
            return details.get("lossy_tokens", 0)
        for _ in range(40):
            if num_rounded() == 0:
                raise RuntimeError("nothing came rounded")
            if audited := serving_links.counted(url, "audited"):
                time.sleep(2)
                # Where an audit finds something wrong all that was kept is forgotten.
                return audited, int(num_rounded() == 0)
        raise RuntimeError("no text that began rounded was audited")


def eight_bit(rate):
    """Seconds that a prefix takes in 8 bits an element, if nothing but its bytes took time."""
    config = json.loads((ROOT / model() / "config.json").read_text())
    head = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    elements = NUM_TOKENS * num_layers() * 2 * config["num_key_value_heads"] * head
    return elements * EIGHT_BITS / (rate * 1e6)


def keep_picture(found):
    series = {"read anew": [(rate, found["read"]) for rate in RATES], "8-bit, bytes alone": [(rate, eight_bit(rate)) for rate in RATES],
              "to the bit": sorted(found["exact"].items()), f"within {WITHIN} s": sorted(found["lossy"].items())}
    (RESULTS / "kv-loading.svg").write_text(scatter.lines_svg(series, "Mbit/s", f"seconds to the first token of {NUM_TOKENS}"))
    (RESULTS / "kv-loading.json").write_text(json.dumps(found | {"commit": run(["git", "rev-parse", "--short", "HEAD"]).strip(),
                                                                 "date": time.strftime("%Y-%m-%d")}, indent=1) + "\n")


def add_loads():
    claims.measured("a prompt again, from a peer over 1 Gbit/s: of the first time", lambda: loads()["exact"][1000] / loads()["read"],
                    lambda f: f <= 0.15, "<= 15 %", "{:.1%}")
    claims.measured(f"{NUM_TOKENS} tokens over 100 Mbit/s: 8-bit's bytes alone, of the time rounded", lambda: eight_bit(100) / loads()["lossy"][100],
                    lambda f: f >= 3, ">= 3x", "{:.1f}x")
    claims.measured("rounded, over the slowest line on which it is quicker than reading, Mbit/s",
                    lambda: min(rate for rate in RATES if loads()["lossy"][rate] < loads()["read"]), lambda f: f <= 100, "<= 100")
    claims.measured("tokens recomputed behind rounded ones (bits of the same blobs)", lambda: audits()[0], lambda f: f >= 16, ">= 16")
    claims.measured("honest servers found wrong by that", lambda: audits()[1], lambda f: f == 0, "0")
    claims.measured("answers behind exact ones with other tokens", lambda: loads()["other"], lambda f: f == 0, "0")


# --- a server is lost ---
@functools.cache
def gaps(mbit, count, *words):
    """Seconds that answers stood still whose server was lost; who took its place had no copy, but another one of the chain."""
    found = []
    with claims_kv_reuse.linked(f"choice-{mbit}-{len(words)}", mbit, without=("b2",)) as swarm:
        url = swarm.gateway("g", "--max-guesses", 0, "--audit", 0, *words)
        swarm.wait_whole(url)
        for number in range(count):
            used, fresh = ("b", "b2") if number % 2 == 0 else ("b2", "b")
            asked = Asked(url, prompt=prompt(number), max_tokens=600, temperature=0, logit_bias={"0": -100, "2": -100})
            asked.wait_pieces(2)
            time.sleep(4 if mbit > SLOW else 12)  # Copies are on their way.
            swarm.serve(fresh, spans(3)[1], "--neighbour-rate", "10gbit")
            time.sleep(1)
            if not asked.is_under_way():
                raise RuntimeError("the answer was over before its server was lost")
            swarm.kill(used)
            asked.told()
            found.append(asked.longest_gap())
    print(f"a server lost behind {NUM_TOKENS} tokens, {mbit} Mbit/s {words}: {found}", file=sys.stderr)
    return found


def num_right():
    """On a line of 100 Mbit/s copies are the quicker way: those that took it are much quicker than who reads."""
    read = statistics.median(gaps(100, REPEATS, "--no-kv-store"))
    return sum(gap <= 0.8 * read for gap in gaps(100, TRIALS))


def num_right_slow():
    """There reading is: those that took it are about as quick as who has no other way."""
    read = statistics.median(gaps(SLOW, REPEATS, "--no-kv-store"))
    return sum(gap <= 1.3 * read for gap in gaps(SLOW, SLOW_TRIALS))


def add_choices():
    least = TRIALS * 19 // 20
    claims.measured(f"100 Mbit/s, a server lost: the quicker way (a copy) taken, of {TRIALS}", num_right, lambda f: f >= least, f">= {least}")
    claims.measured(f"{SLOW} Mbit/s: the quicker way (reading) taken, of {SLOW_TRIALS}", num_right_slow, lambda f: f == SLOW_TRIALS, str(SLOW_TRIALS))


def main():
    add_loads()
    add_choices()
    return claims.end()


if __name__ == "__main__":
    sys.exit(main())
