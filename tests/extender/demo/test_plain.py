from hypothesis import given
from hypothesis import strategies as st

from extender.demo.hardware import hardware_of
from extender.demo.plain import PlainCounting, best_set_picker
from extender.demo.scene import PICTURED_NODE, PRODUCT_LABEL, make_scene
from extender.demo.stream import StreamPod, make_stream
from extender.demo.tour import Walk
from topology.api.annotations import GPU_MODEL, MIN_BANDWIDTH

SCENE = make_scene()
SIZES = {topology.name: len(topology.spec.gpus) for topology in SCENE.topologies}


def recounted(held: dict[str, tuple[str, set[int]]]) -> dict[str, set[int]]:
    """Free GPUs of every node, counted from nothing: all of them, less those that somebody holds."""
    free = {node: set(range(size)) for node, size in SIZES.items()}
    free[PICTURED_NODE].discard(0)
    for node, gpus in held.values():
        assert gpus <= free[node], "a GPU is held twice"
        free[node] -= gpus
    return free


@given(st.integers(0, 500), st.integers(2, 60))
def test_no_gpu_is_used_twice_and_every_choice_is_what_an_obvious_recount_would_choose(seed: int, pods: int) -> None:
    counting = PlainCounting(SCENE, seed)
    held: dict[str, tuple[str, set[int]]] = {}
    for step in make_stream(seed, pods, SCENE.gpus, PICTURED_NODE):
        if not step.arrives:
            if held.pop(step.pod.name, None):
                counting.finish(step.pod)
            continue
        free = recounted(held)
        open_to = [node for node in SIZES if step.pod.node in (None, node) and (step.pod.wish(GPU_MODEL) is None or node.startswith("pcie"))]
        enough = [node for node in open_to if len(free[node]) >= step.pod.total]
        placed = counting.place(step.pod)
        assert (placed is None) is (not enough)
        if placed is not None:
            gpus = {bit for bit in range(8) if placed.union >> bit & 1}
            assert len(free[placed.node]) / SIZES[placed.node] == max(len(free[node]) / SIZES[node] for node in enough)
            assert gpus == set(sorted(free[placed.node])[: step.pod.total])
            held[step.pod.name] = (placed.node, gpus)


def test_containers_get_the_lowest_gpus_one_after_the_other() -> None:
    placed = PlainCounting(SCENE, 1).place(StreamPod("a", (2, 2), node=PICTURED_NODE))
    assert placed is not None
    assert placed.masks == (0b00110, 0b11000)  # GPU 0 is in use


def test_with_best_sets_a_pod_gets_the_ring_of_the_same_node() -> None:
    placed = PlainCounting(SCENE, 1, best_set_picker(hardware_of(SCENE.topologies))).place(StreamPod("a", (4,), node=PICTURED_NODE))
    assert placed is not None
    assert placed.masks == (0b11110000,)


def test_a_model_is_a_node_selector_on_the_product_label() -> None:
    labels = {node["metadata"]["name"]: node["metadata"]["labels"][PRODUCT_LABEL] for node in SCENE.nodes}
    placed = PlainCounting(SCENE, 1).place(StreamPod("a", (2,), ((GPU_MODEL, "*L40S*"),)))
    assert placed is not None
    assert labels[placed.node] == "NVIDIA-L40S"


def test_a_floor_means_nothing_to_it() -> None:
    assert PlainCounting(SCENE, 1).place(StreamPod("a", (2,), ((MIN_BANDWIDTH, "100000"),))) is not None


def test_equals_are_drawn_and_the_draw_follows_the_seed() -> None:
    def nodes(seed: int) -> set[str]:
        walk, counting = Walk(), PlainCounting(SCENE, seed)
        for step in make_stream(3, 12, SCENE.gpus, PICTURED_NODE):
            walk.take(step, counting)
        return {f"{name} on {placed.node}" for name, placed in walk.placed.items()}

    assert nodes(1) == nodes(1)
    assert nodes(1) != nodes(2)
