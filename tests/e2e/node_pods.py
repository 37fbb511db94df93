"""Pods that run on a real node: each container prints what it got, its environment and the names under /dev, and then ends or runs on.

`on_node` makes one of a builder's pod, `wait_printed` reads what a container wrote. App containers and sidecars run on until they are told to end; other init
containers end at once. Logs go with their pod; with ``records`` each start of a container leaves a file there, and a second one when it ended
(`tests.e2e.hand_off_checks` reads them).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.builders import PodBuilder
from tests.e2e.image import IMAGE
from tests.e2e.node import RealNode
from tests.e2e.program import wait_until

JsonObject = dict[str, Any]

RUN_ON = "sleep 2147483647 & wait"
END = "ended; exit 0"

_RECORDS = "/records"
# Told to end before it has printed it says so too: process 1 of a container heeds no signal that it has no trap for.
_RECORD = (
    "ended() { [ -z $record ] || touch $record.end; }; trap 'ended; exit 0' TERM; "
    f"if [ -d {_RECORDS} ]; then record=$(mktemp {_RECORDS}/$POD_UID.$CONTAINER.XXXXXX); env > $record.start; fi; "
)
_PRINT = "env | sed 's/^/env /'; for path in /dev/*; do echo dev ${path##*/}; done; echo printed"


@dataclass(frozen=True, slots=True)
class Printed:
    """What one container said that it has."""

    environment: Mapping[str, str]
    devices: frozenset[str]


def on_node(builder: PodBuilder, then: str = RUN_ON, *, scheduler: str | None = None, records: Path | None = None, **spec: Any) -> JsonObject:
    """Return the builder's pod with containers that print, and then do what ``then`` says in the shell.

    It is scheduled by ``scheduler``; without one the builder has bound it (`bound_to(node.name)`). ``spec`` adds to, or replaces, fields of its spec.
    """
    item = builder.build()
    item["metadata"].pop("uid")
    item.pop("status")
    for container in item["spec"]["containers"]:
        container.update(_printing(container["name"], then, records))
    for container in item["spec"]["initContainers"]:
        container.update(_printing(container["name"], RUN_ON if container.get("restartPolicy") == "Always" else END, records))
    if records is not None:
        item["spec"]["volumes"] = [{"name": "records", "hostPath": {"path": str(records)}}]
    # The controller that gives every namespace its certificate authority does not run, so a token's volume would never be there.
    item["spec"] |= {"automountServiceAccountToken": False, "terminationGracePeriodSeconds": 5, "restartPolicy": "Never"}
    item["spec"] |= {"enableServiceLinks": False, "dnsPolicy": "Default", **({"schedulerName": scheduler} if scheduler else {}), **spec}
    return item


def _printing(name: str, then: str, records: Path | None) -> JsonObject:
    uid = {"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}
    return {
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", f"{_RECORD}{_PRINT}; {then}"],
        "env": [uid, {"name": "CONTAINER", "value": name}],
        **({"volumeMounts": [{"name": "records", "mountPath": _RECORDS}]} if records is not None else {}),
    }


def wait_printed(node: RealNode, pod: str, container: str = "main", *, attempt: int | None = None, timeout: float = 30) -> Printed:
    """Return what a container printed, once it has; a failure tells the pod's status."""
    try:
        found = wait_until(lambda: printed(node, pod, container, attempt=attempt), timeout)
    except AssertionError:
        status = node.plane.api().get("Pod", pod)["status"]
        raise AssertionError(f"container {container} of pod {pod} has not printed within {timeout:g} s: {status}") from None
    assert found is not None
    return found


def printed(node: RealNode, pod: str, container: str = "main", *, attempt: int | None = None, namespace: str = "default") -> Printed | None:
    """Return what a container printed, None as long as it has not."""
    lines = node.log(pod, container, attempt=attempt, namespace=namespace)
    if "printed" not in lines:
        return None
    environment = dict(line.removeprefix("env ").split("=", 1) for line in lines if line.startswith("env ") and "=" in line)
    return Printed(environment, frozenset(line.removeprefix("dev ") for line in lines if line.startswith("dev ")))
