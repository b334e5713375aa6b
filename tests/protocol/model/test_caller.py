"""Who asks, by an address. (§11)"""

import pytest

from topics.protocol.model.caller import NOBODY, Caller, caller_at

CASES = [
    ("192.0.2.7", Caller("192.0.2.7")),
    ("127.0.0.1", Caller("127.0.0.1", is_crowd=True)),
    ("127.8.9.1", Caller("127.8.9.1", is_crowd=True)),
    ("::1", Caller("::1", is_crowd=True)),
    ("::ffff:192.0.2.7", Caller("192.0.2.7")),
    ("::ffff:127.0.0.1", Caller("127.0.0.1", is_crowd=True)),
    ("2001:db8:1:2:3:4:5:6", Caller("2001:db8:1:2::/64")),
    ("2001:db8:1:2::9%eth0", Caller("2001:db8:1:2::/64")),
    ("", NOBODY),
    ("unix:", NOBODY),
]


@pytest.mark.parametrize(("address", "caller"), CASES)
def test_an_address_is_a_caller(address: str, caller: Caller) -> None:
    """IPv6 by its network of 64 bits; loopback may be many; what is no address is nobody."""
    assert caller_at(address) == caller
