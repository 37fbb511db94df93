"""Whatever pods, kubelet and agent do, and wherever the agent dies: every container sees its own plan, and no GPU is in two live containers."""

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.builders import PodBuilder, pod
from tests.device_kubelet import AdmissionError, StartError
from tests.hand_off_node import GPU, MEMORY, NODE, HandOffNode, hand_off_node
from topology.agent.handoff import faults
from topology.api import AllocatedGpu, Allocation
from topology.capacity import share_mib

JsonObject = dict[str, Any]

HALF_MIB = share_mib(9, 2)
# What is asked, and what the extender gives of two GPUs: MiB by GPU and container, 0 for a whole one.
SHAPES: dict[str, Callable[[str, str], tuple[PodBuilder, dict[str, dict[str, int]]]]] = {
    "one": lambda a, _: (pod("p").gpus(1), {"main": {a: 0}}),
    "two": lambda a, b: (pod("p").gpus(2), {"main": {a: 0, b: 0}}),
    "apps": lambda a, b: (pod("p").gpus(1, "a").gpus(1, "b"), {"a": {a: 0}, "b": {b: 0}}),
    "init": lambda a, _: (pod("p").init(1).gpus(1), {"init": {a: 0}, "main": {a: 0}}),
    "other-init": lambda a, b: (pod("p").init(1).gpus(2), {"init": {b: 0}, "main": {a: 0, b: 0}}),
    "sidecar": lambda a, b: (pod("p").sidecar(1).gpus(1), {"sidecar": {a: 0}, "main": {b: 0}}),
    "share": lambda a, _: (pod("p").init_shared(6).shared(10), {"init": {a: 6 * 1024}, "main": {a: 10 * 1024}}),
    "shares": lambda a, b: (pod("p").shared(9).annotated(gpu_count="2"), {"main": {a: HALF_MIB, b: HALF_MIB}}),
}


@dataclass
class Known:
    """A pod of the test: what it was promised, container by container, and what it is charged."""

    raw: JsonObject
    plan: dict[str, dict[str, int]]  # container -> GPU -> MiB, 0 for a whole one; none for a pod from around
    started: list[str] = field(default_factory=list)
    seen: dict[str, frozenset[str]] = field(default_factory=dict)  # of one from around: what it saw first

    @property
    def uid(self) -> str:
        return str(self.raw["metadata"]["uid"])

    @property
    def gpus(self) -> frozenset[str]:
        return frozenset(uuid for parts in self.plan.values() for uuid in parts)


class HandOffMachine(RuleBasedStateMachine):
    """kubelet, an extender that knows the ledger, pods of every shape, and agents that die."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="ho"))
        self.context = hand_off_node(self.directory)
        self.node: HandOffNode = self.context.__enter__()
        self.gpus = [gpu.uuid for gpu in self.node.topology.spec.gpus]
        self.offered = {gpu.uuid: (gpu.memory_mib or 0) // 1024 * 1024 for gpu in self.node.topology.spec.gpus}
        self.pods: dict[str, Known] = {}
        self.left_behind: dict[str, Known] = {}  # deleted by force: their containers run, and nobody but the kernel knows
        self.numbers = 0
        self.tree = self.directory / "cgroup" / "pids" / "kubepods"
        self.tree.mkdir(parents=True)
        self.names: dict[str, int] = {}

    @initialize(stubborn=st.booleans(), seed=st.integers(0, 1000))
    def begin(self, stubborn: bool, seed: int) -> None:
        self.node.kubelet.stubborn = stubborn
        self.node.kubelet._random.seed(seed)
        self.node.start_agent()

    def teardown(self) -> None:
        self.context.__exit__(None, None, None)
        shutil.rmtree(self.directory, ignore_errors=True)

    # --- what the extender knows ---

    def free(self) -> list[str]:
        """GPUs that nobody was promised and, as agents tell, nobody holds."""
        held = {uuid for known in self.pods.values() for uuid in known.gpus}
        held |= {uuid for holding in (self.node.plugin.holders() if self.node.plugin else []) if not holding.planned for uuid in holding.uuids}
        return [uuid for uuid in self.gpus if uuid not in held]

    def plan(self, shape: str, free: list[str]) -> tuple[PodBuilder, dict[str, dict[str, int]]] | None:
        self.numbers += 1
        need = 1 if shape in ("one", "init", "share") else 2
        if len(free) < need:
            return None
        builder, plan = SHAPES[shape](free[0], free[need - 1])
        return replace(builder, name=f"p{self.numbers}"), plan

    def allocation(self, plan: dict[str, dict[str, int]]) -> str:
        def one(uuid: str, mib: int) -> AllocatedGpu:
            return AllocatedGpu(uuid=uuid, memory_mib=mib, shared=True) if mib else AllocatedGpu(uuid=uuid)

        return Allocation(node=NODE, containers={name: tuple(one(*part) for part in parts.items()) for name, parts in plan.items()}).encode()

    def admit(self, raw: JsonObject, plan: dict[str, dict[str, int]]) -> None:
        known = Known(raw, plan)
        self.pods[known.uid] = known
        try:
            self.node.kubelet.admit(raw)
        except AdmissionError:
            self.forget(known)  # it turns Failed: its GPUs are free at once

    def forget(self, known: Known) -> None:
        self.node.delete(known.raw)
        self.pods.pop(known.uid, None)
        shutil.rmtree(self.tree / f"pod{known.uid}", ignore_errors=True)

    # --- pods come and go ---

    @rule(shape=st.sampled_from(sorted(SHAPES)), data=st.data())
    def bind(self, shape: str, data: st.DataObject) -> None:
        """The extender places a pod on free GPUs, and kubelet admits it."""
        made = self.plan(shape, data.draw(st.permutations(self.free())))
        if made is not None:
            builder, plan = made
            self.numbers += 1
            self.admit(self.node.bind(builder.bound_to(NODE, self.allocation(plan), "Pending"), f"uid-{self.numbers}"), plan)

    @rule(gpus=st.integers(1, 2))
    def come_around(self, gpus: int) -> None:
        """A pod with nodeName set by hand."""
        self.numbers += 1
        self.admit(self.node.bind(pod(f"around{self.numbers}").gpus(gpus).bound_to(NODE, None, "Pending"), f"uid-{self.numbers}"), {})

    @precondition(lambda self: self.pods)
    @rule(data=st.data(), count=st.integers(1, 4))
    def start(self, data: st.DataObject, count: int) -> None:
        """The next containers of a pod are started, in their order."""
        known = self.pods[data.draw(st.sampled_from(sorted(self.pods)))]
        for _ in range(count):
            self.start_next(known)

    def start_next(self, known: Known) -> None:
        names = [name for name, _ in self.containers(known) if name not in known.started]
        if not names:
            return
        self.try_to_start(known, names[0])

    def try_to_start(self, known: Known, name: str) -> None:
        self.check_who_is_in_the_way(known, name)
        if any(kind == "init" and other in known.started for other, kind in self.containers(known)):
            for other, kind in self.containers(known):
                if kind == "init" and other != name:
                    self.node.kubelet.running.pop((known.uid, other), None)  # an init container has ended before the next one starts
        fault = self.node.fault_at
        try:
            seen = self.node.kubelet.start_container(known.uid, name)
        except StartError as error:
            self.check_refusal(str(error), has_died=fault is not None)
            if fault is not None and self.node.fault_at is None:
                self.node.restart_agent()  # it died there
            return
        if name not in known.started:
            known.started.append(name)
        cgroup = self.tree / f"pod{known.uid}"
        cgroup.mkdir(exist_ok=True)
        (cgroup / "cgroup.procs").write_text("4711\n")
        if known.plan:
            assert seen == frozenset(known.plan[name]), "not its own plan"
        else:
            assert seen == known.seen.setdefault(name, seen), "a restart changed what it has"

    def check_who_is_in_the_way(self, known: Known, name: str) -> None:
        """Remember, before a start, who would be in the way: for the sentence when it is refused."""
        mine = self.gpus if not known.plan else [uuid for parts in known.plan.values() for uuid in parts]
        self.in_the_way = [
            other
            for other in [*self.pods.values(), *self.left_behind.values()]
            if other is not known
            and (set(mine) & other.gpus or set(mine) & {uuid for seen in other.seen.values() for uuid in seen} or not known.plan)
        ]

    def check_refusal(self, sentence: str, *, has_died: bool) -> None:
        """A start may be refused where somebody else really has the GPU: one from around, or one that was deleted by force."""
        held = any(told in sentence for told in ("is not free", "too little is free", "would be taken"))
        assert has_died or (self.in_the_way and held), sentence

    def containers(self, known: Known) -> list[tuple[str, str]]:
        spec = known.raw["spec"]
        inits = [(one["name"], "sidecar" if one.get("restartPolicy") else "init") for one in spec["initContainers"]]
        return [*inits, *((one["name"], "app") for one in spec["containers"])]

    @precondition(lambda self: any(known.started for known in self.pods.values()))
    @rule(data=st.data())
    def restart_container(self, data: st.DataObject) -> None:
        """A container ends and is started again: on the same GPUs."""
        known = self.pods[data.draw(st.sampled_from(sorted(uid for uid, known in self.pods.items() if known.started)))]
        names = [name for name in known.started if dict(self.containers(known))[name] != "init"]
        if names:
            name = data.draw(st.sampled_from(names))
            self.node.kubelet.running.pop((known.uid, name), None)
            self.try_to_start(known, name)

    @precondition(lambda self: self.pods)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        self.forget(self.pods[data.draw(st.sampled_from(sorted(self.pods)))])

    @precondition(lambda self: any(known.started for known in self.pods.values()))
    @rule(data=st.data())
    def delete_by_force(self, data: st.DataObject) -> None:
        """The API server and kubelet forget the pod; its containers still have their grace period."""
        uid = data.draw(st.sampled_from(sorted(uid for uid, known in self.pods.items() if known.started)))
        known = self.pods.pop(uid)
        self.node.kubelet.force_delete(uid)
        self.node.door.pods.pop(f"default/{known.raw['metadata']['name']}", None)
        self.left_behind[uid] = known

    @precondition(lambda self: any(known.started and known.plan for known in self.pods.values()))
    @rule(data=st.data(), lags=st.booleans())
    def delete_by_force_and_fill_the_gap(self, data: st.DataObject, lags: bool) -> None:
        """The GPUs of a pod that was deleted by force are promised to the next one while its containers still run."""
        uid = data.draw(st.sampled_from(sorted(uid for uid, known in self.pods.items() if known.started and known.plan)))
        known = self.pods.pop(uid)
        self.node.kubelet.force_delete(uid)
        self.node.door.pods.pop(f"default/{known.raw['metadata']['name']}", None)
        self.left_behind[uid] = known
        if not lags:
            self.node.catch_up()
        self.numbers += 1
        plan = {"main": dict.fromkeys(sorted(known.gpus), 0)}
        builder = pod(f"p{self.numbers}").gpus(len(known.gpus)).bound_to(NODE, self.allocation(plan), "Pending")
        raw = self.node.bind(builder, f"uid-{self.numbers}")
        self.admit(raw, plan)
        if raw["metadata"]["uid"] in self.pods:
            self.start_next(self.pods[raw["metadata"]["uid"]])

    @precondition(lambda self: self.left_behind)
    @rule()
    def reap(self) -> None:
        """Containers of pods that were deleted by force have ended."""
        for uid in list(self.left_behind):
            self.node.kubelet.running = {key: gpus for key, gpus in self.node.kubelet.running.items() if key[0] != uid}
            shutil.rmtree(self.tree / f"pod{uid}")
            self.left_behind.pop(uid)

    @precondition(lambda self: any(known.plan for known in self.pods.values()))
    @rule(data=st.data())
    def come_back_under_the_same_name(self, data: st.DataObject) -> None:
        """A StatefulSet's pod: deleted, and created again with another UID and another plan, while the agent's cache lags."""
        known = self.pods[data.draw(st.sampled_from(sorted(uid for uid, known in self.pods.items() if known.plan)))]
        name = known.raw["metadata"]["name"]
        self.forget(known)
        free = data.draw(st.permutations(self.free()))
        if free:
            self.numbers += 1
            plan = {"main": {free[0]: 0}}
            self.admit(self.node.bind(pod(name).gpus(1).bound_to(NODE, self.allocation(plan), "Pending"), f"uid-{self.numbers}"), plan)

    # --- kubelet and agent ---

    @rule()
    def catch_up(self) -> None:
        self.node.catch_up()

    @rule()
    def restart_agent(self) -> None:
        self.node.restart_agent()

    @rule(point=st.sampled_from(faults.POINTS))
    def die_at(self, point: str) -> None:
        """The agent will die at the next passage of a point."""
        self.node.fault_at = point

    @rule()
    def restart_kubelet(self) -> None:
        """Everything but the checkpoint is lost; pods are admitted again, with what they had."""
        self.node.kubelet.stop()
        self.node.kubelet.start()
        self.node.wait_for_devices()
        for known in list(self.pods.values()):
            try:
                self.node.kubelet.admit(known.raw)
            except AdmissionError:
                self.forget(known)

    @rule()
    def collect(self) -> None:
        """The agent collects what containers left, old or not."""
        assert self.node.plugin is not None
        self.node.plugin._garbage._clock = lambda: 1e12
        try:
            self.node.plugin._garbage.collect()
        except Exception:  # noqa: BLE001  # it died on the way
            self.node.restart_agent()

    # --- always ---

    @invariant()
    def no_gpu_is_in_two_live_containers(self) -> None:
        owners: dict[str, list[tuple[str, str]]] = {}
        shares: dict[str, int] = {}
        for (uid, name), seen in self.node.kubelet.running.items():
            known = self.pods.get(uid) or self.left_behind[uid]
            parts = known.plan.get(name) or dict.fromkeys(seen, 0)
            for uuid, mib in parts.items():
                if mib:
                    shares[uuid] = shares.get(uuid, 0) + mib
                else:
                    owners.setdefault(uuid, []).append((uid, name))
        for uuid, who in owners.items():
            assert len({uid for uid, _ in who}) == 1, f"{uuid} is in {who}"
            assert uuid not in shares, f"{uuid} is shared and somebody's own"
        for uuid, mib in shares.items():
            assert mib <= self.offered[uuid], f"{mib} MiB of {uuid} are given away"

    @invariant()
    def every_living_container_can_start_again(self) -> None:
        """What started has its spec, as long as its pod is there."""
        specs = set(self.node.specs())
        for uid, known in self.pods.items():
            for name in known.started:
                if (uid, name) in self.node.kubelet.running:
                    given = self.node.kubelet.given.get((uid, name, GPU)) or self.node.kubelet.given[uid, name, MEMORY]
                    token = given.answer.cdi_devices[0].name.partition("=")[2]
                    assert f"linkwise.dev-allocation_{token}.json" in specs


HandOffMachine.TestCase.settings = settings(
    max_examples=15, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)
TestHandOffMachine = HandOffMachine.TestCase
