"""A port of this machine for a coordinator that is killed and comes back to it.

Between its end and its return the system would give a port that it chose itself to the next program that asks for any: the
coordinator could then not listen. It gives away none that is bound, and one that does not listen hinders no listener.
"""
import socket


class KeptPort:
    def __init__(self, host="127.0.0.1"):
        is_ipv6 = ":" in host
        self._socket = socket.socket(socket.AF_INET6 if is_ipv6 else socket.AF_INET)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind((host, 0))
        self.address = f"[{host}]:{self._socket.getsockname()[1]}" if is_ipv6 else f"{host}:{self._socket.getsockname()[1]}"

    def give_back(self):
        self._socket.close()
