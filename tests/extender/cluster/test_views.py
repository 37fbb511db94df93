"""A view is made anew where something has changed, and what has not changed is the same object as before."""

from collections.abc import Callable

import pytest

from extender.cluster import Cluster, View
from tests.builders import changed, cluster, extender_on, pod

NODES = cluster().dgx1v("a").bridges("b")
GROUPS = {
    "hardware": ("class_index", "usable", "offered", "gpus"),
    "closed": ("closed", "closed_by"),
    "held": ("free", "left", "row_generation"),
    "host": ("cpu_left", "memory_left", "host_generation"),
}
A_NODE = {"metadata": {"name": "a"}, "status": {"allocatable": {"cpu": "64", "memory": "512Gi"}}}


def renewed(before: View, after: View) -> set[str]:
    """Return the groups of which anything is another object."""
    return {group for group, names in GROUPS.items() if any(getattr(before, name) is not getattr(after, name) for name in names)}


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        pytest.param(lambda state: state.apply_pod(pod("web").plain(cpu="2").bound_to("a").build()), {"host"}, id="a pod without GPUs"),
        pytest.param(
            lambda state: state.apply_pod(pod("p").gpus(2).holding("a", *NODES.uuids("a")[:2]).build()), {"held", "host"}, id="a pod with GPUs"
        ),
        pytest.param(
            lambda state: state.apply_topology(changed(NODES.topologies[0], unhealthy=[1])), {"hardware", "held", "host"}, id="a GPU that fails"
        ),
        pytest.param(
            lambda state: state.apply_pod(pod("stranger").gpus(1).bound_to("b").build()), {"closed", "held", "host"}, id="a node that closes"
        ),
        pytest.param(lambda state: state.hold("uid", 0, 1, 5.0), set(), id="a set held for a scored pod"),
    ],
)
def test_a_change_renews_what_it_concerns_and_nothing_else(what: Callable[[Cluster], object], expected: set[str]):
    """Readers tell by that what they have to look at again."""
    state = extender_on(NODES).cluster
    state.apply_node(A_NODE)
    before = state.view()
    what(state)
    after = state.view()
    assert after is not before
    assert renewed(before, after) == expected


def test_without_a_change_the_view_is_the_same():
    """However often it is asked for."""
    state = extender_on(NODES).cluster
    assert state.view() is state.view()


def test_arrays_of_a_view_cannot_be_written():
    """They are shared between views."""
    view = extender_on(NODES).cluster.view()
    for names in GROUPS.values():
        for name in names:
            if hasattr(getattr(view, name), "flags"):
                assert not getattr(view, name).flags.writeable, name
