"""docs/settings.md names every setting with its default, and every series: no more and no fewer than the code has."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic_settings import BaseSettings

from extender.metrics import Metrics
from extender.settings import Settings
from topology.agent.handoff.series import Series
from topology.agent.metrics import Metrics as AgentMetrics
from topology.agent.settings import AgentSettings

PAGE = (Path(__file__).parents[1] / "docs/settings.md").read_text(encoding="utf-8").splitlines()
NOT_IN_TABLES = {"node_name", "fault_file"}  # the one is told in a sentence, the other is for tests


def _told(default: Any) -> str:
    if default is None:
        return "none"
    if isinstance(default, tuple):
        return f"`{json.dumps([str(each) for each in default])}`"
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return f"`{default:g}`" if isinstance(default, float) else f"`{default}`"


def _settings(model: type[BaseSettings]) -> Iterator[str]:
    for name, field in model.model_fields.items():
        if name not in NOT_IN_TABLES:
            yield f"| `{model.model_config['env_prefix']}{name.upper()}` | {_told(field.default)} | {field.description} |"


def _series() -> Iterator[str]:
    agent = AgentMetrics().registry
    Series(agent)
    for registry in (Metrics().registry, agent):
        for family in registry.collect():
            if family.name.startswith("linkwise"):
                yield f"| `{family.name}{'_total' if family.type == 'counter' else ''}` | {family.type} | {family.documentation} |"


def test_the_page_names_every_setting_with_its_default_and_no_other() -> None:
    """An administrator has the image and this page, not the code."""
    assert [line for line in PAGE if re.match(r"\| `LINKWISE_", line)] == [*_settings(Settings), *_settings(AgentSettings)]


def test_the_page_names_every_series_with_its_kind_and_no_other() -> None:
    """What can be drawn and alerted on stands in one place."""
    assert [line for line in PAGE if re.match(r"\| `linkwise_", line)] == [*_series()]
