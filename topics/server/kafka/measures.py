"""What Kafka's clients asked for and got, counted for metrics (§8.3).

Owns the counts of one server.  Every label is a name of this server's own: an API that is served, an error of Kafka's, a
reason; what a client sends makes none.
"""

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Final

from topics.protocol.faces.kafka.error_codes import NAMES
from topics.server.observing.measures import Durations
from topics.server.observing.metrics import Family, Kind, Sample


class End(Enum):
    """Why the server ended a connection."""

    MALFORMED = "malformed"
    """It sent what is no request, or one of an API or a version that is not served."""
    LOGIN = "login"
    """It asked before it had logged in, or its key was removed."""
    LIMIT = "limit"
    """It, or all clients together, held more than they may."""
    SLOW = "slow"
    """A frame began and did not go on."""
    IDLE = "idle"
    """Nothing came for ten minutes."""
    UNANSWERABLE = "unanswerable"
    """A write with `acks=0` was refused."""
    FAILED = "failed"
    """A bug, or a server that does not serve now."""


_UNKNOWN: Final = "UNKNOWN_SERVER_ERROR"


class KafkaMeasures:
    """The counts.

    Attributes:
        connections: Open now.
        waiting: Fetches that wait for records now.
        received_bytes, sent_bytes: Of frames, with their lengths.
        records, batches: Appended by producers; a repeat appends nothing.
        holes: Partitions of fetches that were given a batch of no records.
    """

    def __init__(self) -> None:
        self.connections = self.waiting = 0
        self.received_bytes = self.sent_bytes = 0
        self.records = self.batches = self.holes = 0
        self._requests: dict[str, int] = {}
        self._errors: dict[tuple[str, str], int] = {}
        self._durations = Durations()
        self._throttled: dict[str, int] = {}
        self._ended = dict.fromkeys(End, 0)

    def answered(self, api: str, codes: Iterable[int], took_s: float | None) -> None:
        """Count a request.

        Args:
            codes: The errors in its answer.
            took_s: From its frame to its answer; None where it waited for records, or for room, which says
                nothing of the server.
        """
        self._requests[api] = self._requests.get(api, 0) + 1
        for code in codes:
            key = api, NAMES.get(code, _UNKNOWN)
            self._errors[key] = self._errors.get(key, 0) + 1
        if took_s is not None:
            self._durations.note(api, took_s)

    def throttled(self, api: str) -> None:
        """A request had to wait for its turn or for room, or its client is made to pause."""
        self._throttled[api] = self._throttled.get(api, 0) + 1

    def ended(self, why: End) -> None:
        """The server ended a connection."""
        self._ended[why] += 1

    def families(self) -> Iterator[Family]:
        """All of it, as metrics."""
        yield _one("connections", "gauge", "Open connections of Kafka's clients.", self.connections)
        yield _one("fetches_waiting", "gauge", "Fetches that wait for records.", self.waiting)
        text = "Bytes of requests of Kafka's clients."
        yield _one("bytes_received_total", "counter", text, self.received_bytes)
        text = "Bytes of answers to Kafka's clients."
        yield _one("bytes_sent_total", "counter", text, self.sent_bytes)
        text = "Records that Kafka's clients appended."
        yield _one("records_produced_total", "counter", text, self.records)
        text = "Record batches that Kafka's clients appended."
        yield _one("batches_produced_total", "counter", text, self.batches)
        requests = [Sample(n, {"api": api}) for api, n in sorted(self._requests.items())]
        yield _many("requests_total", "counter", "Requests of Kafka's clients, by API.", requests)
        errors = [
            Sample(n, {"api": api, "code": code}) for (api, code), n in sorted(self._errors.items())
        ]
        yield _many("errors_total", "counter", "Errors in answers, by Kafka's names.", errors)
        text = "From a request's frame to its answer, without what waited for records or room."
        durations = list(self._durations.samples("api"))
        yield _many("request_duration_seconds", "histogram", text, durations)
        text = "Requests that waited for their turn or for room, or whose clients had to pause."
        throttled = [Sample(n, {"api": api}) for api, n in sorted(self._throttled.items())]
        yield _many("throttled_total", "counter", text, throttled)
        text = "Empty batches in answers to Fetch, over records that are gone."
        yield _one("holes_passed_total", "counter", text, self.holes)
        text = "Connections that the server ended, by reason."
        ended = [Sample(n, {"reason": why.value}) for why, n in self._ended.items()]
        yield _many("connections_ended_total", "counter", text, ended)


def _one(name: str, kind: Kind, text: str, value: int) -> Family:
    return _many(name, kind, text, [Sample(value, {})])


def _many(name: str, kind: Kind, text: str, samples: list[Sample]) -> Family:
    return Family(f"topics_kafka_{name}", kind, text, samples)
