"""What is printed: the policies side by side, their curves, and why pods were refused; and everything as data."""

from extender.settings import Settings
from extender.simulate.curves import Curve
from extender.simulate.figures import figures
from extender.simulate.jobs import Job
from extender.simulate.replay import Rules, Run, replay
from extender.simulate.report import as_data, blocks, for_people, seconds
from extender.simulate.sides import side
from tests.builders import cluster, pod
from topology.inspection.text import plain

PAIRS = cluster().bridges("pairs")


def runs_of(jobs: list[Job], *policies: str) -> list[Run]:
    return [replay(policy, jobs, side(policy, PAIRS.snapshot(), Settings()), Rules()) for policy in policies]


def printed(runs: list[Run]) -> str:
    return plain(for_people("Opening.", runs, figures(runs)), width=100)


TIMED = [Job(pod(f"p{n}").gpus(2).build(), 100.0 * n, 150.0) for n in range(4)] + [Job(pod("no").gpus(9).build(), 500.0)]


def test_policies_stand_side_by_side():
    """A column each, waiting among the rows as pods come and leave."""
    text = printed(runs_of(TIMED, "pack", "count"))
    head = next(line for line in text.splitlines() if line.startswith("policy"))
    assert head.split() == ["policy", "pack", "count"]
    for label in ("GPU allocated, percent", "at most", "mean GB/s, several GPUs (4)", "mean waiting", "pods placed", "refused"):
        assert label in text


def test_reasons_of_refusals_are_counted():
    """The sentence is filter's."""
    text = printed(runs_of(TIMED, "pack"))
    assert "Refused under pack:\n  1 x " in text


def test_without_time_nothing_is_said_of_waiting():
    """All come at once and stay; who waits at the end is told."""
    text = printed(runs_of([Job(pod(f"p{n}").gpus(8).build()) for n in range(2)], "pack"))
    assert "mean waiting" not in text
    assert "waiting at the end" in text


def test_data_tells_of_every_pod():
    """Where it went, what it got, when; null where there is nothing to tell."""
    runs = runs_of(TIMED, "pack")
    (found,) = as_data(runs, figures(runs))["policies"]
    first, last = found["pods"][0], found["pods"][-1]
    assert (first["node"], len(first["gpus"]), first["startedS"], first["leftS"], first["refused"]) == ("pairs", 2, 0.0, 150.0, None)
    assert (last["node"], last["gpus"], last["refused"] is None) == (None, None, False)
    assert found["figures"]["placed"] == 4
    assert len(found["moments"]) == len(runs[0].moments)


def test_blocks_reach_from_nothing_to_the_top():
    """Eight heights; an empty curve is flat."""
    assert blocks(Curve("", (0.0, 25.0, 50.0)), 50.0) == "▁▅█"
    assert blocks(Curve("", (0.0, 0.0)), 0.0) == "▁▁"


def test_durations_are_short():
    """Seconds, minutes, hours."""
    assert [seconds(value) for value in (0.4, 119, 120, 100_000, 200_000)] == ["0 s", "119 s", "2 min", "1667 min", "56 h"]
