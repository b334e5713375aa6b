"""Holders behind proxies: whose word is believed. (§11)"""

import pytest

from topics.protocol.model.holder import NOBODY, Holder, holder_at
from topics.server.exchange.holders import Holders

PROXIES = ("127.0.0.1/32", "10.1.2.3/8")
"""The second is a network, written by one of its hosts."""
CASES = [
    ("a client's own word", "192.0.2.1", b"198.51.100.1", holder_at("192.0.2.1")),
    ("a proxy's word", "127.0.0.1", b"198.51.100.1", Holder("198.51.100.1")),
    ("what the client wrote before", "127.0.0.1", b"1.1.1.1, 198.51.100.1", Holder("198.51.100.1")),
    ("two proxies", "127.0.0.1", b"198.51.100.1,10.1.2.3", Holder("198.51.100.1")),
    ("proxies only", "127.0.0.1", b"10.9.9.9", NOBODY),
    ("a proxy that does not tell", "10.0.0.1", None, NOBODY),
    ("no address", "127.0.0.1", b"unknown", NOBODY),
    ("a word before no address", "127.0.0.1", b"198.51.100.1, unknown", NOBODY),
    ("not ASCII", "127.0.0.1", b"\xff", NOBODY),
]


@pytest.mark.parametrize(("what", "address", "forwarded", "holder"), CASES)
def test_a_caller_is_known_through_trusted_proxies_only(
    what: str, address: str, forwarded: bytes | None, holder: Holder
) -> None:
    """The list is read from its end, as far as the proxies are the operator's."""
    holders = Holders(PROXIES)
    assert holders.of(address, {b"x-forwarded-for": forwarded}.get) == holder, what


def test_without_proxies_the_header_says_nothing() -> None:
    """Every client could write it."""
    assert Holders().of("127.0.0.1", {b"x-forwarded-for": b"192.0.2.1"}.get) == holder_at(
        "127.0.0.1"
    )


def test_a_connection_of_a_proxy_is_nobodys() -> None:
    """It carries the requests of many, so it is in no share."""
    holders = Holders(PROXIES)
    assert holders.peer("10.0.0.1") == NOBODY
    assert holders.peer("192.0.2.1") == Holder("192.0.2.1")
    assert Holders().peer("127.0.0.1") == Holder("127.0.0.1", is_crowd=True)
