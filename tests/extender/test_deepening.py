"""Classes are worked out beside the calls: nodes open with a lower bound, and everybody hears when the figures are better."""

import asyncio
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from extender.cluster import Cluster
from extender.deepening import Deepening, work_out
from extender.sample_machines import sample
from tests.builders import Extender, JsonObject, cluster, extender_on, pod
from tests.machines import CUBEMESH_16
from topology.collective import Depth, set_rates
from topology.errors import InternalError

_MEMORY = count(1000)
EIGHT = pod("eight").gpus(8).min_bandwidth(150)


def fresh(kind: str, name: str) -> JsonObject:
    """Return a topology whose class nobody has seen: classes are kept as long as the process lives."""
    raw = sample(kind, name).to_object()
    memory = next(_MEMORY)
    for gpu in raw["spec"]["gpus"]:
        gpu["memoryMiB"] = memory
    return raw


def serving(*topologies: JsonObject) -> Extender:
    """An extender that answers calls already when these nodes come."""
    extender = extender_on(cluster())
    extender.cluster.depth = Depth.AT_ONCE
    for topology in topologies:
        assert extender.cluster.apply_topology(topology) is None
    return extender


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop run until something holds."""
    while not condition():
        await asyncio.wait([asyncio.create_task(asyncio.sleep(0.01))])


async def test_a_node_opens_with_a_bound_and_a_pod_that_it_refused_is_let_in_when_its_class_is_worked_out():
    """The best single ring of a DGX-1V is over NV2 and carries 100 GB/s both ways, three carry 150."""
    extender = serving(fresh("dgx1v", "a"))
    assert extender.filter(EIGHT)["NodeNames"] == []
    assert extender.filter(pod("modest").gpus(8).min_bandwidth(50))["NodeNames"] == ["a"]
    before = extender.cluster.view()
    deepening = Deepening(extender.cluster, lambda: True)
    assert await deepening.deepen_next()
    after = extender.cluster.view()
    assert after.generation > before.generation
    assert extender.verbs.waiting.node_that_may_help(after) == "a", "so that its Node is touched and the pod is tried again"
    assert extender.filter(EIGHT)["NodeNames"] == ["a"]
    assert await extender.place(EIGHT, "a") == list(range(8))
    assert not await deepening.deepen_next(), "there is nothing more to find out"


async def test_what_was_decided_on_the_bound_is_explained_by_the_bound():
    extender = serving(fresh("dgx1v", "a"))
    extender.filter(EIGHT)
    decision = extender.verbs.decisions.get("default/eight")
    await Deepening(extender.cluster, lambda: True).deepen_next()
    assert decision is not None
    assert decision.view is not None
    assert decision.view.classes[0].bandwidth[-1] == 100.0
    assert extender.cluster.view().classes[0].bandwidth[-1] == 150.0


async def test_calls_are_answered_while_a_class_is_worked_out():
    extender = serving(fresh("dgx1v", "a"), fresh("pcie", "b"))
    work = asyncio.create_task(Deepening(extender.cluster, lambda: True).deepen_next())
    answers = 0
    while not work.done():
        answers += extender.filter(pod("two").gpus(2))["NodeNames"] == ["a", "b"]
        await asyncio.wait([work], timeout=0.01)
    assert await work
    assert answers > 10


async def test_nodes_of_one_class_that_come_together_are_worked_out_once_and_all_hear_of_it():
    topology = fresh("dgx1v", "a")
    twins = [{**topology, "metadata": {**topology["metadata"], "name": name}} for name in ("a", "b", "c")]
    extender = serving(*twins)
    assert len(extender.cluster.shallow_classes()) == 1
    await Deepening(extender.cluster, lambda: True).deepen_next()
    assert extender.filter(EIGHT)["NodeNames"] == ["a", "b", "c"]
    assert not extender.cluster.shallow_classes()


async def test_figures_are_those_of_this_process():
    links = serving(fresh("dgx1v", "a")).cluster.view().classes[0].links
    (tables,) = await work_out([links], Depth.FULL)
    assert tables.rates.gb_per_s.tolist() == set_rates(links).gb_per_s.tolist()
    assert tables.rates.exact.all()


async def test_a_machine_of_sixteen_gpus_opens_at_once_and_is_worked_out_in_one_go():
    """At once nothing is known of its rings; as its mesh is sparse, every set is exact soon, and what remainders are worth comes with that."""
    extender = serving(cube_mesh_of_sixteen("a"))
    four = pod("four").gpus(4).min_bandwidth(100)
    assert extender.filter(four)["NodeNames"] == []
    assert extender.filter(pod("any").gpus(4))["NodeNames"] == ["a"]
    deepening = Deepening(extender.cluster, lambda: True)
    assert await deepening.deepen_next()
    assert extender.filter(four)["NodeNames"] == ["a"]
    (kind,) = extender.cluster.view().classes
    assert kind.exact.all()
    assert sorted(kind._packings) == [2, 3, 4, 5, 6, 7, 8]
    assert not await deepening.deepen_next()


def cube_mesh_of_sixteen(name: str) -> JsonObject:
    """Return the topology of a machine of MAPA's, of a class that nobody has seen."""
    gpus = [{"index": at, "uuid": f"GPU-{name}-{at}", "model": CUBEMESH_16.model, "memoryMiB": next(_MEMORY)} for at in range(16)]
    return {"metadata": {"name": name}, "spec": {"gpus": gpus, "links": {"gpus": CUBEMESH_16.codes}}}


async def test_a_class_that_cannot_be_worked_out_keeps_its_bound_and_is_not_tried_for_ever(monkeypatch: pytest.MonkeyPatch):
    extender = serving(fresh("dgx1v", "a"))
    monkeypatch.setattr("sys.executable", "/bin/false")
    deepening = Deepening(extender.cluster, lambda: True)
    assert await deepening.deepen_next()
    assert not await deepening.deepen_next()
    assert extender.filter(pod("modest").gpus(8).min_bandwidth(50))["NodeNames"] == ["a"]
    with pytest.raises(InternalError, match="ended with status"):
        await work_out([extender.cluster.view().classes[0].links], Depth.FULL)


async def test_the_process_ends_with_whoever_waits_for_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """The stand-in for the interpreter tells its process id and then does nothing for a minute."""
    told, slow = tmp_path / "pid", tmp_path / "slow"
    slow.write_text(f"#!/bin/sh\necho $$ > {told}.new\nmv {told}.new {told}\nexec sleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(slow))
    waiting = asyncio.create_task(work_out([], Depth.FULL))
    await until(told.exists)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await until(lambda: not Path(f"/proc/{told.read_text().strip()}").exists())


async def test_until_the_first_answer_the_state_works_classes_out_by_itself():
    """Nobody waits for an answer that nobody may give yet."""
    state, ready = Cluster("nvidia.com/gpu", lambda: 0.0), asyncio.Event()
    task = asyncio.create_task(Deepening(state, ready.is_set).run())
    await asyncio.sleep(0)
    state.apply_topology(fresh("dgx1v", "a"))
    assert not state.shallow_classes()
    ready.set()
    await until(lambda: state.depth is Depth.AT_ONCE)
    state.apply_topology(fresh("dgx1v", "b"))
    await until(lambda: not state.shallow_classes())
    assert [kind.bandwidth[-1] for kind in state.view().classes] == [150.0, 150.0]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
