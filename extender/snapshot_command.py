"""`linkwise snapshot`: a cluster in a file, with everything stripped that Linkwise does not read.

Called by `cli` alone; what it writes is what `linkwise serve --snapshot` reads (`snapshot_file`). What is kept is named here field by field, so that a
field which Kubernetes grows tomorrow is stripped as well: environments, arguments, commands, volumes and images of pods are their owners' secrets.
GPUTopologies are our own and stay whole. `kubectl get nodes,gputopologies,pods -A -o yaml` gives the same state to serve, with all the secrets.
"""

import asyncio
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import orjson
import yaml

from extender.handoff.gpushare import node_of_unhealthy
from extender.kube.client import ApiRefusedError, KubeClient, NoAnswerError
from extender.kube.lists import list_all
from extender.kube.watch import NODES, PODS, TOPOLOGIES, UNHEALTHY
from extender.snapshot_file import Snapshot
from topology.api import annotations
from topology.errors import InputError

JsonObject = dict[str, Any]

MOST_NODES_IN_YAML: Final = 1000  # with 5,000 pods: 7 MB, which YAML takes about 15 s to read and JSON 0.2 s (measured, two cores)


class Format(StrEnum):
    """How the file is written."""

    YAML = "yaml"
    JSON = "json"


def snapshot_command(output: Path, kubeconfig: Path | None, context: str | None, form: str | None, say: Callable[[str], None]) -> None:
    """Write the snapshot; ``form`` None chooses by the number of nodes. Raises InputError with a sentence where option, cluster or file say no."""
    if form is not None and form not in tuple(Format):
        raise InputError(f"--format {form}: unknown form; accepted: {', '.join(Format)}")
    try:
        taken = asyncio.run(_take(kubeconfig, context))
    except (ApiRefusedError, NoAnswerError) as error:
        raise InputError(f"the cluster cannot be listed: {error}") from error
    chosen = Format(form or (Format.JSON if len(taken.nodes) > MOST_NODES_IN_YAML else Format.YAML))
    _write(output, encoded(taken, chosen))
    say(f"Wrote {output} ({chosen}). Nodes: {len(taken.nodes)}, GPUTopologies: {len(taken.topologies)}, pods: {len(taken.pods)}")
    for problem in taken.problems:
        say(f"warning: {problem}")


async def _take(kubeconfig: Path | None, context: str | None) -> Snapshot:
    """List pods last: a pod that was bound in between is worth more than one that is missing."""
    async with await KubeClient.connect(kubeconfig, context) as client:
        problems: list[str] = []
        try:
            topologies = await list_all(client, TOPOLOGIES)
        except ApiRefusedError as error:
            if error.status != 404:
                raise
            topologies = []
            problems.append("this cluster does not know GPUTopologies: no node of the snapshot can take a pod; see manifests/crd.yaml")
        config_maps = await _unhealthy(client, problems)
        nodes = await list_all(client, NODES)
        pods = await list_all(client, PODS)
    return stripped(Snapshot(tuple(nodes), tuple(topologies), tuple(pods), tuple(problems), tuple(config_maps)))


async def _unhealthy(client: KubeClient, problems: list[str]) -> list[JsonObject]:
    """List the ConfigMaps in which gpushare's users name unhealthy GPUs; whoever may not read them gets the rest of the snapshot."""
    try:
        return [found for found in await list_all(client, UNHEALTHY) if node_of_unhealthy(found) is not None]
    except ApiRefusedError as error:
        if error.status != 403:
            raise
        problems.append(f"ConfigMaps of unhealthy GPUs are left out, as {error}")
        return []


def encoded(snapshot: Snapshot, form: Format) -> bytes:
    """Return the bytes of the file: one `List`, as kubectl prints it."""
    if form is Format.JSON:
        return orjson.dumps(snapshot.to_list(), option=orjson.OPT_APPEND_NEWLINE)
    return yaml.dump(snapshot.to_list(), Dumper=_PlainDumper, sort_keys=False, allow_unicode=True, width=1000, encoding="utf-8")


class _PlainDumper(yaml.CSafeDumper):
    """YAML that is read by people: no anchors for values that happen to be one object."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - the signature is PyYAML's
        return True


def _write(path: Path, data: bytes) -> None:
    """Write the whole file or leave what was there."""
    part = path.with_name(f"{path.name}.part")
    try:
        part.write_bytes(data)
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise InputError(f"--output {path} cannot be written: {error.strerror or error}") from error


# --- what is kept ---------------------------------------------------------------------------------------------------

_IDENTITY: Final = ("name", "namespace", "uid")
_POD_METADATA: Final = (*_IDENTITY, "deletionTimestamp")
_NODE_LABELS: Final = (annotations.GPUSHARE_LABEL,)  # which nodes gpushare's plugin looks after; the others say what a company calls its racks
_AMOUNTS: Final = ("requests", "limits")
_POD_SPEC: Final = ("nodeName", "overhead")
_CONTAINER: Final = ("name", "restartPolicy")  # `Always` on an init container makes it a sidecar
_STATES: Final = ("waiting", "running", "terminated")
# What a pod asks of us and what it got; and the same of gpushare, whose pods a drop-in has to count.
_OUR_ANNOTATIONS: Final = (annotations.PREFIX, "ALIYUN_COM_GPU_MEM_")


def stripped(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot with nothing in it but what Linkwise reads: it gives the same state as the whole one."""
    return Snapshot(
        nodes=tuple(map(_node, snapshot.nodes)),
        topologies=tuple(map(_topology, snapshot.topologies)),
        pods=tuple(map(_pod, snapshot.pods)),
        problems=snapshot.problems,
        config_maps=tuple(map(_config_map, snapshot.config_maps)),
    )


def _node(raw: JsonObject) -> JsonObject:
    metadata, status = _part(raw, "metadata"), _part(raw, "status")
    labels = _picked(_part(metadata, "labels"), _NODE_LABELS)
    return {
        **_picked(raw, ("apiVersion", "kind")),
        "metadata": {**_picked(metadata, _IDENTITY), **({"labels": labels} if labels else {})},
        "status": _picked(status, ("allocatable",)),
    }


def _topology(raw: JsonObject) -> JsonObject:
    return {**_picked(raw, ("apiVersion", "kind")), "metadata": _picked(_part(raw, "metadata"), _IDENTITY), **_picked(raw, ("spec", "status"))}


def _config_map(raw: JsonObject) -> JsonObject:
    return {
        **_picked(raw, ("apiVersion", "kind")),
        "metadata": _picked(_part(raw, "metadata"), _IDENTITY),
        "data": _picked(_part(raw, "data"), ("gpus",)),
    }


def _pod(raw: JsonObject) -> JsonObject:
    metadata, spec, status = _part(raw, "metadata"), _part(raw, "spec"), _part(raw, "status")
    whole = _picked(_part(spec, "resources"), _AMOUNTS)
    ours = {key: value for key, value in _part(metadata, "annotations").items() if key.startswith(_OUR_ANNOTATIONS)}
    return {
        **_picked(raw, ("apiVersion", "kind")),
        "metadata": {**_picked(metadata, _POD_METADATA), **({"annotations": ours} if ours else {})},
        "spec": {**_picked(spec, _POD_SPEC), **({"resources": whole} if whole else {}), **_each(spec, ("initContainers", "containers"), _container)},
        "status": {**_picked(status, ("phase",)), **_each(status, ("initContainerStatuses", "containerStatuses"), _container_status)},
    }


def _container(raw: Mapping[str, Any]) -> JsonObject:
    return {**_picked(raw, _CONTAINER), "resources": _picked(_part(raw, "resources"), _AMOUNTS)}


def _container_status(raw: Mapping[str, Any]) -> JsonObject:
    """Keep which state a container is in; its message may quote the last lines of its log."""
    return {**_picked(raw, ("name",)), "state": {state: {} for state in _STATES if state in _part(raw, "state")}}


def _each(of: Mapping[str, Any], fields: tuple[str, ...], strip: Callable[[Mapping[str, Any]], JsonObject]) -> JsonObject:
    return {field: [strip(item) for item in of[field]] for field in fields if of.get(field)}


def _picked(of: Mapping[str, Any], fields: tuple[str, ...]) -> JsonObject:
    return {field: of[field] for field in fields if field in of}


def _part(of: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    """Return an object inside an object; what the API server leaves out, or writes as null, is empty."""
    found = of.get(field)
    return found if isinstance(found, Mapping) else {}
