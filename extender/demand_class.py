"""What pods ask for in kind: classes of alike demands, each with its share of all pods. The target workload that placement looks ahead by.

`workload` keeps one `DemandCounts`, notes every bound pod in it, and hands out `target`: the most frequent classes that make up `COVERED` of all pods, as the FGD paper counts
them (Weng et al., USENIX ATC 2023). `placement.outlook` reads them. CPU is rounded, and the number of classes bounded, so that a cluster of many different pods costs no more than
one of few. Counts halve with time and stand beside a seed, as the sizes of sets do. `read_classes` reads what an administrator fixes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from topology.api import Allocation
from topology.capacity import MOST_GPUS, WHOLE
from topology.errors import InputError

COVERED: Final = 0.95  # of all pods, by the most frequent classes; the rest is noise (as in the FGD paper)
MOST_CLASSES: Final = 200
_MOST_COUNTED: Final = 2000  # different demands remembered; the rarest are forgotten first
_DIGITS: Final = 2  # of CPU: 3152 and 3199 milli are one class, 3200
_MOST_AHEAD: Final = 64  # half-lives by which newer counts may outgrow older ones before all are scaled down
_FADED: Final = 1e-3  # of a pod; less is forgotten
_MOST_MILLI: Final = 10_000_000
_MOST_MIB: Final = 1 << 24
_AMOUNTS: Final = (
    ("gpus", None, MOST_GPUS),
    ("cpuMilli", 0, _MOST_MILLI),
    ("memoryMiB", WHOLE, _MOST_MIB),
)  # key, what it is where it is missing, the most
_KEYS: Final = frozenset({"gpus", "cpuMilli", "memoryMiB", "model", "popularity"})
_ACCEPTED: Final = (
    'a list of 1 to 200 objects {"gpus": 0 to 16, "cpuMilli": 0 to 10000000, "memoryMiB": 0 (whole GPUs) to 16777216 of each, "model": a glob, "popularity": above 0}, '
    "of which only gpus and popularity must be there"
)


@dataclass(frozen=True, slots=True)
class DemandClass:
    """Pods alike: CPU in milli, GPUs, MiB of each (`WHOLE`: all of it), the glob of their model (None: any), and which share of all pods they are, 0.0 to 1.0."""

    cpu_milli: int
    gpus: int
    mib: int = WHOLE
    model: str | None = None
    popularity: float = 1.0

    @property
    def is_share(self) -> bool:
        """True where the pod takes a part of each of its GPUs."""
        return self.gpus > 0 and self.mib != WHOLE


Target = tuple[DemandClass, ...]

# Before anything is known: sets as often as `topology_class.SEED_WEIGHTS` has them, and one pod in five for a part of a GPU, in the two sizes that the common cards (16, 24, 40, 80
# GB) can be cut into. CPU as clouds sell it with GPUs: 8 vCPU each (openb's pods ask for 10 on average).
SEED_TARGET: Final[Target] = (
    DemandClass(16_000, 2, popularity=0.32),
    DemandClass(32_000, 4, popularity=0.24),
    DemandClass(64_000, 8, popularity=0.16),
    DemandClass(2_000, 1, 8 * 1024, popularity=0.1),
    DemandClass(4_000, 1, 16 * 1024, popularity=0.1),
    DemandClass(8_000, 1, popularity=0.08),
)

_Key = tuple[int, int, int, str | None]


class DemandCounts:
    """Decayed counts of demands; ``clock`` is monotonic, in seconds. Noting a pod costs the same however many classes there are."""

    def __init__(self, half_life_s: float, clock: Callable[[], float], seed: Target, seed_pods: float) -> None:
        self._half_life_s = half_life_s
        self._clock = clock
        self._epoch = clock()  # a pod of this moment counts 1; later ones count more, instead of all earlier ones less
        self._seed = {_key(one): one.popularity * seed_pods for one in seed}
        self._seen: dict[_Key, float] = {}

    def note(self, demand: DemandClass, age_s: float = 0.0) -> None:
        """Count a pod that was placed so many seconds ago; its popularity does not matter, and a demand that no node could ever meet is left out."""
        if not 0 <= demand.gpus <= MOST_GPUS:
            return
        ahead = (self._clock() - self._epoch) / self._half_life_s
        if ahead > _MOST_AHEAD or len(self._seen) >= _MOST_COUNTED:
            self._scale_down()
            ahead = 0.0
        key = (rounded(demand.cpu_milli), *_key(demand)[1:])
        self._seen[key] = self._seen.get(key, 0.0) + 2.0 ** (ahead - max(age_s, 0.0) / self._half_life_s)

    def target(self) -> Target:
        """Return the target workload as of now: the most frequent classes first, popularities that sum to 1."""
        now = 2.0 ** ((self._epoch - self._clock()) / self._half_life_s)
        counts = dict(self._seed)
        for key, count in self._seen.items():
            counts[key] = counts.get(key, 0.0) + count * now
        return _most_frequent(counts)

    def clear(self) -> None:
        """Forget every pod."""
        self._seen.clear()

    def _scale_down(self) -> None:
        now = self._clock()
        kept = 2.0 ** ((self._epoch - now) / self._half_life_s)
        self._epoch = now
        faded = {key: count * kept for key, count in self._seen.items() if count * kept > _FADED}
        most = sorted(faded, key=faded.__getitem__, reverse=True)[: _MOST_COUNTED // 2]
        self._seen = {key: faded[key] for key in most}


def class_of(allocation: Allocation, cpu_milli: int, model: str | None) -> DemandClass:
    """Return what a placed pod is counted as: by its whole GPUs, if it has any, else by its largest share."""
    given = tuple(allocation.containers.values())
    shares = [(len(gpus), gpus[0].memory_mib or 0) for gpus in given if gpus and gpus[0].shared]
    whole = {gpu.uuid for gpus in given for gpu in gpus if not gpu.shared}
    if whole or not shares:
        return DemandClass(cpu_milli, len(whole), model=model)
    gpus, mib = max(shares, key=lambda share: share[0] * share[1])
    return DemandClass(cpu_milli, gpus, mib, model)


def rounded(cpu_milli: int) -> int:
    """Return CPU to two digits.

    >>> rounded(3152), rounded(12), rounded(127_499)
    (3200, 12, 130000)
    """
    kept = max(0, min(cpu_milli, _MOST_MILLI))
    return int(round(kept, _DIGITS - len(str(kept))))


def has_moved(now: Target, before: Target, step: float) -> bool:
    """Tell whether pods ask for other things than before: half of what the shares differ by, over all classes, has reached ``step``."""
    shares = {_key(one): one.popularity for one in now}
    earlier = {_key(one): one.popularity for one in before}
    return sum(abs(shares.get(key, 0.0) - earlier.get(key, 0.0)) for key in shares.keys() | earlier.keys()) / 2 >= step


def checked(classes: Sequence[DemandClass]) -> Target:
    """Return classes set by hand with popularities that sum to 1; raises InputError where there are none or too many."""
    total = sum(one.popularity for one in classes)
    if not 1 <= len(classes) <= MOST_CLASSES or not total > 0:
        raise InputError(f"classes are {len(classes)} with popularities of {total:g} in all; accepted: {_ACCEPTED}")
    return tuple(replace(one, popularity=one.popularity / total) for one in classes)


def read_classes(found: object) -> Target:
    """Read the value of `classes`; raises InputError with the accepted form.

    >>> read_classes([{"gpus": 1, "memoryMiB": 10240, "cpuMilli": 4000, "popularity": 3}, {"gpus": 8, "popularity": 1}])[1]
    DemandClass(cpu_milli=0, gpus=8, mib=0, model=None, popularity=0.25)
    """
    if not isinstance(found, list):
        raise InputError(f"classes is {str(found)[:40]!r}; accepted: {_ACCEPTED}")
    return checked([_read(one) for one in found[: MOST_CLASSES + 1]])


def as_objects(target: Target) -> list[dict[str, object]]:
    """Return classes as `read_classes` reads them."""
    return [
        {"gpus": one.gpus, "cpuMilli": one.cpu_milli, "memoryMiB": one.mib, "model": one.model, "popularity": round(one.popularity, 4)}
        for one in target
    ]


def _read(found: object) -> DemandClass:
    told = found if isinstance(found, dict) else {}
    gpus, cpu, mib = (_whole(told.get(key, missing), most) for key, missing, most in _AMOUNTS)
    model, popularity = told.get("model"), told.get("popularity")
    share = float(popularity) if isinstance(popularity, int | float) and not isinstance(popularity, bool) and 0 < popularity <= 1e6 else None
    if told.keys() - _KEYS or gpus is None or cpu is None or mib is None or (mib and not gpus) or share is None or not _is_glob(model):
        raise InputError(f"classes has {str(found)[:80]!r}; accepted: {_ACCEPTED}")
    return DemandClass(cpu, gpus, mib, model, share)


def _whole(value: object, most: int) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most else None


def _is_glob(value: object) -> bool:
    return value is None or (isinstance(value, str) and 0 < len(value) <= 200)


def _key(one: DemandClass) -> _Key:
    return (one.cpu_milli, one.gpus, one.mib, one.model)


def _most_frequent(counts: Mapping[_Key, float]) -> Target:
    """Return the classes that cover enough; equal counts: the larger demand first, so that the order in which pods came decides nothing."""
    total = sum(counts.values())
    kept: list[tuple[_Key, float]] = []
    covered = 0.0
    for key, count in sorted(counts.items(), key=lambda item: (-item[1], [-amount for amount in item[0][:3]], item[0][3] or "")):
        if covered >= COVERED * total or len(kept) == MOST_CLASSES:
            break
        kept.append((key, count))
        covered += count
    return tuple(DemandClass(*key, popularity=count / covered) for key, count in kept)
