"""What metrics tell of reader processes (§8.3).

Owns the names, and the one place where they are spelled.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from topics.server.observing.metrics import Family, Kind, Sample


class Figures(NamedTuple):
    """Of one reader.

    Attributes:
        behind: States of the log that it has yet to apply.
        requests, relayed, cpu_s: Of all its processes so far.
        restarts: How often it was replaced.
    """

    up: bool
    behind: int
    connections: int
    hot_bytes: int
    requests: int
    relayed: int
    cpu_s: float
    restarts: int


ROWS: Final[tuple[tuple[str, str, Kind, str], ...]] = (
    ("up", "topics_reader_up", "gauge", "1 while a reader process serves."),
    ("behind", "topics_reader_behind", "gauge", "States of the log that it has yet to apply."),
    ("connections", "topics_reader_connections", "gauge", "Connections that it carries."),
    ("hot_bytes", "topics_reader_hot_bytes", "gauge", "Memory of unsealed records in it."),
    ("requests", "topics_reader_requests_total", "counter", "Reads that it has served."),
    ("relayed", "topics_reader_relayed_total", "counter", "Requests that it has relayed."),
    ("cpu_s", "topics_reader_cpu_seconds_total", "counter", "Its CPU time."),
    ("restarts", "topics_reader_restarts_total", "counter", "Times that it was replaced."),
)
"""Field of `Figures`, name, kind, help."""


def families(readers: Sequence[Figures]) -> Iterator[Family]:
    """A sample for each reader, by its number."""
    for field, name, kind, text in ROWS:
        samples = [
            Sample(float(getattr(figures, field)), {"reader": str(number)})
            for number, figures in enumerate(readers)
        ]
        yield Family(name, kind, text, samples)
