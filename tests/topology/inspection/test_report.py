"""The JSON form of a report."""

import json

from topology.inspection import Problem, Report, ReportedLink, ReportedSet, machine_of
from topology.links import LinkCode
from topology.matrix import GpuRow, LinkMatrix, NicColumn

MATRIX = LinkMatrix((GpuRow(3, "0-7", "0-1", "N/A"),), (NicColumn("NIC0"),), ((None,),), ((LinkCode("PIX"),),))


def test_the_json_form_is_that_of_the_contract() -> None:
    report = Report(
        "FILE",
        machine_of(MATRIX),
        (ReportedLink("GPU3", "NIC0", "PIX", 13.39083), ReportedLink("GPU3", "NIC1", None, None)),
        (ReportedSet((0, 1), (3, 5), 56.25, "NV4"),),
        ("careful",),
    )
    assert report.json_line() == (
        '{"source":"FILE","gpus":[{"index":3,"numa":"0-1","cpus":"0-7","gpuNuma":"N/A"}],"nics":[{"label":"NIC0","name":null}],'
        '"links":[{"a":"GPU3","b":"NIC0","type":"PIX","bandwidth":13.391},{"a":"GPU3","b":"NIC1","type":null,"bandwidth":null}],'
        '"sets":[{"size":2,"gpus":[3,5],"bandwidth":56.25,"worst":"NV4"}],"warnings":["careful"],"error":null}'
    )


def test_blank_and_absent_cells_are_null() -> None:
    matrix = LinkMatrix((GpuRow(0, "", None, ""),), (), ((None,),), ((),))
    assert Report("FILE", machine_of(matrix)).to_json()["gpus"] == [{"index": 0, "numa": None, "cpus": None, "gpuNuma": None}]


def test_an_error_leaves_everything_else_empty() -> None:
    report = Report("FILE", None, error=Problem("no_driver", "a sentence\nof two lines"))
    line = report.json_line()
    assert "\n" not in line
    assert json.loads(line) == {
        "source": "FILE",
        "gpus": [],
        "nics": [],
        "links": [],
        "sets": [],
        "warnings": [],
        "error": {"kind": "no_driver", "message": "a sentence\nof two lines"},
    }
