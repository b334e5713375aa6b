"""`JobCall`: request and reply over a queue, a job that is appended and whose result is waited for (§10.9).

Owns what is asked next, and what the end of the job means to the caller.  It does no I/O: a client sends
its calls and gives back their answers.  Invariant: the job is made once, because its append carries an
idempotency key, and no worker begins it after the caller has given up, because it expires by then.
"""

from math import inf
from typing import Any, Final, Generic, NoReturn, TypeVar

import msgspec

from topics.client import endpoints
from topics.client.call import Call
from topics.client.decoding import decoder_of
from topics.client.endpoints import WAIT_MS_MAX
from topics.client.errors import BadAnswer, CallTimeout, JobFailed, JobNotFound
from topics.client.models import Appended, JobInfo, JobsChanged, NewRecord
from topics.client.options import AppendOptions, CallOptions, require
from topics.client.retry import Backoff, Clock, Retry

D = TypeVar("D")

ENDED: Final = ("done", "dead")


class ShownJob(JobInfo, frozen=True, kw_only=True):
    """A job whose result is not decoded yet."""

    result: msgspec.Raw = msgspec.Raw(b"null")


class JobCall(Generic[D]):
    """One call:

    send `append`, give the answer to `made`
    while look := look():           send it, give the answer to `take`, return its `result` or pause
    send `cancel` if there is one;  `time_over`, or where the job has ended meanwhile, `take`
    """

    def __init__(
        self,
        queue: str,
        value: Any,
        *,
        wait_s: float,
        decode: type[D] | None,
        retry: Retry,
        clock: Clock,
        options: CallOptions,
    ) -> None:
        require(CallOptions, options, "call()")
        if not 0 < wait_s < inf:
            raise ValueError(f"wait_s is {wait_s:g}, and is above 0 and finite")
        self._queue = queue
        self._wait_s = wait_s
        self._clock = clock
        self._deadline_s = clock.now_s() + wait_s
        self._decode: Any = Any if decode is None else decode
        self._backoff = Backoff(retry, clock)
        self._asked_s = 0.0
        self._asked_ms = 0
        self._seq = 0
        self._is_ours = True
        self.append = self._append(value, options)

    def _append(self, value: Any, options: CallOptions) -> Call[Appended]:
        expires_ms = max(round(self._wait_s * 1000), 1)
        if isinstance(value, NewRecord):
            own_ms = expires_ms - (value.delay_ms or 0)
            value = msgspec.structs.replace(value, expires_ms=value.expires_ms or max(own_ms, 1))
        own_ms = expires_ms - (options.get("delay_ms") or 0)
        asked = AppendOptions(**{"expires_ms": max(own_ms, 1), **options, "create": False})  # type: ignore[typeddict-item]
        return endpoints.append(self._queue, [value], asked)

    def made(self, answer: Appended) -> None:
        """The job is in the queue, or another one that has its unique key."""
        self._seq = answer.seqs[0]
        self._is_ours = not answer.unique

    def look(self) -> Call[ShownJob] | None:
        """What asks for the end of the job; None where the time is over."""
        self._asked_s = self._clock.now_s()
        left_ms = round((self._deadline_s - self._asked_s) * 1000)
        if left_ms <= 0:
            return None
        self._asked_ms = min(left_ms, WAIT_MS_MAX)
        return endpoints.job(self._queue, self._seq, wait_ms=self._asked_ms, kind=ShownJob)

    def last_look(self) -> Call[ShownJob]:
        """What asks for the job as it is."""
        return endpoints.job(self._queue, self._seq, wait_ms=0, kind=ShownJob)

    def has_ended(self, job: ShownJob) -> bool:
        """Whether there is a `result`, or an error in its place."""
        return job.state in ENDED

    def pause_s(self) -> float:
        """Seconds before the next look: none after an answer that was held back, as it should be."""
        if (self._clock.now_s() - self._asked_s) * 2000 >= self._asked_ms:
            self._backoff.reset()
            return 0.0
        return self._backoff.next_s()

    def result(self, job: ShownJob) -> D:
        """What came of the job.

        Raises:
            JobFailed: It is a dead letter.
            CallTimeout: It is one because no worker began it in time.
            BadAnswer: The result does not fit the type that was asked for.
        """
        if job.state == "dead":
            if not job.deliveries and self._clock.now_s() >= self._deadline_s:
                self.time_over("expired")
            raise _failure(self._queue, job)
        try:
            return decoder_of(self._decode)(bytes(job.result))  # type: ignore[no-any-return]
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            message = f"the result of job {job.seq} of {self._queue}: {error}"
            raise BadAnswer("bad_answer", 200, message, {"seq": job.seq}) from error

    def gone(self, error: JobNotFound) -> NoReturn:
        """Nothing is kept of the job.

        Raises:
            CallTimeout: The time is over, so it has most likely expired.
            JobNotFound: It was done without a result, cancelled or deleted, and the queue keeps nothing of
                such a job.
        """
        if self._clock.now_s() >= self._deadline_s:
            self.time_over("gone")
        message = (
            f"job {self._seq} of {self._queue} has ended, and nothing of it is kept: its worker gave no "
            "result, or it was deleted, and the queue has no keep_done"
        )
        raise JobNotFound(error.code, error.status, message, {"seq": self._seq}) from error

    def cancel(self) -> Call[JobsChanged] | None:
        """What takes the job away if no worker has begun it; None where the job is another call's."""
        if not self._is_ours:
            return None
        return endpoints.change_jobs(
            self._queue, "cancel", self._seq, match=None, state=None, dry_run=False
        )

    def time_over(self, state: str) -> NoReturn:
        """Raises CallTimeout: The job did not end in time.

        Args:
            state: What became of it: "cancelled", "expired", "gone", or the state that it is in.
        """
        message = f"job {self._seq} of {self._queue} did not end within {self._wait_s:g} s: {state}"
        raise CallTimeout("call_timeout", 0, message, {"seq": self._seq, "state": state})


def _failure(queue: str, job: JobInfo) -> JobFailed:
    reasons = [each.reason for each in job.reasons]
    last = f": {reasons[-1]}" if reasons else ""
    letter = None if job.dead_letter is None else msgspec.structs.asdict(job.dead_letter)
    detail = {"seq": job.seq, "reasons": reasons, "dead_letter": letter}
    times = "delivery" if job.deliveries == 1 else "deliveries"
    message = f"job {job.seq} of {queue} failed after {job.deliveries} {times}{last}"
    return JobFailed("job_failed", 0, message, detail)
