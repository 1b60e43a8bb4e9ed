#!/usr/bin/env python3
"""make claims-security: what an island costs that sends what spoils a mean, measured again (about 2 minutes on 2 cores)."""
import functools
import json
import pathlib
import shutil
import sys
import tempfile

import corpus
import security_faults
from claims import ATOLL, Claims

claims = Claims("security")
work = pathlib.Path(tempfile.mkdtemp(prefix="atoll-claims-"))
store = str(work / "store")
corpus.make_store(ATOLL, store, 4 * corpus.SMALL_BYTES)


@functools.cache
def clean():
    return security_faults.clean(store, work / "clean")


@functools.cache
def poisoned(how):
    result = security_faults.poisoned(store, work / how, how)
    print(f"{how}: {json.dumps(result)}, without it {clean():.4f}", file=sys.stderr)
    return result


def loss_above(how):
    return poisoned(how)["loss"] / clean() - 1


WHAT = {"garbage": "garbage, 100 times as large", "flipped": "flipped signs", "noise": "noise as large as usual"}
for how, what in WHAT.items():
    claims.measured(f"one of 5 islands sends {what}: loss beside the run without it", functools.partial(loss_above, how),
                    lambda above: abs(above) <= 0.01, "within 1 %", "{:+.2%}")
    claims.measured("and rounds in which its part counted", functools.partial(lambda how: poisoned(how)["counted"], how),
                    lambda count: count == 0, "0", "{}")
    claims.measured("and times that one of the others was left out", functools.partial(lambda how: poisoned(how)["honest_left_out"], how),
                    lambda count: count == 0, "0", "{}")
shutil.rmtree(work)
sys.exit(claims.end())
