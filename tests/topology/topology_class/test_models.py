"""Globs of models mean what people expect of them."""

import pytest

from topology.topology_class import accepts_model


@pytest.mark.parametrize(
    ("globs", "model", "accepted"),
    [
        pytest.param("*", None, True, id="any, and the model is unknown"),
        pytest.param("*A100*", None, False, id="one, and the model is unknown"),
        pytest.param("*a100*", "NVIDIA A100-SXM4-80GB", True, id="in another case"),
        pytest.param("*A100*", "NVIDIA A10", False, id="a longer name"),
        pytest.param("A100", "NVIDIA A100-SXM4-80GB", False, id="the whole name counts"),
        pytest.param("*T4*, *A10", "NVIDIA A10", True, id="the second of two"),
        pytest.param("", "NVIDIA A10", False, id="nothing"),
    ],
)
def test_a_model_is_accepted_where_one_of_the_globs_matches_all_of_its_name(globs: str, model: str | None, accepted: bool) -> None:
    assert accepts_model(globs, model) is accepted
