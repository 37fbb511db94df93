"""`TopologyClass`: the tables of one kind of node, and the choice of a set by them; `topology_class` finds the class of a node.

The story is in the package. Here the public methods check and coerce, their underscore twins compute and are cached. Tables are made when first asked for:
bandwidths at once (every decision needs them, and a matrix that is too large is refused there), the others within milliseconds, 0.2 s in all for 16 GPUs.
Arithmetic over masks is in `subsets`; what a set's bandwidth is, `collective` decides.
"""

import hashlib
import json
from collections import deque
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from types import MappingProxyType
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

import numpy as np
from cachetools import LRUCache, cachedmethod
from numpy.typing import NDArray

from topology.capacity import offered_mib
from topology.collective import Depth, MachineLinks, SetRates, machine_links, matched_gpus, numa_of, set_rates
from topology.errors import InternalError
from topology.inventory import Gpu, Inventory
from topology.links import Distance, LinkCode
from topology.matrix import LinkMatrix
from topology.topology_class.best_effort import BestEffort, pair_scores
from topology.topology_class.models import accepts_model
from topology.topology_class.packing import KB_PER_GB, Packing, Tables, at_most, is_quick, packing
from topology.topology_class.subsets import best_inside, members, over_pairs, union

_Array = TypeVar("_Array", bound=NDArray[Any])

# The share of each size of demand, until the cluster's own demands are known. A guess, as public traces do not agree: in Alibaba's openb trace (2023) 90
# percent of the GPUs of whole-GPU pods go to pods of one and 8 percent to pods of eight; training clusters ask mostly for eights. Hence a plain middle,
# more for the small sets: they are what a careless single GPU breaks, and what a nearly full node can still serve.
SEED_WEIGHTS: Final[Mapping[int, float]] = MappingProxyType({1: 0.1, 2: 0.4, 4: 0.3, 8: 0.2})

# A free GPU counts 1 GB/s for single-GPU demands, below any pair's rate: it makes every further free GPU worth something and outweighs no link.
SINGLE_GB_PER_S: Final = 1.0

# "Almost equal" (design: within 1 percent): rates are nominal, less than that is not real.
ALMOST: Final = 0.99

# An island outweighs all cores: a machine has 8 of them at most.
ISLAND: Final = 16

_UNPRINTED: Final = LinkCode("SYS")  # what a pair without a code counts as


@dataclass(frozen=True, slots=True)
class GpuSet:
    """GPUs chosen together: their bits, their bandwidth in GB/s (0.0 below two), the code of their worst link (None below two)."""

    mask: int
    bandwidth: float
    worst: str | None


@dataclass(frozen=True, slots=True)
class _Limits:
    """What a set must keep to."""

    ceiling: Distance
    floor: float
    one_numa: bool


class TopologyClass:
    """The tables of one kind of node; made by `topology_class`, shared by all nodes of the kind, never changed.

    ``bandwidth`` (2**n,) float64: GB/s of exactly that set, 0.0 below two GPUs; ``exact`` (2**n,) bool: false where that is a lower bound. Tables are computed when
    they are first asked for, kept, and read-only.
    """

    def __init__(
        self,
        key: str,
        matrix: LinkMatrix,
        gpus: tuple[Gpu, ...],
        links: MachineLinks,
        *,
        bandwidth: NDArray[np.float64] | None = None,
        depth: Depth = Depth.FULL,
    ) -> None:
        """Compute what every decision needs; raises TopologyError above 16 GPUs.

        ``bandwidth`` (2**n,) takes the place of `set_bandwidths`: another model of what a set gets, under the same choice of sets (benchmarks compare models
        so). ``depth`` is how far the figures go.
        """
        self.key = key
        self.size = matrix.size
        self.models = tuple(gpu.model for gpu in gpus)
        self._memory_mib = tuple(offered_mib(gpu.memory_mib) for gpu in gpus)  # whole GiB: a few MiB make no other card
        self.links = links
        self.weights = SEED_WEIGHTS
        self._matrix = matrix
        self._numa = tuple(numa_of(row, gpu) for row, gpu in zip(matrix.gpus, gpus, strict=True))
        self._model_masks: LRUCache[str, int] = LRUCache(maxsize=256)
        self._best_effort = BestEffort(pair_scores(links, numa_told=all(isinstance(node, int) for node in self._numa)))
        if bandwidth is None:
            self._go_by(set_rates(links, depth), depth, {})
        else:
            self._go_by(SetRates(bandwidth.astype(np.float64), np.ones(len(bandwidth), np.bool_)), depth, {})

    def _go_by(self, rates: SetRates, depth: Depth, known: Mapping[int, Packing]) -> None:
        """Take the figures of the sets, and forget all that follows from others; ``known`` are packings by size."""
        self.bandwidth, self.exact = _frozen(rates.gb_per_s), _frozen(rates.exact)
        self.depth = depth
        self.version = f"{self.key}.{depth}"  # key of what is remembered of these tables: of the class, and of how deep they go
        self._in_a_hurry = depth is Depth.AT_ONCE and not is_quick(self.bandwidth)  # calls wait for packings that take a while: bounds have to do
        self._best: dict[tuple[int, Distance, bool], NDArray[np.float64]] = {}
        self._packings = {k: _frozen(table) for k, table in known.items()}
        self._worth_cache: LRUCache[Any, NDArray[np.float64]] = LRUCache(maxsize=8)
        self._forget_choices()

    def _forget_choices(self) -> None:
        self._worth_now: NDArray[np.float64] | None = None  # read several times in every decision
        # Bounds, not tunings: 8 GPUs have 256 masks x 8 sizes; an entry of ``sets`` is 100 kB at most (8 of 16 GPUs).
        self._set_cache: LRUCache[Any, GpuSet | None] = LRUCache(maxsize=8192)
        self._sets_cache: LRUCache[Any, NDArray[np.int64]] = LRUCache(maxsize=256)

    def under(self, weights: Mapping[int, float]) -> "TopologyClass":
        """Return the class with other weights of demands: all tables are shared, only what depends on the worth of remainders is chosen anew.

        >>> from topology.matrix import from_codes
        >>> kind = topology_class(from_codes(["X NV12".split(), "NV12 X".split()]))
        >>> float(kind.under({2: 1.0}).worth[3]) > float(kind.worth[3]), kind.under(SEED_WEIGHTS) is kind
        (True, True)
        """
        if dict(weights) == dict(self.weights):
            return self
        other = copy(self)
        other.weights = MappingProxyType(dict(weights))
        other._forget_choices()  # noqa: SLF001 - a copy of our own
        return other

    @property
    def next_depth(self) -> Depth | None:
        """How far the tables could go next, None where they tell all that there is."""
        if self.exact.all():
            return Depth.SOON if self._in_a_hurry else None
        return None if self.depth is Depth.FULL else Depth(self.depth + 1)

    def deepened(self, tables: Tables, depth: Depth) -> "TopologyClass":
        """Return the class with the tables of that depth, and keep it for nodes to come; a deeper one that is known already stays."""
        known = _CLASSES.get(self.key, self)
        if known.depth < depth:
            known = copy(self)  # with all tables that do not follow from bandwidths
            known._go_by(tables.rates, depth, tables.packings)  # noqa: SLF001 - a copy of our own
            _keep(known)
        return known

    def prepare(self) -> None:
        """Make the tables that take longer than a call may wait, 0.3 s for 16 GPUs."""
        for k in range(2, self.size // 2 + 1):
            self._packing(k)

    # --- tables

    @cached_property
    def worst(self) -> NDArray[np.int8]:
        """(2**n,) int8: Distance of the worst link between any two members; NVLINK below two members."""
        table: NDArray[np.int8] = over_pairs(self.links.distance, np.maximum)
        return _frozen(table)

    @cached_property
    def weakness(self) -> NDArray[np.int32]:
        """(2**n,) int32: sort key of the weakest pair by its code, farthest first, then with the fewest NVLinks; 0 below two members."""
        pairs = np.zeros((self.size, self.size), dtype=np.int32)
        for i, j, code in self._matrix.pairs():
            distance, links = (code or _UNPRINTED).weakness()
            pairs[i, j] = pairs[j, i] = 1000 * (1 + distance) + links
        return _frozen(over_pairs(pairs, np.maximum))

    @cached_property
    def _memory(self) -> NDArray[np.int64]:
        """(2**n,) int64: MiB of all members together, each in whole GiB; 0 for one of unknown size."""
        sums = np.zeros(1, np.int64)
        for mib in self._memory_mib:
            sums = np.concatenate([sums, sums + mib])
        return _frozen(sums)

    @cached_property
    def on_one_numa_node(self) -> NDArray[np.bool_]:
        """(2**n,) bool: all members are known to be on one NUMA node; true below two members."""
        groups = self.numa_groups()
        apart = np.ones((self.size, self.size), dtype=np.int8)
        for group in groups:
            at = list(members(group))
            apart[np.ix_(at, at)] = 0
        table: NDArray[np.int8] = over_pairs(apart, np.maximum)
        return _frozen(np.asarray(table == 0))

    def best_bandwidths(self, k: int, ceiling: Distance = Distance.SYS, *, one_numa: bool = False) -> NDArray[np.float64]:
        """Return GB/s of the best set of ``k`` GPUs inside every mask, shape (2**n,); -1.0 where there is none.

        Only sets count whose worst link is no farther than ``ceiling`` and, with ``one_numa``, that are on one NUMA node. A single GPU has 0.0.
        """
        self._check(k=k)
        k = min(k, self.size + 1)  # one table for all that is too many
        if (k, ceiling, one_numa) not in self._best:
            counts = (self._sizes == k) & (self.worst <= ceiling)
            own = np.where(counts & self.on_one_numa_node if one_numa else counts, self.bandwidth, -1.0)
            self._best[k, ceiling, one_numa] = _frozen(best_inside(own))
        return self._best[k, ceiling, one_numa]

    @property
    def worth(self) -> NDArray[np.float64]:
        """(2**n,) float64: worth of every mask as a remainder under the class's ``weights``, GPU x GB/s."""
        if self._worth_now is None:
            self._worth_now = self.worth_of_remainders(self.weights)
        return self._worth_now

    def worth_of_remainders(self, weights: Mapping[int, float] = SEED_WEIGHTS) -> NDArray[np.float64]:
        """Return the worth of every mask as a remainder, shape (2**n,), GPU x GB/s; it grows with every GPU.

        ``weights`` maps sizes of demand to their shares (not negative). Exact for every size, with 16 GPUs about 0.2 s, once; at
        `Depth.AT_ONCE` a bound from above where that is not quick.
        """
        return self._worth(tuple(sorted(weights.items())))

    @cachedmethod(lambda self: self._worth_cache)
    def _worth(self, weights: tuple[tuple[int, float], ...]) -> NDArray[np.float64]:
        # Packings are whole numbers and the sum runs in the order of sizes: equal remainders have equal worth to the last bit, however GPUs are numbered.
        singles = max(dict(weights).get(1, 0.0), SEED_WEIGHTS[1])
        worth = (singles * SINGLE_GB_PER_S * self._sizes).astype(np.float64)
        for k, weight in weights:
            if 2 <= k <= self.size and weight > 0:
                worth += weight * (self._packing(k) / KB_PER_GB)
        return _frozen(worth)

    def packed(self, k: int) -> NDArray[np.float64]:
        """Return the best that disjoint sets of ``k`` GPUs can be worth together inside every mask, shape (2**n,), GPU x GB/s; 0 where ``k`` fits nowhere.

        At `Depth.AT_ONCE` a bound from above where that is not quick.
        """
        self._check(k=k)
        return self._packing(k) / KB_PER_GB if k <= self.size else np.zeros(1 << self.size)

    def _packing(self, k: int) -> Packing:
        if k not in self._packings:
            self._packings[k] = _frozen(at_most(self.bandwidth, k) if self._in_a_hurry else packing(self.bandwidth, k))
        return self._packings[k]

    # --- sets

    def best_set(
        self, mask: int, k: int, ceiling: Distance = Distance.SYS, floor: float = 0.0, *, careful: bool = True, one_numa: bool = False
    ) -> GpuSet | None:
        """Return the set of ``k`` GPUs to take from the free ``mask``, None where none has ``floor`` GB/s and no link beyond ``ceiling``.

        Of the sets within 1 percent of the best bandwidth the one whose remainder is worth most, then the fastest, the nearest on PCIe, the one whose
        weakest link is strongest, the one with the least memory (larger cards serve more of the pods to come), the lowest GPUs. With ``careful=False`` (the pod does
        not care), and for a single GPU, every set that meets floor and ceiling competes, and first comes the one that breaks the fewest whole NVLink islands. A
        single GPU has 0.0 GB/s. With ``one_numa`` only sets on one NUMA node compete.
        """
        self._check(mask, k)
        return self._best_set(int(mask), k, _Limits(ceiling, floor, one_numa), careful)

    @cachedmethod(lambda self: self._set_cache)
    def _best_set(self, mask: int, k: int, limits: "_Limits", careful: bool) -> GpuSet | None:
        found = self._eligible(mask, k, limits)
        if not found.size:
            return None
        if careful:
            bandwidth = self.bandwidth[found]
            found = found[bandwidth >= ALMOST * bandwidth.max()]
        remainder = -self.worth[mask ^ found]
        # Who needs no bandwidth breaks nothing that has some, whatever the demands of today say about its worth.
        broken = self.islands_broken(mask, found) if not careful or k == 1 else np.zeros(len(found))
        keys = (self._numbering[found], self._memory[found], self.weakness[found], self._spread[found], -self.bandwidth[found], remainder, broken)
        first = np.lexsort(keys)[0]
        return self.gpu_set(int(found[first]))

    def sets(self, mask: int, k: int, ceiling: Distance = Distance.SYS, floor: float = 0.0, *, one_numa: bool = False) -> NDArray[np.int64]:
        """Return the masks of all sets of ``k`` GPUs inside ``mask`` that meet floor and ceiling, on one NUMA node if asked, shape (found,).

        The highest bandwidth stands first; among equals the one whose remainder is worth most, then as in `best_set`.
        """
        self._check(mask, k)
        return self._sets(int(mask), k, _Limits(ceiling, floor, one_numa))

    @cachedmethod(lambda self: self._sets_cache)
    def _sets(self, mask: int, k: int, limits: "_Limits") -> NDArray[np.int64]:
        found = self._eligible(mask, k, limits)
        order = np.lexsort((self._numbering[found], self._spread[found], -self.worth[mask ^ found], -self.bandwidth[found]))
        return _frozen(found[order])

    def allocator_set(self, mask: int, k: int, ceiling: Distance = Distance.SYS, floor: float = 0.0, *, one_numa: bool = False) -> GpuSet | None:
        """Return the set that NVIDIA's device plugin would take from the free ``mask`` of those that meet the limits; None exactly where `best_set` is None."""
        self._check(mask, k)
        found = self._eligible(int(mask), k, _Limits(ceiling, floor, one_numa))
        in_order = found[np.argsort(self._numbering[found])]
        return self.gpu_set(self._best_effort.best_of(int(mask), k, in_order)) if found.size else None

    def _eligible(self, mask: int, k: int, limits: "_Limits") -> NDArray[np.int64]:
        found = self._of_size[k] if k <= self.size else self._of_size[0][:0]
        found = found[(found & ~mask) == 0]
        if limits.one_numa:
            found = found[self.on_one_numa_node[found]]
        return np.asarray(found[(self.worst[found] <= limits.ceiling) & (self.bandwidth[found] >= limits.floor)])

    def gpu_set(self, mask: int) -> GpuSet:
        """Return what is known of exactly this set."""
        self._check(mask)
        return GpuSet(int(mask), float(self.bandwidth[mask]), self.worst_code(mask))

    def whole_set(self, mask: int) -> int:
        """Return the largest set in ``mask`` that serves a demand as an empty machine would, 0 where there is none.

        That is: of a size that is asked for, two or more, with the best bandwidth that a set of this size can have on the machine.
        """
        self._check(mask)
        for k in sorted((size for size, share in self.weights.items() if size > 1 and share > 0), reverse=True):
            most = float(self.best_bandwidths(k)[-1])
            if k <= int(mask).bit_count() and self.best_bandwidths(k)[mask] >= ALMOST * most:
                best = self.best_set(mask, k)
                return 0 if best is None else best.mask
        return 0

    def worst_code(self, mask: int) -> str | None:
        """Return the printed code of the weakest pair in a set (farthest, then with the fewest NVLinks), None below two GPUs."""
        codes = [self._matrix.between(i, j) or _UNPRINTED for i, j in combinations(members(mask), 2)]
        return max(codes, key=lambda code: (code.weakness(), code.text)).text if codes else None

    def lacks_peer_access(self, mask: int) -> bool:
        """Tell whether two of the GPUs are nearer than they may be used, as the driver keeps them apart (`topology.peer_access`)."""
        return any(mask & pair == pair for pair in self._kept_apart)

    @cached_property
    def _kept_apart(self) -> tuple[int, ...]:
        """Masks of the pairs that are nearer than they may be used."""
        pairs = combinations(range(self.size), 2) if self._matrix.wires is not None else ()
        return tuple(1 << i | 1 << j for i, j in pairs if self._matrix.between(i, j) != self._matrix.wired(i, j))

    # --- islands

    @cached_property
    def islands(self) -> tuple[int, ...]:
        """Masks of the GPUs that NVLinks join, over others or NVSwitch too; a GPU without NVLinks is in none."""
        found: list[int] = []
        for gpu, row in enumerate(self.links.nvlinks):
            joined = [1 << int(other) for other in np.flatnonzero(row)]
            if joined:
                mask = union([1 << gpu, *joined])
                found = [*(island for island in found if not island & mask), union([mask, *(island for island in found if island & mask)])]
        return tuple(sorted(found))

    @cached_property
    def cores(self) -> tuple[int, ...]:
        """Masks of the parts of islands in which every GPU is linked to every other: the quads of a cube mesh.

        They are the largest such groups of their island, three GPUs or more, and share no GPU; an island in which such groups overlap, or that is one, has none.
        """
        unlinked = over_pairs((self.links.nvlinks == 0).astype(np.int8), np.maximum)
        groups = np.flatnonzero((unlinked == 0) & (self._sizes >= 3))
        found: list[int] = []
        for island in self.islands:
            inside = groups[(groups & ~island) == 0]
            largest = inside[self._sizes[inside] == self._sizes[inside].max(initial=0)]
            if len(largest) > 1 and union(largest.tolist()).bit_count() == int(self._sizes[largest].sum()):
                found += largest.tolist()
        return tuple(sorted(found))

    @cached_property
    def whole_islands(self) -> NDArray[np.int16]:
        """(2**n,) int16: `ISLAND` for each island of which every GPU is in the mask, and 1 for each such core."""
        masks = np.arange(1 << self.size)
        whole = np.zeros(len(masks), dtype=np.int16)
        for group, weight in [*((island, ISLAND) for island in self.islands), *((core, 1) for core in self.cores)]:
            whole += weight * ((masks & group) == group).astype(np.int16)
        return _frozen(whole)

    def islands_broken(self, mask: int, sets: int | NDArray[np.int64]) -> NDArray[np.int16]:
        """Return what of the whole islands and cores in ``mask`` a set inside it, or each of several, takes a GPU of, as `whole_islands` counts: less is better."""
        return np.asarray(self.whole_islands[mask] - self.whole_islands[mask ^ sets])

    # --- masks

    @cachedmethod(lambda self: self._model_masks)
    def model_mask(self, globs: str) -> int:
        """Return the GPUs whose model is accepted, as `accepts_model` has it."""
        return sum(1 << i for i, model in enumerate(self.models) if accepts_model(globs, model))

    def numa_masks(self) -> dict[int | str, int]:
        """Return the GPUs of each NUMA node; the key is text where a range was printed. GPUs of which nothing is told are in none."""
        masks: dict[int | str, int] = {}
        for i, numa in enumerate(self._numa):
            if numa is not None:
                masks[numa] = masks.get(numa, 0) | 1 << i
        return masks

    def numa_groups(self) -> tuple[int, ...]:
        """Return the masks of GPUs that are known to be on one NUMA node together; every GPU is in exactly one.

        GPUs with a numbered node are together by its number. Of the others, which print a range of nodes or nothing, no two are known to be together, unless
        all GPUs of the machine say the same and no pair of them is connected through SYS, the link between nodes.
        """
        if len(set(self._numa)) == 1 and not isinstance(self._numa[0], int):
            everything = (1 << self.size) - 1
            codes = [self._matrix.wired(i, j) or _UNPRINTED for i, j in combinations(range(self.size), 2)]
            one_node = all(code.distance is not Distance.SYS for code in codes)
            return (everything,) if one_node else tuple(1 << i for i in range(self.size))
        numbered = tuple(mask for node, mask in self.numa_masks().items() if isinstance(node, int))
        return numbered + tuple(1 << i for i, node in enumerate(self._numa) if not isinstance(node, int))

    def nic_mask(self, farthest: Distance) -> int:
        """Return the GPUs that have a NIC at most that far away; a pair whose code was not printed is no such NIC."""
        cells = self._matrix.nic_cells
        return sum(1 << i for i, row in enumerate(cells) if any(code is not None and code.distance <= farthest for code in row))

    # --- inside

    @cached_property
    def _sizes(self) -> NDArray[np.uint8]:
        """(2**n,) number of members."""
        return np.asarray(np.bitwise_count(np.arange(1 << self.size)))

    @cached_property
    def _of_size(self) -> tuple[NDArray[np.int64], ...]:
        """For each size the masks of that size, ascending."""
        return tuple(np.flatnonzero(self._sizes == k).astype(np.int64) for k in range(self.size + 1))

    @cached_property
    def _spread(self) -> NDArray[np.int64]:
        """(2**n,) sum of the PCIe distances of all pairs: the smaller, the nearer together."""
        table: NDArray[np.int64] = over_pairs(self.links.pcie_distance.astype(np.int64), np.add)
        return table

    @cached_property
    def _numbering(self) -> NDArray[np.int64]:
        """(2**n,) sort key that puts sets of equal size in the order of their positions: 0-3 before 1-2."""
        backwards = np.zeros(1, dtype=np.int64)
        for i in range(self.size):
            backwards = np.concatenate([backwards, backwards | 1 << (self.size - 1 - i)])
        return np.asarray(-backwards)

    def _check(self, mask: int = 0, k: int = 0) -> None:
        if not 0 <= mask < 1 << self.size or k < 0:
            raise InternalError(f"asked a class of {self.size} GPUs for {k} of mask {mask:#b}")


def _frozen(array: _Array) -> _Array:
    """Return the array read-only: it is shared by all nodes of the class."""
    array.setflags(write=False)
    return array


# --- one class for equal nodes --------------------------------------------------------------------------------------

# As long as anybody uses it, and the last ones whoever does: a link that breaks and comes back. 60 kB each with 8 GPUs, 4 MB with 16, and a cluster with failing links sees hundreds.
_CLASSES: Final[WeakValueDictionary[str, TopologyClass]] = WeakValueDictionary()
_LAST: Final[deque[TopologyClass]] = deque(maxlen=16)


def topology_class(matrix: LinkMatrix, inventory: Inventory | None = None, depth: Depth = Depth.FULL) -> TopologyClass:
    """Return the class of a node with this matrix and these GPUs: the same object for equal nodes. Raises TopologyError above 16 GPUs.

    Its figures go as far as ``depth``, or further where that is known already.

    >>> from topology.matrix import from_codes
    >>> bridged = topology_class(from_codes(["X SYS NV12".split(), "SYS X SYS".split(), "NV12 SYS X".split()]))
    >>> bridged.best_set(0b111, 2)
    GpuSet(mask=5, bandwidth=300.0, worst='NV12')
    >>> members(bridged.best_set(0b111, 1).mask)
    (1,)
    """
    gpus = matched_gpus(matrix, inventory)
    key = _key(matrix, gpus)
    found = _CLASSES.get(key)
    if found is None or (found.depth < depth and found.next_depth is not None):
        found = TopologyClass(key, matrix, gpus, machine_links(matrix, inventory), depth=depth)
        _keep(found)
    return found


def _keep(kind: TopologyClass) -> None:
    _CLASSES[kind.key] = kind
    _LAST.append(kind)


def _key(matrix: LinkMatrix, gpus: tuple[Gpu, ...]) -> str:
    """Hash of all that tables depend on, or may come to depend on; never of what differs between equal nodes (UUIDs, bus ids, CPU lists)."""
    facts = [
        [
            (row.index, gpu.model, gpu.memory_mib, numa_of(row, gpu), gpu.pcie_generation, gpu.pcie_width, gpu.nvlink_gb_per_s)
            for row, gpu in zip(matrix.gpus, gpus, strict=True)
        ],
        [code and code.text for _, _, code in matrix.pairs()],
        [[code and code.text for code in row] for row in matrix.nic_cells],
    ]
    if matrix.wires is not None:
        facts.append([[code and code.text for code in row] for row in matrix.wires])
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]
