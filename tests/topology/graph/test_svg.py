"""The elements of a drawing."""

from xml.etree import ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from topology.graph.svg import Box, Paint, Pen, Type, clipped, element, escaped, line, moved, number, rect, text, width_of


@given(st.floats(-1e6, 1e6))
def test_a_number_has_at_most_one_decimal(value: float) -> None:
    printed = number(value)
    assert abs(float(printed) - value) <= 0.0501
    assert len(printed.partition(".")[2]) <= 1
    assert printed != "-0"


@given(st.text())
def test_any_text_makes_well_formed_xml(content: str) -> None:
    parsed = ET.fromstring(text(0, 0, content, Type(10, "#000")))
    assert parsed.text is None or len(parsed.text) == len(content)
    ET.fromstring(rect(Box(0, 0, 1, 1), Paint("#fff"), hint=content))


def test_control_characters_are_replaced() -> None:
    assert escaped("a\x1b\x00\ud800<&") == "a???&lt;&amp;"


def test_attributes_that_are_not_set_are_left_out() -> None:
    assert element("a", {"b": None, "d": 1.25, "c": 'x"y'}) == '<a c=\'x"y\' d="1.2"/>'
    assert "dasharray" not in line((0, 0), (1, 1), Pen("#000", 1))
    assert 'opacity="0.50"' in line((0, 0), (1, 1), Pen("#000", 1, 0.5))


def test_a_moved_group_is_scaled_only_if_asked() -> None:
    assert moved("<a/>", 1, 2) == '<g transform="translate(1 2)"><a/></g>'
    assert "scale(0.5000)" in moved("<a/>", 1, 2, 0.5)


@given(st.text(max_size=60), st.floats(1, 400))
def test_clipped_text_fits_or_is_only_an_ellipsis(content: str, room: float) -> None:
    short = clipped(content, 12, room)
    assert short == content or short.endswith("…")
    assert width_of(short, 12) <= max(room, width_of("…", 12))


def test_a_box_knows_its_edges() -> None:
    box = Box(1, 2, 10, 20)
    assert (box.right, box.bottom, box.middle) == (11, 22, 6)
