"""The device plugin, put together: what `running` starts, tells of every look at the hardware, and stops.

    running -> DevicePlugin.node_is (every round)  ->  devices -> server (ListAndWatch)
    kubelet -> registration, server                ->  hand_off

Nothing is offered before the first look. Everything here goes on while the API server is away: containers that have started before start again.
"""

import threading
import time
from collections.abc import Mapping
from typing import Final

import structlog

from topology.agent.api_server import ApiServer
from topology.agent.handoff import faults
from topology.agent.handoff.cdi import CdiDirectory
from topology.agent.handoff.cgroups import Cgroups
from topology.agent.handoff.checkpoint import CheckpointError
from topology.agent.handoff.conditions import numa_condition, parting_condition, registration_condition
from topology.agent.handoff.container_files import ContainerFiles
from topology.agent.handoff.decision import Rules
from topology.agent.handoff.devices import Given, gpu_devices, memory_devices
from topology.agent.handoff.garbage import Garbage
from topology.agent.handoff.hand_off import HandOff, Means
from topology.agent.handoff.holding import Holding
from topology.agent.handoff.identity import Identity
from topology.agent.handoff.kubelet import Kubelet
from topology.agent.handoff.liveness import Liveness
from topology.agent.handoff.node_gpus import NodeGpus
from topology.agent.handoff.observing import HeldGpus
from topology.agent.handoff.pod_events import PodEvents
from topology.agent.handoff.pod_news import PodNews
from topology.agent.handoff.pod_watch import PodWatch
from topology.agent.handoff.pods import Pods
from topology.agent.handoff.records import Records
from topology.agent.handoff.refusal import RefusedStartError
from topology.agent.handoff.registration import Registration
from topology.agent.handoff.series import Series
from topology.agent.handoff.server import Devices
from topology.agent.metrics import Metrics
from topology.agent.said import Said
from topology.agent.settings import AgentSettings
from topology.api import Condition, GPUTopology
from topology.api.annotations import GPU_MEMORY
from topology.errors import InputError

_log = structlog.get_logger()

_COLLECT_EVERY_S: Final = 30.0
_TOKENS: Final = "tokens"
_CONTAINERS: Final = "containers"


class DevicePlugin:
    """The hand-off of one node, running."""

    def __init__(self, settings: AgentSettings, api: ApiServer, metrics: Metrics, fault: faults.Fault = faults.no_fault) -> None:
        """Read what an earlier agent left; raises InputError where a directory cannot be used."""
        self._settings = settings
        self._series = Series(metrics.registry)
        self._stopping = threading.Event()
        resources = [settings.gpu_resource, *([GPU_MEMORY] if settings.hand_off == "cdi" and settings.offer_gpu_memory else [])]
        self._devices = {resource: Devices() for resource in resources}
        self._kubelet = Kubelet(settings.device_plugin_dir, settings.pod_resources_socket, self._send_again)
        self._cdi, self._files, self._records = self._storage()
        self.pods = Pods(api, settings.node_name)
        self.news = PodNews(self.pods, self._records)
        self._records.changed = self.news.records_changed
        self._watch = PodWatch(api, self.pods, self.news.changed)
        self._events = PodEvents(api, settings.node_name, lambda: metrics.failed("publish"))
        liveness = Liveness(self._kubelet, self.pods, self._records, Cgroups(settings.cgroup_root))
        means = Means(
            kubelet=self._kubelet,
            pods=self.pods,
            records=self._records,
            liveness=liveness,
            identity=Identity(self._kubelet, self.pods, self._records, _log.debug),
            cdi=self._cdi,
            files=self._files,
            events=self._events,
            series=self._series,
            fault=fault,
        )
        self.hand_off = HandOff(_rules(settings), means, self._stopping.wait)
        self.held = HeldGpus(self.hand_off, liveness, self.pods, self._records)
        self._garbage = Garbage(self.hand_off, liveness, self._kubelet, self._records)
        self._registration = Registration(settings.device_plugin_dir, self.hand_off, self._devices, self.refresh, self._series)
        self._registration.changed = self.news.registration_changed
        self._said = Said(settings.node_name)
        self._refreshing = threading.Lock()  # one list after the other, so that the last one told is the last one made
        self._collect_at = 0.0
        self._is_registering = False
        self._aligned_when: tuple[frozenset[str], frozenset[tuple[str, str, str]]] | None = (
            None  # tokens of the containers that were there, and the answer
        )

    def _storage(self) -> tuple[CdiDirectory, ContainerFiles, Records]:
        settings = self._settings
        try:
            files = ContainerFiles(settings.state_dir / _CONTAINERS)
            records = Records(settings.state_dir / _TOKENS)
            if settings.hand_off == "cdi":
                settings.cdi_dir.mkdir(mode=0o755, parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"the hand-off cannot use {error.filename}: {error.strerror}; accepted: directories of the node, mounted here"
            ) from error
        return CdiDirectory(settings.cdi_dir, settings.nvidia_cdi_dirs if settings.merge_nvidia_cdi else ()), files, records

    # --- life -------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin; kubelet hears of us after the first look at the hardware."""
        try:
            self._garbage.sweep(self._cdi, self._files)
        except OSError as error:
            _log.warning("leftovers of an earlier agent cannot be removed", why=str(error))
        self._watch.start()
        self._events.start()

    def stop(self) -> None:
        """End; containers run on, and none starts."""
        self._stopping.set()
        if self._is_registering:
            self._registration.stop()
        self._watch.stop()
        self._events.stop()

    def ill(self) -> str:
        """Return what is wrong with the plugin's own threads, an empty text where nothing is."""
        if not self._watch.alive():
            return "nobody watches the pods of this node: the thread has ended"
        return "nobody looks after kubelet's sockets: the thread has ended" if self._is_registering and not self._registration.alive() else ""

    # --- every round ------------------------------------------------------------------------------------------------

    def node_is(self, topology: GPUTopology, mig_parents: Mapping[str, str]) -> None:
        """Take what the hardware is now."""
        known = self.hand_off.gpus
        if known is None or _without_time(known.topology) != _without_time(topology) or known.mig_parents != mig_parents:
            self.hand_off.node_has(NodeGpus(topology, self._settings.gpu_reserve_mib, dict(mig_parents)))
        self.refresh()
        if not self._is_registering:
            self._is_registering = True
            self._registration.start()
        if time.monotonic() >= self._collect_at:
            self._collect_at = time.monotonic() + _COLLECT_EVERY_S
            self._collect()

    def refresh(self) -> None:
        """Tell kubelet the devices, where they are others than it was told."""
        with self._refreshing:
            self._refresh()

    def _refresh(self) -> None:
        gpus = self.hand_off.gpus
        if gpus is None:
            return
        held = self._records.holdings()
        self._series.holdings.set(len(held))
        try:
            entries = self._kubelet.checkpoint().entries
        except CheckpointError as error:
            self._said.say("checkpoint", f"health is told by kubelet's ids, as its checkpoint cannot be read: {error}")
            entries = ()
        else:
            self._said.over("checkpoint", "kubelet's checkpoint can be read again")
        given: dict[str, list[Given]] = {resource: [] for resource in self._devices}
        for entry in entries:
            holding = held.get(entry.token or "")
            if holding is not None and entry.resource in given:
                given[entry.resource].append(Given(entry.ids, holding))
        for resource, devices in self._devices.items():
            devices.tell(memory_devices(gpus, given[resource]) if resource == GPU_MEMORY else gpu_devices(gpus, given[resource]))

    def holders(self) -> list[Holding]:
        """Return what every container on this node holds in truth, whatever kubelet's ids say; empty where that is not known."""
        try:
            return self.hand_off.held()
        except RefusedStartError:
            return []

    def conditions(self) -> tuple[Condition, ...]:
        """Return what the node's GPUTopology is to tell of the hand-off: whether kubelet knows it, and whether GPUs lie where kubelet aligns CPUs to."""
        return self.registration(), numa_condition(self._records.all(), self.hand_off.gpus, self._aligned)

    def registration(self) -> Condition:
        """Return the first of them; asks nobody."""
        state = self._registration.state
        return registration_condition(self._devices.keys(), state.unheard, state.other)

    def parting(self) -> Condition:
        """Return what is to be told in its place before `stop`."""
        return parting_condition(self._devices.keys())

    def _aligned(self) -> frozenset[tuple[str, str, str]]:
        """Return what `Kubelet.aligned` does, asked anew when other containers are there: what each has for itself never changes, and every List disturbs kubelet (`identity`)."""
        there = frozenset(record.token for record in self._records.all() if record.holding)
        if self._aligned_when is None or self._aligned_when[0] != there:
            self._aligned_when = there, self._kubelet.aligned(self._devices)
        return self._aligned_when[1]

    def _collect(self) -> None:
        try:
            self._garbage.collect()
        except OSError as error:
            _log.warning("what is left of containers that are gone cannot be removed", why=str(error))

    def _send_again(self) -> None:
        for devices in self._devices.values():
            devices.send_again()


def _rules(settings: AgentSettings) -> Rules:
    return Rules(
        node_name=settings.node_name,
        by_cdi=settings.hand_off == "cdi",
        around=settings.around,
        patience_s=settings.start_patience_s,
    )


def _without_time(topology: GPUTopology) -> tuple[object, object]:
    """Return what matters of a topology here: hardware and health."""
    return topology.spec, tuple((gpu.uuid, gpu.healthy, gpu.reason) for gpu in topology.status.gpus)


def plugin_for(settings: AgentSettings, api: ApiServer, metrics: Metrics) -> DevicePlugin | None:
    """Return the plugin, None where the hand-off is off; raises InputError for settings that cannot be."""
    if settings.hand_off == "off":
        return None
    fault = faults.no_fault if settings.fault_file is None else faults.killed_by(settings.fault_file)
    return DevicePlugin(settings, api, metrics, fault)
