"""What a run says on the loopback interface, as anybody on the way would see it: needs root (a packet socket)."""
import socket
import struct
import threading

ETH_P_ALL = 3


class Capture:
    """All TCP payloads on lo, by the pair of ports, from the beginning to the end of the with-block."""

    def __enter__(self):
        self.flows = {}
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 20)
        self.socket.bind(("lo", 0))
        self.socket.settimeout(0.2)
        self.is_over = False
        self.thread = threading.Thread(target=self._read)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.is_over = True
        self.thread.join()
        self.socket.close()

    def _read(self):
        while not self.is_over:
            try:
                packet, address = self.socket.recvfrom(1 << 17)
            except TimeoutError:
                continue
            if address[2] == socket.PACKET_OUTGOING:  # Each is seen twice on lo.
                continue
            self._take(packet[14:])

    def _take(self, ip):
        if len(ip) < 40 or ip[0] >> 4 != 4 or ip[9] != socket.IPPROTO_TCP:
            return
        tcp = ip[4 * (ip[0] & 15):struct.unpack(">H", ip[2:4])[0] or None]
        ports = struct.unpack(">HH", tcp[:4])
        self.flows.setdefault(ports, bytearray()).extend(tcp[4 * (tcp[12] >> 4):])

    def to_or_from(self, port):
        return b"".join(bytes(data) for ports, data in self.flows.items() if port in ports)

    def everything(self):
        return b"".join(bytes(data) for data in self.flows.values())
