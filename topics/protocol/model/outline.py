"""Where a large JSON text may be cut, so that no step of reading it takes long.

A decoder of JSON reads a text in one call, in which no other thread has the interpreter: 60 MiB of small
arrays take a tenth of a second or two.  Here a text is looked over in pieces of `STEP_BYTES`: where its
strings are, how deep each comma lies, which brackets are open.  That is enough to cut it at commas into
texts that a decoder reads one by one.  Owns the cuts.  Knows nothing of what the text means, nor of
whether it is JSON: each piece is decoded between the brackets that are open at its ends, and all of them
are sound only where the whole is.

Invariant: between two neighbours of `commas[depth]`, in one array or object, lies a single element or
member, or less than `STEP_BYTES`.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from topics.nesting import DEPTH_MAX

STEP_BYTES: Final = 64 << 10
"""What is looked over, or decoded, in one step: a tenth of a millisecond."""
AROUND_MAX: Final = 3
"""Brackets around a value of a record: of the body, of its records, of the record."""
CUT_DEPTHS: Final = 3
"""Commas are noted down to this depth: of a body's fields, of its records, of a record's fields."""
_QUOTE, _COMMA, _BACKSLASH = b'",\\'
_FOLD: Final = np.uint8(0x20)
"""The bit in which `[` differs from `{`, and `]` from `}`."""
_OPENING, _CLOSING = b"{}"


class Unbalanced(Exception):
    """A bracket is closed that none has opened."""


class TooDeep(RecursionError):
    """More brackets are open than may be.

    Attributes:
        place: Of the first bracket that is too many.
    """

    def __init__(self, place: int) -> None:
        super().__init__(place)
        self.place = place


class Outline:
    """The cuts of one text.

    Args:
        begin: Any place of the text that lies outside of its strings.
        stack: The brackets that are open there.
        depth_max: How many may be open.

    Attributes:
        commas: For each depth up to `CUT_DEPTHS` the places of some commas, ascending.
        cuts: Commas of any depth, at most one a step.
        stacks: The brackets that are open at each of them.
        counts: For each depth the commas in the array or object that is open.
    """

    def __init__(
        self,
        text: bytes,
        begin: int = 0,
        stack: bytes = b"",
        depth_max: int = DEPTH_MAX + AROUND_MAX,
    ) -> None:
        self._bytes = text
        self._text = np.frombuffer(text, np.uint8)
        self._at = begin
        self._stack = stack
        self._depth_max = depth_max
        self._is_in_string = self._is_escaped = False
        self.commas: list[list[int]] = [[] for _ in range(CUT_DEPTHS + 1)]
        self.cuts: list[int] = []
        self.stacks: list[bytes] = []
        self.counts = [0] * (CUT_DEPTHS + 1)

    @property
    def looked_at(self) -> int:
        """The place up to which the text was looked over."""
        return min(self._at, len(self._text))

    @property
    def is_done(self) -> bool:
        return self._at >= len(self._text)

    @property
    def is_open(self) -> bool:
        """Whether a bracket or a string is open where it stands."""
        return bool(self._stack) or self._is_in_string

    def step(self) -> None:
        """Look over the next `STEP_BYTES`.

        Raises:
            Unbalanced, TooDeep: It is no JSON, or none that is taken.
        """
        at = self._at
        piece = self._text[at : at + STEP_BYTES]
        self._at = at + STEP_BYTES
        outside = self._outside(piece, at)
        if outside is None:
            return  # a part of one string
        folded = piece | _FOLD
        levels = (folded == _OPENING).view(np.int8) - (folded == _CLOSING).view(np.int8)
        commas = piece == _COMMA
        if outside is not _ALL:
            levels *= outside
            commas &= outside
        depths = np.cumsum(levels, dtype=np.int32)
        depths += len(self._stack)
        low, high = int(depths.min()), int(depths.max())
        if low < 0:
            raise Unbalanced
        if high > self._depth_max:
            raise TooDeep(at + int((depths > self._depth_max).argmax()))
        for depth in range(max(low, 1), CUT_DEPTHS + 1):
            if depth > high:
                self.counts[depth] = 0
            else:
                self._note(depth, at, commas & (depths == depth), depths if low < depth else None)
        last = _last(commas)
        if commas[last]:
            self._open(piece, levels, depths, 0, last + 1)
            self.cuts.append(at + last)
            self.stacks.append(self._stack)
            self._open(piece, levels, depths, last + 1, piece.size)
        else:
            self._open(piece, levels, depths, 0, piece.size)

    def _note(
        self, depth: int, at: int, found: NDArray[np.bool_], depths: "NDArray[np.int32] | None"
    ) -> None:
        """Note the first and the last comma of a depth, and count them.

        Args:
            depths: Of a piece in which what is open at `depth` was not open throughout.
        """
        first, last = int(found.argmax()), _last(found)
        if found[first]:
            self.commas[depth] += {at + first: None, at + last: None}
        if depths is None:
            self.counts[depth] += int(np.count_nonzero(found))
        else:
            self.counts[depth] = int(np.count_nonzero(found[_last(depths < depth) :]))

    def _outside(self, piece: NDArray[np.uint8], at: int) -> "NDArray[np.bool_] | None":
        """Which bytes lie outside of strings; None: none does."""
        quotes = piece == _QUOTE
        if self._is_escaped or self._bytes.find(b"\\", at, self._at) >= 0:
            slashes = np.flatnonzero(piece == _BACKSLASH)
            quotes[self._escaped(slashes, piece.size)] = False
        if not quotes.any():
            return None if self._is_in_string else _ALL
        inside = np.bitwise_xor.accumulate(quotes.view(np.uint8)).view(np.bool_)
        outside = inside if self._is_in_string else ~inside
        self._is_in_string = not outside[-1]
        return outside

    def _escaped(self, slashes: NDArray[np.intp], size: int) -> NDArray[np.intp]:
        """The places behind each backslash that is not escaped itself."""
        was_escaped, self._is_escaped = self._is_escaped, False
        first = [0] if was_escaped else []
        if not slashes.size:
            return np.array(first, np.intp)
        begins = np.diff(slashes, prepend=-2) != 1
        runs = np.maximum.accumulate(np.where(begins, slashes, 0))
        if was_escaped and slashes[0] == 0:
            # The first of them is what the last piece escapes.
            of_first = runs == 0
            runs[of_first] = 1
        active = slashes[((slashes - runs) & 1) == 0]
        places = active + 1
        if places.size and places[-1] == size:
            self._is_escaped = True
            places = places[:-1]
        return np.concatenate((np.array(first, np.intp), places))

    def _open(
        self,
        piece: NDArray[np.uint8],
        levels: NDArray[np.int8],
        depths: NDArray[np.int32],
        begin: int,
        end: int,
    ) -> None:
        """The brackets that are open behind `piece[begin:end]`."""
        if begin == end:
            return
        within = depths[begin:end]
        low = min(int(within.min()), len(self._stack))
        kept = self._stack[:low]
        if within[-1] > low:
            lowest = np.flatnonzero(within == low)
            begin += int(lowest[-1]) + 1 if lowest.size else 0
            within = depths[begin:end]
            least = np.minimum.accumulate(within[::-1])[::-1]
            opening = (levels[begin:end] == 1) & (within == least)
            kept += piece[begin:end][opening].tobytes()
        self._stack = kept


def is_too_deep(text: bytes) -> bool:
    """Whether a value in JSON is nested deeper than `DEPTH_MAX`."""
    if len(text) <= 2 * DEPTH_MAX or text.count(b"[") + text.count(b"{") <= DEPTH_MAX:
        return False
    return place_too_deep(text, DEPTH_MAX) is not None


def place_too_deep(text: bytes, depth_max: int = DEPTH_MAX + AROUND_MAX) -> int | None:
    """The place of the first bracket that is too many; None: there is none, or the text is no JSON before it."""
    outline = Outline(text, depth_max=depth_max)
    try:
        while not outline.is_done:
            outline.step()
    except TooDeep as error:
        return error.place
    except Unbalanced:
        pass
    return None


def _last(found: NDArray[np.bool_]) -> int:
    """The last place of one, if there is one."""
    return found.size - 1 - int(found[::-1].argmax())


_ALL: Final = np.ones(0, np.bool_)
"""Every byte lies outside of strings."""


def opened(stack: bytes) -> bytes:
    """What stands before a text that begins with a comma, where these brackets are open."""
    if not stack:
        return b""
    outer = b"".join(b"[" if each == _ARRAY else b'{"":' for each in stack[:-1])
    return outer + (b"[0" if stack[-1] == _ARRAY else b'{"":0')


def closed(stack: bytes) -> bytes:
    """What stands behind a text at whose end these brackets are open."""
    return stack[::-1].translate(_OTHERS)


_ARRAY: Final = ord("[")
_OTHERS: Final = bytes.maketrans(b"[{", b"]}")
