"""Bytes of kube-scheduler's extender protocol to typed calls, and answers back to bytes. Also the Binding that is posted.

The border of the extender: `app` passes bodies in, `verbs` works on the types. Requests arrive capitalised from kube-scheduler and in lower case
from other schedulers (its Go types carry no JSON tags), so keys are read whatever their case; answers are capitalised. What a pod *asks* is read
by `demand`; here a pod is a raw object. Source of the field names: k8s.io/kube-scheduler/extender/v1 types.go.
"""

import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any, Final, Protocol

import numpy as np
import orjson
from numpy.typing import NDArray

from extender.node_names import NodeNames
from extender.node_objects import NodeObjects
from extender.text_columns import Column, NameText, Text, written
from topology.errors import CallError

JsonObject = dict[str, Any]

_NAMES: Final = b'"NodeNames":['
_RESTS_KEPT: Final = 16  # pods that are asked about at a time
_NAMES_CUT_OUT: Final = 7_301_987_401_553_811_029  # stands in a call for the list of names while the rest is decoded
_SCORES: Final = np.array([f'"Score":{score}}}'.ljust(15).encode() + b"," for score in range(11)], "S16").view(np.uint64).reshape(11, 2)


@dataclass(frozen=True, slots=True)
class NodesCall:
    """A filter or prioritize call: one pod, and the nodes as names or, where the caller keeps no cache of ours, as whole objects."""

    pod: JsonObject
    names: NodeNames
    # The objects behind `names`, in the same order, in the `Nodes` form only; as they were sent, in place, where nobody had to decode them.
    nodes: Sequence[memoryview | JsonObject] | None


@dataclass(frozen=True, slots=True)
class BindCall:
    """A bind call: which pod goes to which node."""

    namespace: str
    name: str
    uid: str
    node: str

    @property
    def pod(self) -> str:
        """NAMESPACE/NAME."""
        return f"{self.namespace}/{self.name}"


def _read_object(body: bytes, what: str) -> JsonObject:
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise CallError(f"the body of this {what} call is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise CallError(f"the body of this {what} call is a JSON {type(value).__name__}; accepted: an object")
    return {key.lower(): item for key, item in value.items()}


def read_nodes_call(body: bytes, verb: str, known_nodes: NodeObjects | None = None, *, decode: bool = False) -> NodesCall:
    """Read the body of filter or prioritize; raises CallError for anything that is not such a call.

    Unless told to ``decode`` it may find the names without decoding the list: whoever does not know one of them asks whether `are_names`. ``known_nodes``: whole Nodes as
    they came before, which need not be decoded again.
    """
    plain = None if decode else _read_plain_call(body) or _read_known_nodes(body, verb, known_nodes)
    if plain is not None:
        return plain
    fields = _read_object(body, verb)
    pod = fields.get("pod")
    if not isinstance(pod, dict):
        raise CallError(f"this {verb} call holds no Pod; accepted: ExtenderArgs with Pod and NodeNames or Nodes")
    names = fields.get("nodenames")
    if names is not None:
        # JSON has no subclasses of str, and a set of types is made without a Python step per name.
        if not isinstance(names, list) or not set(map(type, names)) <= {str}:
            raise CallError(f"NodeNames of this {verb} call is not a list of strings")
        return NodesCall(pod, _names(names, verb), None)
    nodes = _read_nodes(fields.get("nodes"), verb)
    return NodesCall(pod, _names([node["metadata"]["name"] for node in nodes], verb), nodes)


def _read_plain_call(body: bytes) -> NodesCall | None:
    """Read a call as kube-scheduler writes it, without decoding its thousands of names; None where it is written in any other way, or wrong."""
    start = body.find(_NAMES) + len(_NAMES)
    end = body.find(b"]", start)
    if start < len(_NAMES) or end < 0:
        return None
    names = NodeNames.find(memoryview(body)[start:end])
    pod = None if names is None else _read_rest(body[: start - 1], body[end + 1 :])
    return None if names is None or pod is None else NodesCall(pod, names, None)


def _read_known_nodes(body: bytes, verb: str, known: NodeObjects | None) -> NodesCall | None:
    """Read a call with whole Nodes without decoding those that are known; None for every other call."""
    found = None if known is None else known.read(body)
    if found is None:
        return None
    fields = {key.lower(): item for key, item in found.fields.items()}
    if not isinstance(fields.get("pod"), dict) or fields.get("nodenames") is not None:
        return None
    whole = memoryview(body)
    return NodesCall(fields["pod"], _names(found.names, verb), [whole[start:end] for start, end in found.spans])


@lru_cache(_RESTS_KEPT)
def _read_rest(head: bytes, tail: bytes) -> JsonObject | None:
    """Return the pod of a call whose list of names was taken out; None where what was taken for that list is not what a decoder takes for it, but something inside of the pod.

    The same object for the same bytes: prioritize brings the pod of filter again. Nobody changes a pod.
    """
    try:
        fields = orjson.loads(b"%b%d%b" % (head, _NAMES_CUT_OUT, tail))
    except orjson.JSONDecodeError:
        return None
    if not isinstance(fields, dict) or fields.get("NodeNames") != _NAMES_CUT_OUT or not isinstance(fields.get("Pod"), dict):
        return None
    has_doubles = len({key.lower() for key in fields}) < len(fields)
    return None if has_doubles else fields["Pod"]


def _names(names: Sequence[str], verb: str) -> NodeNames:
    try:
        return NodeNames.of(names)
    except ValueError as error:
        raise CallError(f"this {verb} call names a node that cannot be: {error}") from error


def _read_nodes(value: object, verb: str) -> list[JsonObject]:
    if value is None:
        raise CallError(f"this {verb} call holds neither NodeNames nor Nodes; accepted: one of them")
    items = next((item for key, item in value.items() if key.lower() == "items"), None) if isinstance(value, dict) else None
    if items is None and isinstance(value, dict):
        items = []  # Go prints an empty NodeList as {"metadata":{},"items":null}
    if not isinstance(items, list):
        raise CallError(f"Nodes of this {verb} call is not a NodeList with items")
    for position, node in enumerate(items):
        metadata = node.get("metadata") if isinstance(node, dict) else None
        if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
            raise CallError(f"Nodes.items[{position}] of this {verb} call has no metadata.name")
    return items


def read_bind_call(body: bytes) -> BindCall:
    """Read the body of bind; raises CallError for anything that is not such a call."""
    fields = _read_object(body, "bind")
    values = []
    for key in ("PodNamespace", "PodName", "PodUID", "Node"):
        value = fields.get(key.lower())
        if not isinstance(value, str) or not value:
            raise CallError(f"{key} of this bind call is {reprlib.repr(value)}; accepted: a string that is not empty")
        values.append(value)
    return BindCall(*values)


@dataclass(frozen=True, slots=True)
class Victims:
    """The pods that kube-scheduler would evict from one node, by UID."""

    uids: tuple[str, ...]
    pdb_violations: int


@dataclass(frozen=True, slots=True)
class PreemptCall:
    """A preempt call: the pod, and the candidate nodes with their victims."""

    pod: JsonObject
    victims: dict[str, Victims]


def read_preempt_call(body: bytes) -> PreemptCall:
    """Read the body of preempt, victims as UIDs or as whole pods; raises CallError for anything that is not such a call."""
    fields = _read_object(body, "preempt")
    pod = fields.get("pod")
    if not isinstance(pod, dict):
        raise CallError("this preempt call holds no Pod; accepted: ExtenderPreemptionArgs with Pod and NodeNameToMetaVictims or NodeNameToVictims")
    candidates = fields.get("nodenametometavictims") or fields.get("nodenametovictims") or {}
    if not isinstance(candidates, dict):
        raise CallError("the victims of this preempt call are not an object by node name")
    return PreemptCall(pod, {node: _read_victims(node, value) for node, value in candidates.items()})


def _read_victims(node: str, value: object) -> Victims:
    fields = {key.lower(): item for key, item in value.items()} if isinstance(value, dict) else {}
    pods = fields.get("pods") or []
    uids = [_victim_uid(pod) for pod in pods] if isinstance(pods, list) else [None]
    violations = fields.get("numpdbviolations") or 0
    if not all(isinstance(uid, str) for uid in uids) or not isinstance(violations, int) or isinstance(violations, bool):
        raise CallError(f"the victims on node {node} of this preempt call are not pods with a UID")
    return Victims(tuple(uid for uid in uids if uid is not None), violations)


def _victim_uid(pod: object) -> str | None:
    fields = {key.lower(): item for key, item in pod.items()} if isinstance(pod, dict) else {}
    metadata = fields.get("metadata")
    uid = fields.get("uid") or (metadata.get("uid") if isinstance(metadata, dict) else None)
    return uid if isinstance(uid, str) and uid else None


def preempt_answer(kept: Mapping[str, Victims]) -> bytes:
    """Encode ExtenderPreemptionResult; a node that is left out is no candidate any more."""
    nodes = {node: {"Pods": [{"UID": uid} for uid in victims.uids], "NumPDBViolations": victims.pdb_violations} for node, victims in kept.items()}
    return orjson.dumps({"NodeNameToMetaVictims": nodes})


def filter_answer(
    call: NodesCall, names: NameText, fitting: NDArray[np.int64], refused: Iterable[tuple[NDArray[np.int64], str]], error: str = ""
) -> bytes:
    """Encode ExtenderFilterResult in the form that was asked for; ``fitting`` are positions in the call, ``refused`` the others by sentence, ``names`` all of them.

    Refusals go to FailedAndUnresolvableNodes: a node that we see has passed the in-tree filters, so preemption finds no victim on it.
    """
    reasons = [Column(names[at], end=b":", after=orjson.dumps(sentence) + b",") for at, sentence in refused]
    rest: list[Text] = [b',"FailedNodes":{},"FailedAndUnresolvableNodes":{', *reasons, b'},"Error":' + orjson.dumps(error) + b"}"]
    if call.nodes is None:
        return written([b'{"Nodes":null,"NodeNames":[', Column(names[fitting], end=b","), b"]", *rest])
    return b"".join([*_whole_nodes(call.nodes, fitting), written([b',"NodeNames":null', *rest])])


def _whole_nodes(nodes: Sequence[memoryview | JsonObject], fitting: NDArray[np.int64]) -> Iterator[memoryview | bytes]:
    """Yield the beginning of an answer with those Nodes in pieces: several MB, which are copied once, when all are joined."""
    between = b'{"Nodes":{"metadata":{},"items":['
    try:
        for position in fitting.tolist():
            node = nodes[position]
            yield between
            yield node if isinstance(node, memoryview) else orjson.dumps(node)
            between = b","
    except orjson.JSONEncodeError as problem:  # it writes less deep nesting than it reads
        raise CallError(f"Nodes of this filter call cannot be answered in kind: {problem}") from problem
    yield b"]}" if between == b"," else between + b"]}"


def prioritize_answer(names: NameText, scores: NDArray[np.integer[Any]]) -> bytes:
    """Encode a HostPriorityList; ``scores`` 0..10, shape (names,)."""
    return written([b"[", Column(names, end=b",", before=b'{"Host":', each=_SCORES.take(scores, axis=0, mode="clip")), b"]"])


def error_answer(error: str) -> bytes:
    """Encode ExtenderBindingResult; the empty string is success. Other verbs answer a failure in the same form."""
    return orjson.dumps({"Error": error})


@dataclass(frozen=True, slots=True)
class Binding:
    """What is posted to pods/binding: node and annotations land on the pod in one write; ``uid`` guards against a namesake."""

    namespace: str
    name: str
    uid: str
    node: str
    annotations: Mapping[str, str]

    def to_object(self) -> JsonObject:
        """Return the v1 Binding as it is posted."""
        return {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": self.name, "namespace": self.namespace, "uid": self.uid, "annotations": dict(self.annotations)},
            "target": {"apiVersion": "v1", "kind": "Node", "name": self.node},
        }


class BindVerdict(Enum):
    """How a posted Binding ended, as far as the caller can know."""

    BOUND = "bound"
    REFUSED = "refused"  # it has not taken effect and never will
    UNKNOWN = "unknown"  # time-out, reset, 5xx or 409: it may have taken effect, or may still


@dataclass(frozen=True, slots=True)
class BindResult:
    """The verdict and, unless bound, the sentence that goes with it."""

    verdict: BindVerdict
    message: str = ""


class Binder(Protocol):
    """The door through which bindings leave: an API server, or the memory of a snapshot."""

    async def bind(self, binding: Binding, timeout_s: float) -> BindResult:
        """Post the Binding once; never raises for what a server or network may do."""
        ...

    async def read_pod(self, namespace: str, name: str) -> JsonObject | None:
        """Return the pod as it is stored now, None where it is gone."""
        ...
