"""A cluster in a file: what `kubectl get nodes,gputopologies,pods -A -o yaml` prints, served as if it were an API server.

Two doors, as the real one has: `SnapshotCluster.feed` is the source of objects for `cluster`, and it is also the binder behind `binding`: a Binding lands
in memory and, on request, as one JSON line in a file, exactly as it would be posted. YAML and JSON, one `List`, several documents or both.
An object that cannot be read is told and costs only itself. A `SnapshotFile` is read while it is taken in, a few objects at a time where it is one list in JSON: 50,000 nodes as objects
of Python would need ten times the memory of the state. Pods are kept as bytes.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final

import orjson
import yaml

from extender.cluster import Cluster
from extender.handoff.gpushare import node_of_unhealthy
from extender.protocol import Binding, BindResult, BindVerdict, JsonObject
from extender.raw_list import read_list
from topology.errors import SnapshotError


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The objects of a snapshot by kind, as they were written; ``problems`` are sentences about what could not be read."""

    nodes: tuple[JsonObject, ...] = ()
    topologies: tuple[JsonObject, ...] = ()
    pods: tuple[JsonObject, ...] = ()
    problems: tuple[str, ...] = ()
    config_maps: tuple[JsonObject, ...] = ()  # those of gpushare's unhealthy GPUs

    def objects(self) -> Iterator[tuple[str, Any]]:
        """Yield everything as it is taken in: objects with their kind, and sentences about what could not be read, whose kind is empty."""
        kinds = {"": self.problems, "Node": self.nodes, "ConfigMap": self.config_maps, "GPUTopology": self.topologies, "Pod": self.pods}
        return ((kind, item) for kind, items in kinds.items() for item in items)

    def to_list(self) -> JsonObject:
        """Return one `List` object, as kubectl prints it."""
        return {"apiVersion": "v1", "kind": "List", "items": [*self.nodes, *self.topologies, *self.config_maps, *self.pods]}


_KINDS: Final = {"Node": "nodes", "GPUTopology": "topologies", "Pod": "pods", "ConfigMap": "config_maps"}


class _PlainLoader(yaml.CSafeLoader):
    """YAML to what JSON could hold: kubectl's times stay strings, and so does a lone `=`, which PyYAML cannot construct."""


_PlainLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in ("tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:value")]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}
_AS_JSON: Final = orjson.OPT_NON_STR_KEYS  # YAML may have other keys, which are nobody's business but must not get in the way
_ACCEPTED: Final = "the output of kubectl get nodes,gputopologies,pods -A -o yaml (or json)"
_BLANKS: Final = re.compile(r"\s*")
_LISTS_IN_LISTS: Final = 4  # a file of Lists in documents in a JSON array nests three deep; more is damage, or a YAML alias to itself


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    """A snapshot that is read while it is taken in; ``name`` is for sentences."""

    data: bytes
    name: str

    def objects(self) -> Iterator[tuple[str, Any]]:
        """Yield objects and sentences, as `Snapshot.objects` does, in the order of the file; raises SnapshotError where it cannot be read on."""
        for where, item in _scan(self.data, self.name):
            yield from _looked_at(where, item)


def open_snapshot(path: Path) -> SnapshotFile:
    """Return a snapshot file to be taken in; raises SnapshotError where there is none."""
    try:
        return SnapshotFile(path.read_bytes(), str(path))
    except OSError as error:
        raise SnapshotError(f"snapshot {path} cannot be read: {error.strerror or error}") from error


def read_snapshot(path: Path) -> Snapshot:
    """Read a snapshot file; raises SnapshotError where the file as a whole cannot be read."""
    return _snapshot_of(open_snapshot(path))


def parse_snapshot(data: bytes, name: str) -> Snapshot:
    """Read the bytes of a snapshot; ``name`` is for sentences."""
    return _snapshot_of(SnapshotFile(data, name))


def _snapshot_of(file: SnapshotFile) -> Snapshot:
    found: dict[str, list[JsonObject]] = {field: [] for field in _KINDS.values()}
    problems: list[Any] = []
    for kind, item in file.objects():
        (found[_KINDS[kind]] if kind else problems).append(item)
    return Snapshot(problems=tuple(problems), **{kind: tuple(items) for kind, items in found.items()})


def _looked_at(where: str, item: Any) -> Iterator[tuple[str, Any]]:
    """Yield an object of a kind that means something here, or what is wrong with it."""
    problem = _problem_of(item)
    if problem:
        yield "", f"{where}: {problem}"
    elif item["kind"] == "Pod" and not isinstance(item.get("status", {}), dict):
        # It may hold GPUs, so it stays, as a pod that has not ended.
        yield "", f"{where}: status of Pod {item['metadata']['name']} is no object; the pod counts as running"
        yield "Pod", {**item, "status": {}}
    elif item["kind"] in _KINDS and (item["kind"] != "ConfigMap" or node_of_unhealthy(item) is not None):
        yield item["kind"], item


def _scan(data: bytes, name: str) -> Iterator[tuple[str, Any]]:
    """Yield every object with the place where it stands: from slices of one list in JSON, or from documents that are read as a whole."""
    yielded = 0
    try:
        found = read_list(data) if data.lstrip()[:1] == b"{" else None
        if found is not None and found.is_sliced:
            for position, item in enumerate(chain.from_iterable(found.slices())):
                where = f"{name} items[{position}]"
                if type(item) is dict and "kind" in item and "items" not in item:  # nearly always, and as below
                    yield where, item
                    yielded += 1
                    continue
                for each in _objects([_with_kind(item, found.head)], where, 2):
                    yield each
                    yielded += 1
            return
    except ValueError:
        pass  # no JSON, or not to the end; YAML in flow style begins like JSON
    yield from islice(_objects(_documents(data, name), name), yielded, None)


def _documents(data: bytes, name: str) -> list[Any]:
    documents = _read_documents(data, name)
    if not documents:
        raise SnapshotError(f"snapshot {name} is empty; accepted: {_ACCEPTED}")
    if not any(isinstance(document, dict | list) for document in documents):
        raise SnapshotError(f"snapshot {name} holds a {type(documents[0]).__name__} instead of objects; accepted: {_ACCEPTED}")
    return documents


def _read_documents(data: bytes, name: str) -> list[Any]:
    if data.lstrip()[:1] in (b"{", b"["):
        try:
            return [orjson.loads(data)]
        except orjson.JSONDecodeError:
            several = _json_documents(data)
            if several:
                return several
            # YAML in flow style begins like JSON
    try:
        return [document for document in yaml.load_all(data, _PlainLoader) if document is not None]
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise SnapshotError(f"snapshot {name} is neither YAML nor JSON: {_one_line(error)}") from error
    except Exception as error:  # PyYAML lets IndexError, KeyError, AttributeError and more escape here
        raise SnapshotError(f"snapshot {name} is no YAML that kubectl prints: a tag stands on a value that does not match it") from error


def _json_documents(data: bytes) -> list[Any]:
    """Read JSON documents that stand one behind the other, as several calls of kubectl leave them in a file; empty where it is not that."""
    decoder, documents, at = json.JSONDecoder(), [], 0
    try:
        text = data.decode().strip()
        while at < len(text):
            document, end = decoder.raw_decode(text, at)
            documents.append(document)
            at = _BLANKS.match(text, end).end()  # type: ignore[union-attr]  # it matches nothing as well
    except (ValueError, RecursionError):
        return []
    return documents


def _objects(documents: list[Any], where: str, depth: int = 1) -> Iterator[tuple[str, Any]]:
    """Yield every object with the place where it stands; lists are opened."""
    for number, document in enumerate(documents):
        place = where if len(documents) == 1 else f"{where} document {number + 1}"
        items = _items_of(document)
        if items is None or depth > _LISTS_IN_LISTS:
            yield place, document
        elif isinstance(document, list):
            yield from _objects(items, place, depth + 1)
        else:
            for position, item in enumerate(items):
                yield from _objects([_with_kind(item, document)], f"{place} items[{position}]", depth + 1)


def _items_of(document: object) -> list[Any] | None:
    """Return the entries of a list of objects, None for anything else; Go prints those of an empty list as null."""
    if isinstance(document, list):
        return document
    if not isinstance(document, dict) or not isinstance(document.get("items"), list | None):
        return None
    is_list = document.get("items") is not None or ("items" in document and str(document.get("kind")).endswith("List"))
    return (document["items"] or []) if is_list else None


def _with_kind(item: object, of_list: Mapping[str, Any]) -> object:
    """Give an item of a `PodList` the kind that the API server leaves out there."""
    kind = of_list.get("kind")
    if isinstance(item, dict) and "kind" not in item and isinstance(kind, str) and kind.endswith("List") and kind != "List":
        return {"kind": kind.removesuffix("List"), **item}
    return item


def _problem_of(item: object) -> str:
    if not isinstance(item, dict):
        return f"a {type(item).__name__} stands where an object is expected"
    if not isinstance(item.get("kind"), str):
        return "an object without a kind"
    metadata = item.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str) or not metadata["name"]:
        return f"a {item['kind']} without metadata.name"
    if item["kind"] == "Pod" and not isinstance(item.get("spec", {}), dict):
        return f"Pod {metadata['name']}: spec must be an object"
    return ""


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


@dataclass(slots=True)
class SnapshotCluster:
    """The snapshot as a source of objects and as a binder; ``bindings_file`` gets one JSON line a Binding."""

    snapshot: Snapshot | SnapshotFile
    cluster: Cluster
    bindings_file: Path | None = None
    _pods: dict[tuple[str, str], bytes] = field(default_factory=dict)

    def feed(self) -> list[str]:
        """Put everything into the state, and let go of it but for the pods; returns sentences about what could not be read."""
        problems: list[str] = []
        unreadable: list[str] = []
        for kind, item in self.snapshot.objects():
            if not kind:
                problems.append(item)
            elif kind == "Pod":
                self._keep(item)  # taken in when all nodes are known
            elif (problem := self._take_in(kind, item)) is not None:
                unreadable.append(problem)
        self.snapshot = Snapshot()
        for pod in self._pods.values():
            self.cluster.apply_pod(orjson.loads(pod))
        return problems + unreadable

    def _take_in(self, kind: str, item: JsonObject) -> str | None:
        if kind == "Node":
            self.cluster.apply_node(item)
        elif kind == "ConfigMap":
            self.cluster.apply_config_map(item)
        else:
            return self.cluster.apply_topology(item)
        return None

    def _keep(self, pod: JsonObject) -> None:
        self._pods[_key(pod)] = bytes(memoryview(orjson.dumps(pod, option=_AS_JSON)))  # orjson's own bytes keep all that it had set aside, 4 kB

    async def bind(self, binding: Binding, timeout_s: float) -> BindResult:  # noqa: ARG002 - memory does not make anybody wait
        """Put the Binding on its pod as the API server would: node and annotations in one step."""
        key = (binding.namespace, binding.name)
        known = self._pods.get(key)
        unknown = {"kind": "Pod", "metadata": {"namespace": binding.namespace, "name": binding.name, "uid": binding.uid}}
        pod: JsonObject = unknown if known is None else orjson.loads(known)
        refusal = _refusal(pod, binding)
        if refusal:
            return BindResult(BindVerdict.REFUSED, refusal)
        try:
            self._write(binding)
        except OSError as error:
            return BindResult(BindVerdict.REFUSED, f"{self.bindings_file} cannot be written: {error.strerror or error}")
        metadata = pod["metadata"]
        bound = {
            **pod,
            "metadata": {**metadata, "uid": binding.uid, "annotations": {**_annotations(metadata), **binding.annotations}},
            "spec": {**(pod.get("spec") or {}), "nodeName": binding.node},
        }
        self._keep(bound)
        self.cluster.apply_pod(bound)
        return BindResult(BindVerdict.BOUND)

    async def read_pod(self, namespace: str, name: str) -> JsonObject | None:
        """Return the pod as it is now."""
        known = self._pods.get((namespace, name))
        return None if known is None else orjson.loads(known)

    def delete_pod(self, namespace: str, name: str) -> None:
        """Take a pod out, as a deletion that has run its course."""
        known = self._pods.pop((namespace, name), None)
        if known is not None:
            pod = orjson.loads(known)
            self.cluster.remove_pod(str(pod["metadata"].get("uid") or f"{namespace}/{name}"))

    def pods(self) -> list[JsonObject]:
        """Return all pods as they are now: a snapshot of them gives the same state again."""
        return [orjson.loads(pod) for pod in self._pods.values()]

    def _write(self, binding: Binding) -> None:
        if self.bindings_file is not None:
            with self.bindings_file.open("ab") as file:
                file.write(orjson.dumps(binding.to_object(), option=orjson.OPT_APPEND_NEWLINE))


def _annotations(metadata: JsonObject) -> JsonObject:
    found = metadata.get("annotations")
    return found if isinstance(found, dict) else {}


def _key(pod: JsonObject) -> tuple[str, str]:
    metadata = pod["metadata"]
    return (str(metadata.get("namespace") or "default"), metadata["name"])


def _refusal(pod: JsonObject, binding: Binding) -> str:
    """Return why an API server would refuse the Binding with 409, empty where it would not."""
    metadata = pod["metadata"]
    if metadata.get("uid") not in (None, binding.uid):
        return f"the pod has uid {metadata.get('uid')}, not {binding.uid}"
    if metadata.get("deletionTimestamp"):
        return "the pod is being deleted"
    node = (pod.get("spec") or {}).get("nodeName")
    return f"the pod is bound to node {node} already" if node else ""
