"""Every time-out and bound of the ASGI application.

Owns numbers and the reason for each; they are named as those of the server's own transport.
Knows nothing of the code that applies them.
"""

from dataclasses import dataclass
from typing import Final

HEAD_BYTES_MAX: Final = 32 << 10
"""Target, names and values of one head; its line ends do not count."""
HEADERS_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long a client may take.  All in seconds.

    Attributes:
        first_s: From the head to the first byte of the body.
        window_s: In which the next `HostLimits.window_bytes` of a body must come: 1 KiB/s on average.
        body_s: For a body in total.
        take_s: In which a client must take one piece of a stream (§7.6).
        write_s: In which a client must take one piece of its answer.
        drain_s: For which a refused body is still read, so that the client sees the answer before
            its connection ends.
        grace_s: In which a small refused body may come to its end before the answer: that saves a
            connection (a reset, on HTTP/2), and the client does not wait long for a refusal.
    """

    first_s: float = 10
    window_s: float = 10
    body_s: float = 120
    take_s: float = 30
    write_s: float = 35
    drain_s: float = 2
    grace_s: float = 0.03


@dataclass(frozen=True, slots=True)
class HostLimits:
    """How much memory clients may make the application hold.  All in bytes.

    Attributes:
        bodies_bytes: Of all request bodies in memory; beyond it a body is refused with 429.
        body_free_bytes: A body up to this size is never refused for want of room.
        window_bytes: See `Timeouts.window_s`.
        drain_bytes: Of a refused body that are read and thrown away.
        message_bytes: Of one WebSocket message.
    """

    bodies_bytes: int = 256 << 20
    body_free_bytes: int = 64 << 10
    window_bytes: int = 10 << 10
    drain_bytes: int = 256 << 10
    message_bytes: int = 8 << 20
