"""What every socket to the API server is set to; what that does is tested where it is used, in test_client and test_connections."""

import socket
import struct

from extender.kube.sockets import make_socket


def test_a_socket_forgets_what_it_could_not_deliver_and_finds_out_a_dead_peer() -> None:
    """It resets when it is closed, probes an idle peer well before the state is too old, and waits 5 s for acknowledgements."""
    with make_socket((socket.AF_INET, socket.SOCK_STREAM, 0)) as made:
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8) == struct.pack("ii", 1, 0)
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        idle, interval, user = (
            made.getsockopt(socket.IPPROTO_TCP, getattr(socket, f"TCP_{name}")) for name in ("KEEPIDLE", "KEEPINTVL", "USER_TIMEOUT")
        )
        assert idle + interval < 30
        assert user == 5000
