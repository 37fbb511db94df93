"""Every value that the index of recorded outputs expects, read by the reader of its kind; an unknown key fails, so that none is passed over."""

import re
from collections.abc import Callable

import pytest

from tests.corpus import CorpusFile, corpus_files
from tests.topology.nvidia_smi.damage import read_with_all
from topology.errors import NvidiaSmiError, NvidiaSmiFailure
from topology.inventory import Inventory, normal_bus_id
from topology.matrix import GpuRow, LinkMatrix
from topology.nvidia_smi import (
    P2pCapability,
    failure_in,
    read_csv_table,
    read_inventory,
    read_list,
    read_nvlink_status,
    read_nvlinks,
    read_p2p,
    read_query_csv,
    read_query_xml,
    read_topology,
    read_xml_log,
)
from topology.nvidia_smi.plain_text import ends_inside_a_line

ALL_KINDS = ("topo-m", "topo-m-truncated", "topo-m-fail", "topo-other", "topo-p2p", "list-L", "nvlink-s", "query-csv", "q-x-xml", "vendor")


def call(key: str) -> tuple[str, list[str]]:
    """Split `pair(0,1)` into its name and arguments."""
    match = re.fullmatch(r"(\w+)(?:\((.*)\))?", key)
    assert match, key
    return match[1], match[2].split(",") if match[2] else []


def printed(cell: str | None) -> str:
    return "none" if cell is None else cell


class MatrixFacts:
    """The expected keys of `topo -m`, answered by a matrix."""

    def __init__(self, matrix: LinkMatrix, text: str) -> None:
        self.matrix = matrix
        self.text = text
        self.position = {gpu.index: i for i, gpu in enumerate(matrix.gpus)}
        self.nic_position = {nic.label: k for k, nic in enumerate(matrix.nics)}

    def _gpu(self, i: str) -> GpuRow:
        return self.matrix.gpus[self.position[int(i)]]

    def gpus(self) -> str:
        return str(self.matrix.size)

    def nics(self) -> str:
        return str(len(self.matrix.nics))

    def rows(self) -> str:
        """GPU rows that are there in full."""
        n = range(self.matrix.size)
        return str(sum(all(self.matrix.gpu_cells[i][j] is not None for j in n if j != i) for i in n))

    def pair(self, i: str, j: str) -> str:
        return printed(str(self.matrix.gpu_cells[self.position[int(i)]][self.position[int(j)]]))

    def nic(self, i: str, name: str) -> str:
        return printed(str(self.matrix.nic_cells[self.position[int(i)]][self.nic_position[name]]))

    def nicname(self, label: str) -> str:
        return printed(self.matrix.nics[self.nic_position[label]].name)

    def cpu(self, i: str) -> str:
        return printed(self._gpu(i).cpus)

    def numa(self, i: str) -> str:
        return printed(self._gpu(i).numa)

    def gpunuma(self, i: str) -> str:
        return printed(self._gpu(i).gpu_numa)

    def truncated(self) -> str:
        return "yes" if self.matrix.warnings else "no"

    def error(self) -> str:
        return "none"

    def flattened(self) -> str:
        return "br" if "<br>" in self.text else "no"

    def cmd(self) -> str:
        """`topo -mp` is told by its lack of NVLinks alone."""
        return "topo-m" if any(code and code.nvlinks for _, _, code in self.matrix.pairs()) else "topo-mp"


def check(facts: object, expected: dict[str, str]) -> None:
    for key, value in expected.items():
        name, arguments = call(key)
        assert hasattr(facts, name), f"the test does not know the key {key}"
        assert getattr(facts, name)(*arguments) == value, key


@pytest.mark.parametrize("file", corpus_files("topo-m"))
def test_a_complete_matrix_reads_as_expected_and_without_a_warning(file: CorpusFile):
    matrix = read_topology(file.text)
    check(MatrixFacts(matrix, file.text), file.expected)
    assert matrix.warnings == ()
    assert matrix.missing() == []


@pytest.mark.parametrize("file", corpus_files("topo-m-truncated"))
def test_a_truncated_matrix_gives_what_is_there_and_a_warning(file: CorpusFile):
    check(MatrixFacts(read_topology(file.text), file.text), file.expected)


@pytest.mark.parametrize("file", corpus_files("topo-m-fail"))
def test_a_failure_is_an_error_of_its_kind(file: CorpusFile):
    with pytest.raises(NvidiaSmiError) as caught:
        read_topology(file.text)
    error = caught.value
    for key, value in file.expected.items():
        if key == "error":
            assert error.kind == value
        elif key == "busid":
            assert error.bus_id == normal_bus_id(value)
        elif key == "exit":
            by_code = failure_in(file.text, exit_code=int(value))
            assert by_code is not None
            assert by_code.kind == file.expected["error"]
        else:
            assert (key, value) == ("gpus", "0"), f"the test does not know the key {key}"


@pytest.mark.parametrize("file", corpus_files("topo-other"))
def test_other_topo_outputs_are_read_or_named(file: CorpusFile):
    if "pair(0,1)" in file.expected:
        check(MatrixFacts(read_topology(file.text), file.text), file.expected)
        return
    with pytest.raises(NvidiaSmiError) as caught:
        read_topology(file.text)
    assert caught.value.kind is NvidiaSmiFailure.BAD_ARGUMENTS
    assert set(file.expected) == {"cpu", "gpus"}
    assert f"topo -c {file.expected['cpu']}" in str(caught.value)
    assert file.expected["gpus"].replace(",", ", ") in str(caught.value)


@pytest.mark.parametrize("file", corpus_files("topo-p2p"))
def test_p2p_statuses_read_as_expected(file: CorpusFile):
    matrix = read_p2p(file.text, P2pCapability(file.expected["cap"]))
    for key, value in file.expected.items():
        name, arguments = call(key)
        if name == "p2p":
            i, j = (matrix.gpus.index(int(k)) for k in arguments)
            assert matrix.statuses[i][j] == value
        else:
            assert {"cap": matrix.capability, "gpus": str(len(matrix.gpus))}[name] == value
    assert matrix.warnings == ()


class ListFacts:
    """The expected keys of `-L`."""

    def __init__(self, inventory: Inventory, text: str) -> None:
        self.gpu_list = inventory.gpus
        self.warnings = inventory.warnings
        self.text = text

    def gpus(self) -> str:
        return str(len(self.gpu_list))

    def uuids(self) -> str:
        return str(len({gpu.uuid for gpu in self.gpu_list} - {None}))

    def mig(self) -> str:
        return str(sum(len(gpu.mig_instances) for gpu in self.gpu_list))

    def name(self, i: str) -> str:
        return printed(self.gpu_list[int(i)].model)

    def migcount(self, i: str) -> str:
        return str(len(self.gpu_list[int(i)].mig_instances))

    def migprofile(self, i: str, k: str) -> str:
        return next(mig.profile for mig in self.gpu_list[int(i)].mig_instances if mig.index == int(k))

    def truncated(self) -> str:
        """A cut between two lines cannot be seen; one inside a line must be."""
        return "yes" if self.warnings or not ends_inside_a_line(self.text) else "no"


@pytest.mark.parametrize("file", corpus_files("list-L"))
def test_a_list_of_gpus_reads_as_expected(file: CorpusFile):
    check(ListFacts(read_list(file.text), file.text), file.expected)


@pytest.mark.parametrize("file", corpus_files("nvlink-s"))
def test_nvlink_status_reads_as_expected(file: CorpusFile):
    report, inventory = read_nvlinks(file.text), read_nvlink_status(file.text)
    for key, value in file.expected.items():
        name, arguments = call(key)
        one = report.gpus[int(arguments[0])] if arguments else None
        gpu = inventory.gpus[int(arguments[0])] if arguments else None
        if one is None or gpu is None:
            assert (name, str(len(report.gpus))) == ("gpus", value)
        elif name == "links":
            assert str(len(one.active)) == value
            assert gpu.nvlinks == (None if one.note == "mig-not-supported" else int(value))
        elif name == "speed":
            link = next(link for link in one.active if link.index == int(arguments[1]))
            assert link.gb_per_s == gpu.nvlink_gb_per_s == float(value)
        else:
            assert (name, one.note) == ("note", value)


@pytest.mark.parametrize("file", corpus_files("query-csv"))
def test_a_csv_query_reads_as_expected(file: CorpusFile):
    table = read_csv_table(file.text)
    for key, value in file.expected.items():
        name, arguments = call(key)
        if name == "cell":
            row, column = table.rows[int(arguments[0])], arguments[1]
            assert row[int(column) if column.isdigit() else table.columns.index(column)] == value
        elif name == "col":
            assert ",".join(table.column(arguments[0]) or ()) == value
        else:
            assert {"rows": str(len(table.rows)), "cols": str(len(table.columns)), "header": "there" if table.columns else "missing"}[name] == value


@pytest.mark.parametrize("file", corpus_files("query-csv"))
def test_a_csv_query_gives_a_gpu_per_device_with_the_facts_of_its_columns(file: CorpusFile):
    table, inventory = read_csv_table(file.text), read_query_csv(file.text)
    names = table.column("name")
    if names is not None:
        assert [gpu.model for gpu in inventory.gpus] == list(names)
    busses = table.column("pci.bus_id")
    if busses is not None:
        assert [gpu.bus_id for gpu in inventory.gpus] == list(busses)


@pytest.mark.parametrize("file", corpus_files("q-x-xml"))
def test_an_xml_log_reads_as_expected(file: CorpusFile):
    log = read_xml_log(file.text)
    gpus = log.inventory.gpus
    for key, value in file.expected.items():
        name, arguments = call(key)
        gpu = gpus[int(arguments[0])] if arguments else None
        if gpu is None:
            told = {"schema": printed(log.schema), "gpus": str(len(gpus)), "migdevices": str(sum(count or 0 for count in log.mig_devices))}
            assert told[name] == value
        else:
            told = {"name": printed(gpu.model), "busid": printed(gpu.bus_id), "mig": gpu.mig_mode or "absent"}
            assert told[name] == value
    assert all(gpu.memory_mib and gpu.uuid for gpu in gpus)


@pytest.mark.parametrize("file", corpus_files("vendor"))
@pytest.mark.parametrize("reader", [read_topology, read_inventory, read_p2p])
def test_another_vendors_tool_is_named_and_unsupported(file: CorpusFile, reader: Callable[[str], object]):
    with pytest.raises(NvidiaSmiError) as caught:
        reader(file.text)
    assert caught.value.kind is NvidiaSmiFailure.UNSUPPORTED
    assert file.expected["tool"] in str(caught.value)


@pytest.mark.parametrize("file", corpus_files("list-L", "nvlink-s", "query-csv", "q-x-xml"))
def test_a_file_of_unknown_kind_is_recognised(file: CorpusFile):
    reader = {"list-L": read_list, "nvlink-s": read_nvlink_status, "query-csv": read_query_csv, "q-x-xml": read_query_xml}[file.kind]
    assert read_inventory(file.text).gpus == tuple(sorted(reader(file.text).gpus, key=lambda gpu: (gpu.index is None, gpu.index or 0)))


@pytest.mark.parametrize("file", corpus_files(*ALL_KINDS, "mig-lgip", "mig-lgi"))
def test_no_recorded_output_crashes_any_reader(file: CorpusFile):
    assert all(read_with_all(file.text))
