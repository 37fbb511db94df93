"""The synthetic cluster behind the timing benches: names of real lengths, as full as told, written as it is made, and read by Linkwise without a word."""

import io
import json
import time
from collections import Counter

import pytest

from bench import snapshot
from bench.snapshot import Plan
from extender.cluster import Cluster
from extender.snapshot_file import SnapshotCluster, parse_snapshot
from topology.errors import InputError


def written(plan: Plan) -> bytes:
    file = io.BytesIO()
    snapshot.write(plan, file)
    return file.getvalue()


def test_names_have_every_length_from_30_to_40_bytes_and_are_distinct():
    """No length is rare."""
    names = snapshot.names(Plan(2000))
    lengths = Counter(map(len, names))
    assert set(lengths) == set(range(30, 41))
    assert min(lengths.values()) > 100
    assert len(set(names)) == 2000


def test_the_same_seed_gives_the_same_bytes_and_another_one_others():
    """In whatever process."""
    assert written(Plan(20, seed=1)) == written(Plan(20, seed=1))
    assert written(Plan(20, seed=1)) != written(Plan(20, seed=2))


def test_what_is_written_is_what_is_made():
    """One object after the other, or all at once; more objects stand behind."""
    assert json.loads(written(Plan(20, 0.5, 3))) == snapshot.make(20, 0.5, 3)
    file = io.BytesIO()
    snapshot.write(Plan(1, 0.0), file, [{"kind": "Pod"}])
    assert [item["kind"] for item in json.loads(file.getvalue())["items"]] == ["Node", "GPUTopology", "Pod"]


@pytest.mark.parametrize("fill", [0.0, 0.5, 1.0])
def test_linkwise_reads_it_and_finds_as_many_gpus_held_as_told(fill: float):
    """Every kind of machine among them; nothing is closed or odd."""
    cluster = Cluster("nvidia.com/gpu", time.monotonic)
    source = SnapshotCluster(parse_snapshot(written(Plan(200, fill)), "bench"), cluster)
    assert source.feed() == []
    view = cluster.view()
    assert len(view.names) == 200
    assert len(view.classes) == len(snapshot.KINDS)
    gpus = sum(mask.bit_count() for mask in view.usable.tolist())
    free = sum(mask.bit_count() for mask in view.free.tolist())
    assert 1 - free / gpus == pytest.approx(fill, abs=0.05)


def test_kinds_of_machine_can_be_chosen():
    """And one that is none is refused by name."""
    plan = Plan(30, kinds=snapshot.read_kinds("pcie, dgx1v"))
    assert {item["spec"]["model"] for item in snapshot.objects(plan) if item["kind"] == "GPUTopology"} == {"NVIDIA L40S", "Tesla V100-SXM2-32GB"}
    with pytest.raises(InputError, match="no kind of machine 'tpu'"):
        snapshot.read_kinds("pcie,tpu")
