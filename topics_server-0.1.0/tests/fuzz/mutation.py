"""Damaged inputs: sound ones, changed in a few places, as broken programs and attackers make them.

Random bytes hardly get past the first check of a parser.  These begin as something that it takes, so
that they reach the code behind that check.
"""

import os
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

EXAMPLES: Final = int(os.environ.get("TOPICS_TESTS_FUZZ", "60"))
"""Inputs of one fuzzer in one run; CI asks for more."""

fuzzed: Final = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)

SPLICES: Final = [
    *(b"", b"\x00", b"\xff", b"\r", b"\n", b"\r\n", b"\r\n\r\n", b" ", b"\t", b":", b",", b"-1"),
    *(b"0", b"1e400", b"9" * 400, b"18446744073709551616", b"null", b"true", b"{}", b"[]", b'""'),
    *(b"{", b"}", b"[", b"]", b'"', b"\\", b"\\u0000", b"\\ud800", b"\xed\xa0\x80", b"\xc0\x80"),
    *(b"%", b"%00", b"%ff", b"%2F", b"..", b"/", b"?", b"#", b"&", b"=", b"+", b"*", b"[" * 200),
    *(b'{"a":' * 200, b"a" * 300, b"\x80\x00\x00\x00", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff"),
]
"""What tends to lie on somebody's boundary."""


@st.composite
def damaged(draw: st.DrawFn, sound: Sequence[bytes]) -> bytes:
    """One of `sound`, after up to four edits: bytes flipped, cut, doubled, moved or put in."""
    data = draw(st.sampled_from(list(sound)))
    for _ in range(draw(st.integers(0, 4))):
        data = _edited(draw, data)
    return data


def _edited(draw: st.DrawFn, data: bytes) -> bytes:
    begin = draw(st.integers(0, len(data)))
    end = draw(st.integers(begin, min(begin + 40, len(data))))
    match draw(st.integers(0, 5)):
        case 0 if begin < len(data):
            flipped = data[begin] ^ (1 << draw(st.integers(0, 7)))
            return data[:begin] + bytes([flipped]) + data[begin + 1 :]
        case 1:
            return data[:begin] + data[end:]
        case 2:
            return data[:end] + data[begin:]
        case 3:
            return data[:begin]
        case 4:
            return data[:begin] + draw(st.sampled_from(SPLICES)) + data[end:]
        case _:
            return data[:begin] + draw(st.binary(max_size=8)) + data[begin:]


@st.composite
def pieces(draw: st.DrawFn, data: bytes) -> list[bytes]:
    """The bytes as a network delivers them: in a few pieces, none of them empty."""
    cuts = sorted({0, len(data), *draw(st.lists(st.integers(0, len(data)), max_size=6))})
    return [data[a:b] for a, b in pairwise(cuts) if b > a]
