"""Whether a soak has shown what it is to show: memory flat after warm-up, no growing lag, nothing twice, no error in the log."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

import orjson

WARM_UP: Final = 0.25  # of the time: caches fill, the allocator finds its size
MOST_GROWTH: Final = 0.05  # of resident memory, from the first fifth after warm-up to the last
MOST_LAG_FACTOR: Final = 1.5
LAG_SLACK_S: Final = 0.1  # below it, a factor is noise
_BAD: Final = ("Traceback", "please report")


@dataclass(frozen=True, slots=True)
class Sample:
    """The extender at one moment: seconds since the start, MiB in memory, its processor seconds, pods that wait, and pods bound until then."""

    at_s: float
    resident_mib: float
    cpu_s: float
    waiting: int
    bound: int


@dataclass(frozen=True, slots=True)
class Log:
    """Lines of a log by level, and what each warning and error says, counted."""

    levels: dict[str, int]
    told: dict[str, int]
    bad: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """All that a soak has found. ``lags`` are seconds since the start, and seconds until the extender told of a change; ``waits`` the same for pods, from creation to binding."""

    minutes: float
    samples: tuple[Sample, ...]
    lags: tuple[tuple[float, float], ...]
    waits: tuple[tuple[float, float], ...]
    wrong: tuple[str, ...]
    steps: int
    troubles: tuple[str, ...]
    log: Log


@dataclass(frozen=True, slots=True)
class Verdict:
    """One target: what was asked, what was found, and whether that meets it."""

    target: str
    found: str
    met: bool


def read_log(text: str) -> Log:
    """Read the extender's log, one JSON object a line; any other line is what the interpreter or a library has said by itself."""
    levels: Counter[str] = Counter()
    told: Counter[str] = Counter()
    lines = text.splitlines()
    for line in lines:
        if line.startswith("{"):
            said = orjson.loads(line)
            levels[said["level"]] += 1
            if said["level"] not in ("debug", "info"):
                told[f"{said['level']}: {said['event']}"] += 1
    return Log(dict(levels), dict(told), tuple(line for line in lines if any(bad in line for bad in _BAD)))


def _fifths(values: Sequence[tuple[float, float]], minutes: float) -> tuple[list[float], list[float]]:
    """Return the values of the first and of the last fifth of the time after warm-up."""
    end = 60 * minutes
    begin = WARM_UP * end
    fifth = (end - begin) / 5
    return [value for at, value in values if begin <= at < begin + fifth], [value for at, value in values if at >= end - fifth]


def growth(samples: Iterable[Sample], minutes: float) -> float | None:
    """Return by how much resident memory has grown after warm-up, as a share; None where there are too few samples."""
    first, last = _fifths([(one.at_s, one.resident_mib) for one in samples], minutes)
    return median(last) / median(first) - 1 if first and last else None


def judge(found: Found) -> list[Verdict]:
    """Return the verdicts."""
    grown = growth(found.samples, found.minutes)
    first, last = _fifths(found.lags, found.minutes)
    lag = bool(first and last) and median(last) <= MOST_LAG_FACTOR * median(first) + LAG_SLACK_S
    early, late = _fifths(found.waits, found.minutes)
    wait = bool(early and late) and median(late) <= MOST_LAG_FACTOR * median(early) + LAG_SLACK_S
    errors = {told: count for told, count in found.log.told.items() if not told.startswith("warning")}
    return [
        Verdict(
            f"memory flat after {100 * WARM_UP:g} percent of the time: grown by at most {100 * MOST_GROWTH:g} percent",
            "too few samples" if grown is None else f"{100 * grown:+.1f} percent",
            grown is not None and grown <= MOST_GROWTH,
        ),
        Verdict("no growing lag: a change of a topology until the extender tells of it", _early_late(first, last), lag),
        Verdict("pods wait no longer at the end than at the beginning: creation to binding", _early_late(early, late), wait),
        Verdict(
            "no GPU promised twice, after every event about any pod",
            f"{len(found.wrong)} wrong of {found.steps} events",
            not found.wrong and found.steps > 0,
        ),
        Verdict("no error in the log", f"{sum(errors.values())} errors, {len(found.log.bad)} tracebacks", not errors and not found.log.bad),
        Verdict("nothing else went wrong", f"{len(found.troubles)} troubles", not found.troubles),
    ]


def _early_late(first: Sequence[float], last: Sequence[float]) -> str:
    if not first or not last:
        return "too few samples"
    return f"median {1000 * median(first):.0f} ms, later {1000 * median(last):.0f} ms"
