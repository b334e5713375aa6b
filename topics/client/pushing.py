"""Jobs that are pushed: what the frames of a worker's stream mean, and when it is opened again (§10.8).

Owns one stream's life over any number of connections.  It sends nothing and waits for nothing: a
face carries its bytes.
"""

from typing import Final, Generic, TypeVar

import httpx

from topics.client.calls import Call, Outcome
from topics.client.errors import BadAnswer, TopicNotFound, TopicsError
from topics.client.events import Event, Parser, Reconnect
from topics.client.models import Job
from topics.client.retry import Attempts, Clock, Retry, Standing, asked_pause_s, is_worth_repeating
from topics.client.watching import (
    ADVISORY,
    PASSING,
    RECONNECT_S_MAX,
    asked_s,
    fault_of,
    is_news,
    is_stream,
    read_event,
    why_ended,
)

D = TypeVar("D")

FAULT: Final = 500
"""It may be of one job: a worker goes on, while the streams bring anything."""
SILENCE_S: Final = 35.0
"""Two heartbeats of a stream, and a little, without a byte: the connection is lost (§7.6)."""


class Pushed(Generic[D]):
    """The stream of one hand, over any number of connections (§10.8):

        open `call`; if `opens()`, hand out `take()` of each piece, while `is_listening`
        give `ended` what came, pause

    What was pushed over a connection that broke is another's from then on; what of it is in hand
    is finished all the same, and the answer to its ack says whether it counted.
    """

    def __init__(
        self, call: Call[bytes], job_type: type[Job[D]], retry: Retry, clock: Clock
    ) -> None:
        self.call = call
        self.is_listening = False
        self._job_type = job_type
        self._retry = retry
        self._clock = clock
        self._parser = Parser()
        self._attempts: Attempts | None = None
        self._standing = Standing(retry, clock)
        self._fault: TopicsError | None = None
        self._has_heard = False
        self._pause_s = 0.0

    def opens(self, response: httpx.Response) -> bool:
        """Whether an answer is a stream to read on; else its body belongs to `ended`."""
        self._parser = Parser()
        self._fault = None
        self._standing.opened()
        self.is_listening = is_stream(response)
        return self.is_listening

    def take(self, piece: bytes) -> list[Job[D]]:
        """The jobs that a piece of the stream brings.

        Raises:
            TopicsError: The server's last word, where a new connection would hear it again.
        """
        jobs = []
        try:
            told = self._parser.feed(piece)
        except ValueError as error:
            raise BadAnswer("bad_answer", 200, f"stream: {error}") from error
        for said in told:
            self._standing.heard(brings=is_news(said))
            self._has_heard = True
            self._attempts = None
            match said:
                case Reconnect():
                    self._pause_s = min(said.pause_ms / 1000, RECONNECT_S_MAX)
                case Event(kind="job"):
                    jobs.append(read_event(self._job_type, said.data))
                case Event(kind="error"):
                    self._end(fault_of(said.data))
        return jobs

    def ended(self, outcome: Outcome) -> float:
        """What came of a stream in the end; seconds to wait before it is opened again."""
        self.is_listening = False
        if self._has_heard:
            self._has_heard = False
            # Others were cut off in the same moment, and must not come back in the same.
            pause_s = max(self._pause_s, self._retry.first_pause_s, asked_s(self._fault))
            pause_s *= 1 + 0.5 * self._clock.jitter()
            if not self._standing.goes_on(outcome, pause_s):
                raise self._fault or why_ended(self.call, outcome)
            return pause_s
        if self._attempts is None:
            self._attempts = Attempts(self.call, self._retry, self._clock)
        is_silent = isinstance(outcome, httpx.Response) and outcome.is_success
        next_pause_s = None
        if is_silent or is_worth_repeating(self.call, outcome):
            next_pause_s = self._attempts.next_pause_s(max(asked_pause_s(outcome), self._pause_s))
        if next_pause_s is None:
            raise why_ended(self.call, outcome)
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
