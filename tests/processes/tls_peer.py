"""The other end of an Atoll connection, by hand: TLS as a member or as nobody, the greeting, and then whatever one likes.

The layouts are those of net/segment.h and swarm/fields.h, so that a test can say what no Atoll program would.
"""
import ctypes
import json
import pathlib
import re
import socket
import ssl
import struct
import time

CONTROL, BULK, JOIN, CIRCUIT = 0, 1, 3, 4  # net::Plane.
HELLO, REFUSAL, PIECE, LAST_PIECE = 1, 2, 3, 4  # net::SegmentKind.


def protocol_in(header):
    """The version that the sources speak: one that a test repeats would be forgotten."""
    source = pathlib.Path(__file__).resolve().parents[2] / "atoll" / header
    return int(re.search(r"kProtocolVersion = (\d+);", source.read_text())[1])


NET_PROTOCOL = protocol_in("net/segment.h")
PROTOCOL = protocol_in("swarm/messages.h")
XXHASH = ctypes.CDLL("libxxhash.so.0")
XXHASH.XXH3_64bits.restype = ctypes.c_uint64


class TlsPeer:
    def __init__(self, address, authority, member=None, plane=CONTROL, patience=20):
        """Calls HOST:PORT; `authority` and `member` are folders with certificates, of an authority and of an identity.
        Raises OSError where the other end does not take it."""
        context = ssl.create_default_context(cafile=authority / "authority.pem")
        context.check_hostname = False
        if member:
            context.load_cert_chain(member / "certificate.pem", member / "key.pem")
        context.set_alpn_protocols(["atoll-join" if plane == JOIN else "atoll"])
        host, port = address.rsplit(":", 1)
        ground = socket.create_connection((host.strip("[]"), int(port)), timeout=patience)
        self.socket = ground
        try:
            self.socket = context.wrap_socket(ground)
            self.say_segment(HELLO, b"atoll" + struct.pack("<HB", NET_PROTOCOL, plane))
            kind, body = self.hear_segment()
            if kind != HELLO:
                raise ConnectionError(body.decode(errors="replace"))
        except OSError:
            self.socket.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def say_segment(self, kind, body=b"", checksum=0):
        self.socket.sendall(struct.pack("<IIQ", len(body), kind, checksum) + body)

    def say(self, frame):
        self.say_segment(LAST_PIECE, frame, XXHASH.XXH3_64bits(frame, ctypes.c_size_t(len(frame))))

    def _exactly(self, count):
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                raise ConnectionError("it hung up")
            data += more
        return data

    def hear_segment(self):
        size, kind, _ = struct.unpack("<IIQ", self._exactly(16))
        return kind, self._exactly(size)

    def hear(self):
        """The next frame; raises OSError where the connection ends instead."""
        frame = b""
        while True:
            kind, body = self.hear_segment()
            if kind in (PIECE, LAST_PIECE):
                frame += body
            elif kind == 5:
                raise ConnectionError("it said goodbye")
            if kind == LAST_PIECE:
                return frame

    def trickle(self, seconds):
        """Promises a long frame and sends a byte of it now and then. After how long the other end hung up, else None."""
        begin = time.monotonic()
        self.socket.settimeout(0.2)
        try:
            self.socket.sendall(struct.pack("<IIQ", 400000, PIECE, 0))
            while time.monotonic() - begin < seconds:
                self.socket.sendall(b"x")
                try:
                    if not self.socket.recv(4096):
                        return time.monotonic() - begin
                except TimeoutError:
                    pass
        except OSError:
            return time.monotonic() - begin
        return None


def ask_to_join(address, authority, **request):
    """A registration's reply, of whoever has no certificate."""
    with TlsPeer(address, authority, plane=JOIN) as peer:
        peer.say(json.dumps(request).encode())
        return json.loads(peer.hear())


# --- messages of swarm/wire.cpp ---

def text(value):
    data = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<I", len(data)) + data


def message(kind, run, term, body):
    """With a header that names no round."""
    return struct.pack("<IHB", 0x4C4C5441, PROTOCOL, kind) + text(run) + struct.pack("<Qqi", term, -1, -1) + body


def hello(version, name, address):
    return message(0, "", 0, struct.pack("<H", PROTOCOL) + text(version) + text(name) + text(address) + struct.pack("<I", 0))


def resume(run, number, name):
    """Of who knows of nothing yet."""
    return message(6, run, 1, struct.pack("<i", number) + text(name) + text("127.0.0.1:1") + struct.pack("<Qqq", 0, 0, 0))


def peer_hello(run, number, to):
    return message(24, run, 1, struct.pack("<Qii", 1, number, to))


def fetch_state(run):
    return message(26, run, 1, struct.pack("<BiQQ", 2, 0, 0, 1 << 20))
