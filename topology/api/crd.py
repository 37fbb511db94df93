"""The CustomResourceDefinition of GPUTopology, made from the pydantic types: `python -m topology.api.crd > manifests/crd.yaml`.

One definition serves all: what the agent can write and the extender can read is what the API server accepts. This module only translates the JSON
schema of pydantic into the structural schema that apiextensions.k8s.io/v1 demands: no `$ref`, no `anyOf` with null (an optional field is absent),
a type at every place, an integer format. Called by people who changed `topology.api.gputopology`; a test compares the file that is checked in.

Not here: admission rules (the allocation's ValidatingAdmissionPolicy is a manifest of its own) and conversion, as there is one version.
Defaults are left to the types: an API server that fills them in would make a written object differ from the read one.
"""

import sys
from collections.abc import Mapping
from typing import Any, Final

import yaml

from topology.api.annotations import GROUP, KIND, PLURAL, SHORT_NAME, VERSION
from topology.api.gputopology import GPUTopology
from topology.errors import InternalError

Schema = dict[str, Any]

_HEADER: Final = "# Generated from topology/api/gputopology.py by: python -m topology.api.crd > manifests/crd.yaml\n"

# What is taken over as it is. Everything else of JSON schema is either translated below or left out on purpose (titles, defaults).
_KEPT: Final = ("description", "type", "format", "enum", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "pattern")
_TRANSLATED: Final = ("properties", "required", "items")
_LEFT_OUT: Final = ("title", "default")

# Lists whose entries have a name of their own: server-side apply merges them by it, and a second entry of the same name is refused. Not spec.gpus and
# spec.nics: the rows of spec.links are theirs by position, so these lists change as a whole or not at all (atomic, the default).
_LIST_KEYS: Final = {
    "status.gpus": ("uuid",),
    "status.conditions": ("type",),
}

_COLUMNS: Final = (
    ("GPUs", "integer", ".spec.gpuCount", "GPUs of the node"),
    ("Model", "string", ".spec.model", "model of the GPUs"),
    ("NVLink", "string", ".spec.nvlink", "NVLinks between the GPUs"),
    ("Free", "integer", ".status.freeGPUs", "healthy GPUs that nobody holds"),
    ("Health", "string", ".status.health", "whether all GPUs are healthy"),
    ("Age", "date", ".metadata.creationTimestamp", "age of the object"),
)


def crd() -> dict[str, Any]:
    """Return the CustomResourceDefinition as plain data, in the order in which people read it."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Cluster",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": KIND.lower(),
                "shortNames": [SHORT_NAME],
                "categories": ["linkwise"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [
                        {"name": name, "type": kind, "jsonPath": path, "description": description} for name, kind, path, description in _COLUMNS
                    ],
                    "schema": {"openAPIV3Schema": object_schema()},
                }
            ],
        },
    }


def crd_yaml() -> str:
    """Return the text of `manifests/crd.yaml`."""
    return _HEADER + yaml.safe_dump(crd(), sort_keys=False, allow_unicode=True, width=140)


def object_schema() -> Schema:
    """Return the structural schema of one GPUTopology object."""
    json_schema = GPUTopology.model_json_schema(by_alias=True)
    definitions = json_schema["$defs"]
    parts = json_schema["properties"]
    return {
        "type": "object",
        "description": json_schema["description"],
        "required": ["spec"],
        "properties": {
            # The API server owns these three: a schema may not say more than their types.
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": _structural(parts["spec"], definitions, "spec"),
            "status": _structural(parts["status"], definitions, "status"),
        },
    }


def _structural(schema: Mapping[str, Any], definitions: Mapping[str, Any], path: str) -> Schema:
    """Return one place of the schema without references and nulls; ``path`` is its dotted place in the object."""
    flat = _without_null(_without_reference(schema, definitions), path)
    unknown = sorted(set(flat) - {*_KEPT, *_TRANSLATED, *_LEFT_OUT})
    if unknown or "type" not in flat:
        raise InternalError(f"the schema of {path} holds {', '.join(unknown) or 'no type'}, which topology.api.crd cannot say in a CRD")
    made = {key: flat[key] for key in _KEPT if key in flat}
    if flat["type"] == "integer":
        made["format"] = "int64" if path.endswith("MiB") else "int32"
    if "required" in flat:
        made["required"] = list(flat["required"])
    if "properties" in flat:
        made["properties"] = {name: _structural(part, definitions, f"{path}.{name}") for name, part in flat["properties"].items()}
    if "items" in flat:
        made["items"] = _structural(flat["items"], definitions, path)
    if flat["type"] == "array" and path in _LIST_KEYS:
        made["x-kubernetes-list-type"] = "map"
        made["x-kubernetes-list-map-keys"] = list(_LIST_KEYS[path])
    return made


def _without_reference(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Schema:
    """Return the schema with what it refers to put in its place; its own words go before those of the type."""
    if "$ref" not in schema:
        return dict(schema)
    referred = definitions[schema["$ref"].rsplit("/", 1)[1]]
    return {**referred, **{key: value for key, value in schema.items() if key != "$ref"}}


def _without_null(schema: Schema, path: str) -> Schema:
    """Return the schema of an optional field as that of the field: who has no value leaves it out."""
    if "anyOf" not in schema:
        return schema
    some = [choice for choice in schema["anyOf"] if choice.get("type") != "null"]
    if len(some) != 1:
        raise InternalError(f"the schema of {path} is a choice of {len(some)} types, which topology.api.crd cannot say in a CRD")
    return {**some[0], **{key: value for key, value in schema.items() if key != "anyOf"}}


if __name__ == "__main__":
    sys.stdout.write(crd_yaml())
