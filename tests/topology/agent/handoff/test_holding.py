"""Who may have a GPU beside whom, by the rule for effective requests; compared with the extender's own."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.containers import ContainerKind, effective
from topology.agent.handoff.holding import Container, Holding, Kind, Part, conflict, taken_mib

A, B = "GPU-a", "GPU-b"
OFFERED = {A: 80 * 1024, B: 80 * 1024}


def holding(pod: str, name: str = "main", kind: Kind = Kind.APP, order: int = 0, **mib: int) -> Holding:
    """Return what a container holds: `a=0` is GPU-a as its own, `a=1024` a GiB of it."""
    return Holding(pod, "default", pod, Container(name, kind, order), tuple(Part(f"GPU-{letter}", amount) for letter, amount in mib.items()))


@pytest.mark.parametrize(
    ("wanted", "others", "why"),
    [
        pytest.param(holding("p", a=0), [holding("q", b=0)], None, id="another GPU"),
        pytest.param(holding("p", a=0), [holding("q", a=0)], "container main of pod default/q holds it", id="somebody's own"),
        pytest.param(holding("p", a=0), [holding("q", a=1024)], "container main of pod default/q has a share of it", id="shared, and wanted whole"),
        pytest.param(holding("p", a=1024), [holding("q", a=0)], "holds it", id="somebody's own, and a share is wanted"),
        pytest.param(holding("p", a=40 * 1024), [holding("q", a=40 * 1024)], None, id="two shares that fit"),
        pytest.param(holding("p", a=41 * 1024), [holding("q", a=40 * 1024)], "offers 81920 MiB, and 82944 MiB would be taken", id="two that do not"),
        pytest.param(holding("p", a=0), [holding("p", a=0)], None, id="its own, on a restart"),
        pytest.param(holding("p", "b", order=1, a=0), [holding("p", "a", a=0)], "container a of pod default/p holds it", id="two apps of one pod"),
        pytest.param(holding("p", "b", order=1, a=0), [holding("p", "i", Kind.INIT, a=0)], None, id="an init container has ended before"),
        pytest.param(holding("p", "i", Kind.INIT, a=0), [holding("p", "b", order=1, a=0)], None, id="and before it has started again"),
        pytest.param(holding("p", "b", order=1, a=0), [holding("p", "s", Kind.SIDECAR, a=0)], "holds it", id="a sidecar runs on"),
        pytest.param(holding("p", "i", Kind.INIT, 1, a=0), [holding("p", "s", Kind.SIDECAR, a=0)], "holds it", id="beside init containers, too"),
        pytest.param(holding("p", "s", Kind.SIDECAR, 1, a=0), [holding("p", "i", Kind.INIT, a=0)], None, id="but not those before it"),
        pytest.param(holding("p", "b", order=1, a=60 * 1024), [holding("p", "i", Kind.INIT, a=60 * 1024)], None, id="shares one after the other"),
        pytest.param(
            holding("p", a=1),
            [holding("q", "i", Kind.INIT, a=79 * 1024), holding("q", "b", order=1, a=78 * 1024)],
            None,
            id="another pod counts by its peak",
        ),
    ],
)
def test_who_is_in_the_way(wanted: Holding, others: list[Holding], why: str | None) -> None:
    """And the sentence says who."""
    found = conflict(wanted, others, OFFERED)
    if why is None:
        assert found is None
    else:
        assert found is not None
        assert why in found.why
        assert found.blockers


KINDS = {Kind.APP: ContainerKind.APP, Kind.SIDECAR: ContainerKind.SIDECAR, Kind.INIT: ContainerKind.INIT}


@given(st.lists(st.tuples(st.sampled_from([Kind.INIT, Kind.SIDECAR]), st.integers(1, 50)), max_size=4), st.lists(st.integers(1, 50), max_size=3))
def test_a_pod_takes_what_the_extender_charges(starters: list[tuple[Kind, int]], apps: list[int]) -> None:
    """The same rule on both sides, whatever the containers."""
    parts = [*starters, *((Kind.APP, amount) for amount in apps)]
    held = [holding("p", f"c{at}", kind, at, a=amount) for at, (kind, amount) in enumerate(parts)]
    charged = effective((KINDS[kind], [("a", amount)]) for kind, amount in parts)
    assert taken_mib(held, A) == charged.get("a", 0)
