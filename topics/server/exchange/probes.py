"""What the server answers without a command: the page, probes, metrics, its own description (§8).

Knows which of them is answered in which phase; routes and refusals are the exchange's.
"""

from dataclasses import asdict

from topics.protocol.driver.group_commit import Reply
from topics.protocol.http import answer_models as models
from topics.protocol.http import metrics, routes
from topics.protocol.http.answers import open_object
from topics.protocol.http.routes import Probe
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.outcomes import Outcome
from topics.server.exchange import usage
from topics.server.exchange.interface import Answer
from topics.server.exchange.late_answer import shutting_down
from topics.server.exchange.responder import JSON, Responder
from topics.server.exchange.shell import Phase
from topics.server.page import page
from topics.version import VERSION


def answer_probe(call: Responder, probe: Probe) -> Answer:
    """The page, probes and metrics (§8): answered in every phase."""
    runtime = call.runtime
    match probe:
        case Probe.PAGE:
            return call.fixed(page.HEADERS, page.DOCUMENT)
        case Probe.HEALTH:
            health = models.Health(status="ok", version=VERSION, uptime_ms=runtime.uptime_ms)
            return _plain(call, open_object(health))
        case Probe.READY:
            return _ready(call)
        case Probe.LIMITS:
            return _plain(call, open_object(models.LimitsInForce(**asdict(runtime.limits))))
        case Probe.OPENAPI:
            # The document has a format of its own, without a performance block.  Most servers are
            # never asked for it, so it is not loaded at every start.
            from topics.protocol.http.openapi import document as openapi

            return call.fixed((JSON,), openapi.document())
        case Probe.METRICS:
            # Before the phase is READY, and after it, another thread owns the state.
            state = None
            if runtime.phase is Phase.READY:
                runtime.engine.let_pass(runtime.now_ms)
                state = runtime.engine.state
            watches, stats = runtime.engine.watches, runtime.store.stats
            known = metrics.families(
                state,
                watches,
                stats,
                runtime.process(),
                push_streams=runtime.engine.push_streams.open_count,
                caller=call.caller,
            )
            known = [*known, *call.observer.measures.families(), *usage.families()]
            if routes.prefers_json(call.header(b"accept")):
                return _plain(call, metrics.as_json(known))
            text = (b"content-type", metrics.CONTENT_TYPE)
            return call.answer(200, (text,), [metrics.as_text(known)])


def _plain(call: Responder, text: bytes) -> Answer:
    """An answer without a command; the last brace of `text` is left out."""
    return call.answer(200, (JSON,), [text, call.performance(Reply(Outcome()))])


def _ready(call: Responder) -> Answer:
    runtime = call.runtime
    match runtime.phase:
        case Phase.READY if runtime.engine.read_only:
            raise Rejection(ErrorCode.NOT_READY, "the log is read-only", {"reason": "read_only"})
        case Phase.READY:
            topics = len(runtime.engine.state.topics)
            ready = models.Ready(status="ready", wal_replay_complete=True, topics=topics)
            return _plain(call, open_object(ready))
        case Phase.STARTING | Phase.FAILED:
            progress = {"replay_progress": runtime.store.progress}
            raise Rejection(ErrorCode.NOT_READY, "the log is being replayed", progress)
        case _:
            raise shutting_down()
