#!/usr/bin/env python3
"""A line between two network namespaces on which each packet is on its way for a while: calls from both ends can meet only on such a one.

usage: slow_line.py MILLISECONDS NAMESPACE:DEVICE NAMESPACE:DEVICE    makes both devices (TUN), prints "ready", and goes on until it is killed
"""
import collections
import ctypes
import fcntl
import os
import select
import struct
import sys
import time

TUNSETIFF, IFF_TUN, IFF_NO_PI, CLONE_NEWNET = 0x400454CA, 1, 0x1000, 0x40000000
MAX_PACKET, MAX_WAITING = 2048, 4096


def end_of(place):
    namespace, device = place.split(":")
    with open(f"/run/netns/{namespace}") as file:
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), CLONE_NEWNET) != 0:
            sys.exit(f"no namespace {namespace}: {os.strerror(ctypes.get_errno())}")
    end = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(end, TUNSETIFF, struct.pack("16sH22x", device.encode(), IFF_TUN | IFF_NO_PI))
    return end


def take_all(end, waiting, due):
    try:
        while True:
            packet = os.read(end, MAX_PACKET)
            if len(waiting) < MAX_WAITING:
                waiting.append((due, packet))
    except BlockingIOError:
        pass


def carry(delay_s, one, other):
    """Two queues: what goes where, and when it is there."""
    queues = {one: (other, collections.deque()), other: (one, collections.deque())}
    while True:
        now = time.monotonic()
        for target, waiting in queues.values():
            while waiting and waiting[0][0] <= now:
                try:
                    os.write(target, waiting.popleft()[1])
                except OSError:
                    pass  # The device is down, or full.
        dues = [waiting[0][0] for _, waiting in queues.values() if waiting]
        for end in select.select(list(queues), [], [], max(0, min(dues) - now) if dues else None)[0]:
            take_all(end, queues[end][1], time.monotonic() + delay_s)


if __name__ == "__main__":
    ends = [end_of(place) for place in sys.argv[2:]]
    print("ready", flush=True)
    carry(float(sys.argv[1]) / 1000, *ends)
