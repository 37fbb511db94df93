"""What the end-to-end bench reads from programs, and how it judges what it has read; the run itself is in tests/e2e."""

import os
import random
import subprocess
import sys
from dataclasses import replace

import pytest

from bench.end_to_end import binds, judging, report, start, variants
from bench.end_to_end.binds import Binds
from bench.end_to_end.cluster import SIZES, fillers, node_of
from bench.end_to_end.expositions import Counts, read_counts
from bench.end_to_end.judging import Size, asked_share, fuller, judge, ratios
from bench.end_to_end.processes import Cpu, children, cpu_seconds, resident_mib
from bench.end_to_end.shares import Shares
from bench.end_to_end.start import Start
from bench.end_to_end.throughput import Round, Timed, round_of, wanted
from bench.end_to_end.variants import LINKWISE, NULL, UNBATCHED, VARIANTS, Sampling, Who, configuration
from bench.snapshot import make
from tests.e2e.checks import check_pods
from tests.e2e.extender import shipped_configuration

EXPOSITION = """
# HELP scheduler_framework_extension_point_duration_seconds Latency.
# TYPE scheduler_framework_extension_point_duration_seconds histogram
scheduler_framework_extension_point_duration_seconds_bucket{extension_point="Filter",profile="linkwise",status="Success",le="0.1"} 7
scheduler_framework_extension_point_duration_seconds_sum{extension_point="Filter",profile="linkwise",status="Success"} 0.5
scheduler_framework_extension_point_duration_seconds_sum{extension_point="Filter",profile="linkwise",status="Unschedulable"} 0.25
scheduler_framework_extension_point_duration_seconds_sum{extension_point="Score",profile="linkwise",status="Success"} 2
scheduler_framework_extension_point_duration_seconds_sum{extension_point="Filter",profile="default-scheduler",status="Success"} 9
scheduler_scheduling_algorithm_duration_seconds_sum 4
go_goroutines 400
"""


# --- reading --------------------------------------------------------------------------------------------------------


def test_samples_are_summed_over_the_labels_that_nobody_named():
    """Buckets and the metrics of libraries are left out."""
    counts = read_counts(EXPOSITION)
    name = "scheduler_framework_extension_point_duration_seconds_sum"
    assert counts.total(name, extension_point="Filter", profile="linkwise") == 0.75
    assert counts.by(name, "extension_point", profile="linkwise") == {"Filter": 0.75, "Score": 2.0}
    assert counts.total("no_such_metric") == 0.0
    assert not any("bucket" in sample or sample.startswith("go_") for sample, _ in counts.samples)


def test_what_was_added_since_counts_a_new_sample_in_full():
    """A label that appears later was 0 before."""
    before = read_counts('linkwise_call_seconds_count{verb="filter"} 3\n')
    after = read_counts('linkwise_call_seconds_count{verb="filter"} 5\nlinkwise_call_seconds_count{verb="bind"} 2\n')
    assert after.since(before).by("linkwise_call_seconds_count", "verb") == {"filter": 2.0, "bind": 2.0}


def test_processor_seconds_are_read_behind_a_name_that_holds_brackets():
    """User and kernel mode together, children that have ended too, in ticks of 10 ms."""
    stat = "42 (a (strange) name) S 1 42 42 0 -1 4194560 100 0 0 0 150 50 20 30 20 0 1 0 100 1 1"
    assert cpu_seconds(stat) == pytest.approx(2.5)


def test_resident_memory_is_read_in_mib_and_none_is_none():
    """A process that has ended has no such line."""
    assert resident_mib("Name:\tx\nVmRSS:\t  204800 kB\n") == 200.0
    assert resident_mib("Name:\tx\n") == 0.0


def test_the_children_of_a_process_are_found_while_they_run():
    """Not those of others."""
    before = set(children(os.getpid()))
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert set(children(os.getpid())) - before == {child.pid}
        assert child.stdin is not None
        child.stdin.close()


def test_a_round_is_put_together_from_what_was_counted_of_its_profile():
    """What kube-scheduler spends outside of its plugins is the algorithm's time less theirs."""
    calls = read_counts(
        'linkwise_call_seconds_count{verb="filter"} 2\nlinkwise_call_seconds_sum{verb="filter"} 0.004\nlinkwise_call_seconds_count{verb="preempt"} 0\n'
    )
    found = round_of(Timed("linkwise", Sampling.ALL, 2, 0.5), read_counts(EXPOSITION), calls, Cpu({"etcd": 0.1}))
    assert found.pods_per_s == 4.0
    assert found.in_tree_s == {"PreFilter": 0.0, "Filter": 0.75, "PreScore": 0.0, "Score": 2.0}
    assert found.not_in_tree_s == pytest.approx(1.25)
    assert found.calls == {"filter": (2.0, 0.004)}


def test_writes_are_counted_by_resource_and_reads_are_none():
    """Whatever the verb that writes."""
    text = "\n".join(
        f'apiserver_request_total{{resource="{resource}",verb="{verb}",code="200"}} {count}'
        for resource, verb, count in [("nodes", "PATCH", 2), ("nodes", "LIST", 9), ("leases", "PUT", 3), ("leases", "POST", 1), ("pods", "DELETE", 0)]
    )
    assert start.writes_of(read_counts(text)) == {"nodes": 2, "leases": 4}


# --- what is compared -----------------------------------------------------------------------------------------------


def test_all_variants_share_profiles_weights_and_score_plugins_and_differ_in_the_extender_alone():
    """The null extender has no preempt verb; without an extender there is none."""
    shipped = shipped_configuration("http://127.0.0.1:1")
    made = {variant.name: configuration(variant, "http://127.0.0.1:1") for variant in VARIANTS}
    assert made[LINKWISE.name] == shipped
    assert all({**one, "extenders": []} == {**shipped, "extenders": []} for one in made.values())
    (null,) = made[NULL.name]["extenders"]
    assert {**null, "preemptVerb": "preempt"} == shipped["extenders"][0]
    assert {one.name for one in VARIANTS if not made[one.name]["extenders"]} == {"no extender", "no extender, unbatched"}


def test_pods_of_a_round_go_to_the_profile_that_samples_so():
    """They ask for 1.2 GPUs in the mean."""
    pods = wanted("b1", 10, Sampling.ALL)
    assert {item["spec"]["schedulerName"] for item in pods} == {"linkwise"}
    assert sum(int(item["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"]) for item in pods) == 12
    assert {item["spec"]["schedulerName"] for item in wanted("b1", 1, Sampling.STOCK)} == {"default-scheduler"}


def test_a_node_offers_what_its_topology_has_and_half_of_it_is_held_by_pods_of_the_sizes_that_arrive():
    """None of them holds a GPU of another node, or one that is held."""
    topologies = [item for item in make(100, 0.0, 3)["items"] if item["kind"] == "GPUTopology"]
    assert node_of(topologies[0])["status"]["allocatable"]["nvidia.com/gpu"] == str(len(topologies[0]["spec"]["gpus"]))
    pods = fillers(topologies, random.Random(3))
    held = check_pods([{**item, "status": {"phase": "Running"}} for item in pods], topologies)
    gpus = sum(len(topology["spec"]["gpus"]) for topology in topologies)
    assert sum(map(len, held.values())) == pytest.approx(gpus / 2, rel=0.1)
    assert len(held) == len(pods)
    assert {len(uuids) for uuids in held.values()} == set(SIZES)


def test_binds_onto_one_node_take_the_roomiest_and_the_others_spread_over_those_with_room():
    """No more pods than the one node has GiB."""
    free = {"a": 40, "b": 300, "c": 0, "d": 120}
    chosen = binds.chosen(free, 1000)
    assert set(chosen["one node"]) == {"b"}
    assert len(chosen["one node"]) == len(chosen["distinct nodes"]) == 300
    assert set(chosen["distinct nodes"]) == {"b"}
    assert set(binds.chosen(free, 40)["distinct nodes"]) == {"a", "b", "d"}


# --- judging --------------------------------------------------------------------------------------------------------


def rounds(variant: variants.Variant, *pods_per_s: float, sampling: Sampling = Sampling.STOCK, **more: float) -> tuple[Round, ...]:
    checked = 1020 if variant.who is Who.LINKWISE else 0
    return tuple(Round(variant.name, sampling.value, 1000, 1000 / each, checked=checked, **more) for each in pods_per_s)


def size(*half: Round, empty: tuple[Round, ...] = (), **more: tuple[object, ...]) -> Size:
    return Size(500, 3600, empty, half, **more)  # type: ignore[arg-type]


def met(found: Size, shares: list[Shares] | None = None) -> dict[str, bool]:
    """Return the verdicts by the last words of their targets."""
    return {verdict.target.rpartition(": ")[2]: verdict.met for verdict in judge([found], shares or [])}


def test_ratios_are_taken_round_by_round():
    """A slow moment of the machine hits both sides of one ratio."""
    found = (*rounds(NULL, 100, 50, 100), *rounds(LINKWISE, 95, 48, 93))
    assert ratios(found, LINKWISE.name, NULL.name, Sampling.STOCK) == pytest.approx([0.95, 0.96, 0.93])
    assert ratios(found, LINKWISE.name, NULL.name, Sampling.ALL) == []


@pytest.mark.parametrize(
    ("linkwise", "is_met"),
    [
        pytest.param((95, 89, 91), True, id="the median is enough"),
        pytest.param((95, 89, 80), False, id="the median is too little"),
        pytest.param((90, 90, 90), True, id="just enough"),
    ],
)
def test_at_least_nine_tenths_of_the_null_extender(linkwise: tuple[float, ...], is_met: bool):
    """Of the pods a second, the median over the rounds."""
    found = met(size(*rounds(NULL, 100, 100, 100), *rounds(LINKWISE, *linkwise)))
    assert found == {"at least 0.9 of the null extender's pods/s": is_met, "every pod carries a correct allocation": True}


def test_a_pod_that_was_not_checked_fails_the_run():
    """Fewer allocations than pods."""
    found = size(*rounds(NULL, 100), *(replace(one, checked=999) for one in rounds(LINKWISE, 100)))
    assert met(found)["every pod carries a correct allocation"] is False


def test_half_full_is_compared_with_empty_by_the_time_of_a_pod():
    """Beside it stands what the null extender lost."""
    found = size(*rounds(NULL, 90), *rounds(LINKWISE, 60), empty=(*rounds(NULL, 100), *rounds(LINKWISE, 90)))
    assert fuller(found, LINKWISE.name, Sampling.STOCK) == pytest.approx(1.5)
    assert met(found)["a pod takes at most 1.3 times as long half full as empty"] is False
    assert fuller(size(*rounds(LINKWISE, 60)), LINKWISE.name, Sampling.STOCK) is None


def test_the_share_of_asking_leaves_out_what_kube_scheduler_spends_without_an_extender():
    """Half a second of ten is its own snapshot."""
    found = (*rounds(UNBATCHED, 100, algorithm_s=0.5), *rounds(LINKWISE, 100, algorithm_s=2.5))
    assert asked_share(found, LINKWISE.name, Sampling.STOCK) == pytest.approx(0.2)
    assert asked_share(found[1:], LINKWISE.name, Sampling.STOCK) is None


def test_binds_onto_one_node_are_judged_against_distinct_nodes_of_the_same_round():
    """By those of Linkwise; the others are reported."""
    both = [
        Binds(who, onto, rate, 0.01, 0.02)
        for who, one, other in [("linkwise", 80.0, 100.0), ("null", 50.0, 100.0)]
        for onto, rate in [("one node", one), ("distinct nodes", other)]
    ]
    assert judging.one_node_ratio(both, Who.LINKWISE) == 0.8
    assert met(size(binds=tuple(both))) == {"binds onto one node at least 0.9 as fast as onto distinct nodes": False}


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        pytest.param(Start(4.9, 3.0, 200.0, 480, {"leases": 2}, 0), (True, True), id="quick, and no node written to"),
        pytest.param(Start(5.1, 3.0, 200.0, 480, {"leases": 2}, 0), (False, True), id="slow"),
        pytest.param(Start(1.0, 3.0, 200.0, 480, {"nodes": 1}, 0), (True, False), id="a write is counted"),
        pytest.param(Start(1.0, 3.0, 200.0, 480, {}, 3), (True, False), id="nodes have changed"),
    ],
)
def test_a_start_is_judged_by_its_time_and_by_what_it_writes(one: Start, expected: tuple[bool, bool]):
    """Writing to Leases is its right."""
    found = met(size(starts=(one,)))
    assert (found["first answer within 5 s"], found["no write to any node until then"]) == expected


def test_parts_of_gpus_are_judged_for_each_number_of_pods():
    """Against the null extender of the same round."""
    shares = [
        Shares(who, pods, rate, 7)
        for pods, own in [(40, 95.0), (1000, 80.0)]
        for who, rate in [("linkwise", own), ("null extender", 100.0), ("1 plain client", 300.0)]
    ]
    found = {verdict.target: verdict.met for verdict in judge([], shares)}
    assert list(found.values()) == [True, False, True]


# --- the report -----------------------------------------------------------------------------------------------------


def test_the_report_names_the_targets_and_every_variant_that_was_run():
    """With ratios to the null extender and to none, and the processor time of every program."""
    cpu = {"cpu_s": {"extender": 1.5, "kube-apiserver": 4.0}}
    half = [*rounds(UNBATCHED, 200, **cpu), *rounds(NULL, 100, 110, **cpu), *rounds(LINKWISE, 95, 99, algorithm_s=1.0, **cpu)]  # type: ignore[arg-type]
    found = size(*half)
    text = report.text([found], [], judge([found], []))
    assert "| half full | stock | linkwise | 97 (95-99) | 0.93 | 0.47 |" in text
    assert "| 500 nodes, stock: at least 0.9 of the null extender's pods/s | 0.93 | yes |" in text
    assert "| stock | linkwise | 1.50 |  | 4.00 |  |  |  | 5.5 |" in text


def test_one_value_is_written_alone_and_several_with_their_spread():
    """The median, least and most."""
    assert (report.spread([3.0]), report.spread([3.0, 1.0, 2.0]), report.spread([0.123], 2)) == ("3", "2 (1-3)", "0.12")


def test_nothing_counted_is_nothing_used():
    """A variant without an extender has no counts."""
    assert Counts({}).since(Counts({})).by("linkwise_call_seconds_count", "verb") == {}
    assert dict(Cpu({"a": 2.0, "b": 1.0}).since(Cpu({"a": 1.5})).seconds) == {"a": 0.5, "b": 1.0}
