"""`Address`: where a server is, parsed from the URL that the user wrote.

A URL of the usual form is parsed here.  Any other, say with a name in another script, a password or
escapes, is left to httpx, which brings itself and idna and takes longer to import than a command of
the command line takes to run.  Invariant: both ways lead to the same address, where both are open.
"""

import re
import socket
from dataclasses import dataclass, field
from typing import Final

from topics.visible import without_password

PORT_MAX: Final = 65_535
_PORTS: Final = {"http": 80, "https": 443}
_USUAL: Final = re.compile(
    r"(?P<scheme>https?)://"
    r"(?P<host>[a-z0-9_.-]+|\[[0-9a-f:]+\])"
    r"(:(?P<port>[0-9]{1,5}))?"
    r"(?P<path>(/[A-Za-z0-9_~-][A-Za-z0-9_.~-]*)*/?)"
)
"""A lower-case name or an address, and a path without escapes and dot segments."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server is.

    Attributes:
        url: All of it, normalised; with the password, if it has one, so that it is not shown.
        scheme: "http" or "https".
        host: For the resolver: a name in ASCII, or an address without brackets.
        port: The default one of the scheme where the URL has none.
        netloc: Host and port as the header `host` has them, without the default port.
        path: Escaped, without a slash at the end; requests' paths follow it.
        userinfo: User name and password, unescaped; None where the URL has neither.
    """

    url: str = field(repr=False)
    scheme: str
    host: str
    port: int
    netloc: str
    path: str
    userinfo: tuple[str, str] | None = field(repr=False)

    @property
    def origin(self) -> str:
        """Scheme, host and port, for messages: there is no password in it."""
        return f"{self.scheme}://{self.netloc}"


def parse_address(url: str) -> Address:
    """The address that a URL names.

    Raises:
        ValueError: It has no scheme or host, or an impossible port.
    """
    found = _USUAL.fullmatch(url)
    if found is None or not _is_host(found["host"]):
        return _parse_unusual(url)
    scheme, host = found["scheme"], found["host"]
    port = int(found["port"]) if found["port"] else _PORTS[scheme]
    _check_port(url, port)
    netloc = host if port == _PORTS[scheme] else f"{host}:{port}"
    path = found["path"]
    return Address(
        f"{scheme}://{netloc}{path}", scheme, host.strip("[]"), port, netloc, path.rstrip("/"), None
    )


def _is_host(host: str) -> bool:
    """Whether a host that looks like an address is one."""
    if not host.startswith("["):
        return not host.replace(".", "").isdecimal() or _is_address(socket.AF_INET, host)
    return _is_address(socket.AF_INET6, host[1:-1])


def _is_address(family: socket.AddressFamily, text: str) -> bool:
    try:
        socket.inet_pton(family, text)
    except OSError:
        return False
    return True


def _parse_unusual(url: str) -> Address:
    import httpx

    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        # What httpx says of a URL quotes the part that it took for the port.
        what = "" if "@" in url else f": {error}"
        raise ValueError(f"{_shown(url)} is not a URL{what}") from None
    if parsed.scheme not in _PORTS or not parsed.host:
        raise ValueError(f"{_shown(url)} is not an http:// or https:// URL")
    if parsed.port is not None:
        _check_port(url, parsed.port)
    return Address(
        url=str(parsed),
        scheme=parsed.scheme,
        host=parsed.raw_host.decode("ascii").strip("[]"),
        port=parsed.port or _PORTS[parsed.scheme],
        netloc=parsed.netloc.decode("ascii"),
        path=parsed.raw_path.decode("ascii").rstrip("/"),
        userinfo=(parsed.username, parsed.password) if parsed.userinfo else None,
    )


def _check_port(url: str, port: int) -> None:
    if not 0 < port <= PORT_MAX:
        # The operating system would take it modulo 65,536, and connect to another port.
        raise ValueError(f"{_shown(url)}: there is no port {port}")


def _shown(url: str) -> str:
    return repr(without_password(url))
