"""Sentences for the log, each said once: a state that lasts for hours is one line when it begins and one when it ends.

Used by `running` for everything that may repeat in every round. A topic is what the sentence is about; another sentence on the same topic is news.
"""

from typing import Final

import structlog

_log = structlog.get_logger()

NODE: Final = "node"  # key of the log lines


class Said:
    """What was said last on each topic, on one node."""

    def __init__(self, node_name: str) -> None:
        self._log = _log.bind(**{NODE: node_name})
        self._last: dict[str, str] = {}

    def say(self, topic: str, sentence: str) -> None:
        """Say that something is not as it should be, unless that was the last said on the topic."""
        if self._last.get(topic) != sentence:
            self._last[topic] = sentence
            self._log.warning(sentence)

    def over(self, topic: str, sentence: str) -> None:
        """Say that it is over, if anything was said."""
        if self._last.pop(topic, None) is not None:
            self._log.info(sentence)

    def note(self, sentence: str) -> None:
        """Say something that happens rarely by itself."""
        self._log.info(sentence)
