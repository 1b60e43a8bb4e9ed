#!/usr/bin/env python3
"""How far the exchange of a round fills its line, between two islands in processes of their own.

  link_speed.py [--rounds 7] [--loopback | --wan]    (needs build/bin/atoll-link-speed; --wan also root, see tests/wan)

WAN: a line of 500 Mbit/s with a round trip of 100 ms, both directions at once; the figure is encoded bytes per second of
the exchange over the line's rate, which TCP and IP headers are part of. Loopback: both islands on this machine; encoded
bytes received by both. An exchange lasts from the first begin() until both have the whole mean. Figures are medians; the
first round, in which connections and memory are new, is shown and not counted. Codec FP32, topology gather.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "wan"))
import claims  # noqa: E402
import wan  # noqa: E402

PROGRAM = str(claims.ROOT / "build" / "bin" / "atoll-link-speed")
EMULATOR = str(claims.ROOT / "build" / "bin" / "atoll-wan-link")
RATE_MBIT, DELAY_MS, QUEUE_KIB, MTU = 500, 25, 12500, 9000  # Two access links: 4 x 25 ms there and back.
ISLANDS = ("a", "b")


class Loopback:
    """As wan.Network, without one."""
    def address(self, _):
        return "127.0.0.1"

    def start(self, _, command, **options):
        return subprocess.Popen(command, **options)


def rounds(network, million_values, count, codec="fp32", topology="gather", authority=None):
    """One dict per round: seconds, and bytes received by each island. `authority`: a folder of `atoll create`; encrypted."""
    options = {"stdout": subprocess.PIPE, "text": True}
    if authority:
        options["env"] = {**os.environ, "ATOLL_AUTHORITY": str(authority)}
    coordinator = network.start("a", [PROGRAM, "coordinate", network.address("a") + ":0", "2"], **options)
    address = coordinator.stdout.readline().strip()
    islands = [network.start(host, [PROGRAM, "island", address, network.address(host) + ":0", host, codec, topology,
                                    str(million_values), str(count)], **options) for host in ISLANDS]
    lines = [island.communicate()[0].splitlines() for island in islands]
    coordinator.communicate()
    if any(process.returncode for process in (coordinator, *islands)) or any(len(own) != count for own in lines):
        raise RuntimeError("an island or the coordinator failed")
    out = []
    for both in zip(*lines):
        both = [json.loads(line) for line in both]
        out.append({"seconds": max(line["seconds"] for line in both), "bytes": [line["bytes_received"] for line in both],
                    "cpu_seconds": sum(line["cpu_seconds"] for line in both)})
    return out


def report(name, figures, unit):
    print(f"  {name}: " + " ".join(f"{figure:.3f}" for figure in figures) + f" {unit}; the first is not counted")
    return statistics.median(figures[1:])


def loopback_gigabytes(count, authority=None):
    done = rounds(Loopback(), 32, count, authority=authority)
    cpu = statistics.median(line["cpu_seconds"] / sum(line["bytes"]) * 1e9 for line in done)
    print(f"  processor time: {cpu:.2f} s for each GB received")
    return report("encrypted" if authority else "loopback", [sum(line["bytes"]) / line["seconds"] / 1e9 for line in done], "GB/s")


def wan_share(count, authority=None):
    reason = wan.unavailable(EMULATOR)
    if reason:
        raise RuntimeError(reason)
    link = wan.Link(rate=RATE_MBIT, delay=DELAY_MS, queue=QUEUE_KIB)
    with wan.Network(EMULATOR, dict.fromkeys(ISLANDS, link), mtu=MTU) as network:
        done = rounds(network, 64, count, authority=authority)
    return report("of the line's rate", [min(line["bytes"]) * 8e-6 / line["seconds"] / RATE_MBIT for line in done], "")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=7)
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--loopback", action="store_true")
    only.add_argument("--wan", action="store_true")
    arguments = parser.parse_args()
    table = claims.Claims("link speed")
    if not arguments.loopback:
        table.measured("share of 500 Mbit/s, 100 ms, that an exchange carries", lambda: wan_share(arguments.rounds),
                       lambda share: share >= 0.9, ">= 0.9")
    if not arguments.wan:
        table.measured("GB/s of encoded bytes over loopback, both directions", lambda: loopback_gigabytes(arguments.rounds),
                       lambda rate: rate >= 1, ">= 1")
    return table.end()


if __name__ == "__main__":
    sys.exit(main())
