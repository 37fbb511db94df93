"""What the container runtime tells, over a real socket, and what becomes of answers that tell little or nonsense."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.runtime_stand_in import Ran, RuntimeStandIn, containerd_config, runtime_stand_in
from topology.agent.container_runtime import ContainerRuntime, RuntimeUnknownError, _decoded, _with_configuration, running_containers, runtime_at

KEYS = ("enableCDI", "cdiSpecDirs", "containerd", "runtimes", "options", "BinaryName")


@pytest.fixture
def socket(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("r") / "s"


@pytest.fixture
def runtime(socket: Path) -> Iterator[RuntimeStandIn]:
    with runtime_stand_in(socket) as runtime:
        yield runtime


def test_containerd_tells_its_cdi_directories_and_the_programs_of_its_runtimes(runtime: RuntimeStandIn, socket: Path) -> None:
    """All of it comes from its own configuration."""
    runtime.config = containerd_config(Path("/var/run/cdi"))
    programs = {"runc": "runc", "nvidia": "/usr/bin/nvidia-container-runtime"}
    assert runtime_at(socket) == ContainerRuntime("containerd", "2.1.4", cdi=True, cdi_dirs=("/etc/cdi", "/var/run/cdi"), programs=programs)


def test_a_runtime_that_tells_no_configuration_is_known_by_name_and_version(runtime: RuntimeStandIn, socket: Path) -> None:
    """What it does not tell is None, not a guess."""
    runtime.name, runtime.version = "cri-o", "1.34.1"
    assert runtime_at(socket) == ContainerRuntime("cri-o", "1.34.1")


def test_the_running_containers_come_with_their_environment(runtime: RuntimeStandIn, socket: Path) -> None:
    """In order of their pods, without those that have ended or vanish meanwhile."""
    runtime.containers = [
        Ran("b/two", {"X": "a=b", "EMPTY": ""}, program="/usr/bin/runc"),
        Ran("a/one", {}),
        Ran("a/ended", {}, running=False),
        Ran("a/vanishes", {}),
    ]
    runtime.vanished = {3}
    first, second = running_containers(socket)
    assert (first.namespace, first.pod, dict(first.environment), first.program) == ("a", "one", {}, "")
    assert (second.pod, second.name, second.program) == ("two", "main", "/usr/bin/runc")
    assert dict(second.environment) == {"X": "a=b", "EMPTY": ""}


@pytest.mark.parametrize("ask", [runtime_at, running_containers], ids=["what it is", "what runs"])
def test_a_runtime_that_fails_is_told_with_its_words(runtime: RuntimeStandIn, socket: Path, ask: object) -> None:
    """The sentence names the socket."""
    assert callable(ask)
    runtime.broken = True
    with pytest.raises(RuntimeUnknownError, match=rf"does not answer at {socket}: UNAVAILABLE, server is not initialized yet"):
        ask(socket)


@given(st.recursive(st.none() | st.booleans() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(KEYS) | st.text(), inner)))
def test_no_configuration_crashes_the_reader(config: object) -> None:
    """Whatever a version of containerd makes of it, name and version remain."""
    found = _with_configuration(ContainerRuntime("containerd", "9"), config if isinstance(config, dict) else {})
    assert (found.name, found.version) == ("containerd", "9")


@given(st.text())
def test_no_text_crashes_the_decoder(text: str) -> None:
    """Anything but an object is no information."""
    assert isinstance(_decoded(text), dict)
