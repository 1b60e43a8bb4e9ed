#!/usr/bin/env python3
"""What a NAT does, from both of its sides, without Atoll: the laboratory's routers must be what the tests say that they are.

usage: nat_probe.py serve HOST                     tells who calls port 9000 where it comes from; two that say "pair", of each other
       nat_probe.py ports SERVER SERVER            prints the ports at which the servers see one port of this machine
       nat_probe.py call HOST PORT                 prints "answered", "refused" or "silence"
       nat_probe.py open SERVER PORT TRIES [S]     pairs; then calls the other from that port, while the other calls here, so often at most
                                                   (the first time S seconds later); prints "open" or "closed", and how each try failed
"""
import errno
import select
import socket
import sys
import threading
import time

PORT = 9000
PATIENCE_S, PAUSE_S = 1.5, 0.3


def text_of(address):
    return f"{address[0]}:{address[1]}\n".encode()


def serve(host):
    server = socket.create_server((host, PORT))
    print("serving", flush=True)
    waiting = []
    while True:
        caller, address = server.accept()
        caller.sendall(text_of(address))
        threading.Thread(target=pair, args=(caller, address, waiting), daemon=True).start()


def pair(caller, address, waiting):
    if caller.recv(16) != b"pair\n":
        return
    waiting.append((caller, address))
    if len(waiting) == 2:
        (one, one_address), (other, other_address) = waiting
        waiting.clear()
        one.sendall(text_of(other_address))
        other.sendall(text_of(one_address))


def socket_at(port):
    """Of that port here, which others of this program have as well."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind(("", port))
    return made


def seen_at(server, port):
    """The connection, and the address that the server sees."""
    made = socket_at(port)
    made.settimeout(5)
    made.connect((server, PORT))
    return made, made.makefile().readline().strip()


def ports(*servers):
    first, seen = seen_at(servers[0], 0)
    port = first.getsockname()[1]
    others = [seen_at(server, port)[1] for server in servers[1:]]
    print(*(address.rsplit(":")[1] for address in (seen, *others)))


def call(host, port):
    try:
        socket.create_connection((host, int(port)), 1)
        print("answered")
    except TimeoutError:
        print("silence")
    except ConnectionRefusedError:
        print("refused")


def failure_to_open(port, remote):
    """Empty where a word went to and fro: what an earlier try has left on its way may end a connection as it begins."""
    with socket_at(port) as made:
        made.setblocking(False)
        made.connect_ex(remote)
        if not select.select([], [made], [], PATIENCE_S)[1]:
            return "silence"
        error = made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            return errno.errorcode.get(error, str(error))
        made.settimeout(PATIENCE_S)
        try:
            made.sendall(b"hello")
            return "" if made.recv(5) == b"hello" else "no word"
        except OSError:
            return "cut off"


def open_to_other(server, port, tries, delay_s=0):
    meeting, _ = seen_at(server, int(port))
    meeting.sendall(b"pair\n")
    meeting.settimeout(30)
    host, other_port = meeting.recv(64).decode().strip().rsplit(":", 1)
    time.sleep(float(delay_s))
    failures = []
    for _ in range(int(tries)):
        failures.append(failure_to_open(int(port), (host, int(other_port))))
        if not failures[-1]:
            break
        time.sleep(PAUSE_S)
    print("closed" if failures[-1] else "open", *failures)


if __name__ == "__main__":
    {"serve": serve, "ports": ports, "call": call, "open": open_to_other}[sys.argv[1]](*sys.argv[2:])
