"""Why no answer came: `Fault`, and a class for each case that decides whether a call is sent again.

Owns nothing but the classes.  The two pools raise them; a fault of httpx becomes one of them here, by
the name of its class, so that a client that does without httpx does not import it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import httpx


class Fault(Exception):
    """No answer came, or not to its end.

    Attributes:
        origin: Scheme, host and port of the server; empty while nobody has noted it.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(message)
        self.origin = ""


class Unsendable(Fault):
    """The request cannot be sent to any server; another attempt would fail in the same way."""


class Broken(Fault):
    """The connection broke, or what came is no answer: the request may have arrived."""


class Unwritten(Broken):
    """The connection broke while the request was being sent."""


class OutOfTime(Fault):
    """The server was silent for too long."""


class NotConnected(Fault):
    """There was no connection, so that the request cannot have arrived."""


class NotConnectedInTime(NotConnected, OutOfTime):
    """The connection, or the turn for one, did not come in time."""


_OF_HTTPX: Final[dict[str, type[Fault]]] = {
    "LocalProtocolError": Unsendable,
    "UnsupportedProtocol": Unsendable,
    "ConnectError": NotConnected,
    "ConnectTimeout": NotConnectedInTime,
    "PoolTimeout": NotConnectedInTime,
    "TimeoutException": OutOfTime,
}
"""The class of each fault of httpx, which is looked up from the most special class on; any other is
`Broken`."""


def fault_of(error: "httpx.RequestError") -> Fault:
    """The fault that an error of httpx is."""
    names = (kind.__name__ for kind in type(error).__mro__)
    kind = next((_OF_HTTPX[name] for name in names if name in _OF_HTTPX), Broken)
    fault = kind(str(error) or type(error).__name__)
    try:
        url = error.request.url
    except RuntimeError:
        return fault
    fault.origin = f"{url.scheme}://{url.netloc.decode('ascii', 'replace')}"
    return fault


@contextmanager
def faults_of(kind: type["httpx.RequestError"]) -> Iterator[None]:
    """Raise the fault that an error is, in its place.

    Args:
        kind: `httpx.RequestError`, from a module that has httpx.
    """
    try:
        yield
    except kind as error:
        raise fault_of(error) from error
