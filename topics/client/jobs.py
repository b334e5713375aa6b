# Generated from aiojobs.py by topics/client/_generate.py; do not edit, run `make generate`.
"""The calls of a client that are about jobs: what became of them, and what an operator does with them."""

from collections.abc import Iterator
from typing import Any, TypeVar, Unpack, overload

from topics.client import endpoints, paging
from topics.client.errors import Conflict, Forbidden, JobNotFound, Unreachable
from topics.client.job_call import JobCall
from topics.client.models import JobInfo, JobsChanged, Redriven
from topics.client.options import CallOptions, Match
from topics.client.session import Session

D = TypeVar("D")


class JobCalls:
    """The part of `Client` for jobs.

    Attributes:
        session: Sends the calls.
    """

    session: Session

    @overload
    def call(
        self, queue: str, value: Any, *, wait_s: float = 30.0, **options: Unpack[CallOptions]
    ) -> Any: ...

    @overload
    def call(
        self,
        queue: str,
        value: Any,
        *,
        wait_s: float = 30.0,
        decode: type[D],
        **options: Unpack[CallOptions],
    ) -> D: ...

    def call(
        self,
        queue: str,
        value: Any,
        *,
        wait_s: float = 30.0,
        decode: type[Any] | None = None,
        **options: Unpack[CallOptions],
    ) -> Any:
        """Append a job, wait for its end, and return its result: request and reply over a queue.

            size = client.call("sizes", {"image": "a.png"}, decode=Size)

        The job is made once, also over broken connections.  The result is what the worker's handler
        returned.  Where that may be None, or where a failure is to be told, the queue needs
        `keep_done` in its config.

        Args:
            wait_s: How long to wait for the end, above 0 and finite.  A job that no worker has begun by then is
                cancelled, and expires should the cancellation not arrive.
            decode: The type of the result.

        Options: `CallOptions`.

        Raises:
            JobFailed: The job is a dead letter; the error has the reasons.
            CallTimeout: The job did not end in time.
            JobNotFound: The job has ended, and the queue keeps nothing of it.
            TopicNotFound: The queue does not exist; a call makes none.
            InvalidRequest: The topic is not a queue.
            BadAnswer: The result does not fit the type.
        """
        asked: JobCall[Any] = JobCall(
            queue,
            value,
            wait_s=wait_s,
            decode=decode,
            retry=self.session.retry,
            clock=self.session.clock,
            options=options,
        )
        return self._answer_of(asked)

    def _answer_of(self, asked: JobCall[D]) -> D:
        asked.made(self.session.do(asked.append))
        try:
            while (look := asked.look()) is not None:
                job = self.session.do(look)
                if asked.has_ended(job):
                    return asked.result(job)
                if pause_s := asked.pause_s():
                    self.session.sleep(pause_s)
            return self._given_up(asked)
        except JobNotFound as error:
            asked.gone(error)

    def _given_up(self, asked: JobCall[D]) -> D:
        """The time is over; the result all the same where the job has just ended."""
        cancel = asked.cancel()
        try:
            if cancel is not None:
                self.session.do(cancel)
                asked.time_over("cancelled")
        except (Conflict, Forbidden, JobNotFound, Unreachable):
            pass  # a worker has it, or the key may cancel nothing, or the job has ended or expires
        job = self.session.do(asked.last_look())
        if asked.has_ended(job):
            return asked.result(job)
        asked.time_over(job.state)

    def jobs(
        self,
        queue: str,
        *,
        state: str | None = None,
        group: str | None = None,
        page_size: int = 1000,
    ) -> Iterator[JobInfo]:
        """Jobs of a queue, page by page: all that are in it, or those of one state.

            for job in client.jobs("jobs", state="dead"):
                print(job.seq, job.reasons[-1].reason, job.dead_letter)

        Args:
            state: "ready", "delayed" or "leased"; "done" and "dead" are those that ended, for as long as the
                queue keeps what became of them.
            group: Those of one group.
            page_size: Jobs of one request.
        """
        return self.session.items(paging.jobs(queue, state=state, group=group, page_size=page_size))

    def job(self, queue: str, seq: int, *, wait_ms: int = 0) -> JobInfo:
        """One job, also after its end.

            job = client.job("jobs", seq, wait_ms=30_000)
            if job.state == "done":
                print(job.result)

        Args:
            wait_ms: Wait for its end, at most 30,000; where the time is over it is shown as it is.

        Raises:
            JobNotFound: There is no such job, or it ended and is not kept, or not any more.
        """
        return self.session.do(endpoints.job(queue, seq, wait_ms=wait_ms, kind=JobInfo))

    def promote(
        self,
        queue: str,
        seq: int | None = None,
        *,
        match: Match | None = None,
        dry_run: bool = False,
    ) -> JobsChanged:
        """Let jobs that are delayed be claimed now: one, or all whose tag matches.

        Raises:
            JobNotFound: The one that is named is not there.
            Conflict: A worker holds it.
        """
        call = endpoints.change_jobs(
            queue, "promote", seq, match=match, state=None, dry_run=dry_run
        )
        return self.session.do(call)

    def retry(
        self,
        queue: str,
        seq: int | None = None,
        *,
        match: Match | None = None,
        dry_run: bool = False,
    ) -> JobsChanged:
        """Try jobs again that were given back, as if they had not failed: one, or all whose tag matches.

        One that is named and is dead comes back from the dead letters, as a new job at the queue's end.

        Raises:
            JobNotFound: The one that is named is not there.
            Conflict: A worker holds it.
        """
        call = endpoints.change_jobs(queue, "retry", seq, match=match, state=None, dry_run=dry_run)
        return self.session.do(call)

    def cancel(
        self,
        queue: str,
        seq: int | None = None,
        *,
        match: Match | None = None,
        state: str | None = None,
        dry_run: bool = False,
    ) -> JobsChanged:
        """Take jobs away that no worker holds: one, or those whose tag matches and which are in a state.

        Args:
            state: "ready" or "delayed".

        Raises:
            JobNotFound: The one that is named is not there.
            Conflict: A worker holds it.
            InvalidRequest: Neither `seq`, `match` nor `state` says which.
        """
        call = endpoints.change_jobs(
            queue, "cancel", seq, match=match, state=state, dry_run=dry_run
        )
        return self.session.do(call)

    def redrive(
        self,
        dead_letters: str,
        to: str,
        *,
        match: Match | None = None,
        seqs: list[int] | None = None,
        max: int | None = None,
        dry_run: bool = False,
    ) -> Redriven:
        """Move dead letters back to a queue, the oldest first, at most 1,000 in one call.

        With `seqs` these letters alone, without `match` and `max`; those that are not there are left out.

            while (client.redrive("jobs-dead", "jobs")).more:
                pass

        Where the answer is lost the call is not repeated: it would move others.

        Raises:
            TopicNotFound: One of the topics does not exist.
            Conflict: `to` is not a queue.
            TopicFull: The queue takes none of them.
        """
        call = endpoints.redrive(dead_letters, to, match=match, seqs=seqs, max=max, dry_run=dry_run)
        return self.session.do(call)
