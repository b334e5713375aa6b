"""Callers behind proxies: whose word is believed. (§11)"""

import pytest

from topics.protocol.model.caller import NOBODY, Caller, caller_at
from topics.server.exchange.callers import Callers

PROXIES = ("127.0.0.1/32", "10.0.0.0/8")
CASES = [
    ("a client's own word", "192.0.2.1", b"198.51.100.1", caller_at("192.0.2.1")),
    ("a proxy's word", "127.0.0.1", b"198.51.100.1", Caller("198.51.100.1")),
    ("what the client wrote before", "127.0.0.1", b"1.1.1.1, 198.51.100.1", Caller("198.51.100.1")),
    ("two proxies", "127.0.0.1", b"198.51.100.1,10.1.2.3", Caller("198.51.100.1")),
    ("proxies only", "127.0.0.1", b"10.9.9.9", NOBODY),
    ("a proxy that does not tell", "10.0.0.1", None, NOBODY),
    ("no address", "127.0.0.1", b"unknown", NOBODY),
    ("not ASCII", "127.0.0.1", b"\xff", NOBODY),
]


@pytest.mark.parametrize(("what", "address", "forwarded", "caller"), CASES)
def test_a_caller_is_known_through_trusted_proxies_only(
    what: str, address: str, forwarded: bytes | None, caller: Caller
) -> None:
    """The list is read from its end, as far as the proxies are the operator's."""
    callers = Callers(PROXIES)
    assert callers.of(address, {b"x-forwarded-for": forwarded}.get) == caller, what


def test_without_proxies_the_header_says_nothing() -> None:
    """Every client could write it."""
    assert Callers().of("127.0.0.1", {b"x-forwarded-for": b"192.0.2.1"}.get) == caller_at(
        "127.0.0.1"
    )


def test_a_connection_of_a_proxy_is_nobodys() -> None:
    """It carries the requests of many, so it is in no share."""
    callers = Callers(PROXIES)
    assert callers.peer("10.0.0.1") == NOBODY
    assert callers.peer("192.0.2.1") == Caller("192.0.2.1")
    assert Callers().peer("127.0.0.1") == Caller("127.0.0.1", is_crowd=True)
