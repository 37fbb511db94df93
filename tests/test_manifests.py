"""The manifests against each other and against the code, without a cluster; tests/e2e/test_manifests.py applies them to a real API server."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import typer
import yaml
from starlette.routing import Route

from extender.app import OpenGate, embedded, make_probe_app
from extender.cli import app as command_line
from extender.kube.lease import LEADER_LABEL
from extender.metrics import Metrics
from extender.notices import NoticeReason
from extender.reasons import Refusal
from extender.serving import lease_name
from extender.settings import Settings
from extender.snapshot_file import Snapshot
from tests.builders import cluster, extender_on
from tests.rights import AGENT, EXTENDER, HAND_OFF, NAMESPACE, Request
from topology.agent.handoff.series import Series
from topology.agent.metrics import Metrics as AgentMetrics
from topology.agent.settings import agent_settings
from topology.api import annotations
from topology.api.crd import crd
from topology.api.gputopology import MOST_GPUS

JsonObject = dict[str, Any]

REPOSITORY = Path(__file__).parents[1]
MANIFESTS = REPOSITORY / "manifests"
NOT_FOR_KUBECTL = {
    "kustomization.yaml",
    "scheduler-config.yaml",
    "prometheus-rules.yaml",
}  # files of the control plane and of Prometheus, no objects of the API
COMPONENT = MANIFESTS / "hand-off"


def documents(name: str) -> list[JsonObject]:
    return [item for item in yaml.safe_load_all((MANIFESTS / name).read_text(encoding="utf-8")) if item]


def applied() -> list[JsonObject]:
    return [item for path in sorted(MANIFESTS.glob("*.yaml")) if path.name not in NOT_FOR_KUBECTL for item in documents(path.name)]


def only(kind: str, name: str) -> JsonObject:
    (found,) = (item for item in applied() if item["kind"] == kind and item["metadata"]["name"] == name)
    return found


def pod_of(kind: str, name: str) -> JsonObject:
    spec: JsonObject = only(kind, name)["spec"]["template"]["spec"]
    return spec


def container_of(kind: str, name: str) -> JsonObject:
    (container,) = pod_of(kind, name)["containers"]
    found: JsonObject = container
    return found


@pytest.fixture(scope="module")
def scheduler() -> JsonObject:
    (configuration,) = documents("scheduler-config.yaml")
    return configuration


# --- files and names ------------------------------------------------------------------------------------------------


def test_the_kustomization_lists_every_file_and_no_other() -> None:
    (kustomization,) = documents("kustomization.yaml")
    assert sorted(kustomization["resources"]) == sorted({path.name for path in MANIFESTS.glob("*.yaml")} - NOT_FOR_KUBECTL)


def test_no_object_is_there_twice_and_every_one_says_what_it_belongs_to() -> None:
    names = [(item["kind"], item["metadata"].get("namespace"), item["metadata"]["name"]) for item in applied()]
    assert len(set(names)) == len(names)
    for item in applied():
        if item["kind"] != "CustomResourceDefinition":
            assert item["metadata"]["labels"]["app.kubernetes.io/part-of"] == "linkwise"


def test_the_crd_is_the_generated_one() -> None:
    assert documents("crd.yaml") == [crd()]


@pytest.mark.parametrize(("kind", "name"), [("Deployment", "linkwise-extender"), ("DaemonSet", "linkwise-agent")])
def test_workload_account_and_rights_have_one_name(kind: str, name: str) -> None:
    assert pod_of(kind, name)["serviceAccountName"] == name
    assert only("ServiceAccount", name)["metadata"]["namespace"] == NAMESPACE
    subject = {"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}
    bindings = [item for item in applied() if item["kind"] in ("ClusterRoleBinding", "RoleBinding") and subject in item["subjects"]]
    assert {item["kind"] for item in bindings} == {"ClusterRoleBinding", "RoleBinding"}
    for binding in bindings:
        assert binding["subjects"] == [subject]
        assert only(binding["roleRef"]["kind"], binding["roleRef"]["name"])["metadata"].get("namespace") == binding["metadata"].get("namespace")
    template = only(kind, name)["spec"]["template"]["metadata"]["labels"]
    assert only(kind, name)["spec"]["selector"]["matchLabels"].items() <= template.items()


def test_the_policies_speak_of_the_accounts_and_the_keys_that_the_code_has() -> None:
    text = (MANIFESTS / "admission-policy.yaml").read_text(encoding="utf-8")
    accounts = set(re.findall(r"system:serviceaccount:([a-z-]+):([a-z-]+)", text))
    assert accounts == {(NAMESPACE, "linkwise-extender"), (NAMESPACE, "linkwise-agent")}
    assert set(re.findall(r"linkwise\.dev/[a-z-]+", text)) == {
        annotations.ALLOCATION,
        annotations.TOPOLOGY_GENERATION,
        annotations.STARTUP_TAINT,
        LEADER_LABEL,
    }
    assert {item["spec"]["policyName"] for item in applied() if item["kind"] == "ValidatingAdmissionPolicyBinding"} == {
        item["metadata"]["name"] for item in applied() if item["kind"] == "ValidatingAdmissionPolicy"
    }


def test_a_policy_that_refuses_lets_nothing_in_where_it_fails_and_one_that_warns_is_never_in_the_way() -> None:
    actions = {
        item["spec"]["policyName"]: item["spec"]["validationActions"] for item in applied() if item["kind"] == "ValidatingAdmissionPolicyBinding"
    }
    found = {(item["spec"]["failurePolicy"], *actions[item["metadata"]["name"]]) for item in applied() if item["kind"] == "ValidatingAdmissionPolicy"}
    assert found == {("Fail", "Deny"), ("Ignore", "Warn")}


def test_the_images_are_the_one_that_the_kustomization_renames_in_the_version_of_the_package() -> None:
    (kustomization,) = documents("kustomization.yaml")
    assert kustomization["images"] == [{"name": "linkwise", "newName": "linkwise", "newTag": version("linkwise")}]
    for kind, name in (("Deployment", "linkwise-extender"), ("DaemonSet", "linkwise-agent")):
        assert container_of(kind, name)["image"] == f"linkwise:{version('linkwise')}"


# --- kube-scheduler and the extender --------------------------------------------------------------------------------


def test_kube_scheduler_calls_the_address_of_the_service(scheduler: JsonObject) -> None:
    service = only("Service", "linkwise-extender")["spec"]
    (extender,) = scheduler["extenders"]
    (port,) = service["ports"]
    assert urlsplit(extender["urlPrefix"]).netloc == f"{service['clusterIP']}:{port['port']}"
    (target,) = (each for each in container_of("Deployment", "linkwise-extender")["ports"] if each["name"] == port["targetPort"])
    assert f"--port={target['containerPort']}" in container_of("Deployment", "linkwise-extender")["args"]


def test_its_verbs_are_the_routes_of_the_app(scheduler: JsonObject) -> None:
    app, _, _ = embedded(Snapshot(), Settings())
    posts = set(app.routes)
    (extender,) = scheduler["extenders"]
    of_gpushare = {path for path in posts if path.startswith("/gpushare-scheduler/")}  # for configurations that were written for its extender
    assert {f"/{value}" for key, value in extender.items() if key.endswith("Verb")} == posts - of_gpushare
    assert of_gpushare == {"/gpushare-scheduler/filter", "/gpushare-scheduler/bind"}
    assert urlsplit(extender["urlPrefix"]).path == ""


def test_a_gpu_pod_never_gets_past_the_extender(scheduler: JsonObject) -> None:
    (extender,) = scheduler["extenders"]
    assert extender["ignorable"] is False
    assert extender["nodeCacheCapable"] is True
    assert {entry["name"] for entry in extender["managedResources"]} == {annotations.WHOLE_GPU, annotations.GPU_MEMORY, annotations.GPUSHARE_MEMORY}
    assert not any(entry["ignoredByScheduler"] for entry in extender["managedResources"])
    # kube-scheduler waits longer than the extender waits for the API server.
    assert float(extender["httpTimeout"].removesuffix("s")) > Settings().bind_timeout_s + Settings().bind_grace_s


def test_the_default_profile_is_untouched_and_ours_looks_at_every_node(scheduler: JsonObject) -> None:
    default, ours = scheduler["profiles"]
    assert default == {"schedulerName": "default-scheduler"}
    assert (ours["schedulerName"], ours["percentageOfNodesToScore"]) == ("linkwise", 100)
    disabled = [entry["name"] for entry in ours["plugins"]["score"]["disabled"]]
    assert disabled == ["NodeResourcesFit", "NodeResourcesBalancedAllocation", "ImageLocality"]
    assert "percentageOfNodesToScore" not in scheduler, "for all profiles it would cost kube-scheduler most of its speed"


def test_the_service_selects_the_leader_among_the_replicas() -> None:
    deployment = only("Deployment", "linkwise-extender")["spec"]
    assert only("Service", "linkwise-extender")["spec"]["selector"] == {**deployment["selector"]["matchLabels"], LEADER_LABEL: "true"}
    assert LEADER_LABEL not in deployment["template"]["metadata"]["labels"], "the leader puts it there"
    assert deployment["replicas"] == 2
    assert only("PodDisruptionBudget", "linkwise-extender")["spec"]["selector"] == deployment["selector"]
    for kind, name in (("Deployment", "linkwise-extender"), ("DaemonSet", "linkwise-agent")):
        assert only("NetworkPolicy", name)["spec"]["podSelector"] == only(kind, name)["spec"]["selector"]


def test_the_probes_ask_for_what_the_probe_port_serves() -> None:
    container = container_of("Deployment", "linkwise-extender")
    extender = extender_on(cluster())
    served = {route.path for route in make_probe_app(extender.verbs, extender.metrics, OpenGate()).routes if isinstance(route, Route)}
    (port,) = (each["containerPort"] for each in container["ports"] if each["name"] == "probes")
    assert f"--probe-port={port}" in container["args"]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["path"] in served
        assert container[probe]["httpGet"]["port"] == "probes"


@pytest.mark.parametrize(("kind", "name"), [("Deployment", "linkwise-extender"), ("DaemonSet", "linkwise-agent")])
def test_the_command_line_takes_the_arguments_of_the_container(kind: str, name: str) -> None:
    command, *options = (re.sub(r"\$\(\w+\)", "node-a", argument) for argument in container_of(kind, name)["args"])
    group = typer.main.get_command(command_line)
    with typer.Context(group) as context:
        known = group.get_command(context, command)  # type: ignore[attr-defined]  # a group has commands
        assert known is not None
        known.make_context(command, options)  # raises on an unknown option or value


def test_the_options_for_tls_that_are_commented_out_exist() -> None:
    text = (MANIFESTS / "deployment.yaml").read_text(encoding="utf-8")
    options = re.findall(r"# - (--[a-z-]+)=", text)
    group = typer.main.get_command(command_line)
    with typer.Context(group) as context:
        known = group.get_command(context, "serve")  # type: ignore[attr-defined]  # as above
        assert known is not None
        assert set(options) == {"--tls-cert", "--tls-key", "--client-ca"} <= {name for option in known.params for name in option.opts}


def test_a_replica_finds_lease_and_pod_by_the_downward_api(monkeypatch: pytest.MonkeyPatch) -> None:
    fields = {variable["name"]: variable["valueFrom"]["fieldRef"]["fieldPath"] for variable in container_of("Deployment", "linkwise-extender")["env"]}
    values = {"metadata.name": "linkwise-extender-abc", "metadata.namespace": NAMESPACE}
    for name, field in fields.items():
        monkeypatch.setenv(name, values[field])
    lease = lease_name(Settings())
    assert (lease.namespace, lease.pod) == (NAMESPACE, "linkwise-extender-abc")
    assert lease.name in [name for rule in only("Role", "linkwise-extender")["rules"] for name in rule.get("resourceNames", [])]


@pytest.mark.parametrize(("kind", "name"), [("Deployment", "linkwise-extender"), ("DaemonSet", "linkwise-agent")])
def test_no_container_has_more_of_the_node_than_it_needs(kind: str, name: str) -> None:
    pod, container = pod_of(kind, name), container_of(kind, name)
    assert container["securityContext"] == {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
    mounted = [volume["hostPath"]["path"] for volume in pod.get("volumes", [])]
    assert mounted == ([] if kind == "Deployment" else ["/var/lib/kubelet/pod-resources"])
    assert all(mount["readOnly"] for mount in container.get("volumeMounts", []))


def test_the_hand_off_is_a_component_that_changes_the_daemonset_and_adds_its_rights() -> None:
    """Off until an administrator lists it: the kustomization names it in a comment."""
    (component,) = documents("hand-off/kustomization.yaml")
    assert (component["kind"], component["resources"], component["patches"]) == ("Component", ["rbac.yaml"], [{"path": "daemonset.yaml"}])
    assert {path.name for path in COMPONENT.iterdir()} == {"kustomization.yaml", "daemonset.yaml", "rbac.yaml"}
    text = (MANIFESTS / "kustomization.yaml").read_text(encoding="utf-8")
    assert "# components:\n#   - hand-off\n" in text
    assert yaml.safe_load(text.replace("# components:\n#   - hand-off\n", "components:\n  - hand-off\n"))["components"] == ["hand-off"]


def test_the_hand_off_has_the_paths_of_its_settings_and_writes_to_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each by the same path inside and outside; no privilege beyond them, and nothing else of the container changes."""
    (patch,) = documents("hand-off/daemonset.yaml")
    assert (patch["kind"], patch["metadata"]["name"]) == ("DaemonSet", "linkwise-agent")
    pod = patch["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert (pod.keys(), container.keys()) == ({"containers", "volumes"}, {"name", "env", "volumeMounts"})
    for variable in container["env"]:
        monkeypatch.setenv(variable["name"], variable["value"])
    settings = agent_settings("node-a")
    assert (settings.hand_off, settings.around) == ("cdi", "observe")
    outside = {volume["name"]: volume["hostPath"]["path"] for volume in pod["volumes"]}
    assert {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]} == outside
    written = {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
    assert written == {str(path) for path in (settings.device_plugin_dir, settings.cdi_dir, settings.state_dir)}
    read = {*map(str, settings.nvidia_cdi_dirs), str(settings.cgroup_root)} - written
    assert set(outside.values()) == written | read
    kept = {*outside, *(variable["name"] for variable in container["env"])}
    mine = container_of("DaemonSet", "linkwise-agent")
    assert not kept & {one["name"] for one in (*mine["env"], *mine["volumeMounts"])}, "a patch adds, and replaces nothing"


# --- rights ---------------------------------------------------------------------------------------------------------


# `linkwise snapshot` and `linkwise explain` ask as whoever runs them, not as the extender.
NOT_THE_EXTENDER = {"extender/explain_client.py", "extender/kube/lists.py"}


@dataclass(frozen=True)
class Grant:
    """One verb on one resource, everywhere or in one namespace, of all objects or of one."""

    verb: str
    resource: str
    namespace: str | None
    name: str | None

    def covers(self, request: Request) -> bool:
        return (
            (self.verb, self.resource) == (request.verb, request.resource)
            and self.namespace in (None, request.namespace)
            and self.name in (None, request.name)
        )


def grants(account: str, items: list[JsonObject]) -> Iterator[Grant]:
    roles = {(item["kind"], item["metadata"]["name"]): item["rules"] for item in items if "rules" in item}
    for binding in items:
        if binding["kind"] in ("ClusterRoleBinding", "RoleBinding") and binding["subjects"][0]["name"] == account:
            for rule in roles[binding["roleRef"]["kind"], binding["roleRef"]["name"]]:
                for group in rule["apiGroups"]:
                    for resource in rule["resources"]:
                        for verb in rule["verbs"]:
                            for name in rule.get("resourceNames", [None]):
                                yield Grant(verb, f"{group}/{resource}", binding["metadata"].get("namespace"), name)


@pytest.mark.parametrize(("account", "requests"), [("linkwise-extender", EXTENDER), ("linkwise-agent", AGENT)])
def test_each_account_may_do_what_its_code_asks_for_and_nothing_else(account: str, requests: tuple[Request, ...]) -> None:
    check_rights(list(grants(account, applied())), requests)


def test_the_hand_off_may_do_what_its_code_asks_for_and_nothing_else() -> None:
    """And an agent without it may do none of that."""
    check_rights(list(grants("linkwise-agent", documents("hand-off/rbac.yaml"))), HAND_OFF)


def check_rights(granted: list[Grant], requests: tuple[Request, ...]) -> None:
    assert [request for request in requests if not any(grant.covers(request) for grant in granted)] == []
    assert [grant for grant in granted if not any(grant.covers(request) for request in requests)] == []


@pytest.mark.parametrize(("package", "requests"), [("extender", EXTENDER), ("topology/agent", (*AGENT, *HAND_OFF))])
def test_the_table_of_requests_is_that_of_the_code(package: str, requests: tuple[Request, ...]) -> None:
    sources = {str(path.relative_to(REPOSITORY)): path.read_text(encoding="utf-8") for path in (REPOSITORY / package).rglob("*.py")}
    asked = {
        (file, method)
        for file, text in sources.items()
        for method in re.findall(r'\w+\(\s*"(GET|POST|PUT|PATCH|DELETE)", ', text)
        if file not in NOT_THE_EXTENDER
    } | {
        (file, "POST")
        for file, text in sources.items()
        if "self._client.post(" in text and file.startswith("extender/kube/") and file not in NOT_THE_EXTENDER
    }
    asked |= {(file, "GET") for file, text in sources.items() if "self._client.pieces(" in text}
    for_others = {("extender/kube/client.py", "GET"), ("extender/kube/client.py", "POST")}  # of whatever path: for watch.py, and for `client.post`
    assert asked - for_others == {(request.file, request.method) for request in requests}


@pytest.mark.parametrize("account", ["linkwise-extender", "linkwise-agent"])
def test_no_account_may_read_secrets_or_act_as_somebody_else(account: str) -> None:
    granted = [*grants(account, applied()), *grants(account, documents("hand-off/rbac.yaml"))]
    assert not any("*" in (grant.verb, *grant.resource.split("/")) for grant in granted)
    assert not {grant.resource for grant in granted} & {"/secrets", "/serviceaccounts/token", "/pods/exec"}
    assert {(grant.verb, grant.namespace) for grant in granted if grant.resource == "/configmaps"} <= {
        ("list", "kube-system"),
        ("watch", "kube-system"),
    }
    assert not {grant.verb for grant in granted} & {"impersonate", "escalate", "bind", "delete", "deletecollection"}


# --- image ----------------------------------------------------------------------------------------------------------


def test_the_image_is_built_from_files_that_exist_and_that_the_build_may_see() -> None:
    lines = (REPOSITORY / "Dockerfile").read_text(encoding="utf-8").splitlines()
    let_in = {line.removeprefix("!") for line in (REPOSITORY / ".dockerignore").read_text(encoding="utf-8").splitlines() if line.startswith("!")}
    copied = {word for line in lines if line.startswith("COPY ") and "--from" not in line for word in line.split()[1:-1]}
    assert copied
    for path in copied:
        assert (REPOSITORY / path).exists(), path
        assert path.split("/")[0] in let_in, path


def test_the_image_runs_without_root_and_without_what_built_it() -> None:
    _, final = (REPOSITORY / "Dockerfile").read_text(encoding="utf-8").split("\n\n\n")
    assert "USER 65532:65532" in final
    assert pod_of("Deployment", "linkwise-extender")["securityContext"]["runAsUser"] == 65532
    assert "pip" not in final
    assert final.count("COPY") == 1


# --- the guide ------------------------------------------------------------------------------------------------------

GUIDE = (REPOSITORY / "docs" / "on-a-cluster.md").read_text(encoding="utf-8")


def test_the_guide_names_every_closure_and_every_event_of_the_extender() -> None:
    """An alert tells the code alone, and an event its reason: the guide says what to do."""
    named = set(re.findall(r"`(\w+)`", GUIDE))
    assert {refusal.name for refusal in Refusal if refusal.is_closure} | set(NoticeReason) <= named


def test_the_guide_links_to_files_that_exist() -> None:
    links = re.findall(r"\]\((?!http)([^)#]+)\)", GUIDE)
    assert links
    assert [link for link in links if not (REPOSITORY / "docs" / link).exists()] == []
    assert [path for path in re.findall(r"kubectl apply -[fk] (\S+)", GUIDE) if not (REPOSITORY / path).exists()] == []


def test_the_guide_has_the_addresses_and_ports_of_the_manifests() -> None:
    service = only("Service", "linkwise-extender")["spec"]
    assert set(re.findall(r"10\.96\.0\.\d+", GUIDE)) == {service["clusterIP"]}
    assert set(re.findall(r"curl http://([^/]+)/", GUIDE)) == {f"{service['clusterIP']}:{service['ports'][0]['port']}"}
    ipv4, ipv6 = only("NetworkPolicy", "linkwise-extender")["spec"]["ingress"][0]["from"]
    assert ipv6["ipBlock"]["cidr"] == "::/0"
    assert ipv4["ipBlock"]["except"] == re.findall(r"`(10\.244\.[0-9./]+)`", GUIDE)
    assert "a port of their own (8889)" in GUIDE


def test_the_guide_from_gpushare_has_the_address_the_routes_and_the_names_that_there_are() -> None:
    guide = (REPOSITORY / "docs" / "gpushare.md").read_text(encoding="utf-8")
    (fragment,) = re.findall(r"```yaml\n(.*?)```", guide, re.DOTALL)
    (extender,) = yaml.safe_load(fragment)["extenders"]
    service = only("Service", "linkwise-extender")["spec"]
    assert extender["urlPrefix"] == f"http://{service['clusterIP']}:{service['ports'][0]['port']}/gpushare-scheduler"
    app, _, _ = embedded(Snapshot(), Settings())
    paths = set(app.routes)
    assert {f"/gpushare-scheduler/{extender[verb]}" for verb in ("filterVerb", "bindVerb")} < paths
    assert extender["managedResources"] == [{"name": annotations.GPUSHARE_MEMORY, "ignoredByScheduler": False}]
    assert (extender["ignorable"], extender["nodeCacheCapable"]) == (False, True)
    assert f"{annotations.GPUSHARE_NAMESPACE}/{annotations.GPUSHARE_UNHEALTHY}NODE" in guide
    assert all(key.removeprefix("ALIYUN_COM_GPU_MEM") in guide for key in annotations.GPUSHARE_WRITTEN)


def test_the_guide_mounts_the_folder_that_the_configuration_is_read_from() -> None:
    blocks = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", GUIDE, re.DOTALL)]
    static_pod, kubeadm = (block.get("spec") or block["scheduler"] for block in blocks)
    (container,), (volume,) = static_pod["containers"], static_pod["volumes"]
    (flag,) = (argument for argument in container["command"] if argument.startswith("--config="))
    (argument,), (extra,) = kubeadm["extraArgs"], kubeadm["extraVolumes"]
    folder = str(Path(flag.removeprefix("--config=")).parent)
    assert argument == {"name": "config", "value": flag.removeprefix("--config=")}
    assert {volume["hostPath"]["path"], container["volumeMounts"][0]["mountPath"], extra["hostPath"], extra["mountPath"]} == {folder}
    assert f"{folder}/scheduler-config.yaml" in GUIDE


def test_the_guide_gives_the_limits_that_are_set() -> None:
    settings = Settings()
    assert f"has run out ({settings.lease_duration_s} s)" in GUIDE
    assert f"older than {settings.most_state_age_s:g} s" in GUIDE
    assert settings.stale_after_s == 180
    assert "after three minutes its node takes no new GPU pods" in GUIDE
    assert f"Up to {MOST_GPUS} GPUs a node" in GUIDE


# --- rules for Prometheus -----------------------------------------------------------------------------------------------------------------------------------


RULES: list[JsonObject] = [
    rule for group in yaml.safe_load((MANIFESTS / "prometheus-rules.yaml").read_text(encoding="utf-8"))["groups"] for rule in group["rules"]
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule.get("alert") or rule["record"]))
def test_a_rule_speaks_of_series_that_there_are(rule: JsonObject) -> None:
    agent = AgentMetrics().registry
    Series(agent)
    served = {family.name for registry in (Metrics().registry, agent) for family in registry.collect()}
    series = {f"{name}{suffix}" for name in served for suffix in ("", "_total", "_bucket", "_sum", "_count")} | {
        each["record"] for each in RULES if "record" in each
    }
    named = set(re.findall(r"\b(?:linkwise|process)[a-z0-9_:]+", rule["expr"]))
    assert named
    assert named <= series


@pytest.mark.parametrize("rule", [rule for rule in RULES if "alert" in rule], ids=lambda rule: str(rule["alert"]))
def test_no_alert_adds_up_what_every_replica_tells_of_the_whole_cluster(rule: JsonObject) -> None:
    """With two replicas two closed nodes were told for each one."""
    gauges = {family.name for family in Metrics().registry.collect() if family.type == "gauge"}
    assert not [gauge for gauge in gauges if re.search(rf"sum[^)]*\) \({gauge}\b", rule["expr"])]


@pytest.mark.parametrize(("kind", "name"), [("Deployment", "linkwise-extender"), ("DaemonSet", "linkwise-agent")])
def test_no_service_of_the_namespace_writes_into_the_settings(kind: str, name: str) -> None:
    """Kubernetes makes variables of the names of Services; a Service linkwise-agent-metrics would be one of the agent's settings."""
    assert pod_of(kind, name)["enableServiceLinks"] is False


@pytest.mark.parametrize("rule", [rule for rule in RULES if "alert" in rule], ids=lambda rule: str(rule["alert"]))
def test_an_alert_says_what_is_wrong_how_bad_it_is_and_what_to_do(rule: JsonObject) -> None:
    assert rule["alert"].startswith("Linkwise")
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert set(rule["annotations"]) == {"summary", "description"}
    assert re.fullmatch(r"[0-9]+[mh]", rule["for"])
