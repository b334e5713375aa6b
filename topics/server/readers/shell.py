"""What runs a reader's engine: the shared heads, the log, the reads that wait, threads and time.

Implements `service.Shell` for reads of records.  Each is decided once all that the heads showed
when it arrived is applied here; until then it waits, and the log is applied in slices between which
other connections have their turn.  Before a read of a destination that may lack copies the engine is asked
for them, and the read is decided where the heads stand when it has answered (`when_copied`).

Invariant: no answer shows less than the heads did when its request arrived, and each shows what one
state of the heads shows: a read that goes on in parts, or waits, is answered while all of the newest is applied.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from typing import Any, Final, TypeVar

from topics.protocol.driver.awaited_copies import AwaitedCopies
from topics.protocol.driver.follower import Follower
from topics.protocol.driver.reply import Deliver, Reply, Ticket
from topics.protocol.model.commands import Command, GetTopic, RecordRead, waits_for_news
from topics.protocol.model.errors import Corrupt, ErrorCode, Rejection
from topics.protocol.model.limits import Limits
from topics.protocol.model.moment import Moment
from topics.protocol.model.outcomes import Parked
from topics.server.readers.shared_heads import SharedHeadsView
from topics.server.runtime.clock import Clock
from topics.server.runtime.workers import AtWork, threads
from topics.server.service.shell import PHASES, Phase, Process

log = logging.getLogger("topics.readers")

LOOKS_AGAIN: Final = 3
"""Reads of a file that is gone, each after the log that let it go was applied."""
UNSYNCED_S: Final = 0.005
"""Between two looks at heads of which too many topics wait for a sync."""

T = TypeVar("T")


class ReaderShell:
    """One follower on the running event loop.

    Args:
        store: The follower's; its statistics are shown.
        broken: Called where the log cannot be followed: the process is to end.
        ask: Asks the engine of a topic, once it has copied what a read of that is to show.
        check: Ends this process where the engine's has ended: nothing that the heads show holds then.
    """

    def __init__(
        self,
        limits: Limits,
        store: Any,
        follower: Follower,
        view: SharedHeadsView,
        *,
        broken: Callable[[Exception], None],
        ask: Callable[[GetTopic, Deliver], Ticket],
        clock: Clock | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self.limits = limits
        self.store = store
        self.follower = follower
        self.engine = follower.engine
        self.phase = Phase.STARTING
        self.clock = clock or Clock()
        self.reads: dict[int, int] = {}
        """When each topic was last read here since the engine was told, by id."""
        self.requests = 0
        self._view = view
        self._broken = broken
        self._check = check
        self._ask = ask
        self.may_lack_copies = follower.may_lack_copies
        follower.streams.wait_for(AwaitedCopies(self, follower.streams.on_rest).before)
        self._loop = asyncio.get_running_loop()
        self._started_ms = self.clock.steady_ms
        self._is_going_on = False
        self._is_current = False
        self._when_current: list[Callable[[], None]] = []
        self._parked: dict[object, tuple[str, Deliver]] = {}
        self._deadlines: list[tuple[int, int, object]] = []
        self._deadlines_made = 0
        self._alarm: asyncio.TimerHandle | None = None
        self._is_working = False
        self._at_work = AtWork()
        self._readers = threads(4, "topics-read")
        self._pager = threads(2, "topics-page")
        self._zipper = threads(1, "topics-zip")

    def _move(self, phase: Phase) -> None:
        assert phase in PHASES[self.phase], (self.phase, phase)
        self.phase = phase

    async def begin(self) -> None:
        """Read the directory on a thread.  Raises what keeps it from being read."""
        shown = self._view.load()
        await self._at_work.run(self._readers, partial(self.follower.begin, shown))
        self.look()
        while self.look() is False:
            await asyncio.sleep(UNSYNCED_S)
        self._move(Phase.READY)

    # ------------------------------------------------------------------ the shared heads

    def look(self) -> bool:
        """Load the shared heads, and apply a slice of what they show; whether all of it is shown here.
        Where it is not, the loop goes on with it."""
        self._check()
        try:
            shown = self._view.load()
            self.clock.take_course(
                (shown.timing.offset_ms, shown.timing.lead_ms, shown.timing.led_since_ms)
            )
            is_current = self.follower.follow(shown)
        except Exception as error:
            self._broken(error)
            return False
        self._is_current = is_current
        if is_current:
            self._answer_woken()
        elif not self._is_going_on:
            self._is_going_on = True
            if shown.held is None:
                self._loop.call_later(UNSYNCED_S, self._go_on)
            else:
                self._loop.call_soon(self._go_on)
        return is_current

    def _go_on(self) -> None:
        self._is_going_on = False
        if self.phase is Phase.STOPPED or not self.look():
            return
        calls, self._when_current = self._when_current, []
        for call in calls:
            try:
                call()
            except Exception:
                log.exception("what waited for the log failed")  # and keeps up nothing else

    @property
    def is_waited_for(self) -> bool:
        """Whether a stream or a read waits for what comes."""
        return bool(self._parked) or self.follower.streams.has_open

    @property
    def can_follow(self) -> bool:
        """Whether the heads name all that they hold back: otherwise a reader waits for a sync."""
        return self._view.load().held is not None

    def when_current(self, call: Callable[[], None]) -> None:
        """Call once all that the heads show now is shown here; after `look` returned False."""
        self._when_current.append(call)

    def serves(self, name: str, *, is_prompt: bool) -> bool:
        """Whether a read of a topic is this process's: one that there is not is, and has the same
        answer everywhere.

        Args:
            is_prompt: Whether the engine decides soon what it is asked now.
        """
        topic = self.follower.topic(name)
        if topic is None:
            return True
        return self.follower.is_whole(topic) and (is_prompt or not self.may_lack_copies(topic))

    def may_watch(self, name: str) -> bool:
        """Whether a watch of a topic is this process's."""
        topic = self.follower.state.topics.get(name)
        return topic is not None and all(map(self.follower.is_whole, topic.partitions))

    # ------------------------------------------------------------------ commands

    def submit(self, command: Command, deliver: Deliver) -> Reply | Ticket:
        """Run a read; its reply, or a ticket where `deliver` gets the reply later.

        Raises:
            Rejection: Refused.
        """
        self.requests += 1
        assert isinstance(command, RecordRead)
        if self.look():
            return self._begin(command, deliver)
        if not self.can_follow:
            raise moved()
        waiting = Waiting(deliver)
        self.when_current(lambda: waiting.go_on(lambda: self._begin(command, waiting.deliver)))
        return Ticket(waiting.cancel, waits_for_news=waits_for_news(command))

    def _begin(self, command: RecordRead, deliver: Deliver) -> Reply | Ticket:
        """All that the heads showed when the read arrived is applied."""
        topic = self.follower.topic(command.topic)
        if topic is None or not self.may_lack_copies(topic):
            return self._decide(command, deliver)
        waiting = Waiting(deliver)

        def copied(refusal: Rejection | None) -> None:
            if refusal is not None:
                waiting.go_on(lambda: Reply(refusal))
            else:
                waiting.go_on(lambda: self._decide(command, waiting.deliver))

        waiting.ticket = self.when_copied(command.topic, copied)
        return Ticket(waiting.cancel, waits_for_news=waits_for_news(command))

    def when_copied(self, name: str, then: Callable[[Rejection | None], None]) -> Ticket:
        """Call once the copies that a topic is owed now are here, as far as routers are not blocked; or
        with the engine's refusal to say so.  It may be that the topic is gone by then."""

        def answered(reply: Reply) -> None:
            result = reply.result
            if isinstance(result, Rejection) and result.code is not ErrorCode.TOPIC_NOT_FOUND:
                then(result)
            elif self.look():  # the engine stored the heads before it answered
                then(None)
            else:
                self.when_current(lambda: then(None))

        return self._ask(GetTopic(name, touch=False), answered)

    def take_reads(self) -> dict[int, int]:
        """When topics were read here since the engine was told last, by id: it is told now."""
        reads, self.reads = self.reads, {}
        return reads

    def _decide(self, command: RecordRead, deliver: Deliver) -> Reply | Ticket:
        topic = self.follower.topic(command.topic)
        if topic is not None and not self.follower.is_whole(topic):
            raise moved()
        token = object()
        result = self._looked_again(command, token)
        if topic is not None:
            self.reads[self.follower.note_read(topic, self.now_ms)] = self.now_ms
        self._work_soon()
        if isinstance(result, Parked):
            return self._park(command, token, result, deliver)
        return Reply(result)

    def _looked_again(self, command: RecordRead, token: object) -> Any:
        """The decision; a file that is gone may be one that the log let go meanwhile."""
        for _ in range(LOOKS_AGAIN):
            try:
                return self.engine.submit(command, token=token, moment=self.moment)
            except Rejection as refusal:
                before = self.follower.shown.number
                if not isinstance(refusal.__cause__, Corrupt) or not self.look():
                    raise
                if self.follower.shown.number == before:
                    raise
        return self.engine.submit(command, token=token, moment=self.moment)

    def _park(self, command: RecordRead, token: object, parked: Parked, deliver: Deliver) -> Ticket:
        def cancel() -> None:
            if self._parked.pop(token, None) is not None:
                self.engine.forget(command.topic, token)

        if parked.wait_ms is not None:
            self._deadlines_made += 1
            at_ms = self.clock.steady_ms + parked.wait_ms
            heappush(self._deadlines, (at_ms, self._deadlines_made, token))
            self._set_alarm()
        self._parked[token] = command.topic, deliver
        return Ticket(cancel, waits_for_news=waits_for_news(command))

    def release(self, topic_id: int) -> None:
        """Answer the reads that wait for a topic: it is another process's now."""
        released = self.follower.name_of(topic_id)
        for token, (name, _) in list(self._parked.items()):
            if name == released:
                self.engine.timeout(name, token)
        self._loop.call_soon(self._answer_woken)

    def _answer_woken(self) -> None:
        for wake in self.engine.take_wakes():
            parked = self._parked.pop(wake.token, None)
            if parked is not None:
                try:
                    parked[1](Reply(wake.result))
                except Exception:
                    log.exception("an answer could not be delivered")
        self._work_soon()

    # ------------------------------------------------------------------ reads that go on in parts

    def _work_soon(self) -> None:
        for fetch in self.engine.take_fetches():
            reading = self._at_work.run(self._readers, fetch.read)
            reading.add_done_callback(partial(self._fetched, fetch))
        if self.engine.scans.due and self._is_current and not self._is_working:
            self._is_working = True
            self._loop.call_soon(self._work)

    def _fetched(self, fetch: Any, done: "asyncio.Future[Any]") -> None:
        if self.phase is not Phase.STOPPED:
            fetch.done(done.result())
            self._work_soon()

    def _work(self) -> None:
        self._is_working = False
        # While the log is being applied, records are gone here that were deleted after those were
        # appended that are not shown yet: no moment of the engine was like that.
        if self._is_current:
            self.engine.scans.step(self.moment)
            self._answer_woken()

    # ------------------------------------------------------------------ time

    @property
    def now_ms(self) -> int:
        return self.clock.now_ms()

    @property
    def uptime_ms(self) -> int:
        return self.clock.steady_ms - self._started_ms

    @property
    def moment(self) -> Moment:
        """The time of a decision; there is no room, since nothing is written here."""
        return Moment(self.engine.advance(self.now_ms), lambda _: 0)

    def _set_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if self._deadlines:
            delay_s = max(self._deadlines[0][0] - self.clock.steady_ms, 0) / 1000
            self._alarm = self._loop.call_later(delay_s, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        if not self._is_current:
            self.when_current(self._ring)
            return
        now_ms = self.clock.steady_ms
        while self._deadlines and (
            self._deadlines[0][0] <= now_ms or self._deadlines[0][2] not in self._parked
        ):
            token = heappop(self._deadlines)[2]
            parked = self._parked.get(token)
            if parked is not None:
                self.engine.timeout(parked[0], token)
        self._answer_woken()
        self._set_alarm()

    # ------------------------------------------------------------------ the end

    def drain(self) -> None:
        """Take no more requests; answer those that wait for news."""
        if self.phase in (Phase.DRAINING, Phase.STOPPED):
            return
        self._move(Phase.DRAINING)
        self.follower.streams.wake_all()
        self.engine.release_all()
        self._answer_woken()

    def stop(self) -> None:
        self.drain()
        self._move(Phase.STOPPED)
        if self._alarm is not None:
            self._alarm.cancel()
        for pool in (self._readers, self._pager, self._zipper):
            pool.shutdown(wait=False)

    # ------------------------------------------------------------------ what an exchange asks for

    def nudge(self) -> None:
        """Nothing is changed here."""

    def written(self) -> "asyncio.Future[bool]":
        return self._known()

    def synced(self) -> "asyncio.Future[bool]":
        return self._known()

    def _known(self) -> "asyncio.Future[bool]":
        known: asyncio.Future[bool] = self._loop.create_future()
        known.set_result(True)
        return known

    def process(self) -> Process:
        return Process(
            ready=self.phase is Phase.READY,
            recovery_progress=1.0,
            uptime_ms=self.uptime_ms,
            queue_depth=0,
            queue_depth_peak=0,
            submit_full_total=0,
            read_only=False,
            lag_ms=0.0,
            pressure=0.0,
        )

    @property
    def has_threads_at_work(self) -> bool:
        """As `Runtime` has it."""
        return self._at_work.calls > 0

    def later(self, delay_s: float, call: Callable[[], object]) -> object:
        return self._loop.call_later(delay_s, call)

    def read_in_thread(self, call: Callable[[], T]) -> "asyncio.Future[T]":
        return self._at_work.run(self._readers, call)

    def decode_in_thread(self, call: Callable[[], T]) -> "asyncio.Future[T]":
        return self._at_work.run(self._readers, call)

    def page_in_thread(self, call: Callable[[], T]) -> "asyncio.Future[T]":
        return self._at_work.run(self._pager, call)

    def zip_in_thread(self, call: Callable[[], T]) -> "asyncio.Future[T]":
        return self._at_work.run(self._zipper, call)


def moved(
    why: str = "the topic is served by another process now; repeat the request",
) -> Rejection:
    """503: the topic became the engine's while the request's body came; the next request goes
    there."""
    return Rejection(ErrorCode.NOT_READY, why, {"reason": "moved"}, retry_after_s=1)


class Waiting:
    """A read that waits for the log, or for the engine's answer.

    Attributes:
        ticket: What it waits for now.
    """

    def __init__(self, deliver: Deliver) -> None:
        self._deliver: Deliver | None = deliver
        self.ticket: Ticket | None = None

    def go_on(self, step: Callable[[], Reply | Ticket]) -> None:
        """What it waited for is here: take the next step."""
        if self._deliver is None:
            return
        try:
            found = step()
        except Exception as error:
            found = Reply(error)
        if isinstance(found, Ticket):
            self.ticket = found
        else:
            self.deliver(found)

    def deliver(self, reply: Reply) -> None:
        """The reply came."""
        deliver, self._deliver, self.ticket = self._deliver, None, None
        if deliver is not None:
            deliver(reply)

    def cancel(self) -> None:
        """Nobody wants to know any more."""
        self._deliver = None
        if self.ticket is not None:
            self.ticket.cancel()
