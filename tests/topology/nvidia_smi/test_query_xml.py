"""`nvidia-smi -q -x`."""

import pytest

from topology.errors import NvidiaSmiError
from topology.inventory import Gpu
from topology.nvidia_smi import read_query_xml, read_xml_log

UUID = "GPU-1aaaaaaa-1111-2222-3333-444444444444"


def gpu_xml(*, bus_id: str = "00000000:3B:00.0", uuid: str = UUID, mig: str = "", total: str = "81920 MiB") -> str:
    return f"""<gpu id="{bus_id}">
    <product_name>NVIDIA A100-SXM4-80GB</product_name>{mig}
    <uuid>{uuid}</uuid>
    <minor_number>3</minor_number>
    <pci>
        <pci_bus_id>{bus_id}</pci_bus_id>
        <pci_gpu_link_info>
            <pcie_gen><max_link_gen>4</max_link_gen><current_link_gen>1</current_link_gen></pcie_gen>
            <link_widths><max_link_width>16x</max_link_width><current_link_width>8x</current_link_width></link_widths>
        </pci_gpu_link_info>
    </pci>
    <fb_memory_usage><total>{total}</total><used>12 MiB</used></fb_memory_usage>
</gpu>"""


def log(*gpus: str, doctype: str = '<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">', attached: int | None = None) -> str:
    count = len(gpus) if attached is None else attached
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n{doctype}\n<nvidia_smi_log>\n<driver_version>550.54.15</driver_version>\n'
        f"<attached_gpus>{count}</attached_gpus>\n{''.join(gpus)}\n</nvidia_smi_log>\n"
    )


WHOLE = Gpu(
    index=0,
    uuid=UUID,
    bus_id="00000000:3B:00.0",
    minor=3,
    model="NVIDIA A100-SXM4-80GB",
    memory_mib=81920,
    memory_used_mib=12,
    pcie_generation=4,
    pcie_width=16,
)


@pytest.mark.parametrize(
    ("doctype", "schema"),
    [
        ('<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v10.dtd">', "v10"),
        ('<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v13.dtd">', "v13"),
        ("", None),
    ],
)
def test_every_schema_gives_the_same_facts(doctype: str, schema: str | None):
    read = read_xml_log(log(gpu_xml(), doctype=doctype))
    assert (read.schema, read.inventory.gpus, read.inventory.driver_version) == (schema, (WHOLE,), "550.54.15")
    assert read.inventory.warnings == ()
    assert read.mig_devices == (None,)


def test_a_prompt_before_and_a_message_behind_the_log_do_not_matter():
    assert read_query_xml("$ nvidia-smi -q -x\n" + log(gpu_xml()) + "\n$ exit\n").gpus == (WHOLE,)


def test_mig_devices_are_counted_and_left_to_the_list():
    mig = "<mig_mode><current_mig>Enabled</current_mig></mig_mode><mig_devices><mig_device/><mig_device/></mig_devices>"
    read = read_xml_log(log(gpu_xml(mig=mig)))
    assert read.mig_devices == (2,)
    assert read.inventory.gpus[0].mig_mode == "Enabled"
    assert "`nvidia-smi -L` does" in read.inventory.warnings[0]


def test_without_all_gpus_the_place_in_the_log_is_no_index():
    read = read_query_xml(log(gpu_xml(), attached=8))
    assert read.gpus[0].index is None
    assert read.warnings == ("the log says that 8 GPUs are attached but describes 1",)


def test_a_masked_uuid_is_none():
    read = read_query_xml(log(gpu_xml(uuid="GPU-...")))
    assert read.gpus[0].uuid is None
    assert "masked" in read.warnings[0]


def test_a_gpu_that_no_longer_answers_is_lost():
    read = read_query_xml(log(gpu_xml(total="Unknown Error"), gpu_xml(bus_id="00000000:5E:00.0")))
    assert [gpu.lost for gpu in read.gpus] == [True, False]
    assert read.warnings == ("GPU 00000000:3B:00.0 no longer answers",)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        pytest.param("", "empty", id="nothing"),
        pytest.param("No devices were found", "no_devices", id="no devices"),
        pytest.param(log(), "no_devices", id="a log without a GPU"),
        pytest.param(log(gpu_xml())[:300], "partial", id="cut"),
        pytest.param('<?xml version="1.0"?><html></html>', "unknown", id="other XML"),
        pytest.param('<!DOCTYPE nvidia_smi_log [<!ENTITY a "b">]><nvidia_smi_log>&a;</nvidia_smi_log>', "partial", id="entities are refused"),
        pytest.param("GPU 0: NVIDIA A30", "bad_arguments", id="-L"),
    ],
)
def test_a_text_without_a_gpu_is_an_error(text: str, kind: str):
    with pytest.raises(NvidiaSmiError) as caught:
        read_query_xml(text)
    assert caught.value.kind == kind
