"""Holders behind proxies: whose word is believed. (§11)"""

from collections.abc import Callable

import pytest

from topics.protocol.model.holder import NOBODY, Holder, holder_at
from topics.server.http.holders import Holders
from topics.server.http.interface import Head

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
    ("a port", "127.0.0.1", b"198.51.100.1:4711", Holder("198.51.100.1")),
    ("brackets", "127.0.0.1", b"[2001:db8::1]", Holder("2001:db8::/64")),
    ("brackets and a port", "127.0.0.1", b"[2001:db8::1]:4711", Holder("2001:db8::/64")),
    ("quotes", "127.0.0.1", b'"198.51.100.1"', Holder("198.51.100.1")),
    ("quotes and a port", "127.0.0.1", b'"[2001:db8::1]:4711"', Holder("2001:db8::/64")),
    ("a zone", "127.0.0.1", b"fe80::1%eth0", Holder("fe80::/64")),
    ("a mapped address", "127.0.0.1", b"::ffff:198.51.100.1", Holder("198.51.100.1")),
    ("a parameter", "127.0.0.1", b"for=198.51.100.1", Holder("198.51.100.1")),
    ("parameters", "127.0.0.1", b'For="198.51.100.1:_p";proto=https', Holder("198.51.100.1")),
    ("parameters before", "127.0.0.1", b"by=10.0.0.1; for=198.51.100.1", Holder("198.51.100.1")),
    ("empty elements", "127.0.0.1", b"198.51.100.1, ,", Holder("198.51.100.1")),
    ("a proxy with a port", "127.0.0.1", b"198.51.100.1, 10.1.2.3:80", Holder("198.51.100.1")),
    ("a mapped proxy", "::ffff:127.0.0.1", b"198.51.100.1", Holder("198.51.100.1")),
    ("open quotes before", "127.0.0.1", b'"1.1.1.1, 198.51.100.1', Holder("198.51.100.1")),
]


def of(holders: Holders, address: str, header: Callable[[bytes], bytes | None]) -> Holder:
    """In whose share a request from this address counts."""
    head = Head("GET", b"/", b"", (), address)
    return holders.peer(holders.named(head, header).client)


@pytest.mark.parametrize(("what", "address", "forwarded", "holder"), CASES)
def test_a_caller_is_known_through_trusted_proxies_only(
    what: str, address: str, forwarded: bytes | None, holder: Holder
) -> None:
    """The list is read from its end, as far as the proxies are the operator's."""
    holders = Holders(PROXIES)
    assert of(holders, address, {b"x-forwarded-for": forwarded}.get) == holder, what


def test_without_proxies_the_header_says_nothing() -> None:
    """Every client could write it."""
    assert of(Holders(), "127.0.0.1", {b"x-forwarded-for": b"192.0.2.1"}.get) == holder_at(
        "127.0.0.1"
    )


def test_a_connection_of_a_proxy_is_nobodys() -> None:
    """It carries the requests of many, so it is in no share."""
    holders = Holders(PROXIES)
    assert holders.peer("10.0.0.1") == NOBODY
    assert holders.peer("192.0.2.1") == Holder("192.0.2.1")
    assert Holders().peer("127.0.0.1") == Holder("127.0.0.1", is_crowd=True)


def test_a_proxy_may_tell_it_by_the_standard_field_alone() -> None:
    """`Forwarded` (RFC 7239) counts where there is no `X-Forwarded-For`. (§11)"""
    holders = Holders(PROXIES)
    standard = b'for=1.1.1.1, for="[2001:db8::1]:4711";proto=https;by=10.0.0.1'

    alone = of(holders, "127.0.0.1", {b"forwarded": standard}.get)
    beside = {b"forwarded": standard, b"x-forwarded-for": b"198.51.100.1"}

    assert alone == Holder("2001:db8::/64")
    assert of(holders, "127.0.0.1", beside.get) == Holder("198.51.100.1")


@pytest.mark.parametrize(
    ("address", "forwarded", "named"),
    [
        ("127.0.0.1", b"198.51.100.1:80", "198.51.100.1"),
        ("127.0.0.1", b"unknown", "127.0.0.1"),
        ("127.0.0.1", b"10.9.9.9", "127.0.0.1"),
        ("192.0.2.1", b"198.51.100.1", "192.0.2.1"),
    ],
)
def test_a_request_is_named_after_its_client(address: str, forwarded: bytes, named: str) -> None:
    """Logs and counts name the client and not the proxy, where the proxy tells it. (§12)"""
    head = Head("GET", b"/", b"", [(b"x-forwarded-for", forwarded)], address)

    assert Holders(PROXIES).named(head, {b"x-forwarded-for": forwarded}.get).client == named
