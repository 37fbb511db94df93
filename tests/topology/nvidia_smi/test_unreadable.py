"""One error for a text that holds nothing for its reader, in one order of explanations."""

import pytest

from topology.nvidia_smi.unreadable import no_answer


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        pytest.param("\x1b[0m \n", "empty", id="nothing but escape codes"),
        pytest.param("ACCESS TABLE:", "unsupported", id="another vendor"),
        pytest.param("No devices were found", "no_devices", id="a failure of the tool"),
        pytest.param("GPU 0: NVIDIA A30", "bad_arguments", id="another output"),
        pytest.param("lorem ipsum", "unknown", id="nothing known"),
    ],
)
def test_the_error_says_what_the_text_is_and_what_is_wanted(text: str, kind: str):
    error = no_answer(text, "wanted: the output of `nvidia-smi -q`")
    assert error.kind == kind
    assert kind in ("unsupported", "no_devices") or str(error).endswith("wanted: the output of `nvidia-smi -q`")
