"""What the server answers without a command: the page, probes, metrics, its own description (§8).

Knows which of them is answered in which phase; routes and refusals are the exchange's.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import NamedTuple, Protocol

from topics.protocol.driver.reply import Reply, Ticket
from topics.protocol.faces.http.clients import ClientList, ClientQuery, parse_clients
from topics.protocol.faces.http.cluster import Cluster
from topics.protocol.faces.http.negotiation import prefers_json
from topics.protocol.faces.http.query import parse_query
from topics.protocol.faces.http.rendering import open_object
from topics.protocol.faces.http.route import Probe
from topics.protocol.faces.http.server import LimitsInForce, parse_history
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.outcomes import Outcome
from topics.server.http.connected import Connected
from topics.server.http.interface import Answer, Pending
from topics.server.http.reports import REPORTED, Reported, encode, health, ready
from topics.server.http.responder import JSON, Responder
from topics.server.observing import metrics
from topics.server.observing.history import History
from topics.server.observing.scraping import Scrape, Scraping
from topics.server.page import page
from topics.server.service.service import Service
from topics.server.service.slots import Slot

log = logging.getLogger("topics.http")


class Sources(NamedTuple):
    """What figures are made of."""

    scraping: Scraping
    history: History
    connected: Connected
    cluster: Cluster


def answer_probe(
    call: Responder,
    probe: Probe,
    name: str,
    query: bytes,
    sources: Sources,
    service: Service,
    slot: Slot,
) -> Answer | Pending:
    """The page, probes and metrics (§8): answered in every phase.

    Args:
        name: The last segment of the path, where the route has one.
        query: As it came.
    """
    runtime = call.runtime
    if not service.has_engine and probe in REPORTED:
        return _reported(call, probe, query, service, slot)
    match probe:
        case Probe.PAGE:
            return call.fixed(page.HEADERS, page.DOCUMENT)
        case Probe.HEALTH:
            return plain(call, health(runtime))
        case Probe.READY:
            return plain(call, ready(runtime))
        case Probe.LIMITS:
            return plain(call, open_object(LimitsInForce(**asdict(runtime.limits))))
        case Probe.OPENAPI:
            # The document has a format of its own, without a performance block.  Most servers are
            # never asked for it, so it is not loaded at every start.
            from topics.protocol.faces.http.openapi import document as openapi

            return call.fixed((JSON,), openapi.document())
        case Probe.DOCS:
            from topics.server.page import docs

            if not name:
                return call.fixed(docs.HEADERS, docs.DOCUMENT)
            return _File(call, name, docs)
        case Probe.CONSOLE:
            from topics.server.page import console

            return _File(call, name, console)
        case Probe.HISTORY:
            return plain(call, _history(call, query, sources.history))
        case Probe.CLIENTS:
            asked = parse_clients(parse_query(query))
            return _clients(call, asked, sources)
        case Probe.CLUSTER:
            return plain(call, open_object(sources.cluster))
        case Probe.TRIM:
            what = "this server is in no cluster, so it has no log to trim"
            raise Rejection(ErrorCode.TRIM_REFUSED, what)
        case Probe.METRICS:
            return _Scraped(call, sources.scraping)


def _history(call: Responder, query: bytes, history: History) -> bytes:
    step_ms, after_ms = parse_history(parse_query(query))
    return history.document(step_ms, after_ms, call.caller)


def _clients(call: Responder, asked: ClientQuery, sources: Sources) -> Pending:
    """One page of who is connected, here and in the readers of this server."""
    reported = Reported(call, partial(plain, call))

    def told(found: ClientList) -> None:
        found.node = sources.cluster.node
        reported.told(open_object(found))

    sources.connected.ask(asked, call.caller, told)
    return reported


class PageFiles(Protocol):
    """A module with files of a page."""

    FILES: Mapping[str, bytes]

    def file_headers(self, name: str) -> tuple[tuple[bytes, bytes], ...]: ...

    def read_file(self, name: str, *, zipped: bool) -> bytes: ...


class _File:
    """Implements `interface.Pending`: a file of a page, which a thread reads.

    Raises:
        Rejection: 404; names are those of a table, never of the disk.
    """

    waits_for_news = False
    is_apart = True

    def __init__(self, call: Responder, name: str, files: PageFiles) -> None:
        if name not in files.FILES:
            raise Rejection(ErrorCode.NOT_FOUND, "no such file")
        self._call = call
        self._name = name
        self._files = files
        self._deliver: Callable[[Answer], None] | None = None

    def then(self, deliver: Callable[[Answer], None]) -> None:
        self._deliver = deliver
        work = self._call.runtime.zip_in_thread(self._read)
        work.add_done_callback(lambda done: self._done(done.result()))

    def cancel(self) -> None:
        self._deliver = None

    def _read(self) -> bytes | None:
        try:
            return self._files.read_file(self._name, zipped=self._call.accepts_gzip())
        except OSError:
            log.exception("a file of the package cannot be read")
            return None

    def _done(self, text: bytes | None) -> None:
        if self._deliver is not None:
            self._deliver(self._answer(text))

    def _answer(self, text: bytes | None) -> Answer:
        call = self._call
        if text is None:
            return call.refuse(Rejection(ErrorCode.INTERNAL, "internal error"))
        return call.document(
            self._files.file_headers(self._name), text, is_zipped=call.accepts_gzip()
        )


class _Metrics(ABC):
    """Implements `interface.Pending`: the answer to a scrape (§8.3)."""

    waits_for_news = False
    is_apart = False

    def __init__(self, call: Responder) -> None:
        self._call = call
        self.as_json = prefers_json(call.header(b"accept"))
        self._deliver: Callable[[Answer], None] | None = None

    def then(self, deliver: Callable[[Answer], None]) -> None:
        self._deliver = deliver
        self._ask()

    @abstractmethod
    def _ask(self) -> None:
        """Have the pieces made."""

    def cancel(self) -> None:
        self._deliver = None

    def _found(self, pieces: Sequence[bytes]) -> None:
        """The document came, of JSON without its last brace; empty where it could not be made."""
        call = self._call
        kind = JSON if self.as_json else (b"content-type", metrics.CONTENT_TYPE)
        body = [*pieces, call.performance(Reply(Outcome()))] if self.as_json else pieces
        if not pieces:
            self._done(call.refuse(Rejection(ErrorCode.INTERNAL, "internal error")))
        elif call.zips_apart(body):
            zipping = call.runtime.zip_in_thread(lambda: call.answer(200, (kind,), body))
            zipping.add_done_callback(lambda done: self._done(done.result()))
        else:
            self._done(call.answer(200, (kind,), body))

    def _done(self, answer: Answer) -> None:
        if self._deliver is not None:
            self._deliver(answer)


class _Scraped(_Metrics):
    """A scrape of this process, which is answered in slices."""

    def __init__(self, call: Responder, scraping: Scraping) -> None:
        super().__init__(call)
        self._scraping = scraping
        self._scrape: Scrape | None = None

    def _ask(self) -> None:
        ask, caller = self._scraping.ask, self._call.caller
        self._scrape = ask(self._found, caller, as_json=self.as_json)

    def cancel(self) -> None:
        super().cancel()
        if self._scrape is not None:
            self._scrape.cancel()


class _ScrapedElsewhere(_Metrics):
    """A scrape of the process with the engine."""

    def __init__(self, call: Responder, service: Service, slot: Slot) -> None:
        super().__init__(call)
        self._service = service
        self._slot = slot
        self._ticket: Ticket | None = None

    def _ask(self) -> None:
        kind, arguments = Probe.METRICS.name, encode(self.as_json)
        self._ticket = self._service.report(kind, arguments, self._slot, self._told)

    def _told(self, found: bytes | Rejection) -> None:
        if isinstance(found, Rejection):
            self._done(self._call.refuse(found))
        else:
            self._found([found])

    def cancel(self) -> None:
        super().cancel()
        if self._ticket is not None:
            self._ticket.cancel()


def _reported(call: Responder, probe: Probe, query: bytes, service: Service, slot: Slot) -> Pending:
    """The answer made of what the process with the engine tells."""
    if probe is Probe.METRICS:
        return _ScrapedElsewhere(call, service, slot)
    arguments = b""
    if probe is Probe.CLIENTS:
        arguments = encode(parse_clients(parse_query(query)))
    elif probe is Probe.HISTORY:
        arguments = encode(parse_history(parse_query(query)))
    reported = Reported(call, partial(plain, call))
    reported.ticket = service.report(probe.name, arguments, slot, reported.told)
    return reported


def plain(call: Responder, text: bytes) -> Answer:
    """An answer without a command; the last brace of `text` is left out."""
    return call.answer(200, (JSON,), [text, call.performance(Reply(Outcome()))])
