"""What the cluster is asked for: how often pods want sets of one, two, four GPUs, and of which class they are. It weighs what a free remainder is worth.

`verbs` notes every bound pod once, whoever bound it; `placement` gets the weights when they have moved. Counts halve with time (`workload_half_life_s`), and start from
`SEED_WEIGHTS` as if `SEED_PODS` had been seen: a few odd pods change nothing, a day of others does. An administrator may fix the weights (`PUT
/api/v1/workload`); counting goes on beside that. Weights move in steps, since every step costs the choices that were kept; between two of them the same
state and the same call have the same answer. Nothing is stored: a new process counts the pods that it finds bound, faded by their age. Classes of demands
(`demand_class`: CPU, GPUs, memory, model) are counted beside the sizes, move in steps of their own, and can be fixed as well: `placement.outlook` goes by them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from extender.demand_class import SEED_TARGET, DemandClass, DemandCounts, Target, checked, has_moved, read_classes
from topology.errors import InputError
from topology.topology_class import SEED_WEIGHTS

SEED_PODS: Final = 50.0  # what the seed weighs against real demands; it never fades, so that sizes nobody asked for lately keep some worth
MOST_GPUS: Final = 16  # of a node; larger sets exist on none
STEP: Final = 0.05  # weights follow the counts once a share has moved by so much
STEP_EVERY_S: Final = 10.0  # and not more often: a burst of pods is one step
_DIGITS: Final = 2  # of a share; smaller ones are noise, but for the sizes of the seed

Weights = Mapping[int, float]
_ACCEPTED: Final = "an object of sizes 1 to 16 with shares from 0 to 1000000, at least one above 0"


@dataclass(frozen=True, slots=True)
class FixedWorkload:
    """What an administrator fixes; None where the body does not speak of it."""

    weights: dict[int, float] | None
    classes: Target | None


@dataclass(frozen=True, slots=True)
class WorkloadState:
    """The histogram for people: shares of demand by size and the classes that count now, whether either was set by hand, and the faded counts behind the shares."""

    weights: Weights
    fixed: bool
    seen: Weights
    version: int
    target: Target
    target_fixed: bool


class Workload:
    """The decayed histogram of one process; ``clock`` is monotonic, in seconds."""

    def __init__(self, half_life_s: float, clock: Callable[[], float]) -> None:
        self._half_life_s = half_life_s
        self._clock = clock
        self._seen: dict[int, float] = {}
        self._faded_at = self._stepped_at = clock()
        self._weights: Weights = SEED_WEIGHTS
        self._fixed = False
        self._version = 0
        self._counts = DemandCounts(half_life_s, clock, SEED_TARGET, SEED_PODS)
        self._target = SEED_TARGET
        self._target_fixed = False
        self._target_stepped_at = clock()

    @property
    def weights(self) -> Weights:
        """Shares of demand by size of set, as they count now."""
        return self._weights

    @property
    def target(self) -> Target:
        """Classes of demand with their popularity, as they count now; one object between two steps."""
        return self._target

    def state(self) -> WorkloadState:
        """Return everything for people."""
        self._fade()
        return WorkloadState(
            self._weights, self._fixed, MappingProxyType(dict(sorted(self._seen.items()))), self._version, self._target, self._target_fixed
        )

    def note(self, sizes: Iterable[int], age_s: float = 0.0) -> None:
        """Count the sets of a pod that was placed so many seconds ago, one a GPU container."""
        self._fade()
        counts = 0.5 ** (max(age_s, 0.0) / self._half_life_s)
        for size in sizes:
            if 1 <= size <= MOST_GPUS:
                self._seen[size] = self._seen.get(size, 0.0) + counts

    def note_class(self, demand: DemandClass, age_s: float = 0.0) -> None:
        """Count the class of a pod that was placed so many seconds ago."""
        self._counts.note(demand, age_s)

    def follow_classes(self, *, at_once: bool = False) -> bool:
        """Let the target follow the counts, by the rule of `follow`; tells whether it moved."""
        if self._target_fixed or not (at_once or self._clock() - self._target_stepped_at >= STEP_EVERY_S):
            return False
        self._target_stepped_at = self._clock()  # counted once in so many seconds, whether it has moved or not
        target = self._counts.target()
        if not has_moved(target, self._target, STEP):
            return False
        self._target = target
        return True

    def fix_classes(self, classes: Sequence[DemandClass]) -> None:
        """Let these classes count, whatever is asked for; raises InputError where they are none."""
        self._target = checked(classes)
        self._target_fixed = True

    def follow(self, *, at_once: bool = False) -> bool:
        """Let the weights follow the counts where it is time, or ``at_once``; tells whether they moved."""
        self._fade()
        if self._fixed or not (at_once or self._clock() - self._stepped_at >= STEP_EVERY_S):
            return False
        sizes = SEED_WEIGHTS.keys() | self._seen.keys()
        counted = _shares({size: SEED_PODS * SEED_WEIGHTS.get(size, 0.0) + self._seen.get(size, 0.0) for size in sizes})
        # Never rounded away: what nobody asks for still decides between GPUs that are alike in all else, and no island is broken for nothing.
        shares = dict(sorted({**dict.fromkeys(SEED_WEIGHTS, 10.0**-_DIGITS), **counted}.items()))
        if all(abs(shares.get(size, 0.0) - self._weights.get(size, 0.0)) < STEP for size in shares.keys() | self._weights.keys()):
            return False
        self._adopt(shares)
        return True

    def fix(self, weights: Weights) -> None:
        """Let these weights count, whatever is asked for; raises InputError where they are none."""
        if not weights or any(not (isinstance(size, int) and 1 <= size <= MOST_GPUS) for size in weights):
            raise InputError(f"weights are {dict(weights)}; accepted: {_ACCEPTED}")
        if any(not 0 <= share <= 1e6 for share in weights.values()) or sum(weights.values()) <= 0:
            raise InputError(f"weights are {dict(weights)}; accepted: {_ACCEPTED}")
        self._fixed = True
        self._adopt(_shares(weights))

    def reset(self) -> None:
        """Forget everything: start from the seed again."""
        self._seen.clear()
        self._fixed = self._target_fixed = False
        self._adopt(SEED_WEIGHTS)
        self._counts.clear()
        self._target, self._target_stepped_at = SEED_TARGET, self._clock()

    def _fade(self) -> None:
        now = self._clock()
        if now == self._faded_at:
            return
        kept = 0.5 ** ((now - self._faded_at) / self._half_life_s)
        self._faded_at = now
        self._seen = {size: count * kept for size, count in self._seen.items() if count * kept > 1e-3}

    def _adopt(self, weights: Weights) -> None:
        self._weights = MappingProxyType(dict(weights))
        self._stepped_at = self._clock()
        self._version += 1


def read_workload(body: object) -> FixedWorkload:
    """Read the body of a PUT: `weights`, `classes`, or both; raises InputError with the accepted form."""
    classes = read_classes(body["classes"]) if isinstance(body, dict) and "classes" in body else None
    told_of_weights = classes is None or (isinstance(body, dict) and "weights" in body)
    return FixedWorkload(read_weights(body) if told_of_weights else None, classes)


def read_weights(body: object) -> dict[int, float]:
    """Read `{"weights": {"1": 0.2, "8": 0.8}}`; raises InputError with the accepted form.

    >>> read_weights({"weights": {"1": 0.2, "8": 0.8}})
    {1: 0.2, 8: 0.8}
    """
    found = body.get("weights") if isinstance(body, dict) else None
    if not isinstance(found, dict):
        raise InputError(f'the body has no "weights"; accepted: {{"weights": …}} with {_ACCEPTED}')
    weights: dict[int, float] = {}
    for size, share in found.items():
        if not (isinstance(size, str) and size.isascii() and size.isdigit() and len(size) <= 2 and isinstance(share, int | float)) or isinstance(
            share, bool
        ):
            raise InputError(f"weights has {str(size)[:20]!r}: {str(share)[:20]}; accepted: {_ACCEPTED}")
        weights[int(size)] = float(share)
    return weights


def _shares(counts: Weights) -> dict[int, float]:
    """Return shares of one, rounded; ascending sizes."""
    total = sum(counts.values())
    shares = {size: round(count / total, _DIGITS) for size, count in sorted(counts.items())}
    return {size: share for size, share in shares.items() if share > 0}
