"""Routers as the contract describes them: what a pass may copy, and what it must report as lost.

Owns the routers of a model and the check of every event with which an engine says that it has
forwarded.  Refuses to know when it does so: a pass may be of any size.  Invariant: a router's
cursor, its copies and its losses are as reported, or a start finds otherwise.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import orjson

from topics.protocol.model.config import RouterConfig, TopicConfig
from topics.protocol.model.events import (
    CursorsMoved,
    Event,
    Forwarded,
    RecordsAppended,
    SeqsSkipped,
)
from topics.protocol.state.state import State

from .invariants import Violation, check
from .model import Entry, Record, Refused, Topic, tag_matches

if TYPE_CHECKING:
    from .model import Model


@dataclass(slots=True)
class Router:
    """One router; everything of the source through `cursor` was copied, filtered out or reported as
    lost."""

    name: str
    config: RouterConfig
    cursor: int
    forwarded_total: int = 0
    lost_total: int = 0

    def wants(self, record: Record) -> bool:
        rule = self.config.filter
        return rule is None or tag_matches(rule[2], record.entry.tag)

    def copy_of(self, source: Topic, record: Record) -> Entry:
        entry, config = record.entry, self.config
        return Entry(
            entry.data,
            entry.tag if config.preserve_tag else None,
            entry.node if config.preserve_node else None,
            self._stamped(source, record) if config.guarantee == "exactly_once" else entry.meta,
        )

    def _stamped(self, source: Topic, record: Record) -> bytes:
        """`meta` with the field that distinguishes this copy from every other. (§6.1)"""
        meta = {} if record.entry.meta is None else orjson.loads(record.entry.meta)
        meta.pop("_topics_router", None)
        meta["_topics_router"] = {
            "source": source.name,
            "epoch": source.epoch,
            "seq": record.seq,
            "key": f"{self.name}@{source.epoch}:{record.seq}",
        }
        return orjson.dumps(meta)


# -- commands ------------------------------------------------------------------------------


def put_router(model: "Model", name: str, config: RouterConfig) -> dict[str, Any]:
    """§6.1"""
    old = model.routers.get(name)
    if old is not None and old.config == config:
        return {"created": False}
    others = [r.config for n, r in model.routers.items() if n != name]
    if any(c.dest == config.dest and c.source != config.source for c in others):
        raise Refused("topic_exists_incompatible")
    source_of = {c.dest: c.source for c in others}
    at: str | None = config.source
    while at is not None and not config.allow_cycle:
        at = source_of.get(at)
        if at == config.dest:
            raise Refused("router_cycle")
    for end in (config.source, config.dest):
        if end not in model.topics:
            model.topics[end] = Topic(end, TopicConfig())
    cursor = model.topics[config.source].head_seq
    if old is None:
        model.routers[name] = Router(name, config, cursor)
    else:
        ends = (old.config.source, old.config.dest)
        if ends == (config.source, config.dest):
            cursor = old.cursor
        model.routers[name] = replace(old, config=config, cursor=cursor)
    return {"created": old is None}


def delete_router(model: "Model", name: str) -> dict[str, Any]:
    """§6.4"""
    return {"deleted": model.routers.pop(name, None) is not None}


def get_router(model: "Model", name: str) -> dict[str, Any]:
    """§6.2"""
    if name not in model.routers:
        raise Refused("router_not_found")
    router = model.routers[name]
    return {
        "cursor": router.cursor,
        "forwarded_total": router.forwarded_total,
        "lost_total": router.lost_total,
    }


def ring_of(model: "Model", router: Router) -> int:
    """How many topics the ring of a router has; 0 if it is in none."""
    source_of = {r.config.dest: r.config.source for r in model.routers.values()}
    at: str | None = router.config.source
    for length in range(1, len(model.topics) + 1):
        if at == router.config.dest:
            return length
        at = source_of.get(at) if at is not None else None
    return 0


# -- passes --------------------------------------------------------------------------------


def follow(model: "Model", state: State, event: Event) -> None:
    """Apply an event with which a router has copied, if the contract allows it."""
    names = {r.router_id: r.name for r in state.routers.by_id.values()}
    match event:
        case RecordsAppended(cause=Forwarded(router_id=router_id, cursor=cursor)):
            _forward(model, state, model.routers[names[router_id]], cursor, len(event.batch))
        case CursorsMoved():
            for router_id, cursor, copies in event.moves:
                _forward(model, state, model.routers[names[router_id]], cursor, copies)
        case SeqsSkipped():
            _skip(model, state, model.routers[names[event.router_id]], event)


def _forward(model: "Model", state: State, router: Router, cursor: int, copies: int) -> None:
    source, dest = model.topics[router.config.source], model.topics[router.config.dest]
    what = f"{router} to {cursor} with {copies}"
    shown = state.topics[source.name].published_seq
    check(router.cursor < cursor <= shown, "I25", f"{what}, shown {shown}")
    check(router.cursor + 1 >= source.floor(shown), "I9", what)
    passed = [h for h in source.holes if router.cursor < h[1] and h[0] <= cursor]
    check(not passed, "I9", f"{passed}: {what}")
    ring = ring_of(model, router)
    wanted = [
        record
        for seq, record in source.records.items()
        if router.cursor < seq <= cursor
        and router.wants(record)
        and (not ring or record.hops + 1 < ring)
    ]
    check(len(wanted) == copies, "I26", f"{[r.seq for r in wanted]}: {what}")
    router.cursor = cursor
    router.forwarded_total += copies
    if copies:
        try:
            made = model.add(dest, [router.copy_of(source, record) for record in wanted])
        except Refused as refused:
            raise Violation("I27", f"{dest.name} is full: {what}") from refused
        check(True, "I27", what)
        for copy, record in zip(made, wanted, strict=True):
            if copy.seq in dest.records:  # and not evicted by those behind it
                dest.records[copy.seq] = replace(copy, hops=record.hops + 1 if ring else 0)


def _skip(model: "Model", state: State, router: Router, event: SeqsSkipped) -> None:
    """The destination gets a hole of as many seqs as the source lost. (§3.3 `source_trim`)"""
    source, dest = model.topics[router.config.source], model.topics[router.config.dest]
    loss = event.loss
    if loss.gap_from > router.cursor + 1:
        # On the way there it only passed over records.
        _forward(model, state, router, loss.gap_from - 1, 0)
    cursor = router.cursor
    floor = source.floor(state.topics[source.name].published_seq)
    through = floor - 1
    if cursor + 1 >= floor:
        through = next((last for first, last in source.holes if first <= cursor + 1 <= last), 0)
    check((loss.gap_from, loss.gap_to) == (cursor + 1, through), "I25", f"{router} {loss}")
    first, last = dest.head_seq + 1, dest.head_seq + through - cursor
    check((event.first_seq, event.last_seq) == (first, last), "I25", f"{dest.head_seq} {event}")
    dest.holes.append((first, last))
    dest.head_seq = last
    router.cursor = through
    router.lost_total += through - cursor
