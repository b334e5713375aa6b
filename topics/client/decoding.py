"""JSON into values, whatever its numbers: an answer is never unreadable because of one.

A record is stored byte for byte (§0.4), and JSON bounds no number.  Where Python's own types do, a
part of type `Any` gets the next that holds it:

- a number that overflows a float, and an integer of more than 4,300 characters: a `Decimal`,
  exactly.
  (An int of so many digits takes time that grows with their square, which is why Python refuses to
  read one.)
- a number that overflows a `Decimal` too: its text, as `msgspec.Raw`.

Whether there is such a number shows when msgspec fails at it, so other answers cost nothing more.
"""

import os
import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from math import isfinite
from typing import Any, Final, TypeVar

import msgspec

from topics.client.foreign import read, readable
from topics.nesting import DEPTH_MAX, deep

T = TypeVar("T")

TOO_DEEP: Final = f"nested more than {DEPTH_MAX} levels deep"
INTEGER_CHARS_MAX: Final = 4300
"""Of an integer that msgspec reads, its sign included; Python's `int` reads so many digits."""

_STRING_OR_INTEGER: Final = re.compile(
    rb'"(?:[^"\\]|\\.)*+"|(?<![0-9.eE+-])(-[0-9]{%d,}+|[0-9]{%d,}+)(?![.eE])'
    % (INTEGER_CHARS_MAX, INTEGER_CHARS_MAX + 1)
)
"""A string, or an integer outside of one that is too long for msgspec."""

_DECODERS: Final[dict[Any, Callable[[bytes], Any]]] = {}


def decoder_of(kind: type[T]) -> Callable[[bytes], T]:
    """A decoder of `kind`, built once: building one costs a hundred times what decoding does.

    It raises what msgspec raises: `DecodeError`, or `UnicodeDecodeError`.
    """
    if kind not in _DECODERS:
        _DECODERS[kind] = _made(kind)
    return _DECODERS[kind]


def kind_of(kind: Any, decode: Any) -> Any:
    """The type of a record or a job whose data is to be a `decode`; the type itself where that is None.

    Raises:
        TypeError: The type says of what its data is already.
    """
    if decode is None:
        return kind
    try:
        return kind[decode]
    except TypeError:
        name = getattr(kind, "__name__", str(kind))
        raise TypeError(
            f"decode= is for Record and Job: {name} says already what its data is"
        ) from None


def _made(asked: type[T]) -> Callable[[bytes], T]:
    kind: type[T] = readable(asked)
    decode = deep(msgspec.json.Decoder(kind, dec_hook=read).decode)

    def decode_whole(data: bytes) -> T:
        try:
            return decode(data)
        except RecursionError:
            raise msgspec.DecodeError(TOO_DEEP) from None
        except msgspec.ValidationError as error:
            if "out of range" not in str(error):
                raise
            try:
                return deep(_Numbers(data).decode)(kind)
            except msgspec.ValidationError as other:
                # Of the same place, the first error tells the number that is really there.
                raise (error if _place(other) == _place(error) else other) from None

    return decode_whole


class _Numbers:
    """One text, decoded with its large numbers.

    msgspec gives each untyped number that has an exponent or a fraction to a hook, and an integer
    to none.  So each long integer ends in an exponent while it is decoded, by which the hook finds
    it again, and has its own digits back afterwards: a `msgspec.Raw` is a view of the text.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._text = bytearray(data)
        found = _STRING_OR_INTEGER.finditer(data)
        self._integers = [each.span(1) for each in found if each[1] is not None]
        # By chance, so that no number of a writer's looks like one of these.
        self._mark = f"e0{int.from_bytes(os.urandom(8)) % 10**12:012}"
        for n, (_, end) in enumerate(self._integers):
            exponent = f"{self._mark}{n:09}".encode()
            self._text[end - len(exponent) : end] = exponent

    def decode(self, kind: type[T]) -> T:
        value = msgspec.json.Decoder(kind, dec_hook=read, float_hook=self._value).decode(self._text)
        self._text[:] = self._data
        return value

    def _value(self, text: str) -> Any:
        _, is_integer, n = text.partition(self._mark)
        if is_integer:
            first, end = self._integers[int(n)]
            return Decimal(self._data[first:end].decode())
        value = float(text)
        try:
            return value if isfinite(value) else Decimal(text)
        except InvalidOperation:
            return msgspec.Raw(text.encode())


def _place(error: Exception) -> str:
    return str(error).rpartition(" - at ")[2]
