"""Every limit and name that an administrator may set: by environment (`LINKWISE_…`) or by the options of `linkwise serve`.

Read once at start-up, frozen afterwards; everything below `app` gets the object, nobody reads the environment again.
"""

from enum import StrEnum
from typing import Annotated

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from topology.api.allocation import first_problem
from topology.api.annotations import WHOLE_GPU
from topology.errors import InputError


class Policy(StrEnum):
    """Which node to take among equally good ones: the fullest (keeps nodes whole) or the emptiest (spreads heat and failures).

    GPUALLOCATOR packs, and leaves the choice of GPUs on the node to the rule of NVIDIA's device plugin.
    """

    PACK = "pack"
    SPREAD = "spread"
    GPUALLOCATOR = "gpuallocator"


class Settings(BaseSettings):
    """Settings of the extender; the defaults are what the manifests ship."""

    model_config = SettingsConfigDict(env_prefix="LINKWISE_", frozen=True)

    whole_gpu_resource: Annotated[str, Field(min_length=1, description="resource that counts whole GPUs")] = WHOLE_GPU
    policy: Annotated[
        Policy, Field(description="choice of the node among equally good sets, or of sets as NVIDIA's plugin makes it, unless the pod says otherwise")
    ] = Policy.PACK
    gpu_reserve_mib: Annotated[int, Field(ge=0, description="MiB of each GPU that are not given away in shares, for driver and contexts")] = 0
    tentative_hold_s: Annotated[float, Field(ge=0, description="how long a scored pod's top node counts as taken before its bind arrives")] = 2.0
    bind_timeout_s: Annotated[float, Field(gt=0, description="?timeout= of the binding POST, enforced by the API server")] = 3.0
    bind_grace_s: Annotated[float, Field(ge=0, description="how long past its deadline a POST without an answer may still take effect")] = 2.0
    decisions_kept: Annotated[int, Field(ge=1, description="pods whose last decision stays available")] = 1000
    decisions_mib: Annotated[int, Field(ge=1, description="memory for these, in MiB: on a large cluster fewer are kept")] = 128
    workload_half_life_s: Annotated[
        float, Field(gt=0, description="after how long a demand counts half in the histogram that weighs what stays free")
    ] = 86_400.0
    demands_kept: Annotated[int, Field(ge=1, description="filtered pods remembered until their bind")] = 20_000
    most_state_age_s: Annotated[float, Field(gt=0, description="calls are refused once the API server has been out of reach for longer")] = 30.0
    stale_after_s: Annotated[float, Field(gt=0, description="a node whose agent has been silent for longer takes no new pods")] = 180.0
    lease_namespace: Annotated[str, Field(min_length=1, description="namespace of the Lease, where POD_NAMESPACE does not say it")] = (
        "linkwise-system"
    )
    lease_name: Annotated[str, Field(min_length=1, description="name of the Lease")] = "linkwise-extender"
    lease_duration_s: Annotated[int, Field(ge=6, description="how long a silent leader keeps the others waiting")] = 12
    most_body_bytes: Annotated[int, Field(ge=1024, description="largest call that is read")] = 256 * 1024 * 1024


def read_settings() -> Settings:
    """Return the settings of this process's environment; raises InputError with a sentence naming the first that cannot be."""
    try:
        return Settings()
    except ValidationError as error:
        name, _, problem = first_problem(error).partition(": ")
        raise InputError(f"environment variable LINKWISE_{name.upper()}={error.errors()[0]['input']}: {problem}") from error
