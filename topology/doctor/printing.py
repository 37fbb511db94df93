"""What `linkwise doctor` prints: a line a link, and last the first broken one with its cure; or the same as one JSON object.

Called by `topology.cli`. Texts come from nvidia-smi, kubelet and files of the node: what is not printable in them is replaced.
"""

import json
from typing import Final

from topology.doctor.chain import Examined, first_broken

_WIDTH: Final = 19  # of the longest name of a link


def line_of(one: Examined) -> str:
    """Return the line of a link."""
    return f"{one.finding.state:<8}{one.link:<{_WIDTH}}  {_plain(one.finding.says)}"


def conclusion(node: str, chain: list[Examined]) -> str:
    """Return the last line."""
    worst = first_broken(chain)
    if worst is None:
        return f"{node}: no link is broken."
    return f"{node}: first broken link: {worst.link}: {_plain(worst.finding.says)}. Cure: {_plain(worst.finding.cure or 'unknown')}."


def as_json(node: str, chain: list[Examined]) -> str:
    """Return the whole chain as one JSON object on one line."""
    worst = first_broken(chain)
    links = [{"link": one.link, "state": one.finding.state.value, "message": _plain(one.finding.says), "cure": one.finding.cure} for one in chain]
    return json.dumps({"node": node, "links": links, "firstBroken": None if worst is None else worst.link}, ensure_ascii=False)


def _plain(text: str) -> str:
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
