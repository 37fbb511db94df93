"""What a check found: one link of the chain is whole, broken, or could not be looked at.

Made by every check, walked by `chain`, printed by `printing`. A broken one names its cure; a skipped one says why nobody could look.
"""

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """How a link is."""

    OK = "ok"
    BROKEN = "broken"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found, in a sentence without its full stop; ``cure``: what to do, where it is broken."""

    state: State
    says: str
    cure: str | None = None


def ok(says: str) -> Finding:
    """Return a link that is whole."""
    return Finding(State.OK, says)


def broken(says: str, cure: str) -> Finding:
    """Return a link that is broken, and what to do."""
    return Finding(State.BROKEN, says, cure)


def skipped(why: str) -> Finding:
    """Return a link that could not be looked at, or that matters not here."""
    return Finding(State.SKIPPED, why)
