"""Asks a device plugin for its options, as kubelet does when it takes one: the sign that it serves its socket, and not only that the socket is there.

Called by `topology.doctor`. The question changes nothing.
"""

from pathlib import Path
from typing import Final

import grpc

from topology.agent.handoff.wire import MESSAGES, SERVICE
from topology.agent.messages import serialized

_OPTIONS: Final = (("grpc.default_authority", "localhost"), ("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1))
_TIMEOUT_S: Final = 3.0


def why_no_plugin(socket: Path) -> str | None:
    """Return why no device plugin answers at a socket, None where one does."""
    with grpc.insecure_channel(f"unix:{socket}", options=_OPTIONS) as channel:
        answer = MESSAGES["DevicePluginOptions"].FromString
        call = channel.unary_unary(f"/{SERVICE}/GetDevicePluginOptions", request_serializer=serialized, response_deserializer=answer)
        try:
            call(MESSAGES["Empty"](), timeout=_TIMEOUT_S)
        except grpc.RpcError as error:
            return f"{error.code().name}, {error.details() or 'no message'}"
    return None
