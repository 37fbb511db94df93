"""The tree of errors: what is whose fault, and that every failure of nvidia-smi has a name."""

import pytest

from topology import errors


def test_bad_input_is_never_an_internal_error():
    assert not issubclass(errors.InputError, errors.InternalError)
    assert issubclass(errors.InternalError, errors.LinkwiseError)


@pytest.mark.parametrize("kind", list(errors.NvidiaSmiFailure))
def test_an_nvidia_smi_error_carries_its_kind_and_sentence(kind: errors.NvidiaSmiFailure):
    error = errors.NvidiaSmiError(kind, "what happened", bus_id="00000000:3B:00.0")
    assert (error.kind, str(error), error.bus_id) == (kind, "what happened", "00000000:3B:00.0")
    assert isinstance(error, errors.InputError)


def test_the_docstring_draws_the_whole_tree():
    drawn = errors.__doc__ or ""
    for name, found in vars(errors).items():
        if isinstance(found, type) and issubclass(found, errors.LinkwiseError):
            assert name in drawn
