"""Gzipped bodies: which are valid, how large they may be, and where they are decompressed (§0.3,
§0.6)."""

import gzip
import os
import zlib
from contextlib import suppress

import pytest

from topics.protocol.model.errors import ErrorCode, Rejection
from topics.server.http import inflation
from topics.server.http.inflation import (
    AT_ONCE_BYTES,
    INPUT_BYTES,
    MEMBERS_AT_ONCE,
    MEMBERS_MAX,
    OUTPUT_BYTES,
    at_once,
    inflate,
    let_go,
)

LIMIT = 4 << 20
NOISE = os.urandom(3 << 20)


@pytest.mark.parametrize(
    "plain",
    [
        b"",
        b"x",
        b"x" * OUTPUT_BYTES,
        b"x" * (OUTPUT_BYTES + 1),
        b"x" * LIMIT,
        NOISE,
        NOISE[:65_536] * 40,
        NOISE[:30_000] * 4,
    ],
    ids=["empty", "byte", "piece", "piece and byte", "limit", "noise", "mixed", "far repeats"],
)
@pytest.mark.parametrize("level", [0, 1, 9])
def test_what_was_packed_comes_out(plain: bytes, level: int) -> None:
    """Whatever the ratio, and however the output is split. (§0.3)"""
    assert inflate(gzip.compress(plain, level), LIMIT) == plain


def packed(size: int) -> bytes:
    """Gzip of so many bytes on the wire, filled up by a comment in its head (RFC 1952 §2.3)."""
    made = gzip.compress(NOISE[: size - 1000], 0)
    comment = b"c" * (size - len(made) - 1) + b"\0"
    return made[:3] + b"\x10" + made[4:10] + comment + made[10:]


@pytest.mark.parametrize("pieces", [1, 2])
def test_a_body_may_end_where_a_piece_of_it_ends(pieces: int) -> None:
    """Nothing lies behind its last byte. (§0.3)"""
    body = packed(pieces * INPUT_BYTES)

    assert inflate(body, LIMIT) == gzip.decompress(body)


GOOD = gzip.compress(b'{"records":[{"data":1}]}')
LARGE = gzip.compress(NOISE, 1)
FLIPPED = LARGE[:100_000] + bytes([LARGE[100_000] ^ 1]) + LARGE[100_001:]
DAMAGED = {
    "JSON": b"{}",
    "zlib": zlib.compress(b"{}"),
    "cut in its head": GOOD[:5],
    "cut in its text": GOOD[:-9],
    "cut at its end": GOOD[:-1],
    "trailed": GOOD + b"x",
    "two, the second cut": GOOD + GOOD[:-1],
    "no member behind zeros": GOOD + b"\0\0x",
    "zeros before it": b"\0" + GOOD,
    "zeros alone": b"\0" * 8,
    "long and cut": gzip.compress(b" " * LIMIT)[:-1],
    "long and trailed": gzip.compress(b" " * LIMIT) + b"x",
    "large and cut": LARGE[:-9],
    "large and trailed": LARGE + b"x",
    "large and flipped": FLIPPED,
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_what_is_damaged_is_refused(kind: str) -> None:
    """Not gzip at all, truncated, with trailing bytes, flipped: 400. (§0.6)"""
    with pytest.raises(Rejection) as refused:
        inflate(DAMAGED[kind], LIMIT)

    assert refused.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("kind", [kind for kind in DAMAGED if len(DAMAGED[kind]) < 100])
def test_what_is_damaged_is_refused_at_once(kind: str) -> None:
    """Also without a thread."""
    with pytest.raises(Rejection) as refused:
        at_once(DAMAGED[kind], LIMIT)

    assert refused.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("size", [LIMIT + 1, 64 << 20])
def test_a_bomb_stops_at_the_limit(size: int) -> None:
    """413, however large the output would have been. (§0.6)"""
    with pytest.raises(Rejection) as refused:
        inflate(gzip.compress(b" " * size), LIMIT)

    assert refused.value.code is ErrorCode.PAYLOAD_TOO_LARGE
    assert refused.value.detail == {"limit": LIMIT}


def test_a_small_body_is_unpacked_at_once() -> None:
    """Decompressing it costs less than passing it to a thread."""
    assert at_once(GOOD, LIMIT) == b'{"records":[{"data":1}]}'
    assert at_once(gzip.compress(b"x" * OUTPUT_BYTES), LIMIT) == b"x" * OUTPUT_BYTES
    assert at_once(packed(AT_ONCE_BYTES), LIMIT) is not None


@pytest.mark.parametrize(
    "body",
    [gzip.compress(NOISE[: AT_ONCE_BYTES + 1], 0), gzip.compress(b"x" * (OUTPUT_BYTES + 1))],
    ids=["large as it came", "large when unpacked"],
)
def test_a_large_body_is_not_unpacked_at_once(body: bytes) -> None:
    """Neither kind of a large body: no other client would be served meanwhile."""
    assert at_once(body, LIMIT) is None


def test_a_small_limit_is_told_at_once() -> None:
    """A body beyond the limit is refused without a thread. (§0.6)"""
    assert at_once(gzip.compress(b"x" * 99), 99) == b"x" * 99
    with pytest.raises(Rejection) as refused:
        at_once(gzip.compress(b"x" * 100), 99)

    assert refused.value.code is ErrorCode.PAYLOAD_TOO_LARGE


class Piece:
    """Knows how many others its list had when it went."""

    def __init__(self, pieces: "list[Piece]", left: list[int]) -> None:
        self.pieces, self.left = pieces, left

    def __del__(self) -> None:
        self.left.append(len(self.pieces))


def test_pieces_are_freed_one_by_one() -> None:
    """Other threads may run between two of them; a list frees all that it has in one step."""
    pieces: list[Piece] = []
    left: list[int] = []
    pieces.extend(Piece(pieces, left) for _ in range(4))

    let_go(pieces)  # type: ignore[arg-type]

    assert left == [3, 2, 1, 0]


def spied(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of the pieces that are freed one by one."""
    freed: list[int] = []

    def spy(pieces: list[bytes]) -> None:
        freed.extend(map(len, pieces))
        let_go(pieces)

    monkeypatch.setattr(inflation, "let_go", spy)
    return freed


@pytest.mark.parametrize("kind", ["whole", "damaged at its end"])
def test_what_was_unpacked_is_freed_one_by_one(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever came of the body."""
    body = bytearray(gzip.compress(b" " * LIMIT))
    freed = spied(monkeypatch)

    if kind == "whole":
        assert len(inflate(body, LIMIT)) == LIMIT
        assert sum(freed) == LIMIT
    else:
        body[-8] ^= 1  # of the checksum
        with pytest.raises(Rejection):
            inflate(body, LIMIT)
        assert sum(freed) >= LIMIT - OUTPUT_BYTES

    assert max(freed) == OUTPUT_BYTES


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (gzip.compress(b" " * (LIMIT + 1)), ErrorCode.PAYLOAD_TOO_LARGE),
        (gzip.compress(b" " * (16 * LIMIT)), ErrorCode.PAYLOAD_TOO_LARGE),
        (gzip.compress(b" " * (16 * LIMIT))[:-8] + b"\xff" * 8, ErrorCode.PAYLOAD_TOO_LARGE),
        (gzip.compress(b" " * LIMIT)[:-1], ErrorCode.INVALID_REQUEST),
        (b"x" * 100, ErrorCode.INVALID_REQUEST),
    ],
    ids=["a byte too many", "a bomb", "a bomb without its end", "cut", "no gzip"],
)
def test_nothing_is_kept_of_what_says_that_it_is_too_large(
    body: bytes, code: ErrorCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bomb takes no memory, and what is wrong with a body is told as before: an end that was cut may
    say anything. (§0.6)"""
    freed = spied(monkeypatch)

    with pytest.raises(Rejection) as refused:
        inflate(body, LIMIT)

    assert refused.value.code is code
    assert freed == []


@pytest.mark.parametrize("declared", [0, 1000, LIMIT - 1])
def test_what_is_more_than_it_says(declared: int) -> None:
    """Within the limit it is refused as not whole, beyond it as too large; a member before it may have
    been larger. (§0.6)"""
    for size, code in (
        (LIMIT, ErrorCode.INVALID_REQUEST),
        (16 * LIMIT, ErrorCode.PAYLOAD_TOO_LARGE),
    ):
        body = gzip.compress(b" " * size)[:-4] + declared.to_bytes(4, "little")
        with pytest.raises(Rejection) as refused:
            inflate(body, LIMIT)
        assert refused.value.code is code


@pytest.mark.parametrize("zeros", [0, 1, 3, 4, 600, INPUT_BYTES + 1])
@pytest.mark.parametrize("plain", [b"1", b"", NOISE[: LIMIT // 2]], ids=["short", "empty", "long"])
def test_members_and_zeros_behind_them(plain: bytes, zeros: int) -> None:
    """A body is all of its members, as gzip itself takes them; zeros fill a block of a tape. (RFC 1952
    §2.2)"""
    body = b"".join(gzip.compress(each) + b"\0" * zeros for each in (plain, b"2", b"", plain[:100]))
    whole = plain + b"2" + plain[:100]

    assert inflate(body, LIMIT) == whole
    assert at_once(body, LIMIT) in (whole, None)
    assert len(body) > 1000 or at_once(body, LIMIT) == whole


def test_the_limit_is_one_of_all_members() -> None:
    """Each of them may be small. (§0.6)"""
    body = gzip.compress(b" " * (LIMIT // 4)) * 4

    assert len(inflate(body, LIMIT)) == LIMIT
    for unpack in (inflate, at_once):
        with pytest.raises(Rejection) as refused:
            unpack(body + gzip.compress(b"x"), 99 if unpack is at_once else LIMIT)
        assert refused.value.code is ErrorCode.PAYLOAD_TOO_LARGE


def test_members_have_a_number() -> None:
    """An empty one has twenty bytes and unpacks to none, so that no limit on size bounds them."""
    empty = gzip.compress(b"")
    assert inflate(GOOD + empty * (MEMBERS_MAX - 1), LIMIT) == gzip.decompress(GOOD)
    assert at_once(empty * (MEMBERS_AT_ONCE + 1), LIMIT) is None
    with pytest.raises(Rejection, match="more than 16384 members"):
        inflate(empty * (MEMBERS_MAX + 1), LIMIT)


@pytest.mark.parametrize("size", [LIMIT, 16 * LIMIT])
def test_the_thread_gives_way_after_each_piece(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever becomes of the body: the event loop does not wait for a core until all is unpacked."""
    slept: list[float] = []
    monkeypatch.setattr(inflation.time, "sleep", slept.append)

    with suppress(Rejection):
        inflate(gzip.compress(b" " * size), LIMIT)

    assert len(slept) >= LIMIT // OUTPUT_BYTES
