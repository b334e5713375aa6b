"""Read your writes: a client that wrote to a source finds the copies in the destination.

A command that reads a destination waits at a barrier until the routers upstream have come as far as
their sources were when it arrived, the farthest first, because the next one copies what they copy.
A router that is blocked or deleted is not waited for: its copies may never come.
"""

from collections import deque
from collections.abc import Iterable

from topics.protocol.commit.unit_of_work import UnitOfWork
from topics.protocol.decide.forwarding import Forwarding, Slice
from topics.protocol.model.moment import Moment
from topics.protocol.state.routers import Router
from topics.protocol.state.topic import Topic


class ReadBarrier:
    """What must be copied, and shown, before one command is decided.

    Args:
        routers: Farthest first.
        shows: Topics whose copies are to be seen by then.
    """

    def __init__(
        self,
        unit: UnitOfWork,
        forwarding: Forwarding,
        routers: Iterable[Router],
        shows: Iterable[Topic],
    ) -> None:
        self._unit = unit
        self._state = unit.state
        self._forwarding = forwarding
        self._left = deque(routers)
        self._through: int | None = None
        self._shows = list(shows)
        self._heads: list[int] | None = None

    @property
    def is_passed(self) -> bool:
        """Whether the command may be decided; once true, it stays so."""
        if self._unit.read_only:
            return True
        while self._left:
            if self._is_behind(self._left[0]):
                return False
            self._left.popleft()
            self._through = None
        if self._heads is None:
            self._heads = [topic.head_seq for topic in self._shows]
        return all(
            topic.published_seq >= head_seq or self._state.by_id.get(topic.topic_id) is not topic
            for topic, head_seq in zip(self._shows, self._heads, strict=True)
        )

    def _is_behind(self, router: Router) -> bool:
        routers = self._state.routers
        is_there = routers.by_id.get(router.router_id) is router
        if not is_there or router.is_blocked(self._state.now_ms):
            return False
        if self._through is None:
            # Copies that wait for a sync in a topic between count too: they will be shown.
            source = self._state.by_id[router.source_id]
            is_between = routers.is_derived(source.topic_id)
            self._through = source.head_seq if is_between else source.published_seq
        return router.cursor < self._through

    def advance(self, moment: Moment) -> None:
        """Copy a bounded part of what is missing; its events are written with this turn."""
        moment = self._unit.in_engine_time(moment)
        left = Slice()
        while not left.is_over and not self.is_passed and self._left:
            before = left.routers
            self._forwarding.work(self._left[0], moment, left)
            if left.routers == before:
                return
