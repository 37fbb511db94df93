"""The CRD that is checked in is the one that the types make, is structural, and takes what the agent writes."""

import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.sample_machines import SAMPLE_MACHINES, sample
from topology.api import Condition, GpuHolder, GpuStatus, GPUTopologyStatus, RefusedPair, SourceSpec
from topology.api.crd import crd, crd_yaml, object_schema

ROOT = Path(__file__).parents[3]
MANIFEST = ROOT / "manifests" / "crd.yaml"
PYTHON_TYPE = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}


def test_the_file_that_is_checked_in_is_what_the_types_make() -> None:
    assert MANIFEST.read_text(encoding="utf-8") == crd_yaml(), "run: python -m topology.api.crd > manifests/crd.yaml"


def test_the_module_prints_the_manifest() -> None:
    printed = subprocess.run([sys.executable, "-m", "topology.api.crd"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert (printed.stdout, printed.stderr) == (crd_yaml(), "")


def test_manifest_reads_back_as_the_definition() -> None:
    assert yaml.safe_load(crd_yaml()) == crd()


def test_names_and_scope_are_those_of_the_contract() -> None:
    definition = crd()
    assert definition["metadata"]["name"] == "gputopologies.linkwise.dev"
    assert definition["spec"]["scope"] == "Cluster"
    assert definition["spec"]["names"]["shortNames"] == ["gputopo"]
    (version,) = definition["spec"]["versions"]
    assert (version["name"], version["served"], version["storage"], version["subresources"]) == ("v1alpha1", True, True, {"status": {}})
    assert [column["name"] for column in version["additionalPrinterColumns"]] == ["GPUs", "Model", "NVLink", "Free", "Health", "Age"]


def test_schema_is_structural() -> None:
    """What apiextensions.k8s.io/v1 demands: a type at every place, items of every array, nothing but known keywords."""
    known = {"type", "description", "properties", "required", "items", "enum", "format", "minimum", "minLength", "minItems", "maxItems"} | {
        "x-kubernetes-list-type",
        "x-kubernetes-list-map-keys",
    }
    for path, schema in places(object_schema(), ""):
        assert set(schema) <= known, path
        assert schema["type"] in PYTHON_TYPE, path
        assert ("items" in schema) == (schema["type"] == "array"), path
        assert set(schema.get("required", [])) <= set(schema.get("properties", {})), path
        assert ("format" in schema) == (schema["type"] == "integer" or path.endswith(("observedAt", "lastTransitionTime"))), path
        for key in schema.get("x-kubernetes-list-map-keys", []):
            assert key in schema["items"]["required"], path


def test_every_place_of_spec_and_status_is_described() -> None:
    without = [path for path, schema in places(object_schema(), "") if path.startswith(("spec", "status")) and "description" not in schema]
    assert without == ["spec.links.gpus[]", "spec.links.gpus[][]", "spec.links.nics[]", "spec.links.nics[][]", "spec.source.notes[]"]


def test_enums_and_limits_are_taken_over() -> None:
    schema = dict(places(object_schema(), ""))
    assert schema["spec.source.kind"]["enum"] == ["nvidia-smi", "sysfs"]
    assert schema["status.conditions[].status"]["enum"] == ["True", "False", "Unknown"]
    assert (schema["spec.gpus"]["minItems"], schema["spec.gpus"]["maxItems"]) == (1, 16)
    assert (schema["spec.gpus[].memoryMiB"]["minimum"], schema["spec.gpus[].memoryMiB"]["format"]) == (0, "int64")
    assert (schema["spec.gpus[].index"]["minimum"], schema["spec.gpus[].index"]["format"]) == (0, "int32")
    assert schema["status.gpus"]["x-kubernetes-list-map-keys"] == ["uuid"]
    assert schema["status.conditions"]["x-kubernetes-list-map-keys"] == ["type"]
    assert "x-kubernetes-list-type" not in schema["spec.gpus"], "the rows of the matrix belong to these GPUs by position"


def test_printer_columns_show_what_the_schema_has() -> None:
    schema = dict(places(object_schema(), ""))
    for column in crd()["spec"]["versions"][0]["additionalPrinterColumns"]:
        path = column["jsonPath"].removeprefix(".")
        if not path.startswith("metadata."):
            assert schema[path]["type"] == column["type"], path


@pytest.mark.parametrize("kind", SAMPLE_MACHINES)
def test_what_is_written_is_in_the_schema_with_its_type(kind: str) -> None:
    assert list(misfits(full(kind), object_schema(), "")) == []


def test_every_place_of_the_schema_is_used_by_the_example() -> None:
    """So that the test before this one says something of all of it."""
    used = set(used_places(full("nvswitch"), ""))
    assert {path for path, _ in places(object_schema(), "")} - used == set()


def test_a_misfit_would_be_found() -> None:
    raw = full("mesh")
    raw["spec"]["gpus"][0]["index"] = "0"
    raw["spec"]["source"]["kind"] = "guess"
    raw["status"]["extra"] = 1
    del raw["spec"]["gpus"][1]["uuid"]
    assert set(misfits(raw, object_schema(), "")) == {
        "spec.gpus[].index is a str",
        "spec.source.kind is 'guess'",
        "status.extra is not in the schema",
        "spec.gpus[].uuid is missing",
    }


def full(kind: str) -> dict[str, Any]:
    """Return an object in which every optional field is set."""
    topology, now = sample(kind, "node-a"), datetime(2026, 3, 1, tzinfo=UTC)
    holder = GpuHolder(namespace="default", name="train-0", container="main", uid="uid-1", memory_mib=4096, planned=True)
    gpus = tuple(GpuStatus(uuid=gpu.uuid, healthy=False, reason="lost", memory_used_mib=1, holders=(holder,)) for gpu in topology.spec.gpus)
    conditions = (Condition(type="LinksKnown", status="True", reason="MatrixRead", message="…", last_transition_time=now),)
    status = GPUTopologyStatus(observed_at=now, gpus=gpus, holders_observed=True, conditions=conditions, free_gpus=0, health="8 of 8 lost")
    links = topology.spec.links.model_copy(update={"no_peer_access": (RefusedPair(a=0, b=1, status="CNS"),)})
    spec = topology.spec.model_copy(update={"source": SourceSpec(kind="sysfs", quality="fallback", notes=("why",)), "links": links})
    return topology.model_copy(update={"spec": spec, "status": status}).to_object()


def places(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every place of a schema: `spec.gpus[].uuid`."""
    yield path, schema
    for name, part in schema.get("properties", {}).items():
        yield from places(part, f"{path}.{name}".removeprefix("."))
    if "items" in schema:
        yield from places(schema["items"], f"{path}[]")


def used_places(raw: Any, path: str) -> Iterator[str]:
    """Yield every place of an object."""
    yield path
    if isinstance(raw, dict):
        for name, value in raw.items():
            yield from used_places(value, f"{path}.{name}".removeprefix("."))
    elif isinstance(raw, list):
        for value in raw:
            yield from used_places(value, f"{path}[]")


def misfits(raw: Any, schema: dict[str, Any], path: str) -> Iterator[str]:
    """Yield what an API server would refuse or drop: no general validator, but enough for this schema."""
    if type(raw) is not PYTHON_TYPE[schema["type"]]:
        yield f"{path} is a {type(raw).__name__}"
    elif raw not in schema.get("enum", [raw]):
        yield f"{path} is {raw!r}"
    elif isinstance(raw, dict):
        free = schema.get("properties") is None  # metadata is the API server's own
        yield from (f"{path}.{name} is missing" for name in schema.get("required", []) if name not in raw)
        for name, value in raw.items():
            if name in schema.get("properties", {}):
                yield from misfits(value, schema["properties"][name], f"{path}.{name}".removeprefix("."))
            elif not free:
                yield f"{path}.{name} is not in the schema"
    elif isinstance(raw, list):
        for value in raw:
            yield from misfits(value, schema["items"], f"{path}[]")
