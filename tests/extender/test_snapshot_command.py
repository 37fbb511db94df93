"""What the file of `linkwise snapshot` holds, and what it never holds. Taking one from an API server is tested in tests/e2e/test_snapshot.py."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer
from hypothesis import given
from hypothesis import strategies as st

from extender.sample_machines import SAMPLE_MACHINES, sample
from extender.snapshot_command import MOST_NODES_IN_YAML, Format, encoded, snapshot_command, stripped
from extender.snapshot_file import Snapshot, parse_snapshot
from tests.builders import JsonObject, PodBuilder, allocation_of, cluster, pod, unhealthy_gpus
from tests.states import state_of
from topology.api import AllocatedGpu, Allocation
from topology.errors import InputError

SECRET = "hunter2"
NODES = ("node-a", "node-b")


def with_secrets(raw: JsonObject) -> JsonObject:
    """Return a pod as the API server stores it: with everything that its owner would not want to see in a file."""
    metadata, spec, status = raw["metadata"], raw["spec"], raw["status"]
    hidden = {
        "env": [{"name": f"{SECRET}-NAME", "value": SECRET}, {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": SECRET, "key": "k"}}}],
        "envFrom": [{"secretRef": {"name": SECRET}}],
        "command": ["sh", "-c", f"export TOKEN={SECRET}"],
        "args": [f"--password={SECRET}"],
        "image": f"registry.example/{SECRET}",
        "workingDir": f"/{SECRET}",
        "volumeMounts": [{"name": SECRET, "mountPath": f"/{SECRET}"}],
        "lifecycle": {"preStop": {"exec": {"command": [SECRET]}}},
        "livenessProbe": {"httpGet": {"httpHeaders": [{"name": "Authorization", "value": SECRET}]}},
    }
    fields = {field: [{**container, **hidden} for container in spec.get(field, [])] for field in ("containers", "initContainers")}
    terminated = {"terminated": {"exitCode": 1, "message": SECRET, "reason": "Error"}}
    return {
        **raw,
        "metadata": {
            **metadata,
            "labels": {"team": SECRET},
            "annotations": {**metadata["annotations"], "kubectl.kubernetes.io/last-applied-configuration": SECRET, "linkwise.example/x": SECRET},
            "managedFields": [{"manager": SECRET}],
            "ownerReferences": [{"name": SECRET}],
        },
        "spec": {
            **spec,
            **fields,
            "ephemeralContainers": [{"name": "debug", **hidden}],
            "volumes": [{"name": "v", "secret": {"secretName": SECRET}}],
            "imagePullSecrets": [{"name": SECRET}],
            "serviceAccountName": SECRET,
            "hostAliases": [{"ip": "10.0.0.1", "hostnames": [SECRET]}],
        },
        "status": {
            **status,
            "message": SECRET,
            "podIP": "10.0.0.9",
            "conditions": [{"type": "Ready", "message": SECRET}],
            "containerStatuses": [
                {"name": container["name"], "image": SECRET, "state": {"running": {"startedAt": "…"}}, "lastState": terminated}
                for container in spec["containers"]
            ],
            "initContainerStatuses": [{"name": container["name"], "state": terminated} for container in spec.get("initContainers", [])],
        },
    }


def kubeconfig_for(server: str) -> str:
    context = {"cluster": "c", "user": "u"}
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "contexts": [{"name": "c", "context": context}],
            "clusters": [{"name": "c", "cluster": {"server": server}}],
            "users": [{"name": "u", "user": {}}],
        }
    )


def uuids(node: str) -> tuple[str, ...]:
    return SAMPLE_MACHINES["dgx1v"].uuids(node)


@st.composite
def pods(draw: st.DrawFn, name: str) -> PodBuilder:
    """Pods of every kind that the state tells apart."""
    made = pod(name)
    for number in range(draw(st.integers(0, 2))):
        made = made.gpus(draw(st.integers(0, 3)), f"main-{number}")
    if draw(st.booleans()):
        made = made.shared(draw(st.sampled_from([4, 10, 30])), "part").init_shared(draw(st.sampled_from([2, 20])), "fetch")
    if draw(st.booleans()):
        made = made.sidecar(1)
    if draw(st.booleans()):
        made = made.init(2)
    requested: dict[str, str] = draw(st.dictionaries(st.sampled_from(["cpu", "memory"]), st.sampled_from(["1500m", "3Gi", "lots"]), max_size=2))
    made = made.plain(**requested) if requested or not made.containers else made
    wishes: dict[str, str] = draw(
        st.dictionaries(
            st.sampled_from(["topology", "min_bandwidth", "max_distance", "gpu_model", "gpu_count", "gpu_cores", "no_such_wish"]),
            st.sampled_from(["best", "none", "50", "SYS", "*V100*", "2", "what?"]),
            max_size=2,
        )
    )
    made = made.annotated(**wishes)
    if draw(st.booleans()):
        node = draw(st.sampled_from(NODES))
        held = draw(st.lists(st.sampled_from(uuids(node)), unique=True, max_size=3))
        allocation = draw(
            st.sampled_from(
                [None, "no allocation", allocation_of(node, {"main-0": held}), allocation_of("elsewhere", {"main-0": held}), shares_of(node, held)]
            )
        )
        made = made.bound_to(node, allocation, draw(st.sampled_from(["Pending", "Running", "Succeeded", "Failed"])))
    return made.terminating() if draw(st.booleans()) else made


def shares_of(node: str, held: list[str]) -> str:
    """An allocation with a part of each GPU for the app, and of the first for its init container."""
    parts = tuple(AllocatedGpu(uuid=uuid, memory_mib=10_240, shared=True) for uuid in held)
    return Allocation(node=node, containers={"part": parts, "fetch": parts[:1]}).encode()


@st.composite
def clusters(draw: st.DrawFn) -> Snapshot:
    topologies = [sample("dgx1v", node).to_object() for node in NODES[draw(st.integers(0, 1)) :]]  # node-a may be gpushare's alone
    if draw(st.booleans()):
        topologies[0]["status"]["holdersObserved"] = True
        topologies[0]["status"]["gpus"][0]["holders"] = [{"namespace": "default", "name": "pod-0"}]
    made = tuple(with_secrets(draw(pods(f"pod-{number}")).build()) for number in range(draw(st.integers(1, 5))))
    for raw in made:
        raw["spec"] |= draw(st.sampled_from([{}, {"overhead": {"cpu": "250m"}}, {"resources": {"requests": {"memory": "8Gi"}}}]))
    config_map = with_config_secrets(unhealthy_gpus("node-a", draw(st.sampled_from(["0,2", "all"]))))
    return Snapshot(nodes=(node_object("node-a"),), topologies=tuple(topologies), pods=made, config_maps=(config_map,))


def with_config_secrets(raw: JsonObject) -> JsonObject:
    """Return a ConfigMap with more in it than what is read."""
    return {**raw, "metadata": {**raw["metadata"], "annotations": {"last-applied": SECRET}}, "data": {**raw["data"], "notes": SECRET}}


ALLOCATABLE = {"cpu": "64", "memory": "512Gi", "nvidia.com/gpu": "8", "aliyun.com/gpu-count": "2", "aliyun.com/gpu-mem": "158"}


def node_object(name: str) -> JsonObject:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"zone": SECRET, "gpushare": "true"}, "annotations": {"secret": SECRET}, "managedFields": [{}]},
        "spec": {"podCIDR": "10.244.0.0/24", "providerID": SECRET},
        "status": {"allocatable": ALLOCATABLE, "images": [{"names": [SECRET]}], "addresses": [{"address": SECRET}]},
    }


@given(clusters(), st.sampled_from(Format))
def test_no_secret_of_a_pod_or_node_gets_into_the_file(snapshot: Snapshot, form: Format) -> None:
    assert SECRET.encode() not in encoded(stripped(snapshot), form)


@given(clusters(), st.sampled_from(Format))
def test_the_file_gives_the_same_state_as_the_whole_objects(snapshot: Snapshot, form: Format) -> None:
    read = parse_snapshot(encoded(stripped(snapshot), form), "snapshot")
    assert read.problems == ()
    assert state_of(read) == state_of(snapshot)


@given(clusters())
def test_stripping_what_is_stripped_changes_nothing(snapshot: Snapshot) -> None:
    once = stripped(snapshot)
    assert stripped(once) == once


def test_what_is_kept_of_a_pod_is_this_and_nothing_else() -> None:
    whole = with_secrets(pod("train").gpus(2).init(1).min_bandwidth(100).terminating().holding("node-a", "GPU-1", "GPU-2").build())
    whole["spec"] |= {"overhead": {"cpu": "250m"}, "resources": {"requests": {"cpu": "4"}, "claims": [{"name": SECRET}]}}
    whole["metadata"]["annotations"]["ALIYUN_COM_GPU_MEM_IDX"] = "0"
    two, one = ({"nvidia.com/gpu": amount} for amount in ("2", "1"))
    assert stripped(Snapshot(pods=(whole,))).pods == (
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": "train",
                "namespace": "default",
                "uid": "uid-default-train",
                "deletionTimestamp": "2026-01-01T00:00:00Z",
                "annotations": {
                    "linkwise.dev/min-bandwidth": "100",
                    "linkwise.dev/allocation": allocation_of("node-a", {"main": ("GPU-1", "GPU-2")}),
                    "ALIYUN_COM_GPU_MEM_IDX": "0",
                },
            },
            "spec": {
                "nodeName": "node-a",
                "overhead": {"cpu": "250m"},
                "resources": {"requests": {"cpu": "4"}},
                "initContainers": [{"name": "init", "resources": {"requests": one, "limits": one}}],
                "containers": [{"name": "main", "resources": {"requests": two, "limits": two}}],
            },
            "status": {
                "phase": "Running",
                "initContainerStatuses": [{"name": "init", "state": {"terminated": {}}}],
                "containerStatuses": [{"name": "main", "state": {"running": {}}}],
            },
        },
    )


def test_what_is_kept_of_a_node_is_name_gpushares_label_and_what_it_has_to_give() -> None:
    (kept,) = stripped(Snapshot(nodes=(node_object("node-a"),))).nodes
    assert kept == {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "node-a", "labels": {"gpushare": "true"}},
        "status": {"allocatable": ALLOCATABLE},
    }


def test_a_topology_stays_whole_but_for_its_metadata() -> None:
    whole = sample("mesh", "node-a").to_object()
    noisy = {
        **whole,
        "metadata": {**whole["metadata"], "managedFields": [{}], "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "…"}},
    }
    assert stripped(Snapshot(topologies=(noisy,))).topologies == (whole,)


@pytest.mark.parametrize("odd", [{}, {"metadata": None, "spec": None, "status": None}, {"spec": {"containers": None}, "status": {"phase": None}}])
def test_nothing_crashes_on_objects_that_lack_what_they_should_have(odd: dict[str, Any]) -> None:
    taken = stripped(Snapshot(nodes=(odd,), topologies=(odd,), pods=(odd,)))
    assert (len(taken.nodes), len(taken.topologies), len(taken.pods)) == (1, 1, 1)


def test_yaml_is_for_people_without_anchors_and_in_the_order_of_the_objects() -> None:
    text = encoded(stripped(Snapshot(pods=(cluster().with_pods(pod("train").gpus(2)).pods[0],))), Format.YAML).decode()
    assert text.startswith("apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Pod\n  metadata:\n    name: train\n")
    assert "&id" not in text
    assert MOST_NODES_IN_YAML == 1000


@pytest.mark.parametrize(
    ("kubeconfig", "form", "sentence"),
    [
        pytest.param("missing.yaml", None, "kubeconfig .*missing.yaml cannot be used", id="no such kubeconfig"),
        pytest.param("missing.yaml", "xml", "--format xml: unknown form; accepted: yaml, json", id="a form that is not known"),
        pytest.param("unreachable.yaml", "json", "the cluster cannot be listed: GET /apis/linkwise.dev", id="nobody answers"),
    ],
)
def test_what_cannot_be_done_is_one_sentence_and_writes_nothing(tmp_path: Path, kubeconfig: str, form: str | None, sentence: str) -> None:
    (tmp_path / "unreachable.yaml").write_text(kubeconfig_for("http://127.0.0.1:1"))
    output = tmp_path / "cluster.yaml"
    with pytest.raises(InputError, match=sentence):
        snapshot_command(output, tmp_path / kubeconfig, None, form, print)
    assert not output.exists()


async def test_a_cluster_before_its_installation_gives_a_snapshot_and_a_warning(tmp_path: Path) -> None:
    async def answer(request: web.Request) -> web.Response:
        if "linkwise.dev" in request.path:
            return web.json_response({"message": "the server could not find the requested resource"}, status=404)
        return web.json_response({"apiVersion": "v1", "metadata": {}, "items": [{"metadata": {"name": "a"}}]})

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    said: list[str] = []
    async with TestServer(app) as server:
        (tmp_path / "config.yaml").write_text(kubeconfig_for(str(server.make_url("/"))))
        await asyncio.to_thread(snapshot_command, tmp_path / "cluster.yaml", tmp_path / "config.yaml", None, None, said.append)
    assert said[0].endswith("(yaml). Nodes: 1, GPUTopologies: 0, pods: 1")
    assert said[1].startswith("warning: this cluster does not know GPUTopologies")
    assert [item["kind"] for item in yaml.safe_load((tmp_path / "cluster.yaml").read_text())["items"]] == ["Node", "Pod"]


def test_what_is_kept_of_a_config_map_is_which_gpus_are_unhealthy() -> None:
    """Whatever else stands in it is its author's."""
    raw = unhealthy_gpus("node-a", "0,2")
    assert stripped(Snapshot(config_maps=(with_config_secrets(raw),))).config_maps == (raw,)
