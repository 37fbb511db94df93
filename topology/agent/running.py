"""The running agent: everything put together, round after round, until a signal.

Called by `linkwise agent`. One round: take the latest look at the hardware (`prober`, another thread), ask kubelet who holds what (`holders`), look up Node
and object, put together what should be published (`wanted`) and write what differs (`publish`). Each has its own pace; a round comes every few seconds
and after each look, and does what is due. Trouble never ends the agent: what cannot be done is said once, counted, and tried again.

A signal ends it wherever it is: nothing here has to be finished, since the next agent begins with what lies on the API server. With the hand-off on it first says
that it goes, so that no pod is bound to a node on which kubelet would reject it.
"""

import random
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from types import FrameType
from typing import Final

import structlog

from topology.agent.api_server import ApiServer, NoAnswerError, RefusedError
from topology.agent.handoff.plugin import DevicePlugin, plugin_for
from topology.agent.holders import Holders, HolderSource, mig_parents
from topology.agent.metrics import Metrics, MetricsServer
from topology.agent.prober import Look, Prober
from topology.agent.publish import Clocks, Publisher, Target
from topology.agent.recall import Earlier
from topology.agent.said import Said
from topology.agent.settings import AgentSettings
from topology.agent.sysfs import boot_id
from topology.agent.wanted import is_told_registered, wanted, with_hand_off, with_holders, with_registration, with_transitions
from topology.api import GPUTopology, read_gputopology
from topology.api.annotations import BOOT_ID
from topology.errors import LinkwiseError, TopologyError

_log = structlog.get_logger()

_PAUSES_S: Final = (
    1.0,
    10.0,
)  # first and longest pause after the API server failed; then the last heartbeat is not yet stale (180 s) after two minutes
_SILENT_S: Final = 60.0  # a round takes seconds; one that takes longer hangs
_CUT_OFF_S: Final = 60.0  # while a driver is replaced its library and its module differ for some seconds
_BREATH_S: Final = 0.05  # shortest pause between two rounds
_SOON_S: Final = 0.5  # after news of pods: containers come and go together, and one look is enough for them
_PASSING_S: Final = 1.0  # while a pod is gone whose containers run on
_PARTING_S: Final = 1.0  # within that time kubelet admits what was bound before the extender heard
# After a deletion the extender waits for a look that came later, by its time: once a second later, and again for clocks that differ, or a watch that lags.
_AFTER_DELETION: Final = tuple(timedelta(seconds=seconds) for seconds in (1, 4, 15))


class _StoppedError(BaseException):
    """A signal came; not an Exception, so that nothing on the way takes it for trouble."""


class Agent:
    """The agent of one node; use `run`."""

    def __init__(
        self, settings: AgentSettings, api: ApiServer, metrics: Metrics, clocks: Clocks | None = None, plugin: DevicePlugin | None = None
    ) -> None:
        self._settings = settings
        self._clocks = clocks or Clocks()
        self._metrics = metrics
        self._said = Said(settings.node_name)
        self._boot_id = boot_id(settings.sysfs_root)
        self._publisher = Publisher(api, Target(settings.node_name, self._boot_id, settings.heartbeat_s), metrics, self._clocks)
        self._holders: HolderSource = Holders(settings.pod_resources_socket, settings.gpu_resource) if plugin is None else plugin.held
        self._prober = Prober(settings, self.looked)
        self._plugin = plugin
        self._has_news = threading.Event()
        if plugin is not None:
            plugin.news.heard = self._heard
        self._wake = threading.Event()
        self._look: Look | None = None
        self._has_seen = False  # a look of this very process succeeded
        self._cut_off_at: float | None = None  # since when nvidia-smi fails as it does where the container is what is wrong
        self._mig_parents: dict[str, str] = {}
        self._earlier: Earlier | None = None
        self._has_begun = False  # what an earlier agent published has been read
        self._due = _Due(self._clocks.monotonic)
        self._pause_s = 0.0
        self._round_at = self._clocks.monotonic()

    def run(self) -> None:
        """Work until SIGTERM or SIGINT."""
        with suppress(_StoppedError), _signals():
            self._prober.start()
            while True:
                self._round_or_say_why_not()
                self._wake.wait(self._due.soonest_s(min(self._settings.holders_every_s, self._settings.heartbeat_s)))
                self._wake.clear()
        try:
            self._part()
        finally:
            self._prober.stop()

    def _part(self) -> None:
        """Close the node to new pods and serve those on their way, where the cluster was told that kubelet gets GPUs from us; an API server that is away keeps nobody."""
        plugin, earlier = self._plugin, self._earlier
        if plugin is None or earlier is None or not is_told_registered(earlier.topology):
            return
        topology = with_transitions(with_registration(earlier.topology, plugin.parting()), earlier.topology, self._clocks.day())
        try:
            self._publisher.publish_status(topology)
            self._clocks.sleep(_PARTING_S)
            self._publisher.look_up()
            self._publisher.publish_status(topology)  # again, where a write that the signal cut off has landed since
        except (NoAnswerError, RefusedError) as error:
            _log.warning("the API server did not take it that the agent ends", why=str(error))
        except Exception:  # noqa: BLE001  # our bug must not keep sockets and threads here
            _log.exception("the agent ends without a word, which is a bug in Linkwise")

    def ill(self) -> str:
        """Return what is wrong with the agent itself, an empty text where nothing is."""
        silent_s = self._clocks.monotonic() - self._round_at
        if silent_s > _SILENT_S:
            return f"the agent hangs: its last round began {silent_s:.0f} s ago"
        if not self._prober.alive():
            return "nobody looks at the hardware: its thread has ended"
        cut_off_at = self._cut_off_at
        if cut_off_at is not None and self._clocks.monotonic() - cut_off_at > _CUT_OFF_S:
            return "nvidia-smi worked in this container and reaches the driver no more: its device files were taken away, or the node has another driver now; a new container has the node's"
        return self._plugin.ill() if self._plugin is not None else ""

    def looked(self, look: Look) -> None:
        """Take in a look, in the prober's thread."""
        self._metrics.probe_seconds.observe(look.seconds)
        if look.error is not None and not look.no_gpus:
            self._metrics.failed("probe")
        self._has_seen |= look.facts is not None
        if not (self._has_seen and look.is_cut_off):
            self._cut_off_at = None
        elif self._cut_off_at is None:
            self._cut_off_at = self._clocks.monotonic()
        self._look = look
        self._wake.set()

    def _heard(self) -> None:
        """Take note, in whatever thread, that pods have changed."""
        self._has_news.set()
        self._wake.set()

    # --- one round --------------------------------------------------------------------------------------------------

    def _round_or_say_why_not(self) -> None:
        try:
            self.round()
        except Exception:  # noqa: BLE001  # our bug must not take the node's topology from the cluster: the next round may fare better
            self._metrics.failed("round")
            _log.exception("a round failed, which is a bug in Linkwise")

    def round(self) -> None:
        """Do what is due."""
        self._round_at = self._clocks.monotonic()
        self._tell_plugin()
        self._take_news()
        if not self._due.now("api"):
            return
        try:
            self._talk()
        except (NoAnswerError, RefusedError) as error:
            self._metrics.failed("publish")
            self._pause_s = min(max(self._pause_s * 2, _PAUSES_S[0]), _PAUSES_S[1])
            self._due.after("api", self._pause_s * random.uniform(0.5, 1.0))  # noqa: S311  # spreads the agents, hides no secret
            self._due.after("look-up", 0.0)
            self._said.say("api", f"the API server does not take the GPUTopology, tried again until it does: {error}{_hint(error)}")
        else:
            self._pause_s = 0.0
            self._said.over("api", "the API server answers again")

    def _tell_plugin(self) -> None:
        """Let the device plugin know the hardware as it was seen last, whether the API server answers or not."""
        look = self._look
        if self._plugin is None or look is None:
            return
        topology, _ = wanted(self._settings.node_name, look, self._earlier, self._clocks.day())
        if topology is not None:
            self._plugin.node_is(topology, mig_parents(look.facts.inventory) if look.facts is not None else self._mig_parents)

    def _take_news(self) -> None:
        """Look soon at who holds what, where pods have changed."""
        if self._plugin is None or not self._has_news.is_set():
            return
        self._has_news.clear()
        self._due.hasten("holders", _SOON_S)
        if self._plugin.news.take_gone():
            self._publisher.again_at(*(self._clocks.day() + pause for pause in _AFTER_DELETION))

    def _talk(self) -> None:
        """Look up, put together, write; raises what the API server's trouble makes."""
        if not self._has_begun:
            self._begin()
        if self._earlier is not None:
            self._look_up()
        topology = self._topology()
        if topology is None:
            return
        self._look_up()  # the first time: a node without GPUs asks for nothing
        if self._publisher.node_uid is None:
            self._said.say("node", "there is no Node of this name: its GPUTopology is published once there is")
            return
        self._said.over("node", "the Node exists now")
        self._publisher.publish(topology)
        again = self._publisher.next_again
        if again is not None:
            self._due.hasten("holders", max((again - self._clocks.day()).total_seconds(), _SOON_S))

    def _look_up(self) -> None:
        """Learn what became of Node and object, where it is due."""
        if not self._due.now("look-up", self._settings.look_up_every_s):
            return
        is_gone = self._publisher.look_up()
        if is_gone and self._earlier is not None:
            # Whoever deletes the object wants it anew: GPUs that only the old one knew are no longer recalled.
            self._earlier = Earlier(self._earlier.topology, same_boot=False)

    def _begin(self) -> None:
        """Begin with what an earlier agent of this node published."""
        stored = self._publisher.published()
        if stored is not None:
            try:
                topology = read_gputopology(stored)
            except TopologyError as error:
                self._said.say("begin", f"the published GPUTopology cannot be read and is replaced: {error}")
            else:
                boot = (stored["metadata"].get("annotations") or {}).get(BOOT_ID)
                self._earlier = self._earlier or Earlier(topology, same_boot=boot is not None and boot == self._boot_id)
                self._holders.remember(topology)
                self._publisher.told(topology)
                self._prober.expects_gpus = True
                if self._plugin is not None and is_told_registered(topology):
                    # An agent that was killed could not say so, and the first look at the hardware takes seconds.
                    told = with_registration(topology, self._plugin.registration())
                    self._publisher.publish_status(with_transitions(told, topology, self._clocks.day()))
        self._has_begun = True

    def _topology(self) -> GPUTopology | None:
        """Return what should be published now; None where nothing is known yet, or there is nothing."""
        look = self._look
        if look is None:
            return None
        earlier = self._earlier
        now = self._clocks.day()
        topology, error = wanted(self._settings.node_name, look, earlier, now)
        self._say_look(look, error, is_published=topology is not None)
        if topology is None:
            return None
        if look.facts is not None:
            self._mig_parents = mig_parents(look.facts.inventory)
        if self._due.now("holders", self._settings.holders_every_s):
            self._ask_kubelet()
        observation = self._holders.observation((gpu.uuid for gpu in topology.spec.gpus), self._mig_parents)
        topology = with_hand_off(with_holders(topology, observation), self._plugin.conditions() if self._plugin is not None else ())
        topology = with_transitions(topology, earlier.topology if earlier is not None else None, now)
        # A failing driver does not rewrite what is remembered; the next good look compares itself with the last good one.
        self._earlier = Earlier(topology, same_boot=True) if error is None or earlier is None else Earlier(topology, earlier.same_boot)
        return topology

    def _ask_kubelet(self) -> None:
        self._holders.ask(self._clocks.day())
        if self._holders.expects_change:
            self._due.hasten("holders", _PASSING_S)
        error = self._holders.error
        if error is None:
            self._said.over("holders", "who holds which GPU is observed again")
            return
        self._metrics.failed("holders")
        self._said.say("holders", f"{error}; who holds which GPU is not observed")

    def _say_look(self, look: Look, error: LinkwiseError | None, *, is_published: bool) -> None:
        if error is None:
            self._said.over("look", "the node can be described")
        elif is_published:
            self._said.say("look", f"all GPUs are published as unhealthy: {error}")
        elif look.no_gpus:
            self._said.say(
                "look", f"this node has no NVIDIA GPU and gets no GPUTopology; looked again every {self._settings.no_gpu_every_s:g} s: {error}"
            )
        else:
            self._said.say("look", f"nothing is published yet, tried again until there is something: {error}")


class _Due:
    """When something is to be done next, by its name."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._next: dict[str, float] = {}

    def now(self, what: str, every_s: float = 0.0) -> bool:
        """Tell whether it is due, and if so, note when it will be again."""
        now = self._clock()
        if now < self._next.get(what, now):
            return False
        self._next[what] = now + every_s
        return True

    def after(self, what: str, pause_s: float) -> None:
        """Not before that many seconds."""
        self._next[what] = self._clock() + pause_s

    def hasten(self, what: str, pause_s: float) -> None:
        """In that many seconds, or earlier where it is due earlier."""
        now = self._clock()
        self._next[what] = min(self._next.get(what, now), now + max(pause_s, _BREATH_S))

    def soonest_s(self, at_most_s: float) -> float:
        """Return the seconds until something is due that is not due yet."""
        now = self._clock()
        return min([at_most_s, *(max(when - now, _BREATH_S) for when in self._next.values() if when > now)])


def run_agent(settings: AgentSettings) -> None:
    """Run the agent of a node until a signal; raises InputError where it cannot begin (kubeconfig, port)."""
    metrics = Metrics()
    api = ApiServer.connect(settings.kubeconfig, settings.context)
    plugin = plugin_for(settings, api, metrics)
    agent = Agent(settings, api, metrics, plugin=plugin)
    server = MetricsServer(settings.metrics_port, metrics, agent.ill) if settings.metrics_port else None
    if server is not None:
        server.start()
    if plugin is not None:
        plugin.start()
    try:
        agent.run()
    finally:
        if plugin is not None:
            plugin.stop()
        if server is not None:
            server.stop()
        api.close()


@contextmanager
def _signals() -> Iterator[None]:
    """Turn SIGTERM and SIGINT into _StoppedError, in the main thread, whatever it waits for."""

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise _StoppedError

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _hint(error: LinkwiseError) -> str:
    """Return what to look at, where the status tells."""
    if isinstance(error, RefusedError) and error.status == 404 and not error.reason:
        return " (is manifests/crd.yaml applied?)"
    return (
        " (does the account have the rights of manifests/rbac-agent.yaml?)" if isinstance(error, RefusedError) and error.status in (401, 403) else ""
    )
