"""CPU and memory that a pod requests, by Kubernetes' own rule for effective requests.

Called by `cluster` for every pod on a node, whether it uses GPUs or not, and by `demand` for the pod that is to be placed. The rule is
`PodRequests` of k8s.io/component-helpers, resource/helpers.go: containers and sidecars run together; an init container runs beside the sidecars started
before it; pod-level resources replace the sum where they are set; overhead comes on top; limits stand in for requests that are not written, as the API server's
defaults do. A resize in place counts as it is asked for. Nothing here raises: what cannot be read counts 0, and no API server would have taken such a pod.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final

MIB: Final = 1024 * 1024
_Amounts = tuple[int | None, int | None]  # millicores and bytes; None where nothing is said


@dataclass(frozen=True, slots=True)
class Requests:
    """What a pod requests of its node beside GPUs: millicores, and MiB rounded up."""

    cpu_milli: int = 0
    memory_mib: int = 0


NOTHING: Final = Requests()
_UNSAID: Final[_Amounts] = (None, None)


def read_requests(pod: Mapping[str, Any]) -> Requests:
    """Return the effective requests of a raw pod; never raises.

    >>> read_requests({"spec": {"containers": [{"resources": {"requests": {"cpu": "1500m", "memory": "1Gi"}}}], "overhead": {"cpu": "0.5"}}})
    Requests(cpu_milli=2000, memory_mib=1024)
    """
    spec = _mapping(_mapping(pod).get("spec"))
    apps = [_of_container(container) for container in _containers(spec, "containers")]
    steps = [(_of_container(container), container.get("restartPolicy") == "Always") for container in _containers(spec, "initContainers")]
    found = apps[0] if len(apps) == 1 and not steps else _together(apps, steps)  # one container: most pods
    if "resources" in spec:
        whole = _mapping(spec["resources"])
        # The last where no container says anything: the API server's default for the pod as a whole.
        found = _first(_first(_read(whole.get("requests")), found), _read(whole.get("limits")))
    overhead = _read(spec["overhead"]) if "overhead" in spec else _UNSAID
    return _shared((found[0] or 0) + (overhead[0] or 0), -(-((found[1] or 0) + (overhead[1] or 0)) // MIB))


@lru_cache(4096)
def _shared(cpu_milli: int, memory_mib: int) -> Requests:
    """Return one object for equal requests: 100,000 pods are made from a few templates."""
    return Requests(cpu_milli, memory_mib)


def _together(apps: list[_Amounts], steps: list[tuple[_Amounts, bool]]) -> _Amounts:
    """Return the most that the containers request at any time, each resource by itself; None where none of them says anything.

    ``steps`` are the init containers in their order, each with whether it is a sidecar and runs on.
    """
    cpu = _most([cpu for cpu, _ in apps], [(cpu, runs_on) for (cpu, _), runs_on in steps])
    return cpu, _most([memory for _, memory in apps], [(memory, runs_on) for (_, memory), runs_on in steps])


def _most(apps: list[int | None], steps: list[tuple[int | None, bool]]) -> int | None:
    said = [amount for amount in apps if amount is not None]
    if not steps:
        return sum(said) if said else None
    if not said and all(amount is None for amount, _ in steps):
        return None
    sidecars = most = 0
    for amount, runs_on in steps:
        most = max(most, sidecars + (amount or 0))
        sidecars += (amount or 0) if runs_on else 0
    return max(sum(said) + sidecars, most)


def _of_container(container: Mapping[str, Any]) -> _Amounts:
    """Return what a container requests; limits stand in, resource by resource."""
    resources = _mapping(container.get("resources"))
    amounts = resources.get("requests")
    if type(amounts) is dict and type(cpu := amounts.get("cpu")) is str and type(memory := amounts.get("memory")) is str:
        return _both(cpu, memory)  # as nearly everybody writes them
    requests = _read(amounts)
    return requests if None not in requests else _first(requests, _read(resources.get("limits")))


@lru_cache(4096)
def _both(cpu: str, memory: str) -> _Amounts:
    return quantity(cpu, 1000) or 0, quantity(memory) or 0


def _first(amounts: _Amounts, otherwise: _Amounts) -> _Amounts:
    """Return the first that is said of each resource."""
    return otherwise[0] if amounts[0] is None else amounts[0], otherwise[1] if amounts[1] is None else amounts[1]


def _read(amounts: object) -> _Amounts:
    """Return CPU and memory of a list of amounts; 0 for what cannot be read, None for what is not there."""
    if type(amounts) is not dict and not isinstance(amounts, Mapping):
        return _UNSAID
    cpu = (quantity(amounts["cpu"], 1000) or 0) if "cpu" in amounts else None
    return cpu, (quantity(amounts["memory"]) or 0) if "memory" in amounts else None


# --- quantities -----------------------------------------------------------------------------------------------------

# The grammar of k8s.io/apimachinery resource.Quantity without its minus sign, which no amount may carry. `kubernetes.utils.quantity` reads the same, but
# brings the whole client with it (0.6 s of start-up), takes forms that Kubernetes does not, and has no bound for `1e999999999`.
_QUANTITY: Final = re.compile(r"\+?([0-9]+\.?[0-9]*|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,3})?", re.ASCII)
_SUFFIXES: Final = {
    **{name: Fraction(10) ** power for name, power in {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}.items()},
    **{f"{name}i": Fraction(1024) ** power for power, name in enumerate("KMGTPE", 1)},
}
_LONGEST: Final = 64  # characters; far more than any number that means something
_MOST: Final = 2**63 - 1  # where Kubernetes caps a quantity as well


def quantity(value: object, scale: int = 1) -> int | None:
    """Return a Kubernetes quantity times ``scale`` as a whole number, rounded up as Kubernetes does; None where it cannot be read.

    >>> quantity("1.5Gi"), quantity("250m", 1000), quantity(2, 1000), quantity("many")
    (1610612736, 250, 2000, None)
    """
    if type(value) is str:  # always, where an API server wrote it
        return _parsed(value, scale) if len(value) <= _LONGEST else None
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        text = str(value)
    except ValueError:  # an integer of more digits than Python prints
        return None
    return _parsed(text, scale) if len(text) <= _LONGEST else None


@lru_cache(4096)
def _parsed(text: str, scale: int) -> int | None:
    match = _QUANTITY.fullmatch(text)
    if match is None:
        return None
    number, suffix = Fraction(match.group(1)), match.group(2) or ""
    factor = _SUFFIXES.get(suffix) or Fraction(10) ** int(suffix[1:] or "0")
    return min(math.ceil(number * factor * scale), _MOST)


def _containers(spec: Mapping[str, Any], field: str) -> list[Mapping[str, Any]]:
    found = spec.get(field)
    return [each for each in found if type(each) is dict or isinstance(each, Mapping)] if isinstance(found, list) else []


def _mapping(value: object) -> Mapping[str, Any]:
    return (
        value if type(value) is dict or isinstance(value, Mapping) else {}
    )  # nearly always a dict, for which asking about `Mapping` takes three times as long
