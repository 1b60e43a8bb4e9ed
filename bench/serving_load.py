"""Many open streams beside clients that say their requests a byte at a time, for claims_serving.py."""
import contextlib
import functools
import socket
import statistics
import sys
import time

from served import PROMPT, spans, swarm_of
from serving_swarm import Asked, ask

NUM_STREAMS, NUM_SLOW, NUM_TOKENS = 200, 200, 32


@functools.cache
def load():
    """How long /health took, in milliseconds, and the errors of streams; as the gateway is without options."""
    with swarm_of("load", spans(2)) as (_, url), contextlib.ExitStack() as stack:
        host, port = url.split("//")[1].split(":")
        streams = [Asked(url, prompt=f"{i} {PROMPT}", max_tokens=NUM_TOKENS, temperature=0) for i in range(NUM_STREAMS)]
        slow = [stack.enter_context(socket.create_connection((host, int(port)))) for _ in range(NUM_SLOW)]
        for connection in slow:
            connection.sendall(b"POST /v1/completions HTTP/1.1\r\nContent-Length: 100\r\n\r\n{")
        streams[0].wait_pieces(2)
        times, under_way = [], 0
        for _ in range(100):
            for connection in slow[:10]:
                with contextlib.suppress(OSError):
                    connection.sendall(b" ")
            begin = time.monotonic()
            ask(url, "/health")
            times.append(1000 * (time.monotonic() - begin))
            under_way += sum(one.is_under_way() for one in streams)
            time.sleep(0.05)
        errors = [error for error in map(error_of, streams) if error]
    print(f"/health: median {statistics.median(times):.1f} ms beside {under_way / len(times):.0f} streams; errors: {errors[:1]}", file=sys.stderr)
    return sorted(times), errors


def error_of(stream):
    """Once it is over: what went wrong, or nothing."""
    try:
        stream.told()
    except AssertionError as error:
        return str(error)
    return None


def add(claims):
    what = f"{NUM_STREAMS} streams and {NUM_SLOW} slow clients"
    claims.measured(f"/health beside {what}: ms, the longest but one of 100", lambda: load()[0][-2], lambda ms: ms <= 100, "<= 100", "{:.0f}")
    claims.measured("and answers of those streams that failed", lambda: len(load()[1]), lambda n: n == 0, "0", "{}")
