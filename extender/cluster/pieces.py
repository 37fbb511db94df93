"""A list whose present content can be handed out at any time for next to nothing, however long it is: a reader keeps what it got while the list is written on.

Used by `columns` for what stands beside the arrays. The list is kept in pieces; who writes copies the piece that readers may hold, and nothing else. With 50,000 nodes a plain list would be
copied as a whole after every view that was handed out.
"""

from collections.abc import Iterator, Sequence
from typing import Final, Generic, TypeVar, overload

T = TypeVar("T")
_BITS: Final = 8  # 256 entries a piece: about as many pieces as entries of one, at 50,000 nodes
_SIZE: Final = 1 << _BITS
_INSIDE: Final = _SIZE - 1


class Frozen(Sequence[T]):
    """What a list was when it was handed out."""

    __slots__ = ("_count", "_pieces")

    def __init__(self, pieces: list[list[T]], count: int) -> None:
        self._pieces = pieces
        self._count = count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> list[T]: ...
    def __getitem__(self, at: int | slice) -> T | list[T]:
        if isinstance(at, slice):
            return [self[place] for place in range(*at.indices(self._count))]
        if at < 0:
            at += self._count
        if not 0 <= at < self._count:
            raise IndexError(f"place {at} of {self._count}")
        return self._pieces[at >> _BITS][at & _INSIDE]

    def __iter__(self) -> Iterator[T]:
        for number, piece in enumerate(self._pieces):
            yield from piece[: self._count - (number << _BITS)]


class Pieces(Generic[T]):
    """A list that is only appended to and written in place."""

    def __init__(self) -> None:
        self._pieces: list[list[T]] = []
        self._count = 0
        self._own: set[int] = set()  # numbers of the pieces that no reader holds
        self._is_shared = False  # a reader holds the list of pieces

    @staticmethod
    def of(values: Sequence[T]) -> "Pieces[T]":
        """Return a new one with that content."""
        made = Pieces[T]()
        made._pieces = [list(values[at : at + _SIZE]) for at in range(0, len(values), _SIZE)]
        made._count, made._own = len(values), set(range(len(made._pieces)))
        return made

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, at: int) -> T:
        return self._pieces[at >> _BITS][at & _INSIDE]

    def __setitem__(self, at: int, value: T) -> None:
        self._owned(at >> _BITS)[at & _INSIDE] = value

    def append(self, value: T) -> None:
        """Add an entry at the end."""
        number = self._count >> _BITS
        if number == len(self._pieces):
            self._own_list()
            self._pieces.append([])
            self._own.add(number)
        self._owned(number).append(value)
        self._count += 1

    def handed_out(self) -> Frozen[T]:
        """Return the content as it is now, for good."""
        self._is_shared = True
        self._own.clear()
        return Frozen(self._pieces, self._count)

    def _own_list(self) -> None:
        if self._is_shared:
            self._pieces = list(self._pieces)
            self._is_shared = False

    def _owned(self, number: int) -> list[T]:
        if number not in self._own:
            self._own_list()
            self._pieces[number] = list(self._pieces[number])
            self._own.add(number)
        return self._pieces[number]
