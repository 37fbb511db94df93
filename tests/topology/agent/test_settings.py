"""Settings of the agent are checked once, with sentences."""

from pathlib import Path

import pytest

from topology.agent.settings import AgentSettings, agent_settings
from topology.errors import InputError


def test_defaults_are_those_of_a_node() -> None:
    settings = AgentSettings(node_name="node-a")
    assert (settings.nvidia_smi, settings.sysfs_root, settings.timeout_s) == (None, Path("/sys"), 20.0)


def test_defaults_of_the_running_agent_are_those_of_the_design() -> None:
    settings = AgentSettings(node_name="node-a")
    assert (settings.probe_every_s, settings.holders_every_s, settings.heartbeat_s) == (30.0, 5.0, 60.0)
    assert 2 * settings.look_up_every_s < 15, "a re-created Node has its topology again within 15 s"
    assert (settings.gpu_resource, settings.pod_resources_socket) == ("nvidia.com/gpu", Path("/var/lib/kubelet/pod-resources/kubelet.sock"))
    assert (settings.kubeconfig, settings.context, settings.metrics_port) == (None, None, 0)


def test_the_hand_off_is_off_until_somebody_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = AgentSettings(node_name="node-a")
    assert (settings.hand_off, settings.around, settings.offer_gpu_memory, settings.gpu_reserve_mib) == ("off", "observe", True, 0)
    assert settings.nvidia_cdi_dirs == (Path("/etc/cdi"), Path("/var/run/cdi"))
    assert settings.start_patience_s < 30, "kubelet waits no longer"
    monkeypatch.setenv("LINKWISE_AGENT_HAND_OFF", "ids")
    monkeypatch.setenv("LINKWISE_AGENT_NVIDIA_CDI_DIRS", '["/run/cdi"]')
    settings = agent_settings("node-a")
    assert (settings.hand_off, settings.nvidia_cdi_dirs) == ("ids", (Path("/run/cdi"),))
    with pytest.raises(InputError, match="agent settings: hand_off"):
        agent_settings("node-a", hand_off="maybe")


def test_further_settings_go_by_name_and_none_leaves_them_to_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINKWISE_AGENT_METRICS_PORT", "8889")
    monkeypatch.setenv("LINKWISE_AGENT_HEARTBEAT_S", "30")
    settings = agent_settings("node-a", kubeconfig=Path("/etc/kubeconfig"), metrics_port=None)
    assert (settings.kubeconfig, settings.metrics_port, settings.heartbeat_s) == (Path("/etc/kubeconfig"), 8889, 30.0)


@pytest.mark.parametrize(
    ("name", "value"),
    [("probe_every_s", 0), ("heartbeat_s", -1), ("holders_every_s", "often"), ("metrics_port", 70000), ("gpu_resource", "")],
)
def test_a_pace_or_port_that_cannot_be_is_refused(name: str, value: object) -> None:
    with pytest.raises(InputError, match=f"agent settings: {name}"):
        agent_settings("node-a", **{name: value})  # type: ignore[arg-type]


def test_the_environment_sets_what_no_option_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINKWISE_AGENT_NVIDIA_SMI", "/opt/nvidia-smi")
    monkeypatch.setenv("LINKWISE_AGENT_TIMEOUT_S", "5")
    settings = agent_settings("node-a", sysfs_root=Path("/node/sys"))
    assert (settings.nvidia_smi, settings.sysfs_root, settings.timeout_s) == ("/opt/nvidia-smi", Path("/node/sys"), 5.0)
    assert agent_settings("node-a", timeout_s=7.0).timeout_s == 7.0


def test_an_environment_that_cannot_be_is_refused_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINKWISE_AGENT_TIMEOUT_S", "soon")
    with pytest.raises(InputError, match=r"^environment variable LINKWISE_AGENT_TIMEOUT_S: soon: .* number"):
        agent_settings("node-a")


@pytest.mark.parametrize("value", ["/etc/cdi", "", "[", "['/etc/cdi']"])
def test_a_list_that_is_no_json_is_refused_with_its_form(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """Administrators write a path there; it ended the agent with a traceback."""
    monkeypatch.setenv("LINKWISE_AGENT_NVIDIA_CDI_DIRS", value)
    with pytest.raises(InputError) as caught:
        agent_settings("node-a")
    expected = f'environment variable LINKWISE_AGENT_NVIDIA_CDI_DIRS={value}: no JSON; accepted: a JSON list of paths, for example ["/etc/cdi"]'
    assert str(caught.value) == expected


@pytest.mark.parametrize(("name", "value"), [("HAND_OFF", "on"), ("HEARTBEAT_S", "x"), ("START_PATIENCE_S", "60"), ("NVIDIA_CDI_DIRS", "[1]")])
def test_a_variable_that_cannot_be_is_named_as_it_was_written(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    """What the DaemonSet's manifest holds is the variable, and no name of a field."""
    monkeypatch.setenv(f"LINKWISE_AGENT_{name}", value)
    with pytest.raises(InputError, match=f"^environment variable LINKWISE_AGENT_{name}: {value.strip('[]')}: Input"):
        agent_settings("node-a")


@pytest.mark.parametrize("name", ["", "Node-A", "node a", "-node", "node-", "node/a", "n" * 254])
def test_a_name_that_no_node_can_have_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="node"):
        agent_settings(name, None, Path("/sys"), 20.0)


@pytest.mark.parametrize("timeout_s", [0.0, -1.0, float("nan"), 1e9])
def test_a_time_out_that_cannot_be_is_refused(timeout_s: float) -> None:
    with pytest.raises(InputError, match="timeout_s"):
        agent_settings("node-a", None, Path("/sys"), timeout_s)


@pytest.mark.parametrize("name", ["a", "node-7", "gke-pool-1234.c.project.internal", "10.0.0.7"])
def test_names_of_real_nodes_are_taken(name: str) -> None:
    assert agent_settings(name, None, Path("/sys"), 20.0).node_name == name
