"""What hypothesis feeds to readers: any JSON at all, and pods that are nearly right, so that a property gets past the first check."""

from typing import Any

from hypothesis import strategies as st

from topology.api import annotations as keys

scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=12)
json_values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3), max_leaves=6)
json_objects = st.dictionaries(st.text(max_size=8), json_values, max_size=4)

_amounts = st.dictionaries(
    st.sampled_from([keys.WHOLE_GPU, keys.WHOLE_GPU, keys.GPU_MEMORY, keys.GPUSHARE_MEMORY, "cpu"]),
    st.sampled_from(["1", "2", 3, "1k", "x"]) | scalars,
    max_size=2,
)
_containers = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from(["a", "b", "c"]) | scalars,
        "resources": st.fixed_dictionaries({}, optional={"limits": _amounts, "requests": _amounts | scalars}) | json_values,
        "restartPolicy": st.just("Always") | scalars,
    },
)
_container_lists = st.lists(_containers, max_size=3) | json_values
_our_keys = st.sampled_from([*keys.SUPPORTED, *keys.WRITTEN, *keys.GPUSHARE_WRITTEN, keys.PREFIX, keys.PREFIX + "x"])
_metadata = st.fixed_dictionaries(
    {},
    optional={
        "name": st.just("pod") | scalars,
        "namespace": st.just("default") | scalars,
        "uid": st.just("uid-default-pod") | scalars,
        "annotations": st.dictionaries(_our_keys, st.sampled_from(["100", "best", "PIX", "pack"]) | json_values, max_size=2) | json_values,
        "deletionTimestamp": scalars,
    },
)
_spec = st.fixed_dictionaries(
    {}, optional={"containers": _container_lists, "initContainers": _container_lists, "nodeName": st.sampled_from(["a", "b"]) | scalars}
)
_status = st.fixed_dictionaries({}, optional={"phase": st.sampled_from(["Pending", "Running", "Failed"]) | json_values})

odd_pods: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {}, optional={"metadata": _metadata | json_values, "spec": _spec | json_values, "status": _status | json_values}
)


def deep(levels: int) -> list[Any]:
    """Return lists in lists: a body may nest 1024 deep before its reader refuses it."""
    inner: list[Any] = []
    for _ in range(levels):
        inner = [inner]
    return inner
