from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology.inventory import Gpu, Inventory, MigInstance, merge_all, normal_bus_id

GPUS = st.builds(
    Gpu,
    index=st.none() | st.integers(0, 3),
    uuid=st.none() | st.sampled_from(["GPU-a", "GPU-b"]),
    bus_id=st.none() | st.sampled_from(["00000000:3B:00.0", "00000000:5E:00.0"]),
    model=st.none() | st.sampled_from(["Tesla T4", "NVIDIA L4"]),
    memory_mib=st.none() | st.integers(1, 3),
    lost=st.booleans(),
)
INVENTORIES = st.builds(Inventory, gpus=st.lists(GPUS, max_size=4).map(tuple), driver_version=st.none() | st.just("550.1"), warnings=st.just(()))


@pytest.mark.parametrize(
    ("mine", "theirs", "same"),
    [
        pytest.param(Gpu(uuid="GPU-a"), Gpu(uuid="GPU-a"), True, id="one UUID"),
        pytest.param(Gpu(uuid="GPU-a", index=0), Gpu(uuid="GPU-b", index=0), False, id="the UUID decides before the index"),
        pytest.param(Gpu(uuid="GPU-a", index=0), Gpu(uuid="GPU-a", index=1), True, id="an index may change at reboot"),
        pytest.param(
            Gpu(bus_id="00000000:3B:00.0", index=0), Gpu(bus_id="00000000:3B:00.0", index=2), True, id="the bus id decides before the index"
        ),
        pytest.param(Gpu(uuid="GPU-a", bus_id="00000000:3B:00.0"), Gpu(bus_id="00000000:3B:00.0"), True, id="the bus id where one UUID is not told"),
        pytest.param(Gpu(uuid="GPU-a", index=1), Gpu(index=1), True, id="the index where nothing else is told"),
        pytest.param(Gpu(index=0), Gpu(index=1), False, id="different indices"),
        pytest.param(Gpu(uuid="GPU-a"), Gpu(index=0), False, id="no key in common"),
        pytest.param(Gpu(), Gpu(), False, id="nothing is told at all"),
    ],
)
def test_gpus_are_one_by_uuid_then_bus_id_then_index(mine: Gpu, theirs: Gpu, same: bool):
    assert mine.same_device(theirs) is theirs.same_device(mine) is same


def test_gaps_are_filled_and_facts_are_kept():
    mine = Gpu(index=0, uuid="GPU-a", model="Tesla T4", nvlinks=0)
    theirs = Gpu(index=7, model="wrong", memory_mib=15109, nvlinks=4, mig_instances=(MigInstance(0, "1g.5gb", "MIG-1"),))
    assert mine.filled_from(theirs) == replace(mine, memory_mib=15109, mig_instances=theirs.mig_instances)


def test_zero_is_a_fact_and_no_gap():
    assert Gpu(index=0, memory_used_mib=0, numa_node=0).filled_from(Gpu(memory_used_mib=5, numa_node=1)) == Gpu(
        index=0, memory_used_mib=0, numa_node=0
    )


@pytest.mark.parametrize(("mine", "theirs"), [(True, False), (False, True), (True, True)])
def test_a_gpu_that_either_side_calls_lost_is_lost(mine: bool, theirs: bool):
    assert Gpu(index=0, lost=mine).filled_from(Gpu(index=0, lost=theirs)).lost


def test_merging_matches_gpus_and_appends_the_unknown_in_the_order_of_the_index():
    listed = Inventory((Gpu(index=1, uuid="GPU-b"), Gpu(index=0, uuid="GPU-a")), warnings=("first",))
    queried = Inventory(
        (Gpu(uuid="GPU-a", memory_mib=10), Gpu(uuid="GPU-c"), Gpu(index=2, uuid="GPU-d")), driver_version="550.1", warnings=("second",)
    )
    merged = listed.merged(queried)
    assert [(gpu.index, gpu.uuid, gpu.memory_mib) for gpu in merged.gpus] == [
        (0, "GPU-a", 10),
        (1, "GPU-b", None),
        (2, "GPU-d", None),
        (None, "GPU-c", None),
    ]
    assert merged.driver_version == "550.1"
    assert merged.warnings == ("first", "second")


def test_the_first_driver_version_told_is_kept():
    assert Inventory(driver_version="1").merged(Inventory(driver_version="2")).driver_version == "1"


def test_merge_all_lets_the_first_tell_first():
    inventories = [Inventory((Gpu(index=0, model=model),)) for model in (None, "one", "two")]
    assert merge_all(inventories).gpus == (Gpu(index=0, model="one"),)
    assert merge_all([]) == Inventory()


@given(INVENTORIES, INVENTORIES)
def test_merging_loses_no_fact(mine: Inventory, theirs: Inventory):
    merged = mine.merged(theirs)
    for gpu in mine.gpus:
        told = {field.name: getattr(gpu, field.name) for field in fields(gpu) if getattr(gpu, field.name) not in (None, (), False)}
        assert any(told.items() <= {field.name: getattr(found, field.name) for field in fields(found)}.items() for found in merged.gpus)
    assert len(merged.gpus) <= len(mine.gpus) + len(theirs.gpus)


def distinct(count: int) -> st.SearchStrategy[Inventory]:
    return st.permutations(range(count)).map(lambda order: Inventory(tuple(Gpu(index=i, uuid=f"GPU-{i}") for i in order)))


@given(distinct(4), distinct(4))
def test_merging_the_same_gpus_in_another_order_adds_none(mine: Inventory, theirs: Inventory):
    assert [gpu.uuid for gpu in mine.merged(theirs).gpus] == ["GPU-0", "GPU-1", "GPU-2", "GPU-3"]


def test_a_gpu_is_found_by_its_index():
    inventory = Inventory((Gpu(index=3, model="three"), Gpu(index=None)))
    assert inventory.by_index(3) == Gpu(index=3, model="three")
    assert inventory.by_index(0) is None


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        pytest.param("00000000:3B:00.0", "00000000:3B:00.0", id="as NVML prints it"),
        pytest.param("0000:3b:00.0", "00000000:3B:00.0", id="as sysfs prints it"),
        pytest.param("3b:00.0", "00000000:3B:00.0", id="without a domain"),
        pytest.param(" 0001:3b:00.0\n", "00000001:3B:00.0", id="with blanks around it"),
        pytest.param("00010000:3b:00.0", "00010000:3B:00.0", id="a domain beyond four digits"),
        pytest.param("[N/A]", "[N/A]", id="no bus id"),
        pytest.param("", "", id="nothing"),
        pytest.param("3b:zz.0", "3b:zz.0", id="no hexadecimal digits"),
        pytest.param("123456789:3b:00.0", "123456789:3b:00.0", id="a domain of nine digits"),
        pytest.param("::", "::", id="empty parts"),
    ],
)
def test_bus_ids_are_brought_to_one_form(text: str, normal: str):
    assert normal_bus_id(text) == normal


@given(st.text())
def test_normalising_twice_changes_nothing_more(text: str):
    assert normal_bus_id(normal_bus_id(text)) == normal_bus_id(text)
