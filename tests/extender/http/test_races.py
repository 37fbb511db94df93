"""Many pods, many connections, one extender: what was promised to one pod is never given to another, and nothing is left over."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from tests.builders import PodBuilder, pod
from tests.extender.http.conftest import Serve
from tests.extender.http.served import Scheduler, Served


def over_connections(served: Served, count: int, work: Callable[[Scheduler, PodBuilder], str | None], pods: Iterable[PodBuilder]) -> list[str | None]:
    """Do the work for every pod, on that many connections at once.

    One thread a connection: a client that several threads share may take an answer that came fast for the end of an idle connection, and close it under its reader.
    """
    asked = list(pods)
    results: list[str | None] = [None] * len(asked)
    with ExitStack() as open_ones, ThreadPoolExecutor(count) as threads:
        schedulers = [open_ones.enter_context(served.another_scheduler()) for _ in range(count)]
        jobs = [threads.submit(_in_turn, work, scheduler, asked[number::count]) for number, scheduler in enumerate(schedulers)]
        for number, job in enumerate(jobs):
            results[number::count] = job.result()
    return results


def _in_turn(work: Callable[[Scheduler, PodBuilder], str | None], scheduler: Scheduler, pods: Iterable[PodBuilder]) -> list[str | None]:
    return [work(scheduler, asked) for asked in pods]


def test_of_24_one_gpu_pods_over_12_connections_8_are_bound_to_an_8_gpu_node(extender: Serve):
    served = extender(node="dgx1v")
    pods = [pod(f"p{number}").gpus(1) for number in range(24)]

    def filter_and_bind(scheduler: Scheduler, asked: PodBuilder) -> str:
        scheduler.filter(asked)
        return scheduler.bind(asked, "node")

    errors = over_connections(served, 12, filter_and_bind, pods)
    assert errors.count("") == 8
    assert all("does not fit on node node any more: 0 of 8 GPUs free, 1 asked" in error for error in errors if error)
    assert len(served.bindings()) == 8
    assert len(set(served.given())) == len(served.given()) == 8


def test_40_pods_are_filtered_first_and_then_bound_at_once_no_gpu_twice_none_wasted(extender: Serve):
    """HAMi 1130, 450, 1367: a lock per node makes this 15 to 30 minutes there."""
    served = extender(a="nvswitch", b="dgx1v", c="bridges", d="pcie", e="mesh", f="mesh")
    pods = [pod(f"p{number}").gpus(1) for number in range(40)]
    chosen = {asked.name: str(served.scheduler.chosen(asked)) for asked in pods}
    over_connections(served, 12, lambda scheduler, asked: scheduler.bind(asked, chosen[asked.name]), pods)
    left = [asked for asked in pods if asked.name not in served.allocations()]
    over_connections(served, 12, lambda scheduler, asked: scheduler.place(asked), left)
    assert len(served.allocations()) == 40
    assert len(set(served.given())) == len(served.given()) == 40
    assert set(served.free().values()) == {0}


def test_40_pods_chosen_for_one_node_at_once_fill_it_and_no_more(extender: Serve):
    served = extender(node="nvswitch")
    pods = [pod(f"p{number}").gpus(2) for number in range(40)]
    chosen = {served.scheduler.chosen(asked) for asked in pods}
    assert chosen == {"node"}, "filter promises nothing: every pod fits as long as none is bound"
    errors = over_connections(served, 12, lambda scheduler, asked: scheduler.bind(asked, "node"), pods)
    assert errors.count("") == 4
    assert len(set(served.given())) == len(served.given()) == 8


def test_pods_of_all_sizes_at_once_get_each_its_own(extender: Serve):
    """HAMi 710, volcano-vgpu-device-plugin 93: a 1-GPU and a 2-GPU pod bound in the same second."""
    served = extender()
    pods = [pod(f"p{number}").gpus(1 + number % 3) for number in range(24)]
    over_connections(served, 8, lambda scheduler, asked: scheduler.place(asked), pods)
    allocations = served.allocations()
    assert all(len(allocations[asked.name]["containers"]["main"]) == 1 + number % 3 for number, asked in enumerate(pods) if asked.name in allocations)
    assert len(set(served.given())) == len(served.given())
    assert sum(served.free().values()) == 36 - len(served.given())
    waiting = [asked for asked in pods if asked.name not in allocations]
    assert waiting
    assert all(served.scheduler.filter(asked)["NodeNames"] == [] for asked in waiting), "who is left over finds room nowhere"


def test_two_kube_schedulers_that_want_the_same_pods_elsewhere_bind_each_once(extender: Serve):
    """gpushare-scheduler-extender 232."""
    served = extender(a="bridges", b="bridges")
    pods = [pod(f"p{number}").gpus(1) for number in range(8)]
    nodes = {f"p{number}": ("a", "b") if number % 2 else ("b", "a") for number in range(8)}

    def bind_here(which: int) -> Callable[[Scheduler, PodBuilder], str]:
        return lambda scheduler, asked: scheduler.filter(asked)["Error"] or scheduler.bind(asked, nodes[asked.name][which])

    with ThreadPoolExecutor(2) as both:
        first, second = both.map(lambda which: over_connections(served, 4, bind_here(which), pods), (0, 1))
    assert all(answers.count("") == 1 for answers in zip(first, second, strict=True))
    assert all(
        f"is bound to node {served.allocations()[asked.name]['node']} already" in "".join(map(str, answers))
        for asked, *answers in zip(pods, first, second, strict=True)
    )
    assert len(set(served.given())) == len(served.given()) == 8


def test_bind_twice_succeeds_once_and_elsewhere_is_refused_by_name(extender: Serve):
    """Kubernetes 96579: the bind succeeded, the HTTP call timed out, the scheduler calls again."""
    served = extender(a="mesh", b="mesh")
    asked = pod("once").gpus(2)
    assert served.scheduler.filter(asked)["NodeNames"] == ["a", "b"]
    assert [served.scheduler.bind(asked, "a") for _ in range(3)] == ["", "", ""]
    assert served.scheduler.bind(asked, "b") == "pod default/once is bound to node a already, not to b"
    assert len(served.bindings()) == 1
    assert served.free() == {"a": 2, "b": 4}


def test_a_bind_that_is_called_on_twelve_connections_at_once_is_one_binding(extender: Serve):
    served = extender(node="bridges")
    asked = pod("once").gpus(2)
    served.scheduler.filter(asked)
    errors = over_connections(served, 12, lambda scheduler, same: scheduler.bind(same, "node"), [asked] * 36)
    assert set(errors) == {""}
    assert len(served.bindings()) == 1


def test_a_restart_from_what_was_written_gives_nothing_twice(extender: Serve):
    served = extender(node="nvswitch")
    first = [pod(f"p{number}").gpus(1) for number in range(5)]
    assert all(served.scheduler.place(asked) for asked in first)
    bound = [
        asked.bound_to("node", each["metadata"]["annotations"]["linkwise.dev/allocation"])
        for asked, each in zip(first, served.bindings(), strict=True)
    ]
    again = extender(node="nvswitch", pods=bound)
    assert again.free() == {"node": 3}
    assert len(again.given()) == 5, "the same file goes on"
    later = [pod(f"later-{number}").gpus(1) for number in range(4)]
    assert [again.scheduler.place(asked) for asked in later] == ["node", "node", "node", None]
    assert len(set(again.given())) == 8
