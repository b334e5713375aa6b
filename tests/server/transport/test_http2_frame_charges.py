"""What a client pays for frames that cost it nothing, with a clock of the test's."""

import pytest

from topics.server.transport.budget import FREE, PER_REST, Charges
from topics.server.transport.http2.frame_charges import (
    SMALL_BYTES,
    SMALL_PER_CHARGE,
    UPDATES_EARNED,
    UPDATES_MAX,
    FrameCharges,
)
from topics.server.transport.http2.frames import Frame, FrameType

from .http2_rig import frame

UPDATE = Frame(FrameType.WINDOW_UPDATE, 0, 0, 4, frame(8, 0, 0, b"\0\0\0\1"))


def priced(*frames: Frame) -> int:
    """What they cost together, of a client that has acknowledged our SETTINGS."""
    charges = Charges(1 << 30, 10)
    counted = FrameCharges(charges)
    counted.frame(Frame(4, 1, 0, 0, frame(4, 1, 0)), 0.0)
    for each in frames:
        assert counted.frame(each, 0.0)
    return charges.count


@pytest.mark.parametrize(
    ("kind", "flags", "size", "price"),
    [
        (FrameType.DATA, 0, 0, 0),
        (FrameType.HEADERS, 4, 100, 0),
        (FrameType.HEADERS, 4, 12_500, 3),
        (FrameType.PRIORITY, 0, 5, 1),
        (FrameType.RST_STREAM, 0, 4, 1),
        (FrameType.SETTINGS, 0, 6, 1),
        (FrameType.SETTINGS, 0, 6 * 32, 5),
        (FrameType.SETTINGS, 1, 0, 1),
        (FrameType.PUSH_PROMISE, 0, 4, 1),
        (FrameType.PING, 0, 8, 1),
        (FrameType.GOAWAY, 0, 8, 1),
        (FrameType.WINDOW_UPDATE, 0, 4, 1),
        (0xEE, 0, 0, 1),
    ],
)
def test_each_kind_of_frame_has_its_price(kind: int, flags: int, size: int, price: int) -> None:
    """A request and DATA cost nothing by their headers."""
    assert priced(Frame(kind, flags, 1, size, frame(kind, flags, 1, bytes(size)))) == price


def test_continuations_cost_each() -> None:
    """A block in one frame is what clients send."""
    assert priced(Frame(FrameType.HEADERS, 1, 1, 10, b"", frames=4)) == 3


@pytest.mark.parametrize(
    ("size", "ends", "price"),
    [
        (0, False, 8),
        (1, False, 1),
        (SMALL_BYTES - 1, False, 1),
        (SMALL_BYTES, False, 0),
        (0, True, 0),
    ],
)
def test_data_is_priced_by_what_is_in_it(size: int, ends: bool, price: int) -> None:
    """Nothing is dear, little is cheap, the end is free."""
    charges = Charges(1 << 30, 10)
    counted = FrameCharges(charges)
    for _ in range(SMALL_PER_CHARGE):
        assert counted.data(size, 0.0, ends=ends)

    assert charges.count == price


def test_a_small_body_may_come_apart_from_its_end() -> None:
    """The first bytes of a body are free, however few; nothing, in the place of them, is not."""
    charges = Charges(1 << 30, 10)
    counted = FrameCharges(charges)
    for _ in range(10 * SMALL_PER_CHARGE):
        assert counted.data(2, 0.0, ends=False, begins=True)
        assert counted.data(0, 0.0, ends=True)
    assert charges.count == 0
    assert counted.data(0, 0.0, ends=False, begins=True)
    assert charges.count == 1


def test_a_client_that_cannot_pay_has_to_go() -> None:
    """Its bound is one window's, and the next begins anew."""
    counted = FrameCharges(Charges(3, 10))
    ping = Frame(FrameType.PING, 0, 0, 8, frame(6, 0, 0, bytes(8)))
    assert [counted.frame(ping, 100.0) for _ in range(4)] == [True, True, True, False]
    assert counted.frame(ping, 110.0)
    assert counted.frame(Frame(FrameType.HEADERS, 4, 1, 10, b""), 110.0)
    assert not counted.frame(Frame(FrameType.HEADERS, 4, 1, 12_500, b""), 110.0)


def test_the_first_acknowledgement_is_free() -> None:
    """A client answers our SETTINGS once (RFC 9113, 6.5.3)."""
    charges = Charges(200, 10)
    counted = FrameCharges(charges)
    acknowledgement = Frame(FrameType.SETTINGS, 1, 0, 0, frame(4, 1, 0))
    counted.frame(acknowledgement, 0.0)
    assert charges.count == 0
    counted.frame(acknowledgement, 0.0)
    assert charges.count == 1


def test_updates_are_free_while_they_are_earned() -> None:
    """Each request, and each DATA sent to the client, pays for two."""
    charges = Charges(200, 10)
    counted = FrameCharges(charges)
    counted.earn()
    counted.earn()
    for _ in range(2 * UPDATES_EARNED):
        counted.frame(UPDATE, 0.0)
    assert charges.count == 0
    counted.frame(UPDATE, 0.0)
    assert charges.count == 1


def test_what_was_earned_has_a_bound() -> None:
    """A long life of good faith is no licence."""
    counted = FrameCharges(Charges(200, 10))
    for _ in range(100_000):
        counted.earn()
    count = 0
    while counted.frame(UPDATE, 0.0):
        count += 1

    assert UPDATES_MAX <= count - 200 <= UPDATES_MAX + 2


def test_a_rest_is_due_once_for_each_ten_beyond_the_free() -> None:
    """And none is left over from a window that has ended."""
    counted = FrameCharges(Charges(200, 10))
    due = []
    for count in range(1, FREE + 3 * PER_REST + 1):
        counted.charge(0.0)
        if counted.must_rest():
            due.append(count)
            assert not counted.must_rest()
    assert due == [FREE + PER_REST, FREE + 2 * PER_REST, FREE + 3 * PER_REST]

    for count in range(1, FREE + PER_REST + 1):
        counted.charge(10.0)
        assert counted.must_rest() is (count == FREE + PER_REST)
