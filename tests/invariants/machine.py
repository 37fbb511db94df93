"""The one state machine behind the invariants: a small cluster to which everything happens that happens to a cluster.

Pods of any shape (whole GPUs, parts of one or several, for gpushare's plugin, with init containers and sidecars of each kind) are created, filtered, scored, bound (twice, elsewhere,
many at once, with Bindings that fail in every way), deleted and finished; GPUs break, change places and fall off the bus; the watch stalls; the extender is started
anew. The cards of one node differ in size and model. Each invariant is a file that adds what it looks at after every step.
The extender runs in process, on a clock that only moves when a rule moves it.
"""

import asyncio
import json
import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, MultipleResults, RuleBasedStateMachine, initialize, multiple, rule

from extender.cluster import Cluster, EntryState, View
from extender.metrics import Metrics
from extender.protocol import Binder
from extender.reasons import Refusal
from extender.sample_machines import sample
from extender.settings import Settings
from extender.snapshot_file import Snapshot, SnapshotCluster
from extender.verbs import Clocks, Verbs
from tests.builders import NOW, gpushare_node, pod
from tests.invariants import recount
from tests.invariants.api_server import ASSIGNED, Answer, ApiServer

JsonObject = dict[str, Any]

SETTINGS = Settings()
KINDS = {"cube": "dgx1v", "pairs": "bridges", "mesh": "mesh", "plugin": "mesh"}
NODES = tuple(KINDS)
PLUGIN = "plugin"  # served by gpushare's device plugin too: its GPUs must be those that the plugin counts, so none is ever lost there
AGENTS = tuple(name for name in NODES if name != PLUGIN)
# Cards that differ on one node: model and MiB by position at the first boot.
CARDS = {"mesh": (("NVIDIA A100-SXM4-40GB", 40_960), ("NVIDIA A100-SXM4-40GB", 40_536), ("NVIDIA A30", 24_576), ("NVIDIA A30", 8_000))}
GPUSHARE_NODE = gpushare_node(PLUGIN, gpus=4, units=40)
# Orders in which the GPUs of a node come up after a reboot, as functions of their number.
ORDERS = {
    "as ever": list,
    "backwards": lambda gpus: list(reversed(gpus)),
    "first to last": lambda gpus: [*gpus[1:], gpus[0]],
    "two swapped": lambda gpus: [gpus[1], gpus[0], *gpus[2:]],
}


class End(Enum):
    """How a pod comes to its end."""

    TERMINATING = "deletion was asked for"
    GONE = "deleted at once"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


@dataclass(frozen=True)
class Node:
    """A node as its agent would publish it. ``broken`` and ``lost`` are positions in the order of the first boot."""

    name: str
    kind: str
    order: str = "as ever"
    broken: frozenset[int] = frozenset()
    lost: int | None = None

    @lru_cache  # noqa: B019  # a node is a value, and there are few
    def topology(self) -> JsonObject:
        """The GPUTopology now: GPUs numbered by place, named by UUID."""
        whole = sample(self.kind, self.name).to_object()
        gpus, rows = whole["spec"]["gpus"], whole["spec"]["links"]
        if self.name in CARDS:
            gpus = [{**gpu, "model": model, "memoryMiB": mib} for gpu, (model, mib) in zip(gpus, CARDS[self.name], strict=True)]
        present = [gpu for gpu in ORDERS[self.order](list(range(len(gpus)))) if gpu != self.lost]
        spec = {
            **whole["spec"],
            "gpus": [{**gpus[gpu], "index": place} for place, gpu in enumerate(present)],
            "links": {
                "gpus": [[rows["gpus"][a][b] for b in present] for a in present],
                "nics": [rows["nics"][a] for a in present if rows.get("nics")],
            },
        }
        status = {**whole["status"], "gpus": [{"uuid": gpus[gpu]["uuid"], "healthy": gpu not in self.broken} for gpu in present]}
        return {**whole, "spec": spec, "status": status}


def free_gpus(cluster: Cluster) -> dict[str, dict[str, float] | None]:
    """What is left of the GPUs of each node by UUID, MiB or all of an idle one; None for a closed or unknown node."""
    view = cluster.view()
    rows = {name: view.row_of[name] for name in NODES if name in view.row_of}
    return dict.fromkeys(NODES) | {name: _left(view, row) for name, row in rows.items() if view.closed[row] == Refusal.FITS}


def _left(view: View, row: int) -> dict[str, float]:
    idle = int(view.free[row])
    left = {uuid: recount.ALL if idle >> bit & 1 else float(view.left[row, bit]) for bit, uuid in enumerate(view.gpus[row].uuids)}
    return {uuid: mib for uuid, mib in left.items() if mib}


def is_no_more(left: Mapping[str, float] | None, than: Mapping[str, float] | None) -> bool:
    """Whether nothing is left by one count that is not left by the other."""
    return all(mib <= (than or {}).get(uuid, 0.0) for uuid, mib in (left or {}).items())


@dataclass(frozen=True)
class Process:
    """One run of the extender: its state and its verbs."""

    cluster: Cluster
    verbs: Verbs

    def free(self) -> dict[str, dict[str, float] | None]:
        return free_gpus(self.cluster)


@dataclass(frozen=True)
class Wanted:
    """A pod without a name, short to read in a failing example: ``sizes`` are the GPUs of its containers, ``gib`` what others ask of GPUs that are shared.

    ``units`` is for gpushare's plugin, and then there is nothing else.
    """

    sizes: tuple[int, ...]
    beside: str
    wish: tuple[str, str] | None
    gib: tuple[int, ...] = ()
    count: int = 1
    units: int = 0

    def named(self, name: str) -> JsonObject:
        made = pod(name)
        if self.units:
            return made.units(self.units).build()
        for number, gpus in enumerate(self.sizes):
            made = made.gpus(gpus, container=f"main-{number}")
        for number, gib in enumerate(self.gib):
            made = made.shared(gib, container=f"part-{number}")
        beside = {
            "nothing": made,
            "a small init container": made.init(1),
            "a large init container": made.init(min(8, sum(self.sizes) + 1)),
            "a sidecar": made.sidecar(1),
            "a container without GPUs": made.plain(),
            "an init container with a part": made.init_shared(20),
            "a sidecar with a part": made.sidecar_shared(6),
            "a sidecar with a part, then an init container with one": made.sidecar_shared(6).init_shared(30),
        }
        made = beside[self.beside]
        if self.count > 1:
            made = made.annotated(gpu_count=str(self.count))
        return (made.annotated(**dict([self.wish])) if self.wish else made).build()


# A floor or a ceiling speaks of links, so a container of two or more must be there.
OF_ONE = st.sampled_from(
    [None, None, None, ("topology", "none"), ("policy", "spread"), ("gpu_model", "*V100*,*A30*"), ("numa", "single"), ("nic_distance", "PIX")]
)
OF_SEVERAL = OF_ONE | st.sampled_from(
    [("min_bandwidth", "12"), ("min_bandwidth", "50"), ("min_bandwidth", "300"), ("max_distance", "NVLINK"), ("max_distance", "NODE")]
)
ANY_SIZES = st.sampled_from([(1,), (1,), (2,), (2,), (3,), (4,), (8,), (1, 1), (2, 1), (2, 2), (1, 4), (1, 1, 1)])
ANY_BESIDE = st.sampled_from(["nothing", "nothing", "a small init container", "a large init container", "a sidecar", "a container without GPUs"])
WHOLE = ANY_SIZES.flatmap(lambda sizes: st.builds(Wanted, st.just(sizes), ANY_BESIDE, OF_SEVERAL if max(sizes) > 1 else OF_ONE))
BESIDE_PARTS = ANY_BESIDE | st.sampled_from(
    ["nothing", "an init container with a part", "a sidecar with a part", "a sidecar with a part, then an init container with one"]
)
# (whole GPUs, GiB of containers with parts, over how many GPUs each)
PARTS = st.sampled_from(
    [
        *[((), (gib,), 1) for gib in (2, 7, 10, 10, 20, 31, 39, 70)],
        *[((), (8,), 2), ((), (40,), 2), ((), (41,), 2), ((), (60,), 3), ((), (12, 30), 2)],
        *[((), (10, 10), 1), ((), (16, 20, 4), 1), ((1,), (10,), 1), ((2,), (20,), 1), ((2,), (40,), 2), ((1, 1), (5, 9), 1)],
    ]
)
SHARED = PARTS.flatmap(
    lambda asked: st.builds(
        Wanted, st.just(asked[0]), BESIDE_PARTS, OF_SEVERAL if max(*asked[0], asked[2], 1) > 1 else OF_ONE, st.just(asked[1]), st.just(asked[2])
    )
)
OF_GPUSHARE = st.builds(Wanted, st.just(()), st.just("nothing"), st.none(), units=st.sampled_from([5, 5, 10, 25]))
WANTED = st.one_of(WHOLE, SHARED, SHARED, OF_GPUSHARE)
ANSWERS = st.sampled_from([Answer.TAKEN] * 5 + [Answer.REFUSED, Answer.UNHEARD, Answer.LOST, Answer.LATE, Answer.LATE])


WAVES = st.lists(st.tuples(WANTED, ANSWERS), min_size=1, max_size=5)


class ClusterMachine(RuleBasedStateMachine):
    """The rules; a pod is known by its UID, and its name may be that of a pod before it."""

    pods = Bundle("pods")

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.loop = asyncio.new_event_loop()
        self.nodes = {name: Node(name, kind) for name, kind in KINDS.items()}
        self.published: dict[str, JsonObject] = {}
        self.api = ApiServer(self._clock, self._told)
        self.made: dict[str, JsonObject] = {}  # UID -> the pod as it was created
        self.stalled = False
        self.events: list[tuple[str, JsonObject | None]] = []
        self._rebuilt: tuple[tuple[JsonObject, ...], dict[str, dict[str, float] | None]] = ((), free_gpus(self.reread()))
        self.extender = self.started(self.reread(), self.api)

    def teardown(self) -> None:
        self.loop.close()

    # --- the extender -----------------------------------------------------------------------------------------------

    def _clock(self) -> float:
        return self.now

    def read(self, topologies: Iterable[JsonObject], pods: Iterable[JsonObject]) -> Cluster:
        """The state that a new process makes of what is stored."""
        cluster = Cluster("nvidia.com/gpu", self._clock)
        SnapshotCluster(Snapshot(nodes=(GPUSHARE_NODE,), topologies=tuple(topologies), pods=tuple(pods)), cluster).feed()
        return cluster

    def started(self, cluster: Cluster, binder: Binder) -> Process:
        return Process(cluster, Verbs(cluster, binder, Metrics(), SETTINGS, Clocks(self._clock, lambda: NOW)))

    def reread(self) -> Cluster:
        """The state of an extender that would start at this moment."""
        return self.read(self.published.values(), self.api.pods.values())

    def rebuilt_free(self) -> dict[str, dict[str, float] | None]:
        """What is left by the count of an extender that would start at this moment. Objects are never changed in place, so the same ones give the same count."""
        stored = (*self.published.values(), *self.api.pods.values())
        known, free = self._rebuilt
        if len(known) != len(stored) or not all(map(operator.is_, known, stored)):
            free = free_gpus(self.reread())
            self._rebuilt = stored, free
        return free

    def _told(self, uid: str, pod: JsonObject | None) -> None:
        self.events.append((uid, pod))
        if not self.stalled:
            self._deliver(len(self.events))

    def _deliver(self, count: int) -> None:
        for uid, news in self.events[:count]:
            if news is None:
                self.extender.cluster.remove_pod(uid)
            else:
                self.extender.cluster.apply_pod(news)
        del self.events[:count]

    def publish(self, name: str) -> None:
        self.published[name] = self.nodes[name].topology()
        assert self.extender.cluster.apply_topology(self.published[name]) is None

    @property
    def settled(self) -> bool:
        """Nothing is under way: the extender has seen everything, and every promise has found its end."""
        return not self.events and not self.api.late and all(entry.state is not EntryState.PROMISED for entry in self.extender.cluster.ledger)

    # --- calls ------------------------------------------------------------------------------------------------------

    def stored(self, uid: str) -> JsonObject | None:
        """The pod with that UID, None where it is gone."""
        pod = self.api.pods.get(self.made[uid]["metadata"]["name"])
        return pod if pod is not None and pod["metadata"]["uid"] == uid else None

    def call(self, uid: str) -> bytes:
        return json.dumps({"Pod": self.stored(uid) or self.made[uid], "NodeNames": list(NODES)}).encode()

    def filtered(self, uid: str) -> list[str]:
        """Nodes that fit; every other one comes with a reason."""
        answer = json.loads(self.extender.verbs.filter(self.call(uid)))
        refused = answer["FailedAndUnresolvableNodes"]
        assert sorted([*answer["NodeNames"], *refused]) == sorted(NODES)
        assert not answer["Error"]
        assert not answer["FailedNodes"]
        assert all(sentence and "%" not in sentence for sentence in refused.values())
        return list(answer["NodeNames"])

    def scored(self, uid: str) -> dict[str, int]:
        scores = {each["Host"]: each["Score"] for each in json.loads(self.extender.verbs.prioritize(self.call(uid)))}
        assert list(scores) == list(NODES)
        return scores

    def bound(self, *calls: tuple[str, str]) -> list[str]:
        """Bind all of them at once; returns the errors, empty ones for success."""

        async def together() -> list[bytes]:
            return await asyncio.gather(*(self.extender.verbs.bind(self._bind_body(uid, node)) for uid, node in calls))

        known = {uid: self.api.bound_to[uid] for uid, _ in calls if uid in self.api.bound_to and self._knows(uid)}
        errors = [json.loads(answer)["Error"] for answer in self.loop.run_until_complete(together())]
        self.api.answers.clear()
        for (uid, node), error in zip(calls, errors, strict=True):
            assert error or self.api.bound_to[uid] == node, "success is never a guess"
            assert known.get(uid, node) == node or f"node {known[uid]}" in error, "a pod that is bound elsewhere is told so by name"
        return errors

    def _knows(self, uid: str) -> bool:
        found = self.stored(uid)
        return found is not None and recount.running(found) and self.extender.cluster.ledger.get(uid) is not None

    def _bind_body(self, uid: str, node: str) -> bytes:
        return json.dumps({"PodNamespace": "default", "PodName": self.made[uid]["metadata"]["name"], "PodUID": uid, "Node": node}).encode()

    # --- pods -------------------------------------------------------------------------------------------------------

    @initialize(target=pods, wave=WAVES)
    def nodes_come_up_and_pods_come(self, wave: list[tuple[Wanted, Answer]]) -> MultipleResults[str]:
        for name in NODES:
            self.publish(name)
        return self._wave(wave)

    @rule(target=pods, wave=WAVES)
    def pods_come_and_are_scheduled(self, wave: list[tuple[Wanted, Answer]]) -> MultipleResults[str]:
        return self._wave(wave)

    def _wave(self, wave: list[tuple[Wanted, Answer]]) -> MultipleResults[str]:
        """As kube-scheduler does it: one is filtered and scored after the other, their binds overlap."""
        uids = [self._create(wanted, f"pod-{len(self.made)}") for wanted, _ in wave]
        self.bound(*[(uid, self._chosen(uid, answer)) for uid, (_, answer) in zip(uids, wave, strict=True)])
        return multiple(*uids)

    @rule(target=pods, wanted=WANTED, earlier=pods)
    def a_pod_comes_under_a_name_used_before(self, wanted: Wanted, earlier: str) -> str:
        name = self.made[earlier]["metadata"]["name"]
        return self._create(wanted, name if name not in self.api.pods else f"pod-{len(self.made)}")

    def _create(self, wanted: Wanted, name: str) -> str:
        made = wanted.named(name)
        uid = f"uid-{len(self.made)}"
        made["metadata"]["uid"] = uid
        self.made[uid] = made
        self.api.create(made)
        return uid

    @rule(uid=pods, how=st.sampled_from(list(End)))
    def a_pod_ends(self, uid: str, how: End) -> None:
        found = self.stored(uid)
        if found is None:
            return
        name, bound = found["metadata"]["name"], found["spec"].get("nodeName")
        if how is End.GONE or (how is End.TERMINATING and not bound):  # where nothing runs, asked for is done
            self.api.delete(name)
        elif how is End.TERMINATING:
            self.api.change(name, metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
        elif bound:
            self.api.change(name, status={"phase": how.value})

    @rule()
    def the_plugin_hands_its_pods_out(self) -> None:
        """All that wait, in any order: gpushare's own order is its tests' business."""
        for found in list(self.api.pods.values()):
            if recount.running(found) and found["metadata"]["annotations"].get(ASSIGNED) == "false":
                name, annotations = found["metadata"]["name"], found["metadata"]["annotations"]
                self.api.change(name, metadata={"annotations": {**annotations, ASSIGNED: "true"}}, status={"phase": "Running"})

    # --- the scheduler ----------------------------------------------------------------------------------------------

    @rule(uid=pods)
    def look(self, uid: str) -> None:
        self.filtered(uid)
        self.scored(uid)

    @rule(uid=pods, answer=ANSWERS)
    def schedule(self, uid: str, answer: Answer) -> None:
        self.bound((uid, self._chosen(uid, answer)))

    @rule(calls=st.lists(st.tuples(pods, st.sampled_from([None, None, *NODES]), ANSWERS), min_size=1, max_size=6))
    def many_are_bound_at_once(self, calls: list[tuple[str, str | None, Answer]]) -> None:
        """All are filtered first; some go where they were scored best, some elsewhere (another scheduler), some twice."""
        self.bound(*[(uid, self._chosen(uid, answer, node)) for uid, node, answer in calls])

    def _chosen(self, uid: str, answer: Answer, node: str | None = None) -> str:
        """The node that kube-scheduler would choose, any where none fits: the extender must stand that too."""
        self.api.answers.setdefault(uid, []).append(answer)
        if node is not None:
            return node
        fitting = self.filtered(uid)
        scores = self.scored(uid) if len(fitting) != 1 else {}
        return max(fitting or NODES, key=lambda name: scores.get(name, 0))

    # --- time -------------------------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.5, 2.5, 6.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.api.expire()

    @rule()
    def open_promises_are_asked_after(self) -> None:
        self.loop.run_until_complete(self.extender.verbs.bindings.resolve_open())

    @rule(data=st.data())
    def a_late_binding_lands(self, data: st.DataObject) -> None:
        if self.api.late:
            self.api.land(data.draw(st.sampled_from(self.api.late)))

    @rule(lands=st.booleans())
    def everything_settles(self, *, lands: bool) -> None:
        self._late_ones_end(lands=lands)
        self.watch_goes_on()
        self.open_promises_are_asked_after()
        assert self.settled

    def _late_ones_end(self, *, lands: bool) -> None:
        for late in list(self.api.late) if lands else []:
            self.api.land(late)
        self.now += 6.0
        self.api.expire()

    # --- the watch and the process ----------------------------------------------------------------------------------

    @rule(then=st.integers(0, 3))
    def watch_stalls(self, then: int) -> None:
        """It delivers some of what it holds back, in order, and nothing more."""
        self.stalled = True
        self._deliver(then)

    @rule()
    def watch_goes_on(self) -> None:
        self.stalled = False
        self._deliver(len(self.events))

    @rule()
    def everything_is_read_again(self) -> None:
        """The watch broke and missed what happened since: a list of all pods repairs it."""
        self.events.clear()
        self.stalled = False
        there = {each["metadata"]["uid"]: each for each in self.api.pods.values()}
        for uid in self.api.seen - there.keys():
            self.extender.cluster.remove_pod(uid)
        for found in there.values():
            self.extender.cluster.apply_pod(found)
        for name in self.published:
            self.publish(name)

    @rule(lands=st.booleans())
    def extender_starts_anew(self, *, lands: bool) -> None:
        """A new process binds nothing before the last POST of the one before it can no longer take effect; then it lists."""
        self._late_ones_end(lands=lands)
        self.events.clear()
        self.stalled = False
        self.extender = self.started(self.reread(), self.api)

    # --- nodes ------------------------------------------------------------------------------------------------------

    @rule(name=st.sampled_from(NODES), gpu=st.integers(0, 3), breaks=st.booleans())
    def gpu_breaks_or_all_recover(self, name: str, gpu: int, *, breaks: bool) -> None:
        self._change(name, broken=self.nodes[name].broken | {gpu} if breaks else frozenset())

    @rule(name=st.sampled_from(NODES), order=st.sampled_from(list(ORDERS)))
    def node_boots_with_its_gpus_in_another_order(self, name: str, order: str) -> None:
        self._change(name, order=order)

    @rule(name=st.sampled_from(AGENTS), gpu=st.none() | st.integers(0, 3))
    def gpu_falls_off_the_bus_or_is_back(self, name: str, gpu: int | None) -> None:
        self._change(name, lost=gpu)

    @rule(name=st.sampled_from(AGENTS), again=st.booleans())
    def topology_is_deleted_and_perhaps_created_again(self, name: str, *, again: bool) -> None:
        self.published.pop(name, None)
        self.extender.cluster.remove_topology(name)
        if again:
            self.publish(name)

    @rule()
    def what_is_gone_for_good_is_forgotten(self) -> None:
        """Rows are numbered anew, as after thousands of nodes have gone."""
        self.extender.cluster.forget_gone(1, 0)

    @rule()
    def all_topologies_are_there_again(self) -> None:
        for name in NODES:
            self.publish(name)

    def _change(self, name: str, **facts: Any) -> None:
        self.nodes[name] = replace(self.nodes[name], **facts)
        if name in self.published:
            self.publish(name)

    # --- what the invariants compare with ---------------------------------------------------------------------------

    def recounted_free(self) -> dict[str, dict[str, float] | None]:
        """What is left of the GPUs of each node, counted from the pods; None for a closed node, and for one without a topology."""
        return {**dict.fromkeys(NODES), **recount.free(self.published, self.api.pods.values())}


def run(machine: type[ClusterMachine], share: float) -> type:
    """The test of a machine, with a multiple of the examples that plain properties get; together they take `test_steps.LEAST` steps."""
    case = machine.TestCase
    case.settings = settings(max_examples=max(1, int(settings.default.max_examples * share)))
    return case
