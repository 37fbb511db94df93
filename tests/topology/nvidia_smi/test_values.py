"""Single values: what identifies, what counts, what says nothing."""

import pytest

from topology.nvidia_smi.values import bus_id_or_none, mig_mode_or_none, number_or_none, tells_of_a_lost_gpu, text_or_none, uuid_or_none


@pytest.mark.parametrize(
    ("text", "uuid"),
    [
        pytest.param("GPU-1e44b340-5807-0dbe-62e6-343a6b8b8bcd", "GPU-1e44b340-5807-0dbe-62e6-343a6b8b8bcd", id="a GPU"),
        pytest.param("MIG-41b9eab5-8d48-5c52-9f07-82bc59af3901", "MIG-41b9eab5-8d48-5c52-9f07-82bc59af3901", id="a MIG device"),
        pytest.param(
            "MIG-GPU-41b9eab5-8d48-5c52-9f07-82bc59af3901/7/0",
            "MIG-GPU-41b9eab5-8d48-5c52-9f07-82bc59af3901/7/0",
            id="a MIG device before driver 470",
        ),
        pytest.param("GPU-...", None, id="elided"),
        pytest.param("GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx", None, id="masked with letters"),
        pytest.param("GPU-00000000-0000-0000-0000-000000000000", None, id="masked with zeros"),
        pytest.param("GPU-1e44b340-5807-0dbe", None, id="cut"),
        pytest.param(None, None, id="not printed"),
    ],
)
def test_a_uuid_that_identifies_nothing_is_none(text: str | None, uuid: str | None):
    assert uuid_or_none(text) == uuid


@pytest.mark.parametrize(
    ("text", "bus_id"), [("0000:3b:00.0", "00000000:3B:00.0"), ("00000009:01:00.0", "00000009:01:00.0"), ("[N/A]", None), ("12:30", None)]
)
def test_bus_ids_have_one_form(text: str, bus_id: str | None):
    assert bus_id_or_none(text) == bus_id


@pytest.mark.parametrize(
    ("text", "number"), [("81920 MiB", 81920), ("81920", 81920), ("16x", 16), ("700.00", 700), ("[N/A]", None), ("", None), ("4 GB", None)]
)
def test_numbers_come_with_and_without_units(text: str, number: int | None):
    assert number_or_none(text) == number


@pytest.mark.parametrize("text", ["[N/A]", "N/A", "[Not Supported]", "[Unknown Error]", "[GPU is lost]", "ERR!", "", None])
def test_the_ways_to_say_nothing_are_none(text: str | None):
    assert text_or_none(text) is None


def test_a_lost_gpu_is_told_from_a_missing_value():
    assert [tells_of_a_lost_gpu(text) for text in ("[GPU is lost]", "[Unknown Error]", "ERR!", "[N/A]", "0")] == [True, True, True, False, False]


def test_a_gpu_that_cannot_be_partitioned_says_so():
    assert [mig_mode_or_none(text) for text in ("Enabled", "[N/A]", "N/A", "[Unknown Error]", None)] == ["Enabled", "N/A", "N/A", None, None]
