"""Workload files become jobs: pods as kubectl prints them, or rows of a trace; whatever cannot be meant is refused with a sentence."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.demand import read_demand
from extender.requests import Requests, read_requests
from extender.simulate.jobs import Job, read_jobs
from tests.builders import PodBuilder, pod
from topology.errors import InputError

HEAD = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time\n"


def timed(asked: PodBuilder, **annotations: str) -> dict[str, Any]:
    raw = asked.build()
    raw["metadata"]["annotations"] |= {f"simulate.linkwise.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    return raw


def jobs_of(tmp_path: Path, *pods: dict[str, Any]) -> list[Job]:
    path = tmp_path / "workload.yaml"
    path.write_text(yaml.safe_dump({"kind": "List", "items": list(pods)}))
    return read_jobs(path, 40)


def rows_of(tmp_path: Path, text: str, gib: int = 40) -> list[Job]:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    return read_jobs(path, gib)


def test_pods_come_at_their_time_and_leave_after_theirs(tmp_path: Path):
    """Jobs stand in the order of arrival; one that says nothing is there from the start and stays."""
    found = jobs_of(tmp_path, timed(pod("late").gpus(1), arrives_at="60", runs_for="5.5"), pod("still").gpus(1).build())
    assert [(job.uid, job.arrives_s, job.runs_s) for job in found] == [("default/still", 0.0, None), ("default/late", 60.0, 5.5)]


def test_copies_come_one_after_another_under_names_of_their_own(tmp_path: Path):
    """The seconds between two copies are those of `every`."""
    found = jobs_of(tmp_path, timed(pod("a").gpus(1), copies="3", every="10", arrives_at="5"))
    assert [(job.name, job.arrives_s) for job in found] == [("a-1", 5.0), ("a-2", 15.0), ("a-3", 25.0)]


def test_a_pod_that_ran_before_comes_as_if_nobody_had_placed_it(tmp_path: Path):
    """Node and allocation of a printed pod are history; what it asks stays."""
    bound = pod("a").gpus(2).min_bandwidth(50).bound_to("somewhere", "{}").build()
    (job,) = jobs_of(tmp_path, bound)
    assert "nodeName" not in job.pod["spec"]
    assert job.pod["metadata"]["annotations"] == {"linkwise.dev/min-bandwidth": "50"}
    assert read_demand(job.pod).shape.floor == 50.0


def test_json_is_read_like_yaml(tmp_path: Path):
    """Kubectl prints either."""
    path = tmp_path / "workload.json"
    path.write_text(json.dumps({"kind": "PodList", "items": [pod("a").gpus(1).build()]}))
    assert [job.uid for job in read_jobs(path, 1)] == ["default/a"]


def test_a_row_of_a_trace_becomes_a_pod(tmp_path: Path):
    """Whole GPUs are the resource that counts them, models are globs, times are seconds."""
    (job,) = rows_of(tmp_path, HEAD + "p,6000,12288,2,1000,V100M16|V100M32,100,160\n")
    shape = read_demand(job.pod).shape
    assert (job.arrives_s, job.runs_s, shape.gpus, shape.model) == (100.0, 60.0, 2, "V100M16,V100M32")
    assert read_requests(job.pod) == Requests(6000, 12288)


def test_a_part_of_a_gpu_is_asked_in_gib_of_it(tmp_path: Path):
    """Thousandths of a GPU of 40 GiB, rounded up so that no pod gets less than it asked."""
    (job,) = rows_of(tmp_path, "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,0,0,1,460\n")
    assert job.pod["spec"]["containers"][0]["resources"]["limits"] == {"linkwise.dev/gpu-memory": "19"}
    assert (job.arrives_s, job.runs_s) == (0.0, None)


def test_a_pod_without_gpus_asks_for_none(tmp_path: Path):
    """Half of the openb trace's pods are of that kind in some of its variants."""
    (job,) = rows_of(tmp_path, "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,500,1024,0,0\n")
    assert not read_demand(job.pod).wants_gpus


@pytest.mark.parametrize(
    ("key", "value"),
    [
        pytest.param("arrives-at", "-1", id="before the start"),
        pytest.param("arrives-at", "soon", id="a time in words"),
        pytest.param("runs-for", "nan", id="no number"),
        pytest.param("runs-for", "1e11", id="longer than anything"),
        pytest.param("every", "", id="nothing at all"),
        pytest.param("copies", "0", id="no copies"),
        pytest.param("copies", "100001", id="too many copies"),
        pytest.param("copies", "1.5", id="half a copy"),
        pytest.param("arrives", "5", id="a key that is unknown"),
    ],
)
def test_an_annotation_that_cannot_be_meant_is_refused_by_name(tmp_path: Path, key: str, value: str):
    """The sentence names pod, annotation and what is accepted."""
    raw = pod("a").gpus(1).build()
    raw["metadata"]["annotations"][f"simulate.linkwise.dev/{key}"] = value
    with pytest.raises(InputError, match=rf"pod a has annotation simulate.linkwise.dev/{key}.*accepted: "):
        jobs_of(tmp_path, raw)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        pytest.param("name,cpu_milli\np,1\n", "has no column memory_mib; accepted: ", id="a column is missing"),
        pytest.param(HEAD + "p,1,1,1,1001,,0,1\n", "line 2: gpu_milli is 1001; accepted: 1 to 1000 of each GPU", id="more than a GPU of each"),
        pytest.param(HEAD + "p,1,1,1,0,,0,1\n", "line 2: gpu_milli is 0; accepted: ", id="nothing of a GPU"),
        pytest.param(HEAD + "p,many,1,0,0,,0,1\n", "line 2: cpu_milli is 'many'; accepted: a number from 0 on", id="CPU in words"),
        pytest.param(HEAD + "p,1,1,0,0,,0,1\np,1,1,0,0,,0,1\n", "holds pod default/p twice", id="two pods of one name"),
        pytest.param(HEAD, "holds no pods", id="a head alone"),
        pytest.param("", "has no column name", id="an empty file"),
    ],
)
def test_a_trace_that_cannot_be_read_is_refused(tmp_path: Path, text: str, sentence: str):
    """The sentence names file, line and what is accepted."""
    with pytest.raises(InputError) as caught:
        rows_of(tmp_path, text)
    assert sentence in str(caught.value)


def test_bytes_that_are_no_text_are_no_trace(tmp_path: Path):
    """Not a traceback about decoding."""
    path = tmp_path / "trace.csv"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="is no CSV"):
        read_jobs(path, 1)


def test_a_file_that_is_not_there_and_one_with_odd_objects_are_refused(tmp_path: Path):
    """A pod that is left out silently would change every figure."""
    with pytest.raises(InputError, match=r"cannot be read: No such file"):
        read_jobs(tmp_path / "none.yaml", 1)
    with pytest.raises(InputError, match=r"without metadata\.name"):
        jobs_of(tmp_path, {"kind": "Pod", "metadata": {}})
    with pytest.raises(InputError, match="holds no pods"):
        jobs_of(tmp_path, {"kind": "Node", "metadata": {"name": "n"}})
