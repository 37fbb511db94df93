"""The one error for a text that is not what a reader wants, whichever reader it is.

Asked in this order: is it blank, another vendor's tool, one of nvidia-smi's own failures, another of its outputs, or nothing known.
"""

from topology.errors import NvidiaSmiError, NvidiaSmiFailure
from topology.nvidia_smi.failures import failure_in, first_line
from topology.nvidia_smi.plain_text import plain_lines
from topology.nvidia_smi.sniff import other_answer, vendor_error


def no_answer(text: str, wanted: str) -> NvidiaSmiError:
    """Return the error for a text that holds nothing for its reader; ``wanted`` ends the sentence: "wanted: the output of `…`"."""
    plain = "\n".join(plain_lines(text))
    if not plain.strip():
        return NvidiaSmiError(NvidiaSmiFailure.EMPTY, f"the text is empty; {wanted}")
    known = vendor_error(plain) or failure_in(plain)
    if known:
        return known
    command = other_answer(plain)
    if command:
        return NvidiaSmiError(NvidiaSmiFailure.BAD_ARGUMENTS, f"this is the output of {command}; {wanted}")
    return NvidiaSmiError(NvidiaSmiFailure.UNKNOWN, f'nothing can be read from the text that begins with "{first_line(plain)}"; {wanted}')
