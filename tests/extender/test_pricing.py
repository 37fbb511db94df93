"""Prices are worked out beside the calls: the old target stays in force until the new one's are known, and takes its place in one step."""

import asyncio
from typing import Any

import pytest
import structlog

from extender.demand_class import SEED_TARGET, DemandClass, Target
from extender.placement import Placement
from extender.placement.outlook import Outlook
from extender.placement.prices import worth_of_rest
from extender.pricing import Pricing
from tests.builders import Extender, cluster, extender_on, pod

GIB = 1024
SHARES: Target = (DemandClass(1000, 1, 13 * GIB, popularity=0.6), DemandClass(1000, 1, 29 * GIB, popularity=0.4))
NODES = cluster().pcie("a", "b").with_pods(pod("x").shared(13).sharing("a", {cluster().pcie("a").uuids("a")[0]: 13 * GIB}))
ASKED = pod("asked").shared(13)


def beside() -> tuple[Extender, Pricing]:
    """Return an extender whose prices are worked out beside its calls, as far as they are known for its nodes, and who does that."""
    extender = extender_on(NODES)
    placement = extender.verbs.placement
    placement.look_ahead(extender.cluster.view())
    placement.prices.beside = True
    return extender, Pricing(extender.cluster, placement, lambda: True)


def scores(extender: Extender) -> dict[str, int]:
    return extender.prioritize(ASKED)


def at_once(target: Target) -> dict[str, int]:
    """Return the scores of an extender that works everything out where it is asked for."""
    extender = extender_on(NODES)
    extender.verbs.placement.expect(target)
    return scores(extender)


async def test_the_old_target_stays_in_force_until_the_prices_of_the_new_one_are_known():
    extender, pricing = beside()
    placement = extender.verbs.placement
    before = placement.outlook
    placement.expect(SHARES)
    assert scores(extender) == at_once(SEED_TARGET)
    assert placement.awaits_prices
    assert placement.outlook.target is before.target
    assert await pricing.answer_next()
    assert not placement.awaits_prices
    assert placement.outlook.target == SHARES
    assert scores(extender) == at_once(SHARES)
    assert not await pricing.answer_next(), "nothing is left to work out"


async def test_calls_are_answered_while_prices_are_worked_out_and_all_by_the_old_ones():
    extender, pricing = beside()
    extender.verbs.placement.expect(SHARES)
    work = asyncio.create_task(pricing.answer_next())
    answers = []
    while not work.done():
        answers.append(scores(extender))
        await asyncio.wait([work], timeout=0.01)
    assert await work
    assert len(answers) > 5
    assert all(answer == answers[0] for answer in answers)


async def test_of_two_targets_the_later_one_comes_into_force():
    extender, pricing = beside()
    placement = extender.verbs.placement
    placement.expect(SHARES)
    placement.expect(SEED_TARGET)
    assert not placement.awaits_prices, "it is in force already"
    placement.expect(SHARES)
    placement.expect(SHARES[:1])
    while await pricing.answer_next():
        pass
    assert placement.outlook.target == SHARES[:1]


async def test_a_size_of_gpu_that_comes_later_goes_by_a_guess_until_its_price_is_known():
    extender, pricing = beside()
    assert extender.cluster.apply_topology(cluster().nvswitch("large").topologies[0]) is None
    placement = extender.verbs.placement
    assert set(scores(extender)) == {"a", "b", "large"}
    guessed = placement.outlook
    assert placement.prices.wanted()
    assert await pricing.answer_next()
    assert placement.outlook is not guessed, "what was guessed is not kept"
    assert scores(extender) == extender_on_all_at_once()


def extender_on_all_at_once() -> dict[str, int]:
    extender = extender_on(NODES)
    assert extender.cluster.apply_topology(cluster().nvswitch("large").topologies[0]) is None
    return scores(extender)


async def test_until_the_first_answer_the_prices_of_what_is_there_are_asked_for():
    extender = extender_on(NODES)
    placement = Placement(None, Outlook())
    task = asyncio.create_task(Pricing(extender.cluster, placement, lambda: False).run())
    async with asyncio.timeout(30):
        while not placement.prices.beside or placement.prices.wanted():
            await asyncio.wait([task], timeout=0.01)
    questions = placement.outlook.questions(SEED_TARGET)
    assert questions
    for question in questions:
        assert placement.prices.worth(question).tolist() == worth_of_rest(*question).tolist()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_where_no_process_can_be_had_prices_are_worked_out_here_and_the_log_says_so(monkeypatch: pytest.MonkeyPatch):
    """Better a call that waits than demands that are never heard."""
    extender, pricing = beside()
    monkeypatch.setattr("sys.executable", "/bin/false")
    extender.verbs.placement.expect(SHARES)
    with structlog.testing.capture_logs() as lines:
        assert await pricing.answer_next()
    assert [line["event"] for line in lines] == ["prices not worked out beside the calls, please report"]
    assert extender.verbs.placement.outlook.target == SHARES


async def test_placement_without_anybody_beside_works_prices_out_where_they_are_asked_for():
    """Simulations and tests: the same at once."""
    extender = extender_on(NODES)
    placement: Any = extender.verbs.placement
    placement.expect(SHARES)
    assert placement.outlook.target == SHARES
    placement.look_ahead(extender.cluster.view())
    for question in placement.outlook.questions(SHARES):
        assert placement.prices.worth(question).tolist() == worth_of_rest(*question).tolist()


async def test_prices_of_gpus_that_come_later_are_asked_for_before_a_call_needs_them():
    extender, pricing = beside()
    placement = extender.verbs.placement
    assert placement.knows_prices(extender.cluster.view())
    extender.cluster.apply_topology(cluster().mesh("m").topologies[0])
    assert not placement.knows_prices(extender.cluster.view())
    placement.look_ahead(extender.cluster.view())
    assert await pricing.answer_next()
    assert placement.knows_prices(extender.cluster.view())
