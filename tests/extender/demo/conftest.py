"""The demo as it ships, run once for all tests of it."""

import pytest

from extender.demo import Tour, tour
from extender.demo.scene import PICTURED_NODE, make_scene
from extender.demo.stream import Step, make_stream

PODS, SEED = 24, 5  # the defaults of `linkwise demo`


@pytest.fixture(scope="session")
def shipped() -> Tour:
    return tour(PODS, SEED)


@pytest.fixture(scope="session")
def shipped_steps() -> tuple[Step, ...]:
    return make_stream(SEED, PODS, make_scene().gpus, PICTURED_NODE)
