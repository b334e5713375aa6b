"""Routers: which topic flows into which, how far each has come, and what it is not allowed to do.

A destination has one source (§6), so the way back from a topic is a line or a ring and never a tree.
A ring is found by walking it, and a record that entered one is back at its topic after as many copies
as the ring has topics.  This module holds definitions and positions; it does not know records.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from topics.protocol.model.config import RouterConfig
from topics.protocol.model.events import Loss, RouterConfigured, RouterImage
from topics.protocol.model.tags import TagRange, parse_match
from topics.protocol.state.blocked import Blocked

HOPS_MAX: Final = 8
"""Copies that a record may become within a ring of routers, however large the ring (§6.1)."""


@dataclass(slots=True, eq=False, weakref_slot=True)
class Router:
    """One router between two instances of topics.

    Attributes:
        cursor: Every seq of the source up to this one is forwarded, filtered out, or reported lost.
        forwarded_total: Copies appended.
        lost_total: Source seqs that were lost before they were forwarded; `loss` is the latest loss.
        blocked: Why the destination refuses; known to this process only.
        match: The config's filter as a question.
    """

    router_id: int
    name: str
    config: RouterConfig
    source_id: int
    dest_id: int
    cursor: int
    forwarded_total: int = 0
    lost_total: int = 0
    loss: Loss | None = None
    blocked: Blocked | None = None
    match: TagRange | None = field(init=False)

    def __post_init__(self) -> None:
        asked = self.config.filter
        self.match = None if asked is None else parse_match(list(asked))

    @property
    def names(self) -> tuple[str, str, str]:
        """Its own and those of its two ends: who may not touch each may not know of it (§0.2)."""
        return self.name, self.config.source, self.config.dest

    def block(self, code: str, message: str, now_ms: int) -> None:
        """The destination refused: tried again after a pause that doubles each time."""
        self.blocked = Blocked.after(self.blocked, code, message, now_ms)

    def is_blocked(self, now_ms: int) -> bool:
        """Whether its pause is not over yet."""
        return self.blocked is not None and self.blocked.retry_at_ms > now_ms

    def retry(self) -> None:
        """End the pause now; the backoff and the time since when it is blocked stay."""
        if self.blocked is not None:
            self.blocked = msgspec.structs.replace(self.blocked, retry_at_ms=0)

    def lose(self, loss: Loss) -> None:
        self.loss = loss
        self.lost_total += loss.gap_to - loss.gap_from + 1
        self.cursor = loss.gap_to

    def image(self) -> RouterImage:
        return RouterImage(
            self.router_id,
            self.name,
            self.config,
            self.source_id,
            self.dest_id,
            self.cursor,
            self.forwarded_total,
            self.lost_total,
            self.loss,
        )


class Routers:
    """All routers, by name, by id, by source and by destination.  Mutated only by `apply`."""

    def __init__(self) -> None:
        self.by_name: dict[str, Router] = {}
        self.by_id: dict[int, Router] = {}
        self.names: list[str] = []
        self.next_id = 1
        self._from: dict[int, dict[int, Router]] = {}
        self._into: dict[int, dict[int, Router]] = {}
        self._hops: dict[int, int | None] = {}

    def __len__(self) -> int:
        return len(self.by_id)

    # ------------------------------------------------------------------ changes

    def configure(self, event: RouterConfigured) -> None:
        """A new router, or another config of one, which keeps its counters."""
        old = self.by_id.get(event.router_id)
        router = Router(
            event.router_id,
            event.name,
            event.config,
            event.source_id,
            event.dest_id,
            event.cursor,
        )
        if old is not None:
            router.forwarded_total = old.forwarded_total
            router.lost_total, router.loss = old.lost_total, old.loss
            self.remove(old)
        self._add(router)

    def restore(self, image: RouterImage) -> None:
        self._add(
            Router(
                image.router_id,
                image.name,
                image.config,
                image.source_id,
                image.dest_id,
                image.cursor,
                image.forwarded_total,
                image.lost_total,
                image.loss,
            )
        )

    def _add(self, router: Router) -> None:
        self.by_name[router.name] = self.by_id[router.router_id] = router
        insort(self.names, router.name)
        self._from.setdefault(router.source_id, {})[router.router_id] = router
        self._into.setdefault(router.dest_id, {})[router.router_id] = router
        self.next_id = max(self.next_id, router.router_id + 1)
        self._hops.clear()

    def remove(self, router: Router) -> None:
        del self.by_name[router.name], self.by_id[router.router_id]
        del self.names[bisect_left(self.names, router.name)]
        self._hops.clear()
        for table, topic_id in ((self._from, router.source_id), (self._into, router.dest_id)):
            del table[topic_id][router.router_id]
            if not table[topic_id]:
                del table[topic_id]

    def remove_of(self, topic_id: int) -> None:
        """A topic was deleted: remove the routers from it and into it (§1.4)."""
        for router in self.of(topic_id):
            self.remove(router)

    # ------------------------------------------------------------------ questions

    def out_of(self, topic_id: int) -> Sequence[Router]:
        """The routers whose source a topic is."""
        return list(self._from.get(topic_id, {}).values())

    def into(self, topic_id: int) -> Sequence[Router]:
        """The routers whose destination a topic is; all of one source."""
        return list(self._into.get(topic_id, {}).values())

    def is_source(self, topic_id: int) -> bool:
        return topic_id in self._from

    def is_derived(self, topic_id: int) -> bool:
        """Whether any router writes into the topic."""
        return topic_id in self._into

    def of(self, topic_id: int) -> list[Router]:
        """Every router with the topic at either end, by name."""
        both = self._from.get(topic_id, {}) | self._into.get(topic_id, {})
        return sorted(both.values(), key=lambda router: router.name)

    def source_of(self, topic_id: int, *, but: Router | None = None) -> int | None:
        """The one topic that flows into this one, not counting the router `but`."""
        for router in self._into.get(topic_id, {}).values():
            if router is not but:
                return router.source_id
        return None

    def way_back(self, topic_id: int, *, but: Router | None = None) -> Iterator[int]:
        """The topics that flow into this one, nearest first, each once."""
        seen = {topic_id}
        source = self.source_of(topic_id, but=but)
        while source is not None and source not in seen:
            seen.add(source)
            yield source
            source = self.source_of(source, but=but)

    def cycle(self, source_id: int, dest_id: int, *, but: Router | None = None) -> list[int]:
        """The ring that a router from source to dest would close, first and last topic alike;
        empty where it closes none."""
        back = [source_id]
        for topic_id in self.way_back(source_id, but=but):
            back.append(topic_id)
            if topic_id == dest_id:
                return [source_id, *reversed(back)]
        return []

    def hops_allowed(self, router: Router) -> int | None:
        """How many copies a record may be within the ring and still be forwarded by this router;
        None where the router is part of no ring.

        In a ring of n topics the copy after n - 1 others would be in the topic that the record
        came from: it has been everywhere, and stops (§6.1).
        """
        if router.router_id not in self._hops:
            length = len(self.cycle(router.source_id, router.dest_id, but=router)) - 1
            self._hops[router.router_id] = min(length - 1, HOPS_MAX) if length > 0 else None
        return self._hops[router.router_id]

    def upstream(self, topic_id: int) -> list[Router]:
        """Every router by which a record may have come into the topic, farthest first."""
        found: list[Router] = []
        for dest_id in (topic_id, *self.way_back(topic_id)):
            found += self.into(dest_id)
        found.reverse()
        return found
