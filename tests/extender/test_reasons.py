"""Every refusal has one sentence for kube-scheduler and one for people; the first is grouped over thousands of nodes, the second has the node's numbers."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.reasons import CLOSURE_SENTENCES, Asked, NodeNumbers, Refusal, for_event, full_sentence, gb_per_s, set_word, wire_sentence
from topology.links import Distance

ASKED = Asked(gpus=3, largest=2, containers=2, floor=100.0, ceiling=Distance.PXB, model="*H100*")
ANY_MODEL = replace(ASKED, model=None)
NEAR = replace(ANY_MODEL, one_numa=True, nic_ceiling=Distance.PXB)
ALL = replace(ASKED, one_numa=True, nic_ceiling=Distance.PXB)
REFUSED = ("team/old", datetime(2026, 1, 1, 12, 34, 56, tzinfo=UTC))
NUMBERS = NodeNumbers(
    together=1, total=8, eligible=4, free=2, best=23.9994, best_link="PHB", detail="pod team/old: its allocation is gone", refused_by_kubelet=REFUSED
)

REFUSALS = [refusal for refusal in Refusal if refusal is not Refusal.FITS]
refusals = pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal.name)


def test_every_sentence_is_golden(golden: Callable[[str, str], None]):
    lines = []
    for refusal in REFUSALS:
        lines.append(refusal.name)
        for asked, whose in ((ANY_MODEL, "any model"), (ASKED, "one model"), (NEAR, "one NUMA node and a NIC"), (ALL, "all of them")):
            near = asked.nic_ceiling is not None
            told_by_others = near if refusal.is_closure else refusal in (Refusal.NUMA, Refusal.NIC) and not near
            if (asked.model is not None or refusal is not Refusal.MODEL) and not told_by_others:
                for what, told, numbers in _of_shares(refusal, asked):
                    lines.append(f"  {whose}{what}, wire: {wire_sentence(refusal, told, numbers)}")
                    lines.append(f"  {whose}{what}, full: {full_sentence(refusal, told, numbers)}")
    golden("reasons.txt", "\n".join(lines) + "\n")


def _of_shares(refusal: Refusal, asked: Asked) -> list[tuple[str, Asked, NodeNumbers]]:
    """The variants of a refusal that speaks of shares; any other has one."""
    if refusal not in (Refusal.GPU_TOO_SMALL, Refusal.NOT_ENOUGH_MEMORY):
        return [("", asked, NUMBERS)]
    large = replace(NUMBERS, most_offered_mib=79 * 1024, most_left_mib=5000, large_enough=1, model="NVIDIA H100 80GB HBM3", memory_mib=81559)
    kept = replace(large, most_offered_mib=77 * 1024, reserve_mib=2048)
    one, two = replace(asked, share=(80 * 1024, 1)), replace(asked, share=(20 * 1024, 2))
    shares = [(", one share", one, large), (", two shares", two, large)]
    return shares if refusal is Refusal.NOT_ENOUGH_MEMORY else [*shares, (", a reserve", one, kept), (", sizes unknown", one, NUMBERS)]


def test_the_sentence_that_makes_one_fall_in_love():
    pair = replace(ANY_MODEL, gpus=2)
    assert full_sentence(Refusal.BANDWIDTH, pair, replace(NUMBERS, total=4)) == "2 of 4 GPUs free, best pair 24 GB/s over PHB, 100 asked"


def test_a_link_that_is_far_for_want_of_peer_access_is_told_as_such():
    """Else people look for a missing NVLink that is there; a set that has its NVLinks is not concerned."""
    apart = replace(NUMBERS, best=9.137, best_link="SYS", kept_apart=True)
    pair = replace(ANY_MODEL, gpus=2)
    assert full_sentence(Refusal.BANDWIDTH, pair, apart) == "2 of 8 GPUs free, best pair 9.1 GB/s over SYS (some without peer access), 100 asked"
    assert (
        wire_sentence(Refusal.BANDWIDTH, pair, apart) == "linkwise: best pair 9.1 GB/s over SYS (some without peer access), min-bandwidth 100 asked"
    )
    assert "peer access" not in full_sentence(Refusal.BANDWIDTH, pair, replace(apart, best_link="NV4"))


def test_what_kubelet_refused_is_told_with_its_end_where_that_is_known():
    """To kube-scheduler in whole minutes, never too early; one container of one GPU needs no hint how to keep it on one NUMA node."""
    assert wire_sentence(Refusal.KUBELET_REFUSED, ASKED, NUMBERS).endswith("; not tried there again before 12:35 UTC")
    assert wire_sentence(Refusal.KUBELET_REFUSED, ASKED, replace(NUMBERS, refused_by_kubelet=None)).endswith("refused such a pod on the node")
    single = replace(ANY_MODEL, gpus=1, largest=1)
    assert full_sentence(Refusal.KUBELET_REFUSED, single, NUMBERS).endswith("(TopologyAffinityError); not tried there again before 12:34:56 UTC")


@refusals
def test_every_closure_and_no_other_has_a_closure_sentence(refusal: Refusal):
    assert (refusal in CLOSURE_SENTENCES) == refusal.is_closure


@refusals
def test_a_wire_sentence_says_who_speaks_and_names_no_node_and_no_pod(refusal: Refusal):
    sentence = wire_sentence(refusal, ASKED, NUMBERS)
    assert sentence.startswith("linkwise: ")
    assert "team/old" not in sentence


@refusals
def test_a_closed_node_is_explained_by_name(refusal: Refusal):
    if refusal.is_closure:
        assert full_sentence(refusal, ASKED, NUMBERS).endswith(": pod team/old: its allocation is gone")
        assert full_sentence(refusal, ASKED, replace(NUMBERS, detail="")) == CLOSURE_SENTENCES[refusal]


@refusals
def test_nodes_that_differ_in_free_gpus_alone_share_one_wire_sentence(refusal: Refusal):
    """The event groups equal sentences, so a number per node would explode it."""
    sentences = {wire_sentence(refusal, ASKED, replace(NUMBERS, free=free, eligible=free + 1, total=8 + free)) for free in range(8)}
    assert len(sentences) == 1


@given(st.text())
def test_no_percent_sign_reaches_the_format_string_of_kube_scheduler(text: str):
    assert "%" not in for_event(text)
    assert "%" not in wire_sentence(Refusal.MODEL, replace(ASKED, model=text), NUMBERS)


@pytest.mark.parametrize(
    ("best", "floor", "told"),
    [
        pytest.param(23.9994, 24.0, "best pair 23.9994 GB/s over PHB, 24 asked", id="a little below a round number"),
        pytest.param(23.9994, 100.0, "best pair 24 GB/s over PHB, 100 asked", id="far below"),
        pytest.param(9.14, 9.15, "best pair 9.1 GB/s over PHB, 9.2 asked", id="told apart by one digit"),
        pytest.param(9.14, 9.144, "best pair 9.14 GB/s over PHB, 9.144 asked", id="not told apart by one digit"),
    ],
)
def test_best_and_floor_never_read_alike(best: float, floor: float, told: str):
    asked = replace(ANY_MODEL, floor=floor)
    assert full_sentence(Refusal.BANDWIDTH, asked, replace(NUMBERS, best=best)) == f"2 of 8 GPUs free, {told}"


@given(st.floats(0.1, 1000), st.floats(0.1, 1000))
def test_a_refusal_for_bandwidth_shows_two_different_numbers(best: float, floor: float):
    if round(best, 6) < round(floor, 6):
        sentence = wire_sentence(Refusal.BANDWIDTH, replace(ANY_MODEL, floor=floor), replace(NUMBERS, best=best))
        told, asked = sentence.removeprefix("linkwise: best pair ").split(" GB/s over PHB, min-bandwidth ")
        assert told != asked.removesuffix(" asked")


def test_a_node_without_any_set_says_so():
    assert full_sentence(Refusal.DISTANCE, ANY_MODEL, replace(NUMBERS, best=None)) == "2 of 8 GPUs free, no pair, but none within max-distance PXB"


@pytest.mark.parametrize(("value", "text"), [(450.0, "450"), (10.0, "10"), (9.96, "10.0"), (0.5, "0.5")])
def test_bandwidths_have_no_digits_that_the_model_cannot_mean(value: float, text: str):
    assert gb_per_s(value) == text


def test_a_set_of_two_is_a_pair():
    assert (set_word(2), set_word(4)) == ("pair", "set of 4")
