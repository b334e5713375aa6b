"""One process of the server, without a loop, a thread or a clock: what the shell does, step by step.

Owns an engine over a store on simulated files and the order in which the two are driven: turns of
commands, one write a turn, syncs that end later than they begin, upkeep that stands still while
turns go on.  Refuses to know what answers mean.  Invariant: an answer is told no earlier than its
gate allows.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass

from topics.protocol.admission import FRAME_BYTES
from topics.protocol.chores import Blocking, Chore, Chores, Step
from topics.protocol.commands import Command
from topics.protocol.effects import Fetch, Gate, Outcome, Parked, Records
from topics.protocol.engine import Engine
from topics.protocol.errors import Corrupt, Rejection, StoreError, WriteFailed
from topics.protocol.events import Event
from topics.protocol.limits import Limits
from topics.protocol.ports import Recovery, Store
from topics.protocol.records import Buffer
from topics.protocol.render import project
from topics.protocol.sweeps import Warming
from topics.protocol.upkeep import Upkeep

Told = Callable[[int], None]
"""Called with the lsn of the write that carried the command, once its answer may be told."""
Woken = Callable[[Outcome | Exception], Told]
"""Called with what a parked command is answered; returns who hears when it is told."""


@dataclass(slots=True)
class Waiter:
    told: Told
    gate: Gate
    lsn: int = 0
    erases: int | None = None


class Process:
    """A server from its start until it stops, fails or is cut off.

    Attributes:
        wrote: Called with the lsn of every write that returned.
        copied: Called with every event by which a router forwards, as it becomes true.
        writing: Called before every write, for the case that it never returns.
        moved: Called whenever dying jobs may have moved, before that is written.
        reading: What it asked for and waits for.
        command: What is just being decided.
        failed: A write or sync failed: read-only until the next process.
        last_words: What the server's log says of that.
        synced_lsn: What the loop has heard of; the store may have synced more.
        troubles: Rounds of upkeep that a disk broke off.
        gave_up: Upkeep was let lie, perhaps with a file that nobody knows until the next start.
    """

    def __init__(
        self,
        store: Store,
        limits: Limits,
        *,
        writing: Callable[[], None],
        wrote: Callable[[int], None],
        moved: Callable[[], None] = lambda: None,
        copied: Callable[[Event], None] = lambda event: None,
    ) -> None:
        self.limits = limits
        self.store = store
        self.engine = Engine(limits, store)
        self.upkeep = Upkeep(self.engine)
        self.chores = Chores(limits, self.upkeep, store, self)
        self.now_ms = 0
        self.failed = False
        self.last_words = ""
        self.writing = writing
        self.wrote = wrote
        self.moved = moved
        self.synced_lsn = 0
        self.troubles = 0
        self.gave_up = False
        self.copied = copied
        self.reading: list[Fetch] = []
        self.command: Command | None = None
        self._parked: dict[object, Woken] = {}
        self._hear_of_copies()
        self._told: list[Waiter] = []
        self._syncing: deque[Waiter] = deque()
        self._erasing: list[Waiter] = []
        self._erased: list[Waiter] = []
        self._sync_ends: int | None = None
        self._work: Generator[None, None, None] | None = None

    def _hear_of_copies(self) -> None:
        turn = self.engine.turn
        emit = turn.emit

        def heard(event: Event, *, logged: bool = True, log_bytes: int = FRAME_BYTES) -> None:
            emit(event, logged=logged, log_bytes=log_bytes)
            self.copied(event)

        turn.emit = heard  # type: ignore[method-assign]

    def recover(self, now_ms: int) -> Recovery:
        self.now_ms = now_ms
        recovery = self.store.recover(self.engine.state)
        self.engine.finish_recovery(recovery, now_ms)
        events = self.engine.take_events()
        if events or (not recovery.fresh and self.store.room(reserve=True)):
            # Also where there is nothing to say: the next start goes by the newest batch.
            self.engine.on_written(self.store.write(events))
            self.synced_lsn = self.store.sync()
            self.engine.on_synced(self.synced_lsn)
        return recovery

    # -- a turn --------------------------------------------------------------------------------

    def submit(self, command: Command, told: Told, woken: Woken | None = None) -> Outcome | Parked:
        """Run a command; `told` follows at once, after the turn's write, or after a sync; one that
        may park is `woken` first.

        Raises:
            Rejection: Refused.
        """
        token = object()
        self.command = command
        try:
            outcome = self.engine.submit(command, token=token, now_ms=self.now_ms, room=self._room)
            if token in self.engine.sweeps:
                outcome = self._swept(token)
        except Rejection as refusal:
            self.chores.disk_is_full |= (refusal.detail or {}).get("limit") == "disk"
            raise
        finally:
            self.command = None
        if isinstance(outcome, Parked):
            assert woken is not None
            assert outcome.wait_ms is None
            self._parked[token] = woken
            return outcome
        if outcome.gate is Gate.NOW:
            told(0)
        else:
            self._told.append(Waiter(told, outcome.gate, erases=outcome.erases))
        return outcome

    def _swept(self, token: object) -> Outcome:
        """The answer of a command that goes on in parts, which are let follow at once."""
        engine, turn = self.engine, self.engine.turn
        while token in engine.sweeps:
            for fetch in [one for one in turn.fetches if isinstance(one, Warming)]:
                turn.fetches.remove(fetch)
                fetch.done(fetch.read())
            engine.sweeps.step(self.now_ms, turn.left(self._room))
        [wake] = [one for one in turn.wakes if one.token is token]
        turn.wakes.remove(wake)
        if isinstance(wake.result, Exception):
            raise wake.result
        return wake.result

    def pay(self, command: Command) -> None:
        """What routers owe to a command comes first; what asks for a sync gets one."""
        debt = self.engine.debt_of(command)
        while debt is not None and not debt.is_settled and not self.failed:
            debt.work(self.now_ms, self._room)
            self._begin_reading()
            while self.reading:
                self.hand_over(0)
            self._write()
            if not debt.is_settled and not self.failed:
                self.sync()

    def work_off(self) -> None:
        """A slice of what is owed, and its write; what it asks for is read meanwhile."""
        if not self.failed:
            self._work_off()
            self.end_turn()

    def _work_off(self) -> None:
        self.engine.work_off(self.now_ms, self._room)
        self.moved()
        self._begin_reading()

    def ring(self) -> None:
        """The loop's timer: what the engine asked to be called for."""
        at_ms = self.engine.alarm_ms()
        if at_ms is not None and at_ms <= self.engine.advance(self.now_ms):
            self.work_off()

    def _answer_woken(self) -> None:
        for wake in self.engine.take_wakes():
            woken = self._parked.pop(wake.token)
            told = woken(wake.result)
            if isinstance(wake.result, Exception) or wake.result.gate is Gate.NOW:
                told(0)
            elif not self.failed:
                self._told.append(Waiter(told, wake.result.gate))

    @property
    def is_reading(self) -> bool:
        return bool(self.reading or self.engine.turn.fetches)

    @property
    def owes(self) -> bool:
        return not self.failed and (self.is_reading or self.engine.owes)

    def _begin_reading(self) -> None:
        self.reading += self.engine.take_fetches()

    def hand_over(self, at: int) -> None:
        """A disk that was waited for has given what was asked for, in whatever order."""
        fetch = self.reading.pop(at)
        self.engine.advance(self.now_ms)
        fetch.done(fetch.read())
        self.moved()
        self._begin_reading()
        if self.engine.has_events and not self.failed:
            self.end_turn()

    def _room(self, reserve: bool) -> int:
        return self.store.room(reserve=reserve)

    def end_turn(self) -> None:
        """One write for all that the turn's commands made true; then what queues owe, a turn each.
        What routers owe waits for `work_off`, or for who asks for it."""
        self._write()
        while (self.engine.work.is_due or self._told) and not self.failed:
            self._work_off()
            self._write()
        self._answer_woken()

    def _write(self) -> None:
        events = self.engine.take_events()
        waiters, self._told = self._told, []
        lsn = self.store.written_lsn
        if events:
            self.writing()
            try:
                lsn = self.store.write(events)
            except WriteFailed as error:
                self.fail(error)
                return
            self.wrote(lsn)
        self.engine.on_written(lsn)
        for waiter in waiters:
            waiter.lsn = lsn
            if self.failed:
                continue  # told that nobody knows
            if waiter.gate is Gate.SYNCED and lsn > self.synced_lsn:
                self._syncing.append(waiter)
            else:
                self._tell(waiter)
        self._answer_woken()

    def _tell(self, waiter: Waiter) -> None:
        if waiter.erases is None:
            waiter.told(waiter.lsn)
        else:
            self._erasing.append(waiter)

    def fail(self, error: WriteFailed) -> None:
        self.failed = True
        self.last_words = str(error)
        self.engine.on_failed()
        self._told.clear()
        self._syncing.clear()
        self._erasing.clear()
        self._work = None

    # -- syncs ---------------------------------------------------------------------------------

    @property
    def is_behind(self) -> bool:
        return self.store.synced_lsn < self.store.written_lsn

    def begin_sync(self) -> None:
        """The thread has synced, and the loop has not heard of it yet."""
        if self._sync_ends is None:
            try:
                self._sync_ends = self.store.sync()
            except WriteFailed as error:
                self.fail(error)

    def end_sync(self) -> None:
        if self._sync_ends is None or self.failed:
            return
        lsn, self._sync_ends = self._sync_ends, None
        self.synced_lsn = lsn
        self.engine.on_synced(lsn)
        while self._syncing and self._syncing[0].lsn <= lsn:
            self._tell(self._syncing.popleft())

    def sync(self) -> None:
        self.end_sync()
        self.begin_sync()
        self.end_sync()

    def idle(self) -> None:
        """The flush timer found everything synced."""
        if not self.is_behind and not self._told:
            try:
                self.store.idle()
            except WriteFailed as error:
                self.fail(error)

    # -- upkeep --------------------------------------------------------------------------------

    def step_upkeep(self, *, checkpoint: bool) -> None:
        """Go on with upkeep to where the shell would wait for a thread, or begin a round of it."""
        if self.failed:
            return
        if self._work is None:
            self._work = self._round(checkpoint)
        try:
            next(self._work)
        except StopIteration:
            self._work = None
        except WriteFailed as error:
            self.fail(error)
        except (OSError, StoreError):
            self._work = None
            self.troubles += 1

    def finish_upkeep(self) -> None:
        while self._work is not None:
            self.step_upkeep(checkpoint=False)

    def give_up_upkeep(self) -> None:
        """As where a disk had no space for it: what was planned is due again."""
        if self._work is not None:
            self.gave_up = True
            self._work.close()
            self._work = None

    def _round(self, checkpoint: bool) -> Generator[None, None, None]:
        yield from self._driven(self.chores.round(checkpoint=checkpoint))

    def _driven(self, chore: Chore) -> Generator[None, None, None]:
        """A chore; it stands still before and after whatever the shell does on a thread."""
        try:
            step = next(chore)
            while True:
                try:
                    yield
                    result = yield from self._done(step)
                    yield
                except BaseException as error:
                    step = chore.throw(error)
                else:
                    step = chore.send(result)
        except StopIteration:
            return

    def _done(self, step: Step) -> Generator[None, None, object]:
        if isinstance(step, Blocking):
            return step.call()
        wanted = self.store.written_lsn
        while self.synced_lsn < wanted:
            yield
            self.sync()
            if self.failed:
                raise WriteFailed("log", "read-only")
        return None

    # What chores ask of who runs them: `now_ms`, and

    def flush(self) -> None:
        self.end_turn()
        if self.failed:
            raise WriteFailed("log", "read-only")

    def warn(self, what: str) -> None:
        return

    def take_erasures(self) -> Iterable[int]:
        self._erased, self._erasing = self._erasing, []
        return sorted({w.erases for w in self._erased if w.erases is not None})

    def erased(self, damage: Corrupt | None) -> None:
        waiters, self._erased = self._erased, []
        for waiter in waiters:
            if damage is None:
                waiter.told(waiter.lsn)

    def erase_later(self) -> None:
        self._erasing = self._erased + self._erasing
        self._erased = []

    # -- the end -------------------------------------------------------------------------------

    def stop(self) -> bool:
        """As on SIGTERM; True where it left the clean mark."""
        self.engine.release_all()
        self.give_up_upkeep()
        self.end_turn()
        if not self.failed:
            self.sync()
        if self.failed:
            self.store.close(None)
            return False
        try:
            for _ in self._driven(self.chores.last()):
                pass
        except (OSError, StoreError):
            self.store.close(None)
            return False
        return True


def payload(outcome: Outcome) -> tuple[bytes, bytes]:
    """An outcome's JSON, and the bytes of its records alone."""
    whole, records = bytearray(), bytearray()
    for piece in outcome.pieces:
        if isinstance(piece, Records):
            records += b",".join(bytes(text) for text in _texts(piece))
            whole += records
        else:
            whole += piece
    return bytes(whole + b"}"), bytes(records)


def _texts(records: Records) -> list[Buffer]:
    out: list[Buffer] = []
    inserts = iter(records.inserts) if records.inserts else None
    for run, spans in records.extents:
        texts = run.read(spans)
        if texts is None:
            texts = run.read_blocking(spans)
        if not records.is_verbatim:
            texts = project(
                run,
                spans,
                texts,
                tags=records.tags,
                meta=records.meta,
                data=records.data,
                inserts=inserts,
            )
        out += texts
    return out
