"""Wrong keys are counted by address, and the count is bounded (§12)."""

import logging

import pytest

from topics.server.access.failures import ADDRESSES_MAX, Failures


def test_they_are_counted_and_told(caplog: pytest.LogCaptureFixture) -> None:
    """An address that guesses is named at each power of ten; a slip of the hand is not. (§12)"""
    failures = Failures()
    with caplog.at_level(logging.WARNING, "topics.access"):
        for _ in range(120):
            failures.note("192.0.2.1")
        failures.note("192.0.2.2")

    assert failures.total == 121
    assert (failures.of("192.0.2.1"), failures.of("192.0.2.2"), failures.of("x")) == (120, 1, 0)
    assert [record.getMessage() for record in caplog.records] == [
        "10 requests with unknown keys from 192.0.2.1",
        "100 requests with unknown keys from 192.0.2.1",
    ]


def test_the_number_of_addresses_is_bounded() -> None:
    """The one that failed longest ago is forgotten; the total is not. (§12)"""
    failures = Failures()
    failures.note("old")
    failures.note("busy")
    for number in range(ADDRESSES_MAX - 1):
        failures.note(f"{number}")
        failures.note("busy")

    assert failures.of("old") == 0
    assert failures.of("busy") == ADDRESSES_MAX
    assert failures.total == 2 * ADDRESSES_MAX


def test_the_counts_of_all_processes_are_one(caplog: pytest.LogCaptureFixture) -> None:
    """Each process that serves the port hands its counts on, and one of them names the address: at
    the same powers of ten as if it had refused all of them. (§12)"""
    engine, readers = Failures(), [Failures(), Failures()]
    with caplog.at_level(logging.WARNING, "topics.access"):
        for reader in readers:
            reader.hand_on()
            for _ in range(60):
                reader.note("192.0.2.1")
        engine.note("192.0.2.1")
        for reader in readers:
            engine.note_all(reader.take())

    assert readers[0].take() == {}
    assert engine.of("192.0.2.1") == engine.total == 121
    assert [record.getMessage() for record in caplog.records] == [
        "10 requests with unknown keys from 192.0.2.1",
        "100 requests with unknown keys from 192.0.2.1",
    ]
