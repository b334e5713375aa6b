"""Who sent a request, where there is no key to say so: the address, through trusted proxies.

Owns the reading of `X-Forwarded-For`, and of `Forwarded` (RFC 7239) where a proxy writes that alone.
A proxy appends the address that it was called from, so the list is read from its end, and only as far
as the proxies are the operator's own: what lies before that the client may have written itself.
"""

import re
from collections.abc import Callable, Sequence
from ipaddress import ip_address, ip_network
from typing import Final

import msgspec

from topics.protocol.model.holder import NOBODY, Holder, holder_at
from topics.server.http.interface import Head

_FOR: Final = re.compile(r'(?:^|;)\s*for\s*=\s*("[^"]*"|[^;]*)', re.IGNORECASE)
_ADDRESS: Final = re.compile(r"\[(?P<long>[^\]]*)\](?::\w*)?|(?P<short>[^:]*):\w*")
"""An address with its port, which is a number or a name (RFC 7239 §6); of IPv6 in brackets."""


class Holders:
    """Args:
    proxies: Addresses and networks of proxies, whose header is believed.
    """

    def __init__(self, proxies: Sequence[str] = ()) -> None:
        self._proxies = [ip_network(proxy, strict=False) for proxy in proxies]

    def named(self, head: Head, header: Callable[[bytes], bytes | None]) -> Head:
        """A request's head with the address of its client, where trusted proxies tell it: what is
        counted and logged by address is the client's, not the proxy's."""
        if not self._proxies or not self._is_proxy(head.client):
            return head
        client = self._client(header)
        return head if client is None else msgspec.structs.replace(head, client=client)

    def peer(self, address: str) -> Holder:
        """In whose share counts what comes from an address: a connection from it, or a request whose
        head says so (`named`).  A proxy that does not tell stands for all its clients."""
        return NOBODY if self._proxies and self._is_proxy(address) else holder_at(address)

    def _client(self, header: Callable[[bytes], bytes | None]) -> str | None:
        """The last address of the list that is no proxy's; None where there is none, or none that can
        be read."""
        told = header(b"x-forwarded-for")
        if told is None:
            told = header(b"forwarded") or b""
        # Between commas, whatever quotes an earlier element has left open: that may be the client's.
        for element in reversed(told.decode("latin-1").split(",")):
            # An element may be empty (RFC 9110 §5.6.1).
            if element.strip():
                hop = address_of(element)
                if hop is None or not self._is_proxy(hop):
                    return hop
        return None

    def _is_proxy(self, address: str) -> bool:
        try:
            known = ip_address(address)
        except ValueError:
            return False
        plain = getattr(known, "ipv4_mapped", None) or known
        return any(known in network or plain in network for network in self._proxies)


def address_of(element: str) -> str | None:
    """The address of one element of the list; None where it names none.

    Proxies write it alone, with a port, in brackets, in quotes, or as `for=` among other parameters.
    """
    text = element.strip()
    found = _FOR.search(text)
    if found is not None:
        text = found[1]
    text = text.strip().strip('"').strip()
    shape = _ADDRESS.fullmatch(text)
    if shape is not None:
        text = shape["short"] if shape["long"] is None else shape["long"]
    try:
        return str(ip_address(text))
    except ValueError:
        return None
