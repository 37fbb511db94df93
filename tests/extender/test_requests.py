"""Effective requests are those that kube-scheduler counts, and nothing that a pod may contain makes the reading fail."""

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.utils.quantity import parse_quantity

from extender.requests import MIB, NOTHING, Requests, quantity, read_requests

JsonObject = dict[str, Any]


def container(cpu: str | None = None, memory: str | None = None, *, limits: JsonObject | None = None, sidecar: bool = False) -> JsonObject:
    requests = {name: value for name, value in (("cpu", cpu), ("memory", memory)) if value is not None}
    made: JsonObject = {"name": "c", "resources": {"requests": requests, **({"limits": limits} if limits else {})}}
    return {**made, "restartPolicy": "Always"} if sidecar else made


def spec(*apps: JsonObject, init: tuple[JsonObject, ...] = (), **more: Any) -> JsonObject:
    return {"spec": {"containers": list(apps), "initContainers": list(init), **more}}


@pytest.mark.parametrize(
    ("pod", "found"),
    [
        pytest.param({}, NOTHING, id="no spec"),
        pytest.param(spec(container()), NOTHING, id="a container that asks for nothing"),
        pytest.param(spec(container("1500m", "1Gi"), container("0.5", "512Mi")), Requests(2000, 1536), id="app containers run together"),
        pytest.param(
            spec(container("1"), init=(container("3", "1Gi"),)), Requests(3000, 1024), id="the larger of init step and app, each resource by itself"
        ),
        pytest.param(spec(container("2"), init=(container("1", sidecar=True),)), Requests(3000), id="a sidecar runs beside the app"),
        pytest.param(
            spec(container("1"), init=(container("1", sidecar=True), container("3"))),
            Requests(4000),
            id="an init step runs beside the sidecars before it",
        ),
        pytest.param(
            spec(container("1"), init=(container("3"), container("1", sidecar=True))),
            Requests(3000),
            id="an init step does not run beside later sidecars",
        ),
        pytest.param(
            spec(container("1"), init=(container("1", sidecar=True), container("2", sidecar=True), container("1"))),
            Requests(4000),
            id="sidecars add up",
        ),
        pytest.param(spec(container("1", "1Gi"), overhead={"cpu": "250m", "memory": "120Mi"}), Requests(1250, 1144), id="overhead comes on top"),
        pytest.param(spec(container(limits={"cpu": "2", "memory": "1Gi"})), Requests(2000, 1024), id="limits stand in for requests"),
        pytest.param(spec(container("1", limits={"cpu": "2"})), Requests(1000), id="requests count where both are given"),
        pytest.param(spec(container("0", limits={"cpu": "2"})), NOTHING, id="a request of 0 is a request"),
        pytest.param(
            spec(container("1", "1Gi"), resources={"requests": {"cpu": "4"}}),
            Requests(4000, 1024),
            id="what is said of the pod replaces that resource alone",
        ),
        pytest.param(
            spec(container("1"), resources={"requests": {"cpu": "4"}}, overhead={"cpu": "1"}),
            Requests(5000),
            id="overhead comes on top of that as well",
        ),
        pytest.param(spec(container(), resources={"limits": {"cpu": "4"}}), Requests(4000), id="limits of the pod where no container says anything"),
        pytest.param(
            spec(container("1"), resources={"limits": {"cpu": "4"}}), Requests(1000), id="no limits of the pod where a container says something"
        ),
        pytest.param(
            spec(container(), init=(container("2"),), resources={"limits": {"cpu": "4"}}),
            Requests(2000),
            id="an init container says something as well",
        ),
        pytest.param(spec(container(memory="1")), Requests(0, 1), id="memory is rounded up to MiB"),
        pytest.param(spec(container(memory="600Ki"), container(memory="600Ki")), Requests(0, 2), id="rounded once, after the sum"),
        pytest.param(spec(container("lots", "1Gi")), Requests(0, 1024), id="what cannot be read counts 0"),
        pytest.param(spec(container("-1", "-1Gi")), NOTHING, id="nothing counts less than 0"),
        pytest.param(spec({"resources": {"requests": {"cpu": 2, "memory": 1048576.0}}}), Requests(2000, 1), id="numbers of a file written by hand"),
        pytest.param({"spec": {"containers": "none", "initContainers": [None, 3]}}, NOTHING, id="no containers where containers should be"),
        pytest.param(spec(container("1"), resources=[], overhead="much"), Requests(1000), id="no amounts where amounts should be"),
    ],
)
def test_effective_requests_follow_kubernetes_rule(pod: JsonObject, found: Requests) -> None:
    """Each line is a clause of component-helpers' PodRequests, or of the API server's defaults before it."""
    assert read_requests(pod) == found


@pytest.mark.parametrize(
    ("text", "units"),
    [
        ("0", 0),
        ("1", 1),
        ("+1", 1),
        ("1.", 1),
        (".5", 1),
        ("1.5Gi", 1610612736),
        ("2k", 2000),
        ("3M", 3_000_000),
        ("1E", 10**18),
        ("1e3", 1000),
        ("1E3", 1000),
        ("1e-3", 1),
        ("100n", 1),
        ("100m", 1),
        ("9Ei", 2**63 - 1),
        ("1e999", 2**63 - 1),
        ("1e-999", 1),
        ("", None),
        ("1K", None),
        ("1ki", None),
        ("1 Gi", None),
        ("-1", None),
        ("1e9999999999", None),
        ("1_000", None),
        ("٣", None),
        ("NaN", None),
        ("1" * 65, None),
        (True, None),
        (None, None),
        ([], None),
        (math.inf, None),
        pytest.param(10**5000, None, id="more digits than Python prints"),
    ],
)
def test_quantities_are_read_as_kubernetes_reads_them(text: object, units: int | None) -> None:
    """Fractions are rounded up, what is too large is capped, and nothing else than a quantity is one."""
    assert quantity(text) == units


SUFFIXES = ("", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e3", "E-2")


@given(st.decimals(0, 10**6, places=3), st.sampled_from(SUFFIXES), st.sampled_from([1, 1000]))
def test_the_official_client_reads_the_same(number: Decimal, suffix: str, scale: int) -> None:
    """Its reader is the oracle for everything that both accept."""
    text = f"{number}{suffix}"
    assert quantity(text, scale) == min(math.ceil(Fraction(parse_quantity(text)) * scale), 2**63 - 1)


anything: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["1", "100m", "1Gi"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["spec", "containers", "initContainers", "resources", "requests", "limits", "overhead", "cpu", "memory", "restartPolicy"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(anything)
def test_nothing_that_a_pod_may_be_makes_it_fail(pod: Any) -> None:
    """Odd objects give amounts of at least 0."""
    found = read_requests(pod)
    assert found.cpu_milli >= 0
    assert found.memory_mib >= 0


amounts = st.none() | st.integers(0, 9)
steps = st.lists(st.tuples(st.sampled_from(["app", "sidecar", "init"]), amounts, amounts), max_size=6)


def most_at_any_time(kinds: list[tuple[str, int | None, int | None]], which: int) -> int:
    """Start one container after the other, as kubelet does, and look how much runs at once."""
    running, most = 0, 0
    for kind, *asked in [*(step for step in kinds if step[0] != "app"), *(step for step in kinds if step[0] == "app")]:
        amount = asked[which] or 0
        most = max(most, running + amount)
        running += 0 if kind == "init" else amount
    return most


@given(steps, st.integers(0, 3))
def test_a_pod_requests_the_most_that_it_runs_at_any_time(kinds: list[tuple[str, int | None, int | None]], overhead: int) -> None:
    """A replay of the pod's start is the oracle for the rule."""
    built = [
        (kind, container(None if cpu is None else f"{cpu}m", None if memory is None else f"{memory}Mi", sidecar=kind == "sidecar"))
        for kind, cpu, memory in kinds
    ]
    pod = spec(
        *(each for kind, each in built if kind == "app"),
        init=tuple(each for kind, each in built if kind != "app"),
        overhead={"cpu": f"{overhead}m", "memory": str(overhead * MIB)},
    )
    assert read_requests(pod) == Requests(*(most_at_any_time(kinds, which) + overhead for which in (0, 1)))
