"""What one process holds in memory for the records of a data directory, as a line of JSON.

    python -m bench.footprint DIR              start on DIR, read a page of every run
    python -m bench.footprint DIR --fill N     write and seal N records first

Allocations of Python and numpy are traced in the first case; the anonymous pages of the process,
which include what the allocator keeps for later, are told in both.  Mapped pages are in neither.
"""

import gc
import json
import tracemalloc
from pathlib import Path

import click

from bench.conftest import fill
from bench.desk import Desk, fetch
from bench.loads import diff, put


def anonymous_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("Linux tells RssAnon")


def read_all(desk: Desk) -> None:
    """A page of every run, so that columns, flags and checks of all of them are in use."""
    for topic in desk.engine.state.topics.values():
        for run in topic.runs:
            body = b'{"from_seq":%d,"node":"node-3","limit":10}' % (run.first_seq - 1)
            fetch(desk.run(diff(topic.name, body)))


@click.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--fill", "records", type=int, default=0)
def main(path: Path, records: int) -> None:
    """Measure and print."""
    if not records:
        tracemalloc.start()
    before = anonymous_bytes()
    desk = Desk.on_disk(path)
    if records:
        desk.run(put("sealed"))
        fill(desk, "sealed", 1000)
        before = anonymous_bytes()
        fill(desk, "sealed", records - 1000)
        desk.seal_all()
    read_all(desk)
    gc.collect()
    traced = tracemalloc.get_traced_memory()[0] if tracemalloc.is_tracing() else 0
    found = {
        "records": desk.engine.state.records_total,
        "traced": traced,
        "anonymous": anonymous_bytes(),
        "anonymous_before": before,
    }
    desk.kill()
    click.echo(json.dumps(found))


if __name__ == "__main__":
    main()
