"""Health is told by holder: the pod that is on a lost GPU hears of it, and no other."""

from hypothesis import given
from hypothesis import strategies as st

from extender.sample_machines import sample
from topology.agent.handoff.devices import Given, gpu_devices, memory_devices
from topology.agent.handoff.holding import Container, Holding, Kind, Part
from topology.agent.handoff.node_gpus import NodeGpus

TOPOLOGY = sample("mesh", "node-a")
UUIDS = [gpu.uuid for gpu in TOPOLOGY.spec.gpus]


def node(*lost: str) -> NodeGpus:
    """Return the node with some GPUs lost."""
    gpus = tuple(gpu.model_copy(update={"healthy": gpu.uuid not in lost, "reason": "lost"}) for gpu in TOPOLOGY.status.gpus)
    return NodeGpus(TOPOLOGY.model_copy(update={"status": TOPOLOGY.status.model_copy(update={"gpus": gpus})}), 0, {})


def given_to(pod: str, ids: list[str], parts: dict[str, int], kind: Kind = Kind.APP) -> Given:
    """Return what a container has."""
    container = Container(kind.value, kind, 0 if kind is Kind.INIT else 1)
    return Given(frozenset(ids), Holding(pod, "default", pod, container, tuple(Part(uuid, mib) for uuid, mib in parts.items())))


def ill_gpus(gpus: NodeGpus, *given: Given) -> set[str]:
    """Return the ids that are unhealthy."""
    return {one.id for one in gpu_devices(gpus, given) if not one.healthy}


def test_ids_are_the_gpus_with_their_numa_nodes() -> None:
    """All of them, lost or not."""
    found = gpu_devices(node(UUIDS[1]), [])
    assert [(one.id, one.healthy, one.numa_node) for one in found] == [(gpu.uuid, gpu.uuid != UUIDS[1], gpu.numa_node) for gpu in TOPOLOGY.spec.gpus]


def test_a_lost_gpu_makes_the_id_of_its_holder_unhealthy() -> None:
    """Whatever id kubelet gave; and not the id of the pod that has the GPU's own."""
    crossed = [given_to("p", [UUIDS[0]], {UUIDS[1]: 0}), given_to("q", [UUIDS[1]], {UUIDS[0]: 0})]
    assert ill_gpus(node(UUIDS[1]), *crossed) == {UUIDS[0]}
    assert ill_gpus(node(UUIDS[0]), *crossed) == {UUIDS[1]}


def test_a_lost_gpu_that_nobody_has_makes_a_free_id_unhealthy() -> None:
    """Its own is somebody's, who works on."""
    assert ill_gpus(node(UUIDS[0]), given_to("p", [UUIDS[0]], {UUIDS[3]: 0})) == {UUIDS[3]}


def test_of_an_init_container_and_its_successor_the_latter_counts() -> None:
    """Both have the id."""
    both = [given_to("p", [UUIDS[0]], {UUIDS[1]: 0}, Kind.INIT), given_to("p", [UUIDS[0]], {UUIDS[2]: 0})]
    assert ill_gpus(node(UUIDS[2]), *both) == {UUIDS[0]}


@st.composite
def crossings(draw: st.DrawFn) -> tuple[list[Given], list[str]]:
    """Draw containers with any ids on any GPUs, one to one, and what is lost."""
    ids, uuids = draw(st.permutations(UUIDS)), draw(st.permutations(UUIDS))
    sizes = draw(st.sampled_from([[], [1], [2], [1, 1], [2, 1], [1, 1, 1], [2, 2], [4]]))
    given, at = [], 0
    for number, size in enumerate(sizes):
        given.append(given_to(f"p{number}", ids[at : at + size], dict.fromkeys(uuids[at : at + size], 0)))
        at += size
    return given, draw(st.lists(st.sampled_from(UUIDS), unique=True))


@given(crossings())
def test_as_many_ids_of_a_container_are_unhealthy_as_gpus_of_it_are_lost(case: tuple[list[Given], list[str]]) -> None:
    """And as many of all as are lost in all."""
    containers, lost = case
    ill = ill_gpus(node(*lost), *containers)
    assert len(ill) == len(lost)
    for one in containers:
        assert len(one.ids & ill) == len(one.holding.uuids & set(lost))


def test_memory_is_one_id_a_gib_and_a_lost_gpu_takes_its_own_number() -> None:
    """Those of its sharers first."""
    gpus = node(UUIDS[0])
    per_gpu = gpus.offered_mib[UUIDS[0]] // 1024
    sharers = [given_to("p", ["3", "4"], {UUIDS[0]: 2048}), given_to("q", ["7", "8", "9"], {UUIDS[1]: 3072})]
    found = memory_devices(gpus, sharers)
    ill = {one.id for one in found if not one.healthy}
    assert len(found) == sum(mib // 1024 for mib in gpus.offered_mib.values())
    assert len(ill) == per_gpu
    assert {"3", "4"} <= ill
    assert not {"7", "8", "9"} & ill


def test_a_container_on_two_gpus_loses_the_part_of_one() -> None:
    """Rounded up to GiB: the pod has to hear of it."""
    spread = given_to("p", ["0", "1", "2"], {UUIDS[0]: 1536, UUIDS[1]: 1536})
    ill = {one.id for one in memory_devices(node(UUIDS[0]), [spread]) if not one.healthy}
    assert len(ill & spread.ids) == 2
