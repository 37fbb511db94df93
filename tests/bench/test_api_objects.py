"""The objects that the benches of the state are run on are such as the state takes in, and the events of a storm lead back to where they began."""

import orjson

from bench import api_objects
from extender.cluster import Cluster
from extender.cluster.pods import read_plain_pod

SMALL = api_objects.make(6, 60)


def taken_in() -> Cluster:
    cluster = Cluster("nvidia.com/gpu", lambda: 0.0)
    for node in SMALL.nodes:
        cluster.apply_node(orjson.loads(node))
    for topology in SMALL.topologies:
        assert cluster.apply_topology(orjson.loads(topology)) is None
    for pod in SMALL.pods:
        cluster.apply_pod(orjson.loads(pod))
    return cluster


def test_half_of_the_gpus_are_held_and_most_pods_ask_for_none():
    """Every node is open, and has CPU left."""
    view = taken_in().view()
    assert view.rows == 6
    assert not view.closed.any()
    assert sum(mask.bit_count() for mask in view.free.tolist()) * 2 == sum(mask.bit_count() for mask in view.usable.tolist()) == 2 * len(SMALL.free)
    assert (view.cpu_left < 128_000).all()
    assert sum(read_plain_pod(orjson.loads(pod)) is not None for pod in SMALL.pods) > 30


def test_pods_are_as_large_as_real_ones():
    """Three to seven kB."""
    assert all(3000 < len(pod) < 7000 for pod in SMALL.pods)


def test_a_storm_leads_back_to_where_it_began():
    """Every pod comes, is bound, runs, ends and goes."""
    cluster = taken_in()
    before = cluster.view()
    events = [orjson.loads(event) for event in api_objects.events(SMALL, 20)]
    assert len(events) == 100
    assert all(api_objects.SENT in event["object"]["metadata"]["annotations"] for event in events)
    changes = set()
    for event in events:
        if event["type"] == "DELETED":
            cluster.remove_pod(event["object"]["metadata"]["uid"])
        else:
            cluster.apply_pod(event["object"])
        changes.add(cluster.view().free.tobytes())
    after = cluster.view()
    assert len(changes) > 1, "some have GPUs"
    for name in ("free", "left", "cpu_left", "memory_left", "closed"):
        assert (getattr(before, name) == getattr(after, name)).all(), name
