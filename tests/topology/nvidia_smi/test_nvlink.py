"""`nvidia-smi nvlink -s`."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topology.errors import NvidiaSmiError
from topology.nvidia_smi import NvLink, NvLinkNote, read_nvlink_status, read_nvlinks

HEAD = "GPU {}: NVIDIA A100-SXM4-80GB (UUID: GPU-1aaaaaaa-1111-2222-3333-44444444444{})\n"


@settings(max_examples=50, deadline=None)
@given(
    machine=st.lists(st.lists(st.sampled_from([25.0, 26.562, 14.062, None]), min_size=1, max_size=18), min_size=1, max_size=4),
    indent=st.sampled_from(["\t ", "         ", "  ", ""]),
)
def test_links_read_back_with_their_rates(machine: list[list[float | None]], indent: str):
    text = ""
    for index, links in enumerate(machine):
        text += HEAD.format(index, index) + "".join(
            f"{indent}Link {k}: {'<inactive>' if rate is None else f'{rate:g} GB/s'}\n" for k, rate in enumerate(links)
        )
    assert [one.links for one in read_nvlinks(text).gpus] == [tuple(NvLink(k, rate) for k, rate in enumerate(links)) for links in machine]
    active = [[rate for rate in links if rate is not None] for links in machine]
    inventory = read_nvlink_status(text)
    assert [gpu.nvlinks for gpu in inventory.gpus] == [len(rates) for rates in active]
    assert [gpu.nvlink_gb_per_s for gpu in inventory.gpus] == [min(rates, default=None) for rates in active]
    assert len(inventory.warnings) == sum(len(set(rates)) > 1 for rates in active)


@pytest.mark.parametrize(
    ("message", "note", "links"),
    [
        pytest.param("NVML: Unable to retrieve NVLink information as all links are inActive", NvLinkNote.ALL_INACTIVE, 0, id="inactive"),
        pytest.param(
            "NVML: Unable to retrieve Nvlink information as all links are inActive", NvLinkNote.ALL_INACTIVE, 0, id="inactive, other spelling"
        ),
        pytest.param("Device does not have or support Nvlink", NvLinkNote.NO_NVLINK_SUPPORT, 0, id="no NVLink"),
        pytest.param("Nvlink queries are not supported for Devices in MIG mode", NvLinkNote.MIG_NOT_SUPPORTED, None, id="MIG: not told"),
    ],
)
def test_a_note_instead_of_links_says_what_is_known(message: str, note: NvLinkNote, links: int | None):
    text = HEAD.format(0, 0) + message + "\n"
    assert read_nvlinks(text).gpus[0].note is note
    assert read_nvlink_status(text).gpus[0].nvlinks == links


def test_a_gpu_with_nothing_below_it_is_not_told():
    assert read_nvlink_status(HEAD.format(0, 0)).gpus[0].nvlinks is None


@pytest.mark.parametrize(
    ("line", "warning"),
    [
        pytest.param("\t Link 3: 25 G", 'a link of GPU 0 cannot be read: "Link 3: 25 G"', id="cut"),
        pytest.param("No devices were found", "after GPU 0, nvidia-smi failed", id="a message"),
    ],
)
def test_what_cannot_be_read_is_a_warning(line: str, warning: str):
    assert read_nvlinks(HEAD.format(0, 0) + line).warnings[0].startswith(warning)


def test_links_before_the_first_gpu_are_a_warning():
    assert "before the first GPU" in read_nvlinks("\t Link 0: 25 GB/s\n" + HEAD.format(0, 0)).warnings[0]


def test_links_alone_are_an_error():
    with pytest.raises(NvidiaSmiError) as caught:
        read_nvlinks("\t Link 0: 25 GB/s\n")
    assert caught.value.kind == "bad_arguments"
