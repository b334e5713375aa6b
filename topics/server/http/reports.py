"""What the process with the engine tells of itself, and how another process answers with it (§8).

Owns the kinds of reports and their arguments.  A report is the text of the answer without what the request
decides: the performance block, compression, headers.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

from topics.protocol.commit.unit_of_work import read_only
from topics.protocol.driver.reply import Ticket
from topics.protocol.faces.http.clients import ClientQuery
from topics.protocol.faces.http.rendering import open_object
from topics.protocol.faces.http.route import Probe
from topics.protocol.faces.http.server import Health, Ready
from topics.protocol.model.access import Caller
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.records import Buffer
from topics.server.http.connected import Connected
from topics.server.http.interface import Answer
from topics.server.http.responder import Responder
from topics.server.observing.history import History
from topics.server.observing.scraping import Scraping
from topics.server.service.shell import Phase, Shell, not_serving
from topics.version import VERSION

Told: TypeAlias = Callable[[Sequence[Buffer] | Rejection], None]
Reporter: TypeAlias = Callable[[bytes, Caller, Told], None]
"""Makes a report of its arguments, for a caller; gives it to the last argument, now or later.  Raises
Rejection."""

REPORTED: Final = frozenset(
    (Probe.HEALTH, Probe.READY, Probe.HISTORY, Probe.METRICS, Probe.CLIENTS)
)
"""Probes whose answer is a report."""

encode: Final = msgspec.msgpack.Encoder().encode
_decode_history: Final = msgspec.msgpack.Decoder(tuple[int, int]).decode
_decode_clients: Final = msgspec.msgpack.Decoder(ClientQuery).decode
_decode_flag: Final = msgspec.msgpack.Decoder(bool).decode


def health(shell: Shell) -> bytes:
    """The text of the answer, its last brace left out; as `ready`."""
    return open_object(Health(status="ok", version=VERSION, uptime_ms=shell.uptime_ms))


def ready(shell: Shell) -> bytes:
    """Raises Rejection: 503."""
    if shell.phase is not Phase.READY:
        raise not_serving(shell)
    if shell.engine.read_only:
        raise read_only(lacks_space=shell.engine.lacks_space)
    topics = shell.engine.topic_count
    return open_object(Ready(status="ready", wal_replay_complete=True, topics=topics))


def reporters(
    shell: Shell, scraping: Scraping, history: History, connected: Connected
) -> Mapping[str, Reporter]:
    """What makes the reports of this process, by their kinds."""

    def tell_clients(arguments: bytes, caller: Caller, told: Told) -> None:
        connected.ask(_decode_clients(arguments), caller, lambda found: told([open_object(found)]))

    def tell_history(arguments: bytes, caller: Caller, told: Told) -> None:
        told([history.document(*_decode_history(arguments), caller)])

    def tell_metrics(arguments: bytes, caller: Caller, told: Told) -> None:
        def made(pieces: list[bytes]) -> None:
            told(pieces or Rejection(ErrorCode.INTERNAL, "internal error"))

        scraping.ask(made, caller, as_json=_decode_flag(arguments))

    return {
        Probe.HEALTH.name: lambda _, __, told: told([health(shell)]),
        Probe.READY.name: lambda _, __, told: told([ready(shell)]),
        Probe.CLIENTS.name: tell_clients,
        Probe.HISTORY.name: tell_history,
        Probe.METRICS.name: tell_metrics,
    }


class Reported:
    """Implements `interface.Pending`: the answer made of a report that may come later.

    Args:
        answer: Makes it.
    """

    waits_for_news = False
    is_apart = False

    def __init__(self, call: Responder, answer: Callable[[bytes], Answer]) -> None:
        self._call = call
        self._make = answer
        self._answer: Answer | None = None
        self._deliver: Callable[[Answer], None] | None = None
        self.ticket: Ticket | None = None

    def told(self, found: bytes | Rejection) -> None:
        """The report came, or why there is none."""
        answer = self._call.refuse(found) if isinstance(found, Rejection) else self._make(found)
        self._answer = answer
        deliver, self._deliver = self._deliver, None
        if deliver is not None:
            deliver(answer)

    def then(self, deliver: Callable[[Answer], None]) -> None:
        if self._answer is None:
            self._deliver = deliver
        else:
            deliver(self._answer)

    def cancel(self) -> None:
        self._deliver = None
        if self.ticket is not None:
            self.ticket.cancel()
