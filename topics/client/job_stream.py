"""`JobStream`: jobs that the server pushes to one hand of a worker (§10.8).

Owns what the frames of the stream mean, and when it is opened again; it lasts over any number of
connections.  It does no I/O: a worker carries its bytes.
"""

from typing import Final, Generic, TypeVar

import msgspec

from topics.client.answer import Answer
from topics.client.call import Call, Outcome, decode_error
from topics.client.errors import TopicNotFound, TopicsError
from topics.client.faults import Fault
from topics.client.models import Job
from topics.client.retry import (
    Attempts,
    Clock,
    Retry,
    StreamAttempts,
    is_worth_repeating,
    server_pause_s,
)
from topics.client.sse import Event, EventParser, Reconnect
from topics.client.streams import (
    ADVISORY,
    PASSING,
    error_of_end,
    fault_of,
    is_payload,
    is_stream,
    parse,
    pause_before_reconnect_s,
    reconnect_s,
)
from topics.client.unfit import job_of

D = TypeVar("D")

FAULT: Final = 500
"""The fault may be of one damaged job; the stream is opened again, as long as it brings
anything."""
READ_TIMEOUT_S: Final = 35.0
"""Two heartbeats of 15 s and 5 s more without a byte: the connection counts as lost (§7.6)."""


class JobStream(Generic[D]):
    """The stream of one hand:

        open `call`; if `opens()`, hand out `take()` of each piece, while `is_listening`
        give the outcome to `ended`, pause, begin again

    When a connection breaks, the server gives the jobs that it pushed over it to other workers.  A
    job in hand is finished all the same; the answer to its ack says whether it counted.
    """

    def __init__(
        self, call: Call[bytes], job_type: type[Job[D]], retry: Retry, clock: Clock
    ) -> None:
        self.call = call
        self.is_listening = False
        self._job_type = job_type
        self._retry = retry
        self._clock = clock
        self._parser = EventParser()
        self._attempts: Attempts | None = None
        self._stream_attempts = StreamAttempts(retry, clock)
        self._fault: TopicsError | None = None
        self._has_heard = False
        self._pause_s = 0.0

    def opens(self, response: Answer) -> bool:
        """Whether an answer is a stream to read on; else it is for `ended`, with its body."""
        self._parser = EventParser()
        self._fault = None
        self._stream_attempts.opened()
        self.is_listening = is_stream(response)
        return self.is_listening

    def take(self, piece: bytes) -> list[Job[D]]:
        """The jobs that a piece of the stream brings.

        Raises:
            TopicsError: The server ended the stream for a reason that will not pass.
        """
        jobs = []
        for parsed in parse(self._parser, piece):
            self._stream_attempts.heard(brings=is_payload(parsed))
            self._has_heard = True
            self._attempts = None
            match parsed:
                case Reconnect():
                    self._pause_s = reconnect_s(parsed)
                case Event(kind="job"):
                    jobs.append(self._job(parsed.data))
                case Event(kind="error"):
                    self._end(fault_of(parsed))
        return jobs

    def _job(self, data: bytes) -> Job[D]:
        try:
            return job_of(self._job_type, data, "stream")
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise decode_error("stream", 200, data, error) from error

    def ended(self, outcome: Outcome) -> float:
        """Seconds to wait before the stream is opened again.

        Raises:
            TopicsError: It is not opened again.
        """
        self.is_listening = False
        if self._has_heard:
            self._has_heard = False
            pause_s = pause_before_reconnect_s(self._pause_s, self._fault, self._retry, self._clock)
            if not self._stream_attempts.goes_on(outcome, pause_s):
                raise self._fault or error_of_end(self.call, outcome)
            return pause_s
        if self._attempts is None:
            self._attempts = Attempts(self.call, self._retry, self._clock)
        is_empty = not isinstance(outcome, Fault) and outcome.is_success
        next_pause_s = None
        if is_empty or is_worth_repeating(self.call, outcome):
            at_least_s = max(server_pause_s(outcome), self._pause_s)
            next_pause_s = self._attempts.next_pause_s(at_least_s)
        if next_pause_s is None:
            raise error_of_end(self.call, outcome)
        return next_pause_s

    def _end(self, fault: TopicsError) -> None:
        if fault.status == ADVISORY:
            return
        self.is_listening = False
        self._fault = fault
        if fault.status == 404:
            raise TopicNotFound("topic_not_found", 404, fault.message)
        if fault.status not in PASSING and fault.status != FAULT:
            raise fault
