"""Sockets to the API server, the same for every kind of request: nothing outlives the wait for it.

Used by `client` (lists, watches, whatever is rare) and by `connections` (bindings).
"""

import socket
import struct
from typing import Any, Final

# A peer that is cut off without a word is given up after about 15 s, well below the 30 s that a state may be old: an idle connection is probed after
# 10 s, and again 5 s later; what was sent may stay without acknowledgement for 5 s. Where the last is set it decides, not the number of probes.
_TCP: Final = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 2, "TCP_USER_TIMEOUT": 5000}


def make_socket(address: tuple[Any, ...]) -> socket.socket:
    """Return a socket that keeps nothing back: what was sent and got no answer must not arrive when everybody has stopped waiting for it.

    ``address`` opens with family, kind and protocol, as `getaddrinfo` gives them. A closed connection resets, so that the kernel drops what it could not deliver yet
    instead of trying for minutes; one whose bytes are not acknowledged ends. Without the two, a Binding that was caught in a network failure could take effect long
    after its promise was forgotten.
    """
    family, kind, protocol = address[:3]
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _TCP.items():
        if hasattr(socket, name):  # Linux has them all
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return made
