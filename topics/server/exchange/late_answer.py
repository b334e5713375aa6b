"""An answer that comes later: from a thread, the log, a poll or a disk.

Owns what a request waits for, one thing after the other, until there is an answer or its client is
gone.  Knows nothing of heads and bodies.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from topics.protocol.driver.group_commit import Reply, Ticket
from topics.protocol.driver.streams import Streams
from topics.protocol.http import answers
from topics.protocol.http.answers import Piece
from topics.protocol.model.access import gone
from topics.protocol.model.commands import Claim, Command
from topics.protocol.model.errors import Corrupt, ErrorCode, Rejection
from topics.protocol.model.outcomes import Granted, Jobs, Records, StablePage
from topics.protocol.model.records import Buffer
from topics.server.exchange.interface import Answer
from topics.server.exchange.payload import is_large, one_by_one, spliced
from topics.server.exchange.payload import payload as payload_of
from topics.server.exchange.responder import GZIP_APART_BYTES, Responder
from topics.server.exchange.shell import Phase, Shell, ThreadCall

T = TypeVar("T")

PROBE_MAX: Final = 1000
"""The most jobs that a repeated claim takes to get past unreadable ones."""


def not_serving(shell: Shell) -> Rejection:
    """503 for a request that comes before the log is replayed, or after the end has begun (§8.2)."""
    if shell.phase is Phase.RECOVERING:
        detail = {"reason": "recovering", "replay_progress": shell.store.progress}
        return Rejection(
            ErrorCode.NOT_READY, "there is space again: the log is opened anew", detail
        )
    if shell.phase in (Phase.STARTING, Phase.FAILED):
        progress = {"replay_progress": shell.store.progress}
        return Rejection(ErrorCode.NOT_READY, "the log is being replayed", progress)
    return Rejection(ErrorCode.SHUTTING_DOWN, "the server is stopping")


class LateAnswer(msgspec.Struct, eq=False):
    """Implements `interface.Pending`.  One is made for every command; most need no more of it.

    Attributes:
        ticket: What the driver calls for it, while the command waits there.
    """

    _call: Responder
    ticket: Ticket | None = None
    _answer: Answer | None = None
    _deliver: Callable[[Answer], None] | None = None
    _is_cancelled: bool = False
    _claim: Claim | None = None
    _claimed_ms: int = 0
    _rounds: int = 0
    _work: ThreadCall[Any] | None = None

    def then(self, deliver: Callable[[Answer], None]) -> None:
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
            self._done(self._call.refuse(gone()))

    def after(
        self,
        work: Callable[[], Command | Rejection],
        go_on: "Callable[[Command], Answer | LateAnswer]",
    ) -> None:
        """Parse a command on a thread, then go on with it unless the client is gone."""

        def on_done(done: ThreadCall[Command | Rejection]) -> None:
            if self._is_cancelled:
                return
            try:
                found = done.result()
                now = self._call.refuse(found) if isinstance(found, Rejection) else go_on(found)
            except Rejection as refusal:
                now = self._call.refuse(refusal)
            except Exception:
                now = self._call.fail()
            if isinstance(now, Answer):
                self._done(now)

        self._work = self._call.runtime.decode_in_thread(work)
        self._work.add_done_callback(on_done)

    def on_reply(self, reply: Reply) -> None:
        try:
            now = self.payload_or_wait(reply)
        except Exception:
            now = self._call.fail()
        if type(now) is Answer:
            self._done(now)

    def payload_or_wait(self, reply: Reply) -> "Answer | LateAnswer":
        """The answer, if its records are in memory or warm; else `self`, and it comes later."""
        outcome = reply.result
        if isinstance(outcome, Exception):
            if isinstance(outcome, Rejection):
                return self._call.refuse(outcome)
            raise outcome
        if type(outcome) is Granted and outcome.jobs is not None:
            return self._jobs_or_wait(reply, outcome, outcome.jobs)
        if type(outcome) is StablePage and (kept := self._call.unchanged(outcome)) is not None:
            return kept
        pieces = answers.pieces_of(outcome)
        text = pieces[0]
        if type(text) is bytes and len(pieces) == 1 and len(text) < GZIP_APART_BYTES:
            return self._call.respond(reply, [text])
        payload = payload_of(pieces, blocking=False)
        if isinstance(payload, list):
            return self._respond_or_zip(reply, payload)
        if payload is not None:
            return self._call.refuse(payload)
        whole = [piece.still() if isinstance(piece, Records) else piece for piece in pieces]
        fetch = partial(self._fetch, reply, whole)
        self._when_made(self._in_thread(pieces)(fetch), self._done)
        return self

    def _when_made(self, work: ThreadCall[T], go_on: Callable[[T], None]) -> None:
        """Go on with what a thread has made, unless the client is gone; a thread that has not begun
        by then does not."""

        def on_done(done: ThreadCall[T]) -> None:
            if not self._is_cancelled:
                go_on(done.result())

        self._work = work
        work.add_done_callback(on_done)

    def _in_thread(self, pieces: Sequence[Piece]) -> Callable[[Callable[[], T]], ThreadCall[T]]:
        runtime = self._call.runtime
        return runtime.page_in_thread if is_large(pieces) else runtime.read_in_thread

    def _respond_or_zip(self, reply: Reply, payload: list[Buffer]) -> "Answer | LateAnswer":
        """The answer; or `self`, where a thread compresses it first."""
        if not self._call.zips_apart(payload):
            return self._call.respond(reply, payload)
        respond = partial(self._respond, reply, payload)
        self._when_made(self._call.runtime.zip_in_thread(respond), self._done)
        return self

    def _respond(self, reply: Reply, payload: list[Buffer]) -> Answer:
        try:
            return self._call.respond(reply, payload)
        except Exception:
            return self._call.fail()

    def _fetch(self, reply: Reply, pieces: Sequence[Piece]) -> Answer:
        try:
            payload = payload_of(pieces, blocking=True)
            assert payload is not None
            if isinstance(payload, list):
                return self._call.respond(reply, payload)
            return self._call.refuse(payload)
        except Exception:
            return self._call.fail()

    # A claim skips jobs that cannot be read.  Where none of its jobs can be read, it claims again,
    # and more jobs than the client asked for, to get past a long run of damage quickly; the surplus
    # goes back to the queue.

    def claims(self, command: Claim) -> None:
        """The answer will be the jobs of this claim."""
        self._claim = command
        self._claimed_ms = self._call.runtime.now_ms

    def _jobs_or_wait(self, reply: Reply, granted: Granted, jobs: Jobs) -> "Answer | LateAnswer":
        try:
            texts = None if self._rounds else spliced(answers.pieces_of(granted), blocking=False)
        except (Corrupt, OSError):
            texts = None
        if texts is not None:
            return self._respond_or_zip(reply, texts)
        jobs = jobs.still()
        fetch = partial(self._fetch_jobs, granted.of(jobs), jobs)
        in_thread = self._in_thread([Records(jobs.extents)])
        self._when_made(in_thread(fetch), partial(self._jobs_fetched, reply, jobs))
        return self

    def _fetch_jobs(self, granted: Granted, jobs: Jobs) -> "list[Buffer] | _Found | Exception":
        """The whole payload; or each job by itself, where a part cannot be read."""
        try:
            if not self._rounds:
                try:
                    texts = spliced(answers.pieces_of(granted), blocking=True)
                    assert texts is not None
                    return texts
                except (Corrupt, OSError):
                    pass
            each = one_by_one(answers.job_records(jobs))
            return _Found(list(zip(jobs.grant.seqs, each, strict=True)))
        except Exception as error:
            return error

    def _jobs_fetched(
        self, reply: Reply, jobs: Jobs, found: "list[Buffer] | _Found | Exception"
    ) -> None:
        try:
            if isinstance(found, Exception):
                raise found
            now: Answer | LateAnswer
            if isinstance(found, list):
                now = self._respond_or_zip(reply, found)
            else:
                now = self._salvaged(reply, jobs, found)
        except Rejection as refusal:
            now = self._call.refuse(refusal)
        except Exception:
            now = self._call.fail()
        if isinstance(now, Answer):
            self._done(now)

    def _salvaged(self, reply: Reply, jobs: Jobs, found: "_Found") -> "Answer | LateAnswer":
        """The answer with the jobs that can be read; where none can, another claim's."""
        claim, runtime = self._claim, self._call.runtime
        assert claim is not None
        damaged = {seq: text for seq, text in found.jobs if isinstance(text, Exception)}
        sound = [(seq, text) for seq, text in found.jobs if not isinstance(text, Exception)]
        surplus = {seq for seq, _ in sound[claim.limit :]}
        streams = Streams(runtime.engine)
        left = streams.set_aside(jobs.grant, damaged, surplus, runtime.moment)
        runtime.nudge()
        if left is None:
            return self._claim_again(claim)
        texts = [text for _, text in sound[: claim.limit]]
        again = msgspec.structs.replace(reply, result=left)
        return self._respond_or_zip(again, answers.claim_around(left, texts))

    def _claim_again(self, claim: Claim) -> "Answer | LateAnswer":
        runtime = self._call.runtime
        if self._is_cancelled:
            return self
        if runtime.phase is not Phase.READY:
            raise not_serving(runtime)
        self._rounds += 1
        limit = min(claim.limit << min(3 * self._rounds, 30), PROBE_MAX)
        left_ms = max(claim.wait_ms - (runtime.now_ms - self._claimed_ms), 0)
        limit = max(limit, claim.limit)
        again = Claim(claim.topic, claim.node, limit, claim.lease_ms, left_ms)
        found = runtime.submit(again, self.on_reply)
        if isinstance(found, Ticket):
            self.ticket = found
            return self
        return self.payload_or_wait(found)

    def _done(self, answer: Answer) -> None:
        self._answer = answer
        deliver, self._deliver = self._deliver, None
        if deliver is not None:
            deliver(answer)


class _Found(msgspec.Struct, frozen=True):
    """Each job of a grant by seq: its text, or why it cannot be read."""

    jobs: list[tuple[int, Buffer | Exception]]
