"""Router commands: create, show, list and delete routers (§6); and when routers forward.

The joint between routers, their topics and forwarding.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from topics.protocol.commit.admission import FRAME_BYTES, partitioned
from topics.protocol.commit.unit_of_work import UnitOfWork, no_such_topic
from topics.protocol.decide.forwarding import Forwarding
from topics.protocol.decide.read_your_writes import ReadBarrier
from topics.protocol.model.access import Caller, outside
from topics.protocol.model.commands import (
    Claim,
    Command,
    CreateWatch,
    DeleteRecords,
    DeleteRouter,
    DeleteTopic,
    Diff,
    GetRouter,
    GetTopic,
    ListRouters,
    Purge,
    PutRouter,
    ReadLatest,
    ReadPage,
    RecordRead,
    Redrive,
)
from topics.protocol.model.config import RouterConfig, TopicConfig
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.events import RouterConfigured, RouterDeleted
from topics.protocol.model.limits import Limits, throttled
from topics.protocol.model.moment import Moment
from topics.protocol.model.outcomes import (
    Blockage,
    Gate,
    Outcome,
    RouterDropped,
    RouterPut,
    RouterShown,
    RoutersListed,
    RouterView,
)
from topics.protocol.state.routers import Router
from topics.protocol.state.topic import Topic

Upstream = tuple[Sequence[Router], Sequence[Topic]]
"""Routers that have to catch up, farthest first, and the topics that have to show their copies."""
_NONE: Upstream = (), ()


class RouterCommands:
    """Routers over the topics of one engine.

    Args:
        rested: Called when routers may have come to rest without having copied anything.
    """

    def __init__(
        self, limits: Limits, unit: UnitOfWork, rested: Callable[[], None] = lambda: None
    ) -> None:
        self._limits = limits
        self._unit = unit
        self._state = unit.state
        self._routers = unit.state.routers
        self._rested = rested
        self._forwarding = Forwarding(unit, rested)
        self.commands: dict[type, Callable[[Any, Moment], Outcome]] = {
            PutRouter: self._put,
            GetRouter: self._get,
            ListRouters: self._list,
            DeleteRouter: self._delete,
        }
        self._before: dict[type, Callable[[Any], Upstream]] = {
            Diff: self._before_read,
            ReadPage: self._before_read,
            ReadLatest: self._before_read,
            GetTopic: self._before_read,
            Claim: self._before_read,
            DeleteRecords: self._before_read,
            Purge: self._before_read,
            Redrive: self._before_read,
            CreateWatch: self._before_watch,
            GetRouter: self._before_router,
            DeleteRouter: self._before_router,
            PutRouter: self._before_change,
            DeleteTopic: self._before_deletion,
        }

    # ------------------------------------------------------------------ what happens elsewhere

    def on_recovered(self) -> None:
        """Replay is over: routers that are behind their sources are due."""
        for router in self._routers.by_id.values():
            self._forwarding.mark(router.source_id)

    def on_published(self, topic: Topic) -> None:
        """A topic shows more: its routers have something to copy."""
        self._forwarding.mark(topic.topic_id)

    def on_room(self, topic: Topic) -> None:
        """A topic may take more than before: routers that it blocked try again."""
        if self._routers.is_derived(topic.topic_id):
            for router in self._routers.into(topic.topic_id):
                if router.blocked is not None:
                    self._forwarding.retry(router)

    def on_stopped(self) -> None:
        """Routers were deleted, or nothing is written any more: they copy nothing now."""
        self._rested()

    # ------------------------------------------------------------------ forwarding

    def step(self, moment: Moment) -> None:
        """Copy a bounded part of what routers have to copy."""
        self._forwarding.step(moment)

    def wants_to_copy(self) -> bool:
        """Whether there is something to copy, held back or not."""
        return bool(self._forwarding.due) and not self._unit.read_only

    def alarm_ms(self) -> int | None:
        """When a blocked router tries again."""
        return self._forwarding.alarm_ms()

    def copies_before(self, topic: Topic) -> ReadBarrier | None:
        """What a topic is to get before a stream that was sent all of it has caught up."""
        if not self._routers.is_derived(topic.topic_id):
            return None
        return self._barrier(self._routers.upstream(topic.topic_id), (topic,))

    def barrier_for(self, command: Command) -> ReadBarrier | None:
        """What routers have to copy before a command is decided; None where that is nothing."""
        if not self._routers.by_id:
            return None
        upstream_of = self._before.get(type(command))
        if upstream_of is None:
            return None
        routers, shows = upstream_of(command)
        if not routers:
            return None
        return self._barrier(routers, shows)

    def _barrier(self, routers: Iterable[Router], shows: Iterable[Topic]) -> ReadBarrier | None:
        barrier = ReadBarrier(self._unit, self._forwarding, routers, shows)
        return None if barrier.is_passed else barrier

    def _before_read(
        self, command: RecordRead | GetTopic | Claim | DeleteRecords | Purge | Redrive
    ) -> Upstream:
        topic = self._state.topics.get(command.topic)
        if topic is None or not self._routers.is_derived(topic.topic_id):
            return _NONE
        return self._routers.upstream(topic.topic_id), (topic,)

    def _before_watch(self, command: CreateWatch) -> Upstream:
        found = (self._state.topics.get(name) for name in command.topics)
        shows = [t for t in found if t is not None and self._routers.is_derived(t.topic_id)]
        routers = [router for t in shows for router in self._routers.upstream(t.topic_id)]
        return list(dict.fromkeys(routers)), shows

    def _before_router(self, command: GetRouter | DeleteRouter) -> Upstream:
        router = self._routers.by_name.get(command.router)
        if router is None:
            return _NONE
        # In a ring it is among those upstream, and comes once more when all have been round.
        return [*self._routers.upstream(router.source_id), router], ()

    def _before_change(self, command: PutRouter) -> Upstream:
        """Records that came under the old config are forwarded as that says; and a router begins
        behind what is still on its way to its source."""
        router = self._routers.by_name.get(command.router)
        if router is not None and router.config == command.config:
            return _NONE
        last, _ = _NONE if router is None else self._before_router(GetRouter(router.name))
        source = self._state.topics.get(command.config.source)
        first = () if source is None else self._routers.upstream(source.topic_id)
        return [*first, *last], () if source is None else (source,)

    def _before_deletion(self, command: DeleteTopic) -> Upstream:
        """What was written to a source is copied before it goes."""
        topic = self._state.topics.get(command.topic)
        if topic is None or not self._routers.is_source(topic.topic_id):
            return _NONE
        upstream = self._routers.upstream(topic.topic_id)
        return [*upstream, *self._routers.out_of(topic.topic_id)], ()

    # ------------------------------------------------------------------ commands

    def _put(self, command: PutRouter, moment: Moment) -> Outcome:
        """§6.1: create, or replace the config; an identical one changes nothing."""
        config = command.config
        old = self._known(command)
        if old is not None and old.config == config:
            return _put(old.name, config, created=False)
        limit = self._limits.max_routers
        if old is None and limit and len(self._routers) >= limit:
            raise throttled("max_routers", limit)
        source, dest = self._ends(command, old)
        absent = [end is None for end in (source, dest)].count(True)
        self._unit.admission.require_topics(absent)
        self._unit.require_writable(moment, (1 + absent) * FRAME_BYTES)
        source = source or self._create(config.source, moment.now_ms)
        dest = dest or self._create(config.dest, moment.now_ms)
        is_same = old is not None and (old.source_id, old.dest_id) == (
            source.topic_id,
            dest.topic_id,
        )
        self._unit.emit(
            RouterConfigured(
                moment.now_ms,
                self._routers.next_id if old is None else old.router_id,
                command.router,
                config,
                source.topic_id,
                dest.topic_id,
                old.cursor if old is not None and is_same else source.head_seq,
            )
        )
        self._forwarding.mark(source.topic_id)
        return _put(command.router, config, created=old is None)

    def _ends(self, command: PutRouter, old: Router | None) -> tuple[Topic | None, Topic | None]:
        """Source and destination as far as they exist, if a router may lead from one to the other.

        Raises:
            Rejection: 404 for a destination that is not to be made, 409 where it has another
                source, where one of them has several partitions, or where the router would close a ring that
                was not asked for.
        """
        config = command.config
        source = self._state.topics.get(config.source)
        dest = self._state.topics.get(config.dest)
        for end in filter(None, (source, dest)):
            if end.others:
                raise partitioned(end.name, "is no end of a router")
        if dest is None:
            if not command.create_dest:
                raise no_such_topic(config.dest)
            return source, None
        known_id = self._routers.source_of(dest.topic_id, but=old)
        if known_id is not None and (source is None or source.topic_id != known_id):
            raise _fan_in(dest.name, self._state.by_id[known_id].name, command.caller)
        if source is not None and not config.allow_cycle:
            ring = self._routers.cycle(source.topic_id, dest.topic_id, but=old)
            if ring:
                names = [self._state.by_id[topic_id].name for topic_id in ring]
                raise Rejection(
                    ErrorCode.ROUTER_CYCLE,
                    f"the router would close a ring of {len(names) - 1} topics",
                    {"cycle": [name for name in names if command.caller.covers(name)]},
                )
        return source, dest

    def _create(self, name: str, now_ms: int) -> Topic:
        return self._unit.create(self._unit.admission.creation(name, TopicConfig(), now_ms))

    def _get(self, command: GetRouter, moment: Moment) -> Outcome:
        """§6.2."""
        router = self._known(command)
        if router is None:
            raise Rejection(
                ErrorCode.ROUTER_NOT_FOUND,
                f'router "{command.router}" does not exist',
                {"router": command.router},
            )
        return RouterShown(self._view(router, moment.now_ms))

    def _list(self, command: ListRouters, moment: Moment) -> Outcome:
        """§6.3: by name, so that a page goes on rightly whatever came and went between."""
        page: list[Router] = []
        for prefix in command.caller.prefixes_within(command.prefix):
            self._add_to_page(page, prefix, command)
        shown = page[: command.page_size]
        views = [self._view(router, moment.now_ms) for router in shown]
        return RoutersListed(views, shown[-1].name if len(page) > command.page_size else None)

    def _add_to_page(self, page: list[Router], prefix: str, command: ListRouters) -> None:
        """Routers whose names begin so, until the page has one more than it may show."""
        names = self._routers.names
        for i in range(bisect_left(names, max(prefix, command.after)), len(names)):
            if not names[i].startswith(prefix) or len(page) > command.page_size:
                break
            router = self._routers.by_name[names[i]]
            if (
                names[i] != command.after
                and command.source in (None, router.config.source)
                and command.dest in (None, router.config.dest)
                and command.caller.covers_all(*router.names)
            ):
                page.append(router)

    def _known(self, command: PutRouter | GetRouter | DeleteRouter) -> Router | None:
        """The router of that name, if there is one; 403 where one of its ends is not the caller's."""
        router = self._routers.by_name.get(command.router)
        if router is not None and not command.caller.covers_all(*router.names):
            raise outside(router.name)
        return router

    def _view(self, router: Router, now_ms: int) -> RouterView:
        published_seq = self._state.by_id[router.source_id].published_seq
        blocked = router.blocked
        return RouterView(
            name=router.name,
            config=router.config,
            forwarded_total=router.forwarded_total,
            cursor=router.cursor,
            lag=max(published_seq - router.cursor, 0),
            blockage=None
            if blocked is None
            else Blockage(
                blocked.code,
                blocked.message,
                blocked.since_ms,
                max(blocked.retry_at_ms - now_ms, 0),
            ),
            lost_total=router.lost_total,
            loss=router.loss,
        )

    def _delete(self, command: DeleteRouter, moment: Moment) -> Outcome:
        """§6.4: idempotent; what was forwarded stays."""
        router = self._known(command)
        if router is not None:
            self._unit.require_writable(moment, reserve=True)
            self._unit.emit(RouterDeleted(moment.now_ms, router.router_id))
            self._rested()
        # What a repetition repeats may still be on its way to the disk.
        return RouterDropped(command.router, router is not None, gate=Gate.SYNCED, is_logged=True)


def _fan_in(dest: str, source: str, caller: Caller) -> Rejection:
    """409: a destination has one source, which is named where the caller may know it."""
    detail = {"reason": "router_dest_fan_in", "topic": dest}
    message = f'topic "{dest}" is derived from another topic already'
    if caller.covers(source):
        detail["source"] = source
        message = f'topic "{dest}" is derived from "{source}" already'
    return Rejection(ErrorCode.TOPIC_EXISTS_INCOMPATIBLE, message, detail)


def _put(name: str, config: RouterConfig, *, created: bool) -> RouterPut:
    """An identical `PUT` waits too: what it repeats may still be on its way to the disk."""
    return RouterPut(name, config, created, gate=Gate.SYNCED, is_logged=True)
