"""`BaseHeldJob`: a job in a worker's hand, and what became of it.

Owns the life of a job between its claim and its end (`JobState`).  `HeldJob` and `AsyncHeldJob` add
the calls that end it.  Invariant: a job leaves the hand once.
"""

from collections.abc import Callable
from contextlib import ExitStack
from enum import Enum
from typing import Any, Final, Generic, TypeGuard, TypeVar

from topics.client.errors import LeaseLost, TimeLimitExceeded
from topics.client.models import Job
from topics.client.tracing import process_span
from topics.client.unfit import UnfitJob

D = TypeVar("D")
H = TypeVar("H", bound="BaseHeldJob[Any]")


class JobState(Enum):
    """What became of a job that was handed out.

    | from     | by                                              | to              |
    |----------|-------------------------------------------------|-----------------|
    | HELD     | `ack`, `nack`, the end of the work              | SETTLING        |
    | HELD     | an extension that the server skipped            | LOST            |
    | SETTLING | the server's answer                             | ACKED or NACKED |
    | SETTLING | an answer that skips it, or no such queue       | LOST            |
    | SETTLING | a refusal, or no answer at all                  | HELD            |
    | HELD     | a keeper that leaves its lease to end           | LOST            |
    """

    HELD = "held"
    SETTLING = "settling"
    ACKED = "acked"
    NACKED = "nacked"
    LOST = "lost"


class BaseHeldJob(Generic[D]):
    """A job in hand: what was claimed, and what became of it.

    Attributes:
        deadline_ms: When its lease ends, milliseconds since the epoch; an extension moves it.
        state: Where it is in its life; only the worker changes it.
    """

    def __init__(self, queue: str, job: Job[D]) -> None:
        self.queue = queue
        self.deadline_ms = job.deadline_ms
        self._job = job
        self.state = JobState.HELD

    def __repr__(self) -> str:
        return f"<job {self.seq} of {self.queue}, {self.state.value}>"

    @property
    def seq(self) -> int:
        return self._job.seq

    @property
    def ts_ms(self) -> int:
        """When it was appended, milliseconds since the epoch."""
        return self._job.ts_ms

    @property
    def node(self) -> str | None:
        """The writer of the record; None where it named none."""
        return self._job.node

    @property
    def tag(self) -> str | None:
        return self._job.tag

    @property
    def data(self) -> D:
        """Its data.

        Raises:
            BadAnswer: It does not fit the type that was asked for; nor does its context begin then.
        """
        self.require_fit()
        return self._job.data

    @property
    def meta(self) -> dict[str, Any] | None:
        self.require_fit()
        return self._job.meta

    def require_fit(self) -> None:
        """Raises BadAnswer: The job does not fit the type that was asked for."""
        if isinstance(self._job, UnfitJob):
            self._job.refuse()

    def _begin(self) -> None:
        """Begin the span of a job that is entered, where the program traces; `_entered` ends it."""
        self._entered = ExitStack()
        self._span = self._entered.enter_context(process_span(self.queue, self))

    @property
    def lease_id(self) -> str:
        """The id of this delivery's lease."""
        return self._job.lease_id

    @property
    def deliveries(self) -> int:
        """How often the job was handed out, this time included."""
        return self._job.deliveries

    @property
    def priority(self) -> int:
        """As it was appended; 0 by default."""
        return self._job.priority

    @property
    def group(self) -> str | None:
        """As it was appended; None where it was given none."""
        return self._job.group

    @property
    def is_lost(self) -> bool:
        """Its lease ended: another worker has the job, or may have it, and this one's ack does not
        count."""
        return self.state is JobState.LOST

    @property
    def is_settled(self) -> bool:
        """It was acked, nacked, or lost."""
        return self.state not in (JobState.HELD, JobState.SETTLING)


Reason = str | BaseException | None
"""Why a job was not done: a text, or the exception that it ended with."""
REASON_CHARS: Final = 1024
"""Of a reason; the server keeps so many bytes."""


def reason_of(error: BaseException) -> str:
    """Why a job failed, as its nack says it: the type of the exception and its text."""
    if isinstance(error, TimeLimitExceeded):
        return error.message
    try:
        text = str(error)
    except Exception:
        text = ""
    kind = type(error).__name__
    said = f"{kind}: {text}" if text else kind
    return said[:REASON_CHARS].encode("utf-8", "replace").decode()


def reason_text(reason: Reason) -> str | None:
    """A reason as its nack says it."""
    return reason_of(reason) if isinstance(reason, BaseException) else reason


class WrongHandler(TypeError):
    """A handler that can do no job, whichever it is."""


def is_failure(error: BaseException) -> TypeGuard[Exception]:
    """Whether a job failed by that; else the worker ends, and the job is not to blame."""
    return isinstance(error, Exception) and not isinstance(error, WrongHandler)


OnError = Callable[[H, Exception], None]
"""Called for each job whose handler raised, with the exception; and with `LeaseLost` for each job
whose lease ended before it was done."""


def log_error(job: BaseHeldJob[Any], error: Exception) -> None:
    """The `on_error` of a worker that was given none: a line in the log."""
    import logging

    log = logging.getLogger("topics.client")
    if isinstance(error, LeaseLost):
        log.warning("%s", error.message)
    else:
        what = "job %d of %s failed at delivery %d"
        log.warning(what, job.seq, job.queue, job.deliveries, exc_info=error)


def lease_lost(job: BaseHeldJob[Any]) -> LeaseLost:
    """What `on_error` is given for a job that is lost."""
    message = f"the lease of job {job.seq} of {job.queue} ran out: another has it, or had it"
    return LeaseLost("lease_lost", 0, message, {"seq": job.seq, "lease_id": job.lease_id})


def time_limit_exceeded(job: BaseHeldJob[Any], limit_s: float) -> TimeLimitExceeded:
    """What `on_error` is given for a job whose handler took too long."""
    message = f"time limit of {limit_s:g} s"
    return TimeLimitExceeded("time_limit", 0, message, {"seq": job.seq})
