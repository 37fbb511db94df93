"""Prices worked out in a process of their own: `python -m extender.placement.apart` reads questions from its input and writes the answers to its output.

`extender.pricing` starts it while calls are answered. `requested` and `answered` are the two ends of the other side, `main` is this one.
"""

import os
import sys
from collections.abc import Sequence

import numpy as np
import orjson

from extender.placement.prices import Found, Question, worth_of_rest


def requested(questions: Sequence[Question]) -> bytes:
    """Return the input for these questions."""
    return orjson.dumps(questions)


def answered(questions: Sequence[Question], output: bytes) -> Found:
    """Return the answers of the output; raises ValueError where it is none. Numbers come through it to the last bit.

    >>> answered([((10,), (1.0,), 20)], worked_out(requested([((10,), (1.0,), 20)])))[(10,), (1.0,), 20][[9, 10, 20]].tolist()
    [0.0, 0.5, 1.0]
    """
    found = [np.array(worth, np.float64) for worth in orjson.loads(output)]
    for worth in found:
        worth.flags.writeable = False
    return dict(zip(questions, found, strict=True))


def worked_out(request: bytes) -> bytes:
    """Return the output for an input."""
    return orjson.dumps([worth_of_rest(tuple(sizes), tuple(counts), capacity).tolist() for sizes, counts, capacity in orjson.loads(request)])


def main() -> None:
    """Answer one request."""
    os.nice(10)  # who answers calls goes first
    sys.stdout.buffer.write(worked_out(sys.stdin.buffer.read()))


if __name__ == "__main__":
    main()
