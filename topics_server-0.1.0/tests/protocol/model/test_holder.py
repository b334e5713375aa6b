"""Who asks, by an address. (§11)"""

import pytest

from topics.protocol.model.holder import NOBODY, Holder, holder_at

CASES = [
    ("192.0.2.7", Holder("192.0.2.7")),
    ("127.0.0.1", Holder("127.0.0.1", is_crowd=True)),
    ("127.8.9.1", Holder("127.8.9.1", is_crowd=True)),
    ("::1", Holder("::1", is_crowd=True)),
    ("::ffff:192.0.2.7", Holder("192.0.2.7")),
    ("::ffff:127.0.0.1", Holder("127.0.0.1", is_crowd=True)),
    ("2001:db8:1:2:3:4:5:6", Holder("2001:db8:1:2::/64")),
    ("2001:db8:1:2::9%eth0", Holder("2001:db8:1:2::/64")),
    ("", NOBODY),
    ("unix:", NOBODY),
]


@pytest.mark.parametrize(("address", "holder"), CASES)
def test_an_address_is_a_holder(address: str, holder: Holder) -> None:
    """IPv6 by its network of 64 bits; loopback may be many; what is no address is nobody."""
    assert holder_at(address) == holder
