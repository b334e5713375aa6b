"""Wrong keys are counted by address, and the count is bounded (§12)."""

import logging

import pytest

from topics.server.access.failures import ADDRESSES_MAX, Failures


def test_they_are_counted_and_told(caplog: pytest.LogCaptureFixture) -> None:
    """A line of one kind each, which the log bounds; it names the address and no token. (§12)"""
    failures = Failures()
    with caplog.at_level(logging.WARNING, "topics.access"):
        for address in ("192.0.2.1", "192.0.2.1", "192.0.2.2"):
            failures.note(address)

    assert failures.total == 3
    assert (failures.of("192.0.2.1"), failures.of("192.0.2.2"), failures.of("x")) == (2, 1, 0)
    assert len({record.msg for record in caplog.records}) == 1
    assert caplog.records[1].getMessage().endswith("from 192.0.2.1; 2 by now")


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
