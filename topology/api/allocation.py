"""The allocation: which GPUs each container of a pod was given. The only durable state of Linkwise.

Written once, as an annotation in the Binding (`extender.handoff`), read by the extender after a restart and by the agent at hand-off. Versioned:
a new optional field keeps ``v``, and readers skip what they do not know, so that a rollback closes no node.
"""

from typing import Annotated, Literal, Self

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from topology.capacity import WHOLE
from topology.errors import AllocationError

_ACCEPTED = '{"v":1,"node":"…","containers":{"NAME":[{"uuid":"GPU-…","index":0,"memoryMiB":81920}]}}'


class _Wire(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True)


class AllocatedGpu(_Wire):
    """One GPU of one container. ``uuid`` is the key; ``index`` is for display; ``memory_mib`` (MiB) is what the container may use of it.

    ``shared``: the container has this much of the GPU and no more, and others may have the rest; absent, the GPU is its own. ``cores_percent`` is what was asked of
    the GPU's compute; it is written down and enforced by nobody here.
    """

    uuid: Annotated[str, Field(min_length=1)]
    index: int | None = None
    memory_mib: Annotated[int | None, Field(alias="memoryMiB", ge=0)] = None
    shared: bool | None = None
    cores_percent: Annotated[int | None, Field(ge=1, le=100)] = None

    @model_validator(mode="after")
    def _shares_have_a_size(self) -> Self:
        if self.shared and not self.memory_mib:
            raise ValueError("a shared GPU needs memoryMiB above 0")
        return self

    @property
    def share_mib(self) -> int:
        """MiB of a GPU that is shared, `WHOLE` for one that is the container's own."""
        return (self.memory_mib or WHOLE) if self.shared else WHOLE


class Allocation(_Wire):
    """The GPUs of one pod on ``node``, by container name.

    ``bandwidth_gb_per_s`` (GB/s, one direction) and ``worst_link`` (code as in the matrix) speak of the largest container's set; None for one GPU.
    """

    v: Literal[1] = 1
    node: Annotated[str, Field(min_length=1)]
    containers: dict[str, tuple[AllocatedGpu, ...]]
    bandwidth_gb_per_s: Annotated[float | None, Field(alias="bandwidthGBps")] = None
    worst_link: str | None = None

    def uuids(self) -> frozenset[str]:
        """Every GPU that the pod holds."""
        return frozenset(gpu.uuid for gpus in self.containers.values() for gpu in gpus)

    def encode(self) -> str:
        """Return the value of the annotation."""
        return self.model_dump_json(by_alias=True, exclude_none=True)

    @staticmethod
    def decode(text: object) -> "Allocation":
        """Read the value of the annotation; raises AllocationError with a sentence for anything else."""
        if not isinstance(text, str):
            raise AllocationError(f"linkwise.dev/allocation is a {type(text).__name__}; accepted: a string holding {_ACCEPTED}")
        try:
            return Allocation.model_validate(orjson.loads(text))
        except orjson.JSONDecodeError as error:
            raise AllocationError(f"linkwise.dev/allocation={_short(text)} is not JSON ({error}); accepted: {_ACCEPTED}") from error
        except ValidationError as error:
            raise AllocationError(f"linkwise.dev/allocation={_short(text)}: {first_problem(error)}; accepted: {_ACCEPTED}") from error


def first_problem(error: ValidationError) -> str:
    """Return the first complaint of pydantic as 'field: what is wrong', with the number of the others."""
    problems = error.errors(include_url=False, include_context=False)
    where = ".".join(str(part) for part in problems[0]["loc"]) or "value"
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"{where}: {problems[0]['msg']}{more}"


def _short(text: str, limit: int = 120) -> str:
    return text if len(text) <= limit else text[:limit] + "…"
