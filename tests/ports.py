"""Ports for servers that a test starts, and that have to be told one."""

import random
import socket
from contextlib import ExitStack
from typing import Final

LOW: Final = range(20_000, 32_000)
"""Below those that the kernel gives to outgoing connections, one of which would take a port before its server does."""


def unused_port() -> int:
    """A port that nothing listens on."""
    return unused_ports(1)[0]


def unused_ports(count: int) -> list[int]:
    """Ports that nothing listens on; they are held together, so that none is given twice."""
    with ExitStack() as held:
        found: list[int] = []
        while len(found) < count:
            port = random.choice(LOW)
            try:
                held.enter_context(socket.create_server(("127.0.0.1", port)))
            except OSError:
                continue
            found.append(port)
        return found
