"""Who is asked beside kube-scheduler: nobody, a null extender in Go, Linkwise; and whether kube-scheduler samples nodes.

`VARIANTS` is the table; `throughput` runs one of each in every round. `configuration` makes kube-scheduler's file from the shipped one, so that all rounds have the same profiles, weights and
score plugins, and differ in the extender alone.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from tests.e2e.extender import shipped_configuration

JsonObject = dict[str, Any]


class Who(StrEnum):
    """The extender of a variant."""

    NOBODY = "none"
    NULL = "null"
    LINKWISE = "linkwise"


class Sampling(StrEnum):
    """How many nodes kube-scheduler looks at for a pod: a sample (profile `default-scheduler`), or all (profile `linkwise`)."""

    STOCK = "stock"
    ALL = "100 percent"

    @property
    def profile(self) -> str:
        """The schedulerName of the pods."""
        return "default-scheduler" if self is Sampling.STOCK else "linkwise"


@dataclass(frozen=True, slots=True)
class Variant:
    """What a round compares. ``gates`` are feature gates of kube-scheduler that are switched off."""

    name: str
    who: Who
    sentence: str
    gates_off: tuple[str, ...] = ()


BATCHED: Final = Variant("no extender", Who.NOBODY, "kube-scheduler alone, as it comes: OpportunisticBatching is on")
UNBATCHED: Final = Variant(
    "no extender, unbatched",
    Who.NOBODY,
    "kube-scheduler alone without OpportunisticBatching, which any extender switches off",
    ("OpportunisticBatching",),
)
NULL: Final = Variant("null extender", Who.NULL, "an extender in Go that decides nothing: filter, prioritize, bind")
LINKWISE: Final = Variant("linkwise", Who.LINKWISE, "`linkwise serve` with the shipped configuration and admission policies")
VARIANTS: Final = (BATCHED, UNBATCHED, NULL, LINKWISE)


def configuration(variant: Variant, url: str = "") -> JsonObject:
    """Return the KubeSchedulerConfiguration of a variant, with the extender at ``url`` where it has one."""
    shipped = shipped_configuration(url)
    if variant.who is Who.NOBODY:
        return {**shipped, "extenders": []}
    if variant.who is Who.LINKWISE:
        return shipped
    (entry,) = shipped["extenders"]
    return {**shipped, "extenders": [{key: value for key, value in entry.items() if key != "preemptVerb"}]}  # it has no such verb
