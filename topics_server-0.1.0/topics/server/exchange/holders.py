"""Who sent a request, where there is no key to say so: the address, through trusted proxies.

Owns the reading of `X-Forwarded-For`.  A proxy appends the address that it was called from, so the
list is read from its end, and only as far as the proxies are the operator's own: what lies before
that the client may have written itself.
"""

from collections.abc import Callable, Sequence
from ipaddress import ip_address, ip_network

from topics.protocol.model.holder import NOBODY, Holder, holder_at


class Holders:
    """Args:
    proxies: Addresses and networks of proxies, whose header is believed.
    """

    def __init__(self, proxies: Sequence[str] = ()) -> None:
        self._proxies = [ip_network(proxy, strict=False) for proxy in proxies]

    def of(self, address: str, header: Callable[[bytes], bytes | None]) -> Holder:
        """The holder of a request from this address."""
        if not self._proxies or not self._is_proxy(address):
            return holder_at(address)
        forwarded = header(b"x-forwarded-for") or b""
        for hop in reversed(forwarded.decode("latin-1").split(",")):
            if not self._is_proxy(hop.strip()):
                return holder_at(hop.strip())
        # A proxy that does not tell stands for all its clients.
        return NOBODY

    def peer(self, address: str) -> Holder:
        """Whose share a connection from this address counts in."""
        return NOBODY if self._proxies and self._is_proxy(address) else holder_at(address)

    def _is_proxy(self, address: str) -> bool:
        try:
            known = ip_address(address)
        except ValueError:
            return False
        return any(known in network for network in self._proxies)
