"""What the cluster is asked for: how often pods want sets of one, two, four GPUs. It weighs what a free remainder is worth.

`verbs` notes every bound pod once, whoever bound it; `placement` gets the weights when they have moved. Counts halve with time (`workload_half_life_s`), and start from
`SEED_WEIGHTS` as if `SEED_PODS` had been seen: a few odd pods change nothing, a day of others does. An administrator may fix the weights (`PUT
/api/v1/workload`); counting goes on beside that. Weights move in steps, since every step costs the choices that were kept; between two of them the same
state and the same call have the same answer. Nothing is stored: a new process counts the pods that it finds bound, faded by their age.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

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
class WorkloadState:
    """The histogram for people: shares of demand by size that count now, whether they were set by hand, and the faded counts behind them."""

    weights: Weights
    fixed: bool
    seen: Weights
    version: int


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

    @property
    def weights(self) -> Weights:
        """Shares of demand by size of set, as they count now."""
        return self._weights

    def state(self) -> WorkloadState:
        """Return everything for people."""
        self._fade()
        return WorkloadState(self._weights, self._fixed, MappingProxyType(dict(sorted(self._seen.items()))), self._version)

    def note(self, sizes: Iterable[int], age_s: float = 0.0) -> None:
        """Count the sets of a pod that was placed so many seconds ago, one a GPU container."""
        self._fade()
        counts = 0.5 ** (max(age_s, 0.0) / self._half_life_s)
        for size in sizes:
            if 1 <= size <= MOST_GPUS:
                self._seen[size] = self._seen.get(size, 0.0) + counts

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
        self._fixed = False
        self._adopt(SEED_WEIGHTS)

    def _fade(self) -> None:
        now = self._clock()
        kept = 0.5 ** ((now - self._faded_at) / self._half_life_s)
        self._faded_at = now
        self._seen = {size: count * kept for size, count in self._seen.items() if count * kept > 1e-3}

    def _adopt(self, weights: Weights) -> None:
        self._weights = MappingProxyType(dict(weights))
        self._stepped_at = self._clock()
        self._version += 1


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
