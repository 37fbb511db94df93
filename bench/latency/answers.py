"""Is an answer right as far as anybody can tell who does not know the cluster: every name exactly once, no error, scores of 0 to 10.

Used by `walk` and `crowd` on answers that were timed before. A fast wrong answer must not count as a fast one, so each of these raises InternalError with the verb and what is wrong.
"""

from collections.abc import Sequence
from typing import Any

import orjson

from bench.latency.wire import Answered
from topology.errors import InternalError


def fitting(answered: Answered, asked: Sequence[str]) -> list[str]:
    """Return the names that a filter left, once it is sure that each name asked for is answered exactly once, and none beside."""
    answer = _read(answered, "filter", dict)
    if answer.get("Error"):
        raise InternalError(f"filter: {answer['Error']}")
    left: list[str] = answer["NodeNames"] or []
    refused = [*(answer.get("FailedNodes") or ()), *(answer.get("FailedAndUnresolvableNodes") or ())]
    _once_each("filter", [*left, *refused], asked)
    return left


def fitting_objects(answered: Answered, asked: Sequence[str]) -> list[str]:
    """Return the same of an answer in the `Nodes` form."""
    answer = _read(answered, "filter", dict)
    if answer.get("Error") or answer.get("NodeNames") is not None:
        raise InternalError(f"filter: {answer.get('Error') or 'names were answered where objects were asked about'}")
    (items,) = (items for key, items in answer["Nodes"].items() if key.lower() == "items")  # Go reads keys whatever their case
    left = [item["metadata"]["name"] for item in items or []]
    _once_each("filter", [*left, *(answer.get("FailedNodes") or ()), *(answer.get("FailedAndUnresolvableNodes") or ())], asked)
    return left


def scores(answered: Answered, asked: Sequence[str]) -> dict[str, int]:
    """Return the score of each name, once it is sure that each has one of 0 to 10."""
    answer = _read(answered, "prioritize", list)
    _once_each("prioritize", [one["Host"] for one in answer], asked)
    found = {one["Host"]: one["Score"] for one in answer}
    if not all(type(score) is int and 0 <= score <= 10 for score in found.values()):
        raise InternalError("prioritize: a score is no integer of 0 to 10")
    return found


def bound(answered: Answered) -> None:
    """Make sure that a bind went well."""
    error = _read(answered, "bind", dict).get("Error")
    if error:
        raise InternalError(f"bind: {error}")


def echoed(answered: Answered, body: bytes) -> None:
    """Make sure that an echo gave back what it got."""
    if answered.status != 200 or answered.body != body:
        raise InternalError("the echo did not give back what it got")


def _read(answered: Answered, verb: str, kind: type[Any]) -> Any:
    if answered.status != 200:
        raise InternalError(f"{verb}: status {answered.status}: {answered.body[:200]!r}")
    try:
        answer = orjson.loads(answered.body)
    except orjson.JSONDecodeError as error:
        raise InternalError(f"{verb}: the answer is not JSON: {error}") from error
    if not isinstance(answer, kind):
        raise InternalError(f"{verb}: the answer is a JSON {type(answer).__name__}")
    return answer


def _once_each(verb: str, answered: Sequence[str], asked: Sequence[str]) -> None:
    told = set(answered)
    if len(told) != len(answered):
        raise InternalError(f"{verb}: a name is answered twice")
    if told != set(asked):
        raise InternalError(f"{verb}: {len(set(asked) - told)} names are not answered, {len(told - set(asked))} were never asked")
