from collections.abc import Callable
from xml.etree import ElementTree as ET

from extender.demo import Tour, picture, tour


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def test_picture_is_the_checked_in_one(shipped: Tour, golden: Callable[[str, str], None]) -> None:
    """The README shows docs/placement.svg: what `linkwise demo --svg docs/placement.svg` writes."""
    golden("../../docs/placement.svg", picture(shipped))


def test_picture_does_not_depend_on_the_stream(shipped: Tour) -> None:
    assert picture(tour(2, 99)) == picture(shipped)


def test_picture_is_xml_with_the_figures_of_both_sides(shipped: Tour) -> None:
    shown = texts(picture(shipped))
    first = shipped.pods[0]
    for walk in (shipped.plain, shipped.linkwise):
        figures = shipped.figures(walk, first)
        assert figures is not None
        assert sum(text == f"{figures.gb_per_s:.{0 if figures.gb_per_s >= 10 else 1}f} GB/s" for text in shown) == 1


def test_gpu_in_use_is_shown_on_both_sides(shipped: Tour) -> None:
    shown = texts(picture(shipped))
    assert shown.count("in use") == 2
    assert shown.count("GPU0") == 2
