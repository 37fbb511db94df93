"""`kubectl apply -k manifests` on a real API server, and what that makes of the accounts and of whoever writes allocations.

A control plane of its own: the policies and the rights of the manifests are in force from the first test to the last, whatever other files do.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.dynamic.exceptions import DynamicApiError, ForbiddenError

from extender.sample_machines import sample
from tests.builders import allocation_of, pod
from tests.e2e.agents import agent_command
from tests.e2e.api_server import ApiServer, refusal
from tests.e2e.control_plane import NAMESPACE, ControlPlane
from tests.e2e.extender import serve, shipped_configuration
from tests.e2e.live_cluster import LiveCluster
from tests.e2e.objects import pod_object
from tests.e2e.program import wait_until
from tests.rights import AGENT, EXTENDER, Request

JsonObject = dict[str, Any]

MANIFESTS = Path(__file__).parents[2] / "manifests"
KEY = "linkwise.dev/allocation"
GIVEN = allocation_of("node-a", {"main": ["GPU-1"]})
FORGED = allocation_of("node-a", {"main": ["GPU-2"]})
TEAM = "team-a"


@pytest.fixture(scope="module")
def applied(programs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ControlPlane, str]]:
    """Run a control plane and apply the manifests to it as an administrator does; also gives what kubectl printed."""
    plane = ControlPlane(programs, tmp_path_factory.mktemp("manifests")).start()
    try:
        printed = plane.kubectl("apply", "-k", MANIFESTS)
        plane.kubectl("wait", "--for=condition=Established", "--timeout=20s", "crd/gputopologies.linkwise.dev")
        plane.add_namespace(TEAM)
        let_touch_everything(plane)
        wait_until(lambda: not tenant_may_forge(plane), what="the policies are in force")
        yield plane, printed
    finally:
        plane.stop()


@pytest.fixture(scope="module")
def plane(applied: tuple[ControlPlane, str]) -> ControlPlane:
    return applied[0]


@pytest.fixture
def cluster(plane: ControlPlane) -> Iterator[LiveCluster]:
    """Give a cluster with one node, emptied of nodes and pods afterwards."""
    cluster = LiveCluster(plane)
    cluster.make_node("node-a")
    try:
        yield cluster
    finally:
        plane.stop_extras()
        cluster.clear(("ReplicaSet", "Pod", "Node", "GPUTopology", "Lease", "Event"))


def let_touch_everything(plane: ControlPlane) -> None:
    """Give the tenant what an operator in its namespace may have: with RBAC in the way nothing would be told about the policy."""
    rules = [{"apiGroups": [""], "resources": ["*"], "verbs": ["*"]}]
    plane.api().apply({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "all-of-core"}, "rules": rules})
    plane.api().apply(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "alice-all-of-core", "namespace": TEAM},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "all-of-core"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}],
        }
    )


def tenant_may_forge(plane: ControlPlane) -> bool:
    """Try, without leaving anything: policies come into force a moment after they are accepted."""
    try:
        plane.api("alice").create(pod_object(pod("probe", TEAM).gpus(1).annotated(allocation=FORGED)), dry_run=True)
    except ForbiddenError:
        return False
    return True


def make_pod(cluster: LiveCluster, name: str = "train") -> JsonObject:
    """Create a tenant's pod, as the tenant."""
    return cluster.plane.api("alice").create(pod_object(pod(name, TEAM).gpus(1)))


def make_bound_pod(cluster: LiveCluster, name: str = "train") -> JsonObject:
    """Create a tenant's pod and bind it as the extender does, with its allocation in the Binding."""
    created = make_pod(cluster, name)
    cluster.plane.api("linkwise-extender").bind(name, "node-a", TEAM, annotations={KEY: GIVEN}, uid=created["metadata"]["uid"])
    return cluster.pod(name, TEAM)


def allocation_on(cluster: LiveCluster, name: str = "train") -> str | None:
    found: str | None = (cluster.pod(name, TEAM)["metadata"].get("annotations") or {}).get(KEY)
    return found


# --- kubectl apply -k -----------------------------------------------------------------------------------------------


def test_everything_in_the_manifests_is_created(applied: tuple[ControlPlane, str]) -> None:
    (kustomization,) = yaml.safe_load_all((MANIFESTS / "kustomization.yaml").read_text(encoding="utf-8"))
    items = [item for name in kustomization["resources"] for item in yaml.safe_load_all((MANIFESTS / name).read_text(encoding="utf-8"))]
    made = {line.split()[0] for line in applied[1].splitlines()}
    assert len(made) == len(items)
    assert {f"{item['kind'].lower()}/{item['metadata']['name']}" for item in items} == {re.sub(r"\.[a-z0-9.]+(?=/)", "", name) for name in made}


def test_what_was_applied_is_what_is_stored(plane: ControlPlane) -> None:
    assert plane.kubectl("diff", "-k", MANIFESTS) == ""


def test_the_api_server_finds_nothing_to_warn_of_in_the_policies(plane: ControlPlane) -> None:
    for policy in plane.api().items("ValidatingAdmissionPolicy"):
        assert policy.get("status", {}).get("typeChecking", {}).get("expressionWarnings", []) == []


def test_kubectl_prints_topologies_by_their_short_name(cluster: LiveCluster) -> None:
    cluster.publish(sample("dgx1v", "node-a"))
    header, row = cluster.plane.kubectl("get", "gputopo").splitlines()
    assert header.split() == ["NAME", "GPUS", "MODEL", "NVLINK", "FREE", "HEALTH", "AGE"]
    assert row.startswith("node-a")


# --- who may write an allocation ------------------------------------------------------------------------------------

CREATED_WITH = "annotation linkwise.dev/allocation is written by Linkwise when it binds the pod; remove it from the pod, or from the template"
CHANGED = "annotation linkwise.dev/allocation says which GPUs the pod holds and cannot be added, changed or removed"
WRITERS = ["alice", "admin"]


@pytest.mark.parametrize("user", WRITERS)
def test_nobody_creates_a_pod_with_an_allocation(cluster: LiveCluster, user: str) -> None:
    forged = pod_object(pod("train", TEAM).gpus(1).annotated(allocation=FORGED))
    for attempt in (cluster.plane.api(user).create, cluster.plane.api(user).apply):
        with pytest.raises(ForbiddenError) as refused:
            attempt(forged)
        assert CREATED_WITH in refusal(refused.value)


def test_not_even_on_a_pod_that_goes_around_every_scheduler(cluster: LiveCluster) -> None:
    with pytest.raises(ForbiddenError, match="is written by Linkwise"):
        cluster.plane.api("alice").create(pod_object(pod("train", TEAM).gpus(1).bound_to("node-a", FORGED)))


def test_a_template_with_an_allocation_makes_no_pods_and_its_owner_is_told(cluster: LiveCluster) -> None:
    cluster.plane.start_controller_manager("replicaset-controller")
    template = pod_object(pod("train", TEAM).gpus(1).annotated(allocation=FORGED))
    labels = {"app": "train"}
    cluster.plane.api("alice").create(
        {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {"name": "train", "namespace": TEAM},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels, "annotations": template["metadata"]["annotations"]}, "spec": template["spec"]},
            },
        }
    )
    cluster.wait_event(CREATED_WITH, "train", TEAM, reason="FailedCreate")
    assert cluster.api.items("Pod", TEAM) == []


def misplaced(kind: str, *, on_template: bool) -> JsonObject:
    """Return a workload whose wish is on itself, and on its template as well or not."""
    asked = pod_object(pod("train", TEAM).gpus(2).annotated(min_bandwidth="100"))
    wish, labels = asked["metadata"]["annotations"], {"app": "train"}
    runs_once = kind in {"Job", "CronJob"}
    template = {
        "metadata": {"labels": labels, "annotations": wish if on_template else {"team": "a"}},
        "spec": {**asked["spec"], **({"restartPolicy": "Never"} if runs_once else {"restartPolicy": "Always"})},
    }
    spec: JsonObject = {"template": template} if runs_once else {"template": template, "selector": {"matchLabels": labels}}
    if kind == "CronJob":
        spec = {"schedule": "@daily", "jobTemplate": {"spec": spec}}
    group = "batch/v1" if runs_once else "apps/v1"
    return {"apiVersion": group, "kind": kind, "metadata": {"name": "train", "namespace": TEAM, "annotations": wish}, "spec": spec}


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob"])
def test_a_gpu_annotation_on_the_deployment_instead_of_its_pod_template(plane: ControlPlane, kind: str) -> None:
    """It has no effect, nothing is refused, and whoever writes it is told so at once and where it belongs."""
    told = plane.kubectl("apply", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(misplaced(kind, on_template=False)), check=False)
    where = "spec.jobTemplate.spec.template.metadata.annotations" if kind == "CronJob" else "spec.template.metadata.annotations"
    assert f"annotation linkwise.dev/min-bandwidth on the {kind} itself has no effect: its pods get theirs from {where}" in told
    assert "Warning: " in told
    assert f"{kind.lower()}" in told
    assert "created (server dry run)" in told
    assert "Warning" not in plane.kubectl(
        "apply", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(misplaced(kind, on_template=True)), check=False
    )


def test_kubelet_mirrors_a_static_pod_unless_it_carries_an_allocation(cluster: LiveCluster) -> None:
    mirror = pod_object(pod("static-node-a", TEAM).plain())
    mirror["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "0123", "kubernetes.io/config.source": "file"}
    mirror["spec"]["nodeName"] = "node-a"
    forged = {**mirror, "metadata": {**mirror["metadata"], "annotations": {**mirror["metadata"]["annotations"], KEY: FORGED}}}
    assert CREATED_WITH in as_kubelet(cluster, forged)
    assert "pod/static-node-a created" in as_kubelet(cluster, mirror)


def as_kubelet(cluster: LiveCluster, item: JsonObject) -> str:
    who = ("--as=system:node:node-a", "--as-group=system:nodes")
    return cluster.plane.kubectl("create", "-f", "-", *who, stdin=yaml.safe_dump(item), check=False)


def merge_patch(api: ApiServer, value: str | None, subresource: str) -> None:
    api.patch("Pod", "train", {"metadata": {"annotations": {KEY: value}}}, TEAM, subresource=subresource)


def json_patch(api: ApiServer, value: str | None, subresource: str) -> None:
    operation = {"op": "remove"} if value is None else {"op": "add", "value": value}
    path = f"/metadata/annotations/{KEY.replace('/', '~1')}"
    api.patch("Pod", "train", [{**operation, "path": path}], TEAM, how="json", subresource=subresource)


def strategic_patch(api: ApiServer, value: str | None, subresource: str) -> None:
    api.patch("Pod", "train", {"metadata": {"annotations": {KEY: value}}}, TEAM, how="strategic", subresource=subresource)


def apply_patch(api: ApiServer, value: str | None, subresource: str) -> None:
    """Force the field; where it is to go, own it first with the value that it has, then let it go."""
    if value is None:
        apply_patch(api, GIVEN, subresource)
    annotations = {} if value is None else {KEY: value}
    item = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "train", "namespace": TEAM, "annotations": annotations}}
    api.patch("Pod", "train", item, TEAM, how="apply", subresource=subresource)


def put(api: ApiServer, value: str | None, subresource: str) -> None:
    item = api.get("Pod", "train", TEAM)
    annotations = {key: text for key, text in item["metadata"].get("annotations", {}).items() if key != KEY}
    item["metadata"]["annotations"] = annotations if value is None else {**annotations, KEY: value}
    api.replace(item, subresource=subresource)


WAYS = (merge_patch, json_patch, strategic_patch, apply_patch, put)
# These two let nothing but their own part of the pod through: the API server drops the annotation before any policy sees it.
DROPPED_IN = ("ephemeralcontainers", "resize")
SUBRESOURCES = pytest.mark.parametrize("subresource", ["", "status", *DROPPED_IN], ids=lambda name: f"pods/{name}" if name else "pods")


@SUBRESOURCES
@pytest.mark.parametrize("value", [FORGED, "", None], ids=["edits", "empties", "removes"])
def test_nobody_changes_what_a_pod_was_given(cluster: LiveCluster, subresource: str, value: str | None) -> None:
    make_bound_pod(cluster)
    for way in WAYS:
        for user in WRITERS:
            attempt(lambda way=way, user=user: way(cluster.plane.api(user), value, subresource), subresource)
            assert allocation_on(cluster) == GIVEN, f"{way.__name__} by {user}"


@SUBRESOURCES
@pytest.mark.parametrize("bound", [True, False], ids=["bound around Linkwise", "not bound yet"])
def test_nobody_adds_an_allocation(cluster: LiveCluster, subresource: str, bound: bool) -> None:
    cluster.plane.api("alice").create(pod_object(pod("train", TEAM).gpus(1).annotated(topology="none")))
    if bound:
        cluster.api.bind("train", "node-a", TEAM)
    for way in WAYS:
        for user in WRITERS:
            attempt(lambda way=way, user=user: way(cluster.plane.api(user), FORGED, subresource), subresource)
            assert allocation_on(cluster) is None, f"{way.__name__} by {user}"


def attempt(write: Any, subresource: str) -> None:
    """Write; it is refused by the policy, or by the API server's own rules for that subresource, or has no effect there."""
    if subresource in DROPPED_IN:
        assert status_of(write) in (200, 403, 422)
        return
    with pytest.raises(ForbiddenError) as refused:
        write()
    assert CHANGED in refusal(refused.value)


def status_of(write: Any) -> int:
    try:
        write()
    except DynamicApiError as error:
        return int(error.status)
    return 200


def test_the_extender_brings_the_allocation_with_the_binding_and_cannot_change_it_later(cluster: LiveCluster) -> None:
    bound = make_bound_pod(cluster)
    assert bound["spec"]["nodeName"] == "node-a"
    assert bound["metadata"]["annotations"] == {KEY: GIVEN}
    extender = cluster.plane.api("linkwise-extender")
    own = {**pod_object(pod("train", NAMESPACE).gpus(1)), "kind": "Pod"}
    created = cluster.api.create(own)
    extender.bind("train", "node-a", NAMESPACE, annotations={KEY: GIVEN}, uid=created["metadata"]["uid"])
    with pytest.raises(ForbiddenError) as refused:  # in its own namespace RBAC lets it patch pods
        extender.patch("Pod", "train", {"metadata": {"annotations": {KEY: FORGED}}}, NAMESPACE)
    assert "but the label linkwise.dev/leader" in refusal(refused.value) or CHANGED in refusal(refused.value)  # two policies say no


@pytest.mark.parametrize("user", [*WRITERS, "kube-scheduler"])
def test_a_binding_with_an_allocation_from_anybody_else_is_refused(cluster: LiveCluster, user: str) -> None:
    make_pod(cluster)
    with pytest.raises(ForbiddenError) as refused:
        cluster.plane.api(user).bind("train", "node-a", TEAM, annotations={KEY: FORGED})
    assert "in a Binding is accepted from system:serviceaccount:linkwise-system:linkwise-extender alone, not from" in refusal(refused.value)
    assert cluster.node_of("train", TEAM) is None


@pytest.mark.parametrize("user", WRITERS)
def test_the_older_way_to_a_binding_is_closed_as_well(cluster: LiveCluster, user: str) -> None:
    make_pod(cluster)
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "train", "namespace": TEAM, "annotations": {KEY: FORGED}},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "node-a"},
    }
    with pytest.raises(ForbiddenError, match="in a Binding is accepted from"):
        cluster.plane.api(user).request("POST", f"/api/v1/namespaces/{TEAM}/bindings", binding)
    assert cluster.node_of("train", TEAM) is None


def test_who_leaves_the_allocation_alone_is_not_held_up(cluster: LiveCluster) -> None:
    make_bound_pod(cluster)
    alice = cluster.plane.api("alice")
    alice.patch("Pod", "train", {"metadata": {"annotations": {"team/note": "mine"}, "labels": {"app": "train"}}}, TEAM)
    alice.patch("Pod", "train", {"status": {"phase": "Running"}}, TEAM, subresource="status")
    put(alice, GIVEN, "")
    make_pod(cluster, "plain")
    cluster.plane.api("kube-scheduler").bind("plain", "node-a", TEAM)
    assert cluster.node_of("plain", TEAM) == "node-a"
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "plain", "namespace": TEAM}}
    alice.create(eviction, TEAM, subresource="eviction")
    alice.delete("Pod", "train", TEAM, grace_s=0)
    assert cluster.api.find("Pod", "train", TEAM) is None


# --- what the accounts may do ---------------------------------------------------------------------------------------

NOT_THE_EXTENDER = (
    Request("", "DELETE", "delete", "/pods", TEAM),
    Request("", "PATCH", "patch", "/pods", TEAM),
    Request("", "POST", "create", "/pods", TEAM),
    Request("", "PATCH", "patch", "/pods/status", TEAM),
    Request("", "POST", "create", "/bindings", TEAM),
    Request("", "PUT", "update", "/nodes", name="node-a"),
    Request("", "PATCH", "patch", "/nodes/status", name="node-a"),
    Request("", "GET", "get", "/secrets", NAMESPACE),
    Request("", "PATCH", "patch", "linkwise.dev/gputopologies", name="node-a"),
    Request("", "PUT", "update", "coordination.k8s.io/leases", NAMESPACE, "another-lease"),
    Request("", "POST", "create", "coordination.k8s.io/leases", "kube-system"),
)
NOT_AN_AGENT = (
    Request("", "POST", "create", "/pods", TEAM),
    Request("", "PATCH", "patch", "/pods", TEAM),
    Request("", "PATCH", "patch", "/pods/status", TEAM),
    Request("", "DELETE", "delete", "/pods", TEAM),
    Request("", "GET", "list", "/nodes"),
    Request("", "PATCH", "patch", "/nodes", name="node-a"),
    Request("", "POST", "create", "/pods/binding", TEAM),
    Request("", "PATCH", "patch", "/events", TEAM),
    Request("", "PATCH", "patch", "/events", "default"),
    Request("", "GET", "list", "/events", TEAM),
    Request("", "DELETE", "delete", "linkwise.dev/gputopologies", name="node-a"),
    Request("", "GET", "get", "/secrets", NAMESPACE),
)


@pytest.mark.parametrize(
    ("account", "request_", "allowed"),
    [
        *(pytest.param("linkwise-extender", each, True, id=f"extender may {each.verb} {each.resource}") for each in EXTENDER),
        *(pytest.param("linkwise-extender", each, False, id=f"extender may not {each.verb} {each.resource}") for each in NOT_THE_EXTENDER),
        *(pytest.param("linkwise-agent", each, True, id=f"agent may {each.verb} {each.resource}") for each in AGENT),
        *(pytest.param("linkwise-agent", each, False, id=f"agent may not {each.verb} {each.resource}") for each in NOT_AN_AGENT),
    ],
)
def test_rights(plane: ControlPlane, account: str, request_: Request, allowed: bool) -> None:
    group, resource, subresource = [*request_.resource.split("/"), ""][:3]
    attributes = {
        "verb": request_.verb,
        "group": group,
        "resource": resource,
        "subresource": subresource,
        "namespace": request_.namespace or "",
        "name": request_.name or "",
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": f"system:serviceaccount:{NAMESPACE}:{account}", "resourceAttributes": attributes},
    }
    assert plane.api().request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)["status"]["allowed"] is allowed


def test_the_extender_puts_the_leader_label_on_pods_of_its_namespace_and_changes_nothing_else_of_them(cluster: LiveCluster) -> None:
    extender = cluster.plane.api("linkwise-extender")
    cluster.api.create(pod_object(pod("agent", NAMESPACE).plain()))
    for value in ("true", None, "true"):
        extender.patch("Pod", "agent", {"metadata": {"labels": {"linkwise.dev/leader": value}}}, NAMESPACE)
    for change in (
        {"metadata": {"labels": {"app": "other"}}},
        {"metadata": {"annotations": {"somebody/note": "ours"}}},
        {"metadata": {"finalizers": ["linkwise.dev/never"]}},
        {"spec": {"activeDeadlineSeconds": 1}},
    ):
        with pytest.raises(ForbiddenError) as refused:
            extender.patch("Pod", "agent", change, NAMESPACE)
        assert "but the label linkwise.dev/leader" in refusal(refused.value)
    image = {"spec": {"containers": [{"name": "helper", "image": "registry.example/evil"}]}}
    with pytest.raises(ForbiddenError):
        extender.patch("Pod", "agent", image, NAMESPACE, how="strategic")


def test_the_extender_wakes_pods_by_a_node_and_changes_nothing_else_of_it(cluster: LiveCluster) -> None:
    extender = cluster.plane.api("linkwise-extender")
    cluster.api.patch("Node", "node-a", {"metadata": {"annotations": {"somebody/note": "theirs"}}})
    for generation in ("1", "2"):
        extender.patch("Node", "node-a", {"metadata": {"annotations": {"linkwise.dev/topology-generation": generation}}})
    assert cluster.api.get("Node", "node-a")["metadata"]["annotations"]["linkwise.dev/topology-generation"] == "2"
    for change in (
        {"metadata": {"annotations": {"somebody/note": "ours"}}},
        {"metadata": {"annotations": {"somebody/note": None}}},
        {"metadata": {"annotations": {"another/note": "new"}}},
        {"metadata": {"labels": {"pool": "ours"}}},
        {"metadata": {"finalizers": ["linkwise.dev/never"]}},
        {"spec": {"unschedulable": True}},
        {"spec": {"taints": [{"key": "k", "effect": "NoExecute"}]}},
        {"spec": {"podCIDR": "10.1.0.0/24", "podCIDRs": ["10.1.0.0/24"]}},
        {"spec": {"providerID": "cloud:///node-b"}},
    ):
        with pytest.raises(ForbiddenError, match="may change nothing of a Node but the annotation linkwise"):
            extender.patch("Node", "node-a", change)


STARTUP = {"key": "linkwise.dev/agent-not-ready", "effect": "NoSchedule"}
OTHER = {"key": "team/other", "value": "x", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("after", "allowed"),
    [
        pytest.param([OTHER], True, id="the startup taint goes"),
        pytest.param([STARTUP], False, id="another goes"),
        pytest.param([], False, id="all go"),
        pytest.param([OTHER, STARTUP | {"effect": "NoExecute"}], False, id="the startup taint becomes another"),
        pytest.param([OTHER | {"value": "y"}], False, id="another changes beside it"),
        pytest.param([OTHER, {"key": "team/new", "effect": "NoSchedule"}], False, id="one comes beside it"),
        pytest.param([OTHER, STARTUP, STARTUP | {"effect": "NoExecute"}], False, id="a startup taint comes"),
    ],
)
def test_the_extender_takes_the_startup_taint_from_a_node_and_no_other(cluster: LiveCluster, after: list[JsonObject], allowed: bool) -> None:
    cluster.api.patch("Node", "node-a", {"spec": {"taints": [OTHER, STARTUP], "unschedulable": True}})
    extender = cluster.plane.api("linkwise-extender")
    if allowed:
        extender.patch("Node", "node-a", {"spec": {"taints": after}})
        assert cluster.api.get("Node", "node-a")["spec"] == {"taints": after, "unschedulable": True}
    else:
        with pytest.raises(ForbiddenError, match="take nothing away but the taint linkwise"):
            extender.patch("Node", "node-a", {"spec": {"taints": after}})


def test_an_agent_publishes_the_topology_of_its_own_node_and_of_no_other(cluster: LiveCluster, tmp_path: Path) -> None:
    cluster.make_node("node-b")
    cluster.publish(sample("dgx1v", "node-b"))
    kubeconfig = kubeconfig_of_agent_on(cluster, "node-a")
    cluster.plane.run("agent", [*agent_command(tmp_path, "dgx1v", "node-a"), "--kubeconfig", kubeconfig])
    wait_until(
        lambda: (cluster.api.find("GPUTopology", "node-a") or {}).get("status", {}).get("gpus"), what="the agent has published node-a", timeout=20
    )
    agent = ApiServer(kubeconfig)
    refused = "the Linkwise agent on node node-a may not write the topology of node node-b"
    with pytest.raises(ForbiddenError, match=refused):
        agent.apply(sample("pcie", "node-b").to_object())
    with pytest.raises(ForbiddenError, match=refused):
        agent.patch("GPUTopology", "node-b", {"status": {"health": "Healthy"}}, subresource="status")


def kubeconfig_of_agent_on(cluster: LiveCluster, node: str) -> Path:
    """Return a kubeconfig with the token that kubelet would mount into an agent's pod on that node."""
    created = cluster.api.create(pod_object(pod("agent", NAMESPACE).plain(), serviceAccountName="linkwise-agent", nodeName=node))
    bound_to = {"kind": "Pod", "apiVersion": "v1", "name": "agent", "uid": created["metadata"]["uid"]}
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600, "boundObjectRef": bound_to}}
    answer = cluster.api.request("POST", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/linkwise-agent/token", body)
    return cluster.plane.kubeconfig_of_token(f"agent-on-{node}", answer["status"]["token"])


def test_the_extender_leads_binds_tells_and_wakes_under_its_rights_and_the_policies(cluster: LiveCluster) -> None:
    """All that it does on a cluster, with a pod of its own to put the leader's label on."""
    cluster.api.create(pod_object(pod("linkwise-extender-abc", NAMESPACE).plain()))
    extender = serve(cluster.plane, environment={"POD_NAME": "linkwise-extender-abc", "POD_NAMESPACE": NAMESPACE}).wait_leads()
    cluster.plane.start_scheduler(shipped_configuration(extender.url))
    cluster.publish(sample("pcie", "node-a", observed_at=datetime.now(UTC)))
    extender.wait_open("node-a")
    (leader,) = cluster.api.items("Pod", NAMESPACE, labels="linkwise.dev/leader=true")
    assert leader["metadata"]["name"] == "linkwise-extender-abc"

    cluster.plane.api("alice").create(pod_object(pod("train", TEAM).gpus(4).min_bandwidth(100)))
    cluster.wait_event("min-bandwidth 100 asked", "train", TEAM, reason="FailedScheduling")
    cluster.publish(sample("nvswitch", "node-a", observed_at=datetime.now(UTC)))
    bound = cluster.wait_bound("train", TEAM)
    assert KEY in bound["metadata"]["annotations"]
    assert "linkwise.dev/topology-generation" in cluster.api.get("Node", "node-a")["metadata"]["annotations"]
    cluster.wait_event("GB/s", "train", TEAM, reason="LinkwisePlaced")
