"""The few SVG elements that the drawings are made of: boxes, lines, curves, text.

Plain strings, no library: the drawings need six elements, must be the same bytes on every machine, and go into a README. Every number is printed with
at most one decimal. Presentation attributes instead of a style sheet, because two drawings on one page must not restyle each other. What is drawn
where is `drawing`'s business; `sheet` makes files.
"""

from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from typing import Final
from xml.sax.saxutils import escape, quoteattr

FONT: Final = "'Helvetica Neue', Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"

# Widths of letters in units of the font size. Helvetica's own metrics, widened by 8 percent because the reader may see a wider substitute.
_NARROW: Final = frozenset("iljI|.,:;'!()[]·")
_WIDE: Final = frozenset("mwMWGO@%")
_WIDTHS: Final = {"narrow": 0.32, "wide": 0.86, "upper": 0.72, "other": 0.6}


@dataclass(frozen=True, slots=True)
class Fragment:
    """SVG elements on an area of that size, the origin at the upper left corner."""

    width: float
    height: float
    body: str


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle on the sheet."""

    x: float
    y: float
    width: float
    height: float

    @property
    def right(self) -> float:
        """Right edge."""
        return self.x + self.width

    @property
    def bottom(self) -> float:
        """Lower edge."""
        return self.y + self.height

    @property
    def middle(self) -> float:
        """Horizontal middle."""
        return self.x + self.width / 2


@dataclass(frozen=True, slots=True)
class Pen:
    """How a line is drawn."""

    colour: str
    width: float
    opacity: float = 1.0
    dash: str | None = None


@dataclass(frozen=True, slots=True)
class Paint:
    """How an area is drawn."""

    fill: str
    edge: str = "none"
    edge_width: float = 1.0
    radius: float = 0.0
    opacity: float = 1.0
    dash: str | None = None


@dataclass(frozen=True, slots=True)
class Type:
    """How text is set. ``anchor`` is start, middle or end."""

    size: float
    colour: str
    bold: bool = False
    anchor: str = "start"
    opacity: float = 1.0


def number(value: float) -> str:
    """Return the value with at most one decimal.

    >>> number(12.0), number(0.25), number(-0.01)
    ('12', '0.2', '0')
    """
    text = f"{value:.1f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def element(name: str, attributes: dict[str, str | float | None], content: str = "") -> str:
    """Return one element; attributes that are None are left out."""
    parts = [
        f"{key}={quoteattr(value if isinstance(value, str) else number(value))}" for key, value in sorted(attributes.items()) if value is not None
    ]
    opening = " ".join([name, *parts])
    return f"<{opening}>{content}</{name}>" if content else f"<{opening}/>"


def escaped(content: str) -> str:
    """Return text for between two tags; what XML forbids (control characters, lone surrogates) becomes `?`."""
    return escape("".join(letter if letter.isprintable() else "?" for letter in content))


def tooltip(words: str | None) -> str:
    """Return the text that a viewer shows over the element it stands in."""
    return f"<title>{escaped(words)}</title>" if words else ""


def rect(box: Box, paint: Paint, hint: str | None = None) -> str:
    """Return a rectangle, rounded by the paint's radius."""
    return element(
        "rect",
        {
            "x": box.x,
            "y": box.y,
            "width": box.width,
            "height": box.height,
            "rx": paint.radius or None,
            "fill": paint.fill,
            "stroke": None if paint.edge == "none" else paint.edge,
            "stroke-width": None if paint.edge == "none" else paint.edge_width,
            "stroke-dasharray": paint.dash,
            "opacity": _opacity(paint.opacity),
        },
        tooltip(hint),
    )


def path(commands: str, pen: Pen, hint: str | None = None) -> str:
    """Return an open path."""
    return element(
        "path",
        {
            "d": commands,
            "fill": "none",
            "stroke": pen.colour,
            "stroke-width": pen.width,
            "stroke-linecap": "round",
            "stroke-linejoin": "round",
            "stroke-dasharray": pen.dash,
            "opacity": _opacity(pen.opacity),
        },
        tooltip(hint),
    )


def line(start: tuple[float, float], end: tuple[float, float], pen: Pen, hint: str | None = None) -> str:
    """Return a straight line."""
    return path(f"M{number(start[0])} {number(start[1])}L{number(end[0])} {number(end[1])}", pen, hint)


def text(x: float, y: float, content: str, how: Type) -> str:
    """Return one line of text; ``y`` is its base line."""
    return element(
        "text",
        {
            "x": x,
            "y": y,
            "fill": how.colour,
            "font-size": how.size,
            "font-weight": "bold" if how.bold else None,
            "text-anchor": None if how.anchor == "start" else how.anchor,
            "opacity": _opacity(how.opacity),
        },
        escaped(content),
    )


def moved(body: str, x: float, y: float, scale: float = 1.0) -> str:
    """Return the elements in a group at another place and in another size."""
    where = f"translate({number(x)} {number(y)})" + (f" scale({scale:.4f})" if scale != 1.0 else "")
    return element("g", {"transform": where}, body)


def width_of(content: str, size: float) -> float:
    """Return about how wide the text is; no font is at hand, so this is a cautious estimate."""
    return size * sum(_WIDTHS[_class_of(letter)] for letter in content)


def _class_of(letter: str) -> str:
    if letter in _NARROW:
        return "narrow"
    if letter in _WIDE:
        return "wide"
    return "upper" if letter.isupper() else "other"


def clipped(content: str, size: float, room: float) -> str:
    """Return the text, cut with an ellipsis where it would be wider than ``room``."""
    ends = list(accumulate(width_of(letter, size) for letter in content))  # where each letter ends
    if not ends or ends[-1] <= room:
        return content
    kept = bisect_right(ends, room - width_of("…", size))
    return content[:kept].rstrip(" ,") + "…"


def _opacity(value: float) -> str | None:
    return None if value >= 1.0 else f"{value:.2f}"
