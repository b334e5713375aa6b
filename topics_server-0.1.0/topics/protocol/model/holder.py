"""Who asks: the key of a request, or the address that it came from (§11)."""

from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Final

import msgspec

from topics.protocol.model.access import Caller


class Holder(msgspec.Struct, frozen=True):
    """One holder of what is limited.

    Attributes:
        name: The key's id, or the address; empty where neither says who it is, as behind a proxy
            that does not tell.
        is_key: It is a key.
        is_crowd: The address is one that every program of this machine has (loopback): it may be one
            client or thousands.
    """

    name: str
    is_key: bool = False
    is_crowd: bool = False


NOBODY: Final = Holder("", is_crowd=True)


def holder_of(caller: Caller, address: Holder) -> Holder:
    """In whose share it counts what a caller has: the key's, or the address's without one."""
    return Holder(caller.name, is_key=True) if caller.is_key else address


@lru_cache(4096)
def holder_at(address: str) -> Holder:
    """The holder at an address.  Of IPv6 it is the network of 64 bits, all of which one host may use
    as its own."""
    try:
        known = ip_address(address.partition("%")[0])
    except ValueError:
        return NOBODY
    if isinstance(known, IPv6Address):
        if known.ipv4_mapped is not None:
            known = known.ipv4_mapped
        elif not known.is_loopback:
            network = IPv6Address(int(known) >> 64 << 64)
            return Holder(f"{network}/64")
    return Holder(str(known), is_crowd=known.is_loopback)
