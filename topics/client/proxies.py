"""The proxy of a server, as the environment names it: `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY`, and
`NO_PROXY` with the exceptions.

Owns which proxy that is.  httpx would load all of them for any server, and fail at one that this server
does not need.  A server on this machine has none, as for Go's programs: no proxy elsewhere can reach it.
"""

from importlib.util import find_spec
from ipaddress import ip_address, ip_network
from typing import Final
from urllib.request import getproxies, proxy_bypass

from topics.client.address import Address

_SCHEMES: Final = ("http", "https", "socks5", "socks5h")


def proxy_of(address: Address) -> str | None:
    """URL of the proxy for the server at an address; None: it is reached directly.

    Raises:
        ValueError: The proxy speaks what this client does not; the message names the variable.
    """
    proxies = getproxies()
    name = address.scheme if address.scheme in proxies else "all"
    if name not in proxies or is_local(address.host) or _is_exempt(address, proxies.get("no", "")):
        return None
    proxy = proxies[name]
    if "://" not in proxy:
        proxy = f"http://{proxy}"
    scheme = proxy.partition("://")[0].lower()
    variable, exempt = f"{name.upper()}_PROXY", f"name {address.host} in NO_PROXY"
    if scheme not in _SCHEMES:
        # The scheme alone: the rest may hold a password.
        raise ValueError(f"{variable}: a proxy of {scheme}:// is not spoken to; or {exempt}")
    if scheme.startswith("socks") and find_spec("socksio") is None:
        raise ValueError(
            f"{variable}: a proxy of {scheme}:// needs pip install socksio; or {exempt}"
        )
    return proxy


def is_local(host: str) -> bool:
    """Whether a host is this machine, by its name or its address."""
    name = host.lower().rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ip_address(name.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _is_exempt(address: Address, exceptions: str) -> bool:
    if proxy_bypass(f"{address.host}:{address.port}") or proxy_bypass(address.host):
        return True
    try:
        known = ip_address(address.host.partition("%")[0])
    except ValueError:
        return False
    return any(_holds(each.strip(), known) for each in exceptions.split(","))


def _holds(network: str, known: object) -> bool:
    """Whether a network of `NO_PROXY`, such as 10.0.0.0/8 or [::1], has an address."""
    try:
        return known in ip_network(network.strip("[]"), strict=False)
    except ValueError:
        return False
