"""Counts of requests: by route and status, how long they took, and why they were refused (§8.3).

Owns the numbers and the families that a scrape is made of.  A route is the row of the route table,
never a path: the number of labels is that of the table, whatever clients send.
"""

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

import msgspec

from topics.protocol.faces.http.route import Route, StreamKind
from topics.protocol.faces.http.routes import ROUTES
from topics.protocol.model.commands import FACTS
from topics.protocol.model.errors import ErrorCode
from topics.server.observing.metrics import Family, Sample

OTHER: Final = "other"
"""The label of requests that no route takes."""
BOUNDS_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""Upper bounds of the histogram, seconds."""


def label_of(route: Route) -> str:
    """A row of the table as a label: `POST /v0/topics/:name`."""
    return route.line.replace("/:", "/:name")


LABELS: Final = {id(route): label_of(route) for route in ROUTES}
READS: Final = frozenset(
    label_of(route)
    for route in ROUTES
    if route.command is not None
    and FACTS[route.command].gives_records
    and route.target is not StreamKind.WORK
)
"""Routes that answer with records."""


class _Counts(msgspec.Struct, frozen=True, array_like=True):
    """What one process has answered: counts by route and status, refusals by code, the histogram."""

    counts: list[tuple[str, int, int]]
    refusals: dict[str, int]
    buckets: dict[str, list[int]]
    sums_s: dict[str, float]


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_Counts).decode


class Durations:
    """How long requests took, by label.

    Attributes:
        buckets: How many took so long, for each bound of `BOUNDS_S` and beyond the last.
        sums_s: In all.
    """

    def __init__(self) -> None:
        self.buckets: dict[str, list[int]] = {}
        self.sums_s: dict[str, float] = {}

    def note(self, label: str, took_s: float) -> None:
        buckets = self.buckets.get(label)
        if buckets is None:
            buckets = self.buckets[label] = [0] * (len(BOUNDS_S) + 1)
            self.sums_s[label] = 0.0
        buckets[bisect_left(BOUNDS_S, took_s)] += 1
        self.sums_s[label] += took_s

    def samples(self, name: str) -> Iterator[Sample]:
        """The samples of a histogram; `name` is that of the label."""
        for label, buckets in sorted(self.buckets.items()):
            total = 0
            for bound, count in zip((*BOUNDS_S, "+Inf"), buckets, strict=True):
                total += count
                yield Sample(total, {name: label, "le": str(bound)}, "_bucket")
            yield Sample(self.sums_s[label], {name: label}, "_sum")
            yield Sample(total, {name: label}, "_count")


class RequestMeasures:
    """What the exchange has answered since the start."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._counts: dict[tuple[str, int], int] = {}
        self._refusals: dict[ErrorCode, int] = {}
        self._durations = Durations()

    def answered(self, route: str, status: int, took_s: float | None) -> None:
        """Count an answer.

        Args:
            route: Its label.
            took_s: From the head to the answer; None where the time was asked for, as of a long
                poll or a stream, and says nothing of the server.
        """
        key = route, status
        self._counts[key] = self._counts.get(key, 0) + 1
        if took_s is not None:
            self._durations.note(route, took_s)

    def refused(self, code: ErrorCode) -> None:
        """Count an error envelope by its code."""
        self._refusals[code] = self._refusals.get(code, 0) + 1

    def take(self) -> bytes:
        """All of it, packed, for another process to `add`; from now on it is counted anew."""
        packed = _encode(
            _Counts(
                [(route, status, count) for (route, status), count in self._counts.items()],
                {code.value: count for code, count in self._refusals.items()},
                self._durations.buckets,
                self._durations.sums_s,
            )
        )
        self._clear()
        return packed

    def add(self, packed: bytes) -> None:
        """Count what another process has answered (`take`)."""
        if not packed:
            return
        more = _decode(packed)
        for route, status, count in more.counts:
            self._counts[route, status] = self._counts.get((route, status), 0) + count
        for name, count in more.refusals.items():
            code = ErrorCode(name)
            self._refusals[code] = self._refusals.get(code, 0) + count
        own = self._durations
        for route, buckets in more.buckets.items():
            known = own.buckets.get(route, [0] * len(buckets))
            own.buckets[route] = [a + b for a, b in zip(known, buckets, strict=True)]
            own.sums_s[route] = own.sums_s.get(route, 0.0) + more.sums_s[route]

    def totals(self) -> tuple[int, int]:
        """(requests, those of them that read records) that were answered so far."""
        requests = reads = 0
        for (route, _), count in self._counts.items():
            requests += count
            if route in READS:
                reads += count
        return requests, reads

    def buckets(self) -> list[int]:
        """The histogram of all routes together: a count for each bound, and of what is beyond."""
        return [sum(counts) for counts in zip(*self._durations.buckets.values(), strict=True)] or [
            0
        ] * (len(BOUNDS_S) + 1)

    def families(self) -> Iterator[Family]:
        counts = [
            Sample(count, {"route": route, "status": str(status)})
            for (route, status), count in sorted(self._counts.items())
        ]
        text = "Answers by route and status."
        yield Family("topics_http_requests_total", "counter", text, counts)
        refusals = [Sample(n, {"code": code.value}) for code, n in self._refusals.items()]
        text = "Error answers by the code of their envelope."
        yield Family("topics_http_refusals_total", "counter", text, refusals)
        yield Family(
            "topics_http_request_duration_seconds",
            "histogram",
            "From a request's head to its answer, without long polls and streams.",
            list(self._durations.samples("route")),
        )
