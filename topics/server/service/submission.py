"""One command on its way through the server: decided, waited for, its records read, given up.

Owns what a command waits for, one thing after the other, until there is an answer or its client is gone:
a thread that parses it, the log, news, a disk.  What an answer looks like is its face's affair.
"""

from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar, cast, final

import msgspec

from topics.protocol.driver.reply import Reply, Ticket
from topics.protocol.model.access import gone
from topics.protocol.model.commands import Append, Claim, Command, CreateWatch, Diff
from topics.protocol.model.errors import Rejection
from topics.protocol.model.outcomes import STABLE, Granted, Records, Stable
from topics.protocol.model.permission import permitted
from topics.protocol.model.records import Buffer
from topics.protocol.model.shown_records import WITH_RECORDS, records_of
from topics.server.service import texts
from topics.server.service.claims import Claiming
from topics.server.service.giving_way import GivingWay
from topics.server.service.service import Service
from topics.server.service.shell import READY, ThreadCall, not_serving
from topics.server.service.slots import Slot

T = TypeVar("T")
A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)


@final
class Apart(msgspec.Struct, Generic[A_co], frozen=True):
    """An answer that a thread is to make."""

    make: "Callable[[], A_co | Apart[A_co]]"


class Face(Protocol[A_co]):
    """Makes the answers to one request.  All but `waits` may be called on a thread."""

    def waits(self) -> None:
        """The command may wait for news: how long it takes says nothing of the server."""

    def placed(self, position: bytes, /) -> None:
        """Of the log that has what follows, on a node of a cluster."""

    def refuse(self, refusal: Rejection, /) -> A_co: ...

    def fail(self) -> A_co:
        """While an exception is handled: a bug."""

    def unchanged(self, page: Stable, /) -> A_co | None:
        """The answer to a client that has the page already; its text is not read."""

    def respond(self, reply: Reply, text: Sequence[Buffer], /) -> A_co | Apart[A_co]:
        """The answer of an outcome; `text` is that of the records which it shows."""


class Submission(msgspec.Struct, Generic[A], eq=False):
    """One command, or the text that is to become one.  Most need no more than a part of this.

    Attributes:
        ticket: What the engine calls for it, while the command waits there.
    """

    _face: Face[A]
    _service: Service
    _slot: Slot
    ticket: Ticket | None = None
    _answer: A | None = None
    _deliver: Callable[[A], None] | None = None
    _is_cancelled: bool = False
    _claiming: Claiming | None = None
    _work: ThreadCall[Any] | None = None

    # ------------------------------------------------------------------ the way in

    def parse_apart(self, parse: Callable[[], Command | Rejection]) -> None:
        """Have a thread parse the command, then go on with it unless the client is gone.  Where it is
        decided in this process, the thread renders the text of its records, too."""
        service = self._service

        def parse_all() -> Command | Rejection:
            found = parse()
            if type(found) is Append and service.has_engine:
                shell = service.shell
                if shell.engine.has_partitions(found.topic):
                    return found.hashed()
                first_seq = shell.engine.next_seq(found.topic)
                return found.drafted(first_seq, shell.now_ms, GivingWay())
            return found

        def on_done(done: ThreadCall[Command | Rejection]) -> None:
            if self._is_cancelled:
                return
            try:
                found = done.result()
                now = (
                    self._face.refuse(found) if isinstance(found, Rejection) else self.begin(found)
                )
            except Rejection as refusal:
                now = self._face.refuse(refusal)
            except Exception:
                now = self._face.fail()
            if now is not self:
                self._done(now)  # type: ignore[arg-type]

        self._work = service.shell.decode_in_thread(parse_all)
        self._work.add_done_callback(on_done)

    def begin(self, command: Command) -> "A | Submission[A]":
        """Submit the command: the answer, or `self` where it comes later.

        Raises:
            Rejection: Refused.
        """
        slot = self._slot
        caller = slot.caller
        if caller.is_key:
            command = permitted(command, caller)
            slot.waiting = self
        shell = self._service.shell
        if shell.phase is not READY:
            raise not_serving(shell)
        if type(command) is not Append:
            command = self._hold(command)
        found = self._service.submit(command, self.on_reply, slot)
        if type(found) is Ticket:
            self.ticket = found
            if found.waits_for_news:
                slot.park(command)
            return self
        return self._told(found)

    def _hold(self, command: Command) -> Command:
        """Note what the client holds of the server by this command."""
        if type(command) is CreateWatch:
            return command.by(self._slot.holder)
        if type(command) is Claim:
            self._claiming = Claiming(self._service.shell, command)
        elif type(command) is not Diff:
            return command
        if command.wait_ms:
            self._slot.begin_poll()
            self._face.waits()
        return command

    # ------------------------------------------------------------------ who waits for it

    def then(self, deliver: Callable[[A], None]) -> None:
        """Call `deliver` with the answer, once."""
        if self._answer is None:
            self._deliver = deliver
        else:
            deliver(self._answer)

    @property
    def waits_for_news(self) -> bool:
        return self.ticket is not None and self.ticket.waits_for_news

    @property
    def is_apart(self) -> bool:
        return self._work is not None

    def cancel(self) -> None:
        """The client is gone: what was committed stays committed."""
        self._is_cancelled = True
        self._deliver = None
        if self.ticket is not None:
            self.ticket.cancel()
        if self._work is not None:
            self._work.cancel()

    def revoke(self) -> None:
        """Its key was removed.  What the log is to say is answered all the same: it was done."""
        if self._answer is None and not self._is_cancelled and self.waits_for_news:
            assert self.ticket is not None
            self._is_cancelled = True
            self.ticket.cancel()
            self._done(self._face.refuse(gone()))

    # ------------------------------------------------------------------ the reply

    def on_reply(self, reply: Reply) -> None:
        """The engine's reply came later."""
        try:
            now = self._told(reply)
        except Exception:
            now = self._face.fail()
        if now is not self:
            self._done(now)  # type: ignore[arg-type]

    def _told(self, reply: Reply) -> "A | Submission[A]":
        """The answer, if its records are in memory or warm; else `self`, and it comes later."""
        outcome = reply.result
        if reply.position:
            self._face.placed(reply.position)
        if isinstance(outcome, Exception):
            if isinstance(outcome, Rejection):
                return self._face.refuse(outcome)
            raise outcome
        records = None if type(outcome) not in WITH_RECORDS else records_of(outcome)
        if records is None:
            made = self._face.respond(reply, ())
            return self._made_apart(made.make) if isinstance(made, Apart) else made
        if type(outcome) in STABLE:
            kept = self._face.unchanged(cast(Stable, outcome))
            if kept is not None:
                return kept
        if reply.text is not None:
            return self._respond(reply, reply.text)
        if type(outcome) is Granted:
            return self._jobs_or_wait(reply, outcome, records)
        found = texts.read(records, blocking=False)
        if isinstance(found, list):
            return self._respond(reply, found)
        if found is not None:
            return self._face.refuse(found)
        whole = records.still()
        self._when_made(self._in_thread(records)(lambda: self._read(reply, whole)), self._done)
        return self

    def _respond(self, reply: Reply, text: Sequence[Buffer]) -> "A | Submission[A]":
        """The answer; or `self`, where a thread makes it."""
        made = self._face.respond(reply, text)
        return self._made_apart(made.make) if isinstance(made, Apart) else made

    def _made_apart(self, make: "Callable[[], A | Apart[A]]") -> "Submission[A]":
        self._when_made(self._service.shell.zip_in_thread(lambda: self._or_fail(make)), self._done)
        return self

    def _or_fail(self, make: "Callable[[], A | Apart[A]]") -> A:
        try:
            return _whole(make())
        except Exception:
            return self._face.fail()

    def _read(self, reply: Reply, records: Records) -> A:
        """*Blocking.*"""
        try:
            found = texts.read(records, blocking=True)
            assert found is not None
            if isinstance(found, Rejection):
                return self._face.refuse(found)
            return _whole(self._face.respond(reply, found))
        except Exception:
            return self._face.fail()

    def _in_thread(self, records: Records) -> Callable[[Callable[[], T]], ThreadCall[T]]:
        shell = self._service.shell
        return shell.page_in_thread if texts.is_large(records) else shell.read_in_thread

    def _when_made(self, work: ThreadCall[T], go_on: Callable[[T], None]) -> None:
        """Go on with what a thread has made, unless the client is gone; a thread that has not begun
        by then does not."""

        def on_done(done: ThreadCall[T]) -> None:
            if not self._is_cancelled:
                go_on(done.result())

        self._work = work
        work.add_done_callback(on_done)

    # ------------------------------------------------------------------ jobs

    def _jobs_or_wait(
        self, reply: Reply, granted: Granted, records: Records
    ) -> "A | Submission[A]":
        claiming, jobs = self._claiming, granted.jobs
        assert claiming is not None
        assert jobs is not None
        found = claiming.read_now(records)
        if found is not None:
            return self._respond(reply, found)
        whole, jobs = records.still(), jobs.still()
        self._when_made(
            self._in_thread(records)(lambda: claiming.read(whole)),
            lambda read: self._jobs_read(reply, granted.of(jobs), read),
        )
        return self

    def _jobs_read(
        self, reply: Reply, granted: Granted, read: "list[Buffer] | texts.OneByOne | Exception"
    ) -> None:
        try:
            if isinstance(read, Exception):
                raise read
            if isinstance(read, texts.OneByOne):
                now = self._salvaged(reply, granted, read)
            else:
                now = self._respond(reply, read)
        except Rejection as refusal:
            now = self._face.refuse(refusal)
        except Exception:
            now = self._face.fail()
        if now is not self:
            self._done(now)  # type: ignore[arg-type]

    def _salvaged(
        self, reply: Reply, granted: Granted, read: "texts.OneByOne"
    ) -> "A | Submission[A]":
        """The answer with the jobs that can be read; where none can, another claim's."""
        claiming = self._claiming
        assert claiming is not None
        left = claiming.keep_sound(granted, read)
        if left is not None:
            return self._respond(msgspec.structs.replace(reply, result=left[0]), left[1])
        if self._is_cancelled:
            return self
        found = self._service.submit(claiming.again(), self.on_reply, self._slot)
        if isinstance(found, Ticket):
            self.ticket = found
            return self
        return self._told(found)

    # ------------------------------------------------------------------ the end

    def _done(self, answer: A) -> None:
        self._answer = answer
        deliver, self._deliver = self._deliver, None
        if deliver is not None:
            deliver(answer)


def _whole(made: A | Apart[A]) -> A:
    """*On a thread.* The answer, made."""
    while isinstance(made, Apart):
        made = made.make()
    return made
