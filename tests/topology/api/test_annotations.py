"""Every key is Linkwise's own and stands for one thing."""

from topology.api import annotations


def test_every_annotation_key_is_under_the_prefix_and_there_once() -> None:
    keys = [*annotations.SUPPORTED, *annotations.WRITTEN]
    assert all(key.startswith("linkwise.dev/") for key in keys)
    assert len(keys) == len(set(keys))


def test_every_key_of_the_module_is_sorted_into_asked_or_written() -> None:
    """A key that is in none of the three tuples would be refused as unknown, or never noticed."""
    resources = {annotations.GPU_MEMORY, annotations.PREFIX, annotations.API_VERSION, annotations.STARTUP_TAINT}
    keys = {value for name, value in vars(annotations).items() if name.isupper() and isinstance(value, str) and value.startswith(annotations.PREFIX)}
    assert keys - resources == {*annotations.SUPPORTED, *annotations.WRITTEN}


def test_no_resource_is_an_annotation() -> None:
    resources = {annotations.WHOLE_GPU, annotations.GPU_MEMORY, annotations.GPUSHARE_MEMORY}
    assert len(resources) == 3
    assert not resources & {*annotations.SUPPORTED, *annotations.WRITTEN}


def test_object_names_agree() -> None:
    assert annotations.API_VERSION == f"{annotations.GROUP}/{annotations.VERSION}" == "linkwise.dev/v1alpha1"
    assert (annotations.KIND.lower(), annotations.PLURAL, annotations.SHORT_NAME) == ("gputopology", "gputopologies", "gputopo")
