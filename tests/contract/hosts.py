"""The servers that the application runs on: `topics serve`, and unmodified other servers.

A host is a command, what it speaks, and the little that it does in its own way.
"""

import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Host:
    """A way to run the application.

    Attributes:
        command: The command line for a port; 0 if the host writes its port to `TOPICS_PORT_FILE`.
        is_http2: Whether it is asked over HTTP/2 without TLS, besides HTTP/1.1.
        has_port_file: Whether it obeys `TOPICS_PORT` and `TOPICS_PORT_FILE`.
        has_workers: Whether it serves in another process than the one that was started.
        stopped: Its exit code after a SIGTERM.
        alarms: Words that no line of its log may have, whatever clients send.
        left_out: Tests that are not true of it; each is a row of the table in docs/operations.md.
    """

    name: str
    command: Callable[[int], tuple[str, ...]]
    is_http2: bool = True
    has_port_file: bool = False
    has_workers: bool = False
    stopped: int = 0
    alarms: tuple[str, ...] = ("Traceback", "internal error", "ERROR", "CRITICAL")
    left_out: frozenset[str] = frozenset()


def _module(*words: str) -> tuple[str, ...]:
    return (sys.executable, "-m", *words)


_OURS: Final = ("Traceback", "internal error", '"level":"error"', '"level":"critical"')

OWN: Final = Host("own", lambda _: _module("topics", "serve"), has_port_file=True, alarms=_OURS)
READERS: Final = Host(
    "readers",
    lambda _: _module("topics", "serve", "--readers", "2"),
    has_port_file=True,
    alarms=_OURS,
)
HYPERCORN: Final = Host(
    "hypercorn",
    lambda _: _module("topics", "serve", "--server", "hypercorn"),
    has_port_file=True,
    alarms=_OURS,
    left_out=frozenset(
        {"test_a_body_of_the_limit_fits_and_one_more_byte_does_not[hypercorn-http2]"}
    ),
)
UVICORN: Final = Host(
    "uvicorn",
    lambda port: _module(
        *("uvicorn", "topics.asgi:app", "--port", f"{port}"),
        *("--no-use-colors", "--no-access-log"),
    ),
    is_http2=False,
    stopped=-signal.SIGTERM,  # it raises the signal again when it has stopped
)
GRANIAN: Final = Host(
    "granian",
    lambda port: _module(
        *("granian", "topics.asgi:app", "--interface", "asgi", "--port", f"{port}"),
        *("--workers-kill-timeout", "20"),  # a worker on uvloop may miss the signal of its start
    ),
    has_workers=True,
    # At a stop it sends GOAWAY, and goes on with the streams; h2, as a client, does not.
    is_http2=False,
    left_out=frozenset({"test_a_stop_is_told[granian-websocket]"}),
)

HOSTS: Final = {host.name: host for host in (OWN, READERS, HYPERCORN, UVICORN, GRANIAN)}
STOCK: Final = (HYPERCORN, UVICORN, GRANIAN)
