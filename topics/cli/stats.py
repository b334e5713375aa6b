"""`topics stats`: a live table of what a server does, as `top` is of a machine.

Owns the rates, which are the difference of two scrapes, and the drawing.  Everything comes from
`GET /v0/metrics` and the list of topics.
"""

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from topics.cli.exits import INTERRUPTED, OK, output
from topics.cli.moments import age_ms
from topics.cli.printing import Table, say_json, say_lines
from topics.cli.target import with_client

if TYPE_CHECKING:
    from topics.client import Client, TopicSummary

TOPICS_SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at a server.

    Attributes:
        at_s: By a steady clock.
        metrics: As the JSON of `/v0/metrics`.
        topics: All of them.
    """

    at_s: float
    metrics: Mapping[str, Any]
    topics: Sequence["TopicSummary"]

    def value(self, name: str) -> float:
        """A metric without labels, or the sum of one with; 0 where the server does not tell it."""
        found = self.metrics.get(name, 0)
        if isinstance(found, list):
            return float(sum(sample["value"] for sample in found))
        return float(found)


@dataclass(frozen=True, slots=True)
class Row:
    """One topic: its records, and per second what was appended to it."""

    topic: str
    records: int
    bytes: int
    rate: float
    ready: int | None
    in_flight: int | None
    delayed: int | None


def rows(now: Sample, before: Sample | None, limit: int) -> list[Row]:
    """The busiest topics first, then the largest."""
    heads = {} if before is None else {t.topic: t.head_seq for t in before.topics}
    seconds = 0.0 if before is None else now.at_s - before.at_s
    found = []
    for topic in now.topics:
        more = topic.head_seq - heads.get(topic.topic, topic.head_seq)
        queue = topic.queue
        found.append(
            Row(
                topic.topic,
                topic.count,
                topic.bytes,
                max(more, 0) / seconds if seconds > 0 else 0.0,
                None if queue is None else queue.ready,
                None if queue is None else queue.in_flight,
                None if queue is None else queue.delayed,
            )
        )
    found.sort(key=lambda row: (-row.rate, -row.records, row.topic))
    return found[:limit]


def headline(now: Sample, before: Sample | None) -> dict[str, float]:
    """The figures of the server as a whole; rates are per second since the last look."""
    figures = {
        "uptime_s": now.value("topics_uptime_ms") / 1000,
        "topics": now.value("topics_topics"),
        "records": now.value("topics_records_live"),
        "bytes": now.value("topics_bytes_live"),
        "streams": now.value("topics_sse_connections"),
        "memory_bytes": now.value("process_resident_memory_bytes"),
        "hot_bytes": now.value("topics_hot_bytes"),
        "ready": sum(t.queue.ready for t in now.topics if t.queue is not None),
        "in_flight": sum(t.queue.in_flight for t in now.topics if t.queue is not None),
        "router_lag": now.value("topics_router_lag"),
        "routers_blocked": now.value("topics_router_blocked"),
        "read_only": now.value("topics_wal_read_only"),
    }
    if before is not None and now.at_s > before.at_s:
        for name, metric in (
            ("requests_per_s", "topics_http_requests_total"),
            ("refusals_per_s", "topics_http_refusals_total"),
            ("log_bytes_per_s", "topics_wal_bytes_written_total"),
            ("syncs_per_s", "topics_wal_fsyncs_total"),
            ("cpu", "process_cpu_seconds_total"),
        ):
            figures[name] = (now.value(metric) - before.value(metric)) / (now.at_s - before.at_s)
    return figures


@click.command("stats")
@click.option("--prefix", default="", metavar="TEXT", help="Only topics that begin with it.")
@click.option("--limit", "-n", default=TOPICS_SHOWN, show_default=True, help="The most topics.")
@click.option("--every", callback=age_ms, metavar="DURATION", help="How often to look (2s).")
@click.option("--once", is_flag=True, help="Look twice, print, and end.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a look.")
@with_client
def command(
    client: "Client", prefix: str, limit: int, every: int | None, once: bool, as_json: bool
) -> int:
    """Show what the server does: rates, queues, lag, memory; the busiest topics first.

    \b
    topics stats
    topics stats --once --json | jq .requests_per_s
    """
    output()
    every_s = (2000 if every is None else max(every, 100)) / 1000
    try:
        if as_json or once or not sys.stdout.isatty():
            _print_looks(client, prefix, limit, every_s, as_json=as_json, once=once)
        else:
            _draw(client, prefix, limit, every_s)
    except KeyboardInterrupt:
        return INTERRUPTED
    return OK


def look(client: "Client", prefix: str) -> Sample:
    metrics = client.metrics()
    return Sample(time.monotonic(), metrics, list(client.topics(prefix=prefix)))


def _print_looks(
    client: "Client", prefix: str, limit: int, every_s: float, *, as_json: bool, once: bool
) -> None:
    import msgspec

    before = look(client, prefix)
    while True:
        time.sleep(every_s)
        now = look(client, prefix)
        if as_json:
            found = {**headline(now, before), "busiest": rows(now, before, limit)}
            say_json(msgspec.json.encode(found))
        else:
            say_lines([line] for line in drawn(now, before, rows(now, before, limit)))
        sys.stdout.flush()
        if once:
            return
        before = now


def _draw(client: "Client", prefix: str, limit: int, every_s: float) -> None:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(highlight=False)
    before: Sample | None = None
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            now = look(client, prefix)
            shown = rows(now, before, min(limit, max(console.height - 5, 1)))
            live.update(Text("\n".join(drawn(now, before, shown))), refresh=True)
            before = now
            time.sleep(every_s)


def summary(figures: Mapping[str, float]) -> str:
    """The figures in three lines."""
    days, rest = divmod(int(figures["uptime_s"]), 86_400)
    up = f"{days} d " if days else ""
    up += f"{rest // 3600}:{rest % 3600 // 60:02}:{rest % 60:02}"
    read_only = "  READ-ONLY" if figures["read_only"] else ""
    blocked = f", {figures['routers_blocked']:.0f} blocked" if figures["routers_blocked"] else ""
    return "\n".join(
        (
            f"up {up}  cpu {figures.get('cpu', 0):.0%}  memory {size(figures['memory_bytes'])}, unsealed "
            f"{size(figures['hot_bytes'])}{read_only}",
            f"requests {figures.get('requests_per_s', 0):,.0f}/s, refused "
            f"{figures.get('refusals_per_s', 0):,.1f}/s  log {size(figures.get('log_bytes_per_s', 0))}/s, "
            f"{figures.get('syncs_per_s', 0):,.0f} syncs/s  streams {figures['streams']:,.0f}",
            f"topics {figures['topics']:,.0f}  records {figures['records']:,.0f}, {size(figures['bytes'])}  "
            f"jobs {figures['ready']:,.0f} ready, {figures['in_flight']:,.0f} leased  "
            f"router lag {figures['router_lag']:,.0f}{blocked}",
        )
    )


def size(amount: float) -> str:
    """Bytes with a unit."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def drawn(now: Sample, before: Sample | None, shown: Sequence[Row]) -> list[str]:
    """The lines of one look."""
    table = Table(
        *("<topic", ">appended/s", ">records", ">size", ">ready", ">in flight", ">delayed")
    )
    return [*summary(headline(now, before)).split("\n"), *table.lines(list(map(_cells, shown)))]


def _cells(row: Row) -> list[str]:
    jobs = ("" if n is None else f"{n:,}" for n in (row.ready, row.in_flight, row.delayed))
    return [row.topic, f"{row.rate:,.1f}", f"{row.records:,}", size(row.bytes), *jobs]
