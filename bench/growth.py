"""How cost grows: `python -m bench.growth [--max N] [--out DIR]`, and `make bench-plots` draws it.

Each chart lets one number grow (records, topics, watchers, deletes) by factors of ten and tells what
a few operations cost at each size: CPU time, the least of several times, so that other work on the
machine matters little.  Each line says how it should grow: `flat`, or `linear` with the number.

The engine is timed in process (`bench.desk`), and a whole server for a few lines.  The figures go to
`growth.json` in the directory of the plots, with the machine and its load.
"""

import gc
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final, Literal

import click
import msgspec

from bench.conftest import NODES, TAGS, machine
from bench.desk import Desk, fetch
from bench.loads import append, append_body, delete, diff, put
from bench.serving import Serving, serve_topics
from bench.small_requests import Watching, alone, ask, request
from bench.small_requests import append as append_request
from topics.protocol.faces.http import sse
from topics.protocol.faces.http.watch import parse_watch
from topics.protocol.model.commands import Command, GetTopic, ListTopics
from topics.protocol.model.cursor import composite
from topics.protocol.model.limits import Limits
from topics.protocol.state.frames import RecordFrame
from topics.server.service.texts import read

PLOTS: Final = Path(__file__).parent / "plots"
DATA: Final = "growth.json"
RECORDS_MAX: Final = 10_000_000
TOPICS_MAX: Final = 100_000
WATCHERS_MAX: Final = 10_000
DELETES_MAX: Final = 1_000_000
SERVED_MAX: Final = 100_000
"""What a whole server is let grow to: the wire costs more than the engine, and no more at any size."""
PAGE: Final = 1000
REPEATS: Final = 30

Growth = Literal["flat", "linear"]


class Line(msgspec.Struct):
    """What one operation costs at each size: microseconds of CPU time, `points[i]` at `sizes[i]`."""

    name: str
    growth: Growth
    sizes: list[int] = []
    points: list[float] = []

    def add(self, size: int, cost_s: float) -> None:
        self.sizes.append(size)
        self.points.append(round(cost_s * 1e6, 3))


class Chart(msgspec.Struct):
    """The lines over one number that grows."""

    name: str
    over: str
    lines: list[Line]


class Figures(msgspec.Struct):
    """All that one run measured, and on what."""

    machine: str
    charts: list[Chart]


def sizes(first: int, last: int, most: int) -> Iterator[int]:
    """first, 10 * first, ... up to `last`, and no more than `most`."""
    size = first
    while size <= min(last, max(most, first)):
        yield size
        size *= 10


def least_s(call: Callable[[], object], repeats: int = REPEATS) -> float:
    """CPU time of this thread for a call: the least of several."""
    gc.collect()
    gc.disable()
    try:
        best = float("inf")
        for _ in range(repeats):
            begun = time.thread_time()
            call()
            best = min(best, time.thread_time() - begun)
        return best
    finally:
        gc.enable()


def run_s(desk: Desk, command: Command) -> float:
    """CPU time of a command."""
    return least_s(lambda: desk.run(command))


def page_s(desk: Desk, body: bytes) -> float:
    """CPU time of a page of the topic `t`, its text included."""
    asked = diff("t", body)
    return least_s(lambda: fetch(desk.run(asked)))


# ---------------------------------------------------------------------- records


def of_records(home: Path, most: int) -> Chart:
    one = Line("append 1 x 64 B", "flat")
    many = Line("append 1,000 x 64 B", "flat")
    first = Line("page of 1,000, the oldest", "flat")
    middle = Line("page of 1,000, in the middle", "flat")
    last = Line("page of 1,000, the newest", "flat")
    by_time = Line("page of 1,000 by time", "flat")
    state = Line("state of the topic", "flat")
    start = Line("start over the data", "linear")
    desk = Desk.on_disk(home)
    desk.run(put("t"))
    small = append("t", append_body(1, 64, tags=TAGS, nodes=NODES))
    large = append("t", append_body(1000, 64, tags=TAGS, nodes=NODES))
    held = 0
    for size in sizes(100, RECORDS_MAX, most):
        while held < size:
            step = large if size - held >= 1000 else small
            desk.run(step)
            desk.seal_full()
            held += 1000 if step is large else 1
        for line, after in ((first, 0), (middle, size // 2), (last, size - PAGE)):
            body = b'{"from_seq":%d,"limit":%d}' % (max(after, 0), PAGE)
            line.add(size, page_s(desk, body))
        by_time.add(size, page_s(desk, b'{"from_ts":%d,"limit":%d}' % (desk.now_ms, PAGE)))
        state.add(size, run_s(desk, GetTopic("t")))
        one.add(size, run_s(desk, small))
        many.add(size, run_s(desk, large))
        held += REPEATS * 1001
        desk.stop()
        begun = time.thread_time()
        desk = Desk.on_disk(home)
        start.add(size, time.thread_time() - begun)
    desk.kill()
    return Chart(
        "records", "records of a topic", [one, many, first, middle, last, by_time, state, start]
    )


# ---------------------------------------------------------------------- topics


def of_topics(most: int) -> Chart:
    made = Line("create a topic", "flat")
    one = Line("append 1 x 64 B to one of them", "flat")
    state = Line("state of one", "flat")
    listed = Line("list 100 from the middle", "flat")
    idle = Line("a round of maintenance without work", "flat")
    desk = Desk.in_memory(Limits(max_topics=TOPICS_MAX + 1))
    body = append_body(1, 64)
    held = 0
    for size in sizes(1, TOPICS_MAX, most):
        begun = time.thread_time()
        for n in range(held, size):
            desk.run(put(f"t{n:06}"))
        made.add(size, (time.thread_time() - begun) / (size - held))
        held = size
        name = f"t{size // 2:06}"
        small = append(name, body)
        one.add(size, run_s(desk, small))
        state.add(size, run_s(desk, GetTopic(name)))
        if size >= 1000:  # fewer are less than a page
            listed.add(size, run_s(desk, ListTopics("", 100, name)))
        desk.round()
        idle.add(size, least_s(desk.round))
    return Chart("topics", "topics", [made, one, state, listed, idle])


# ---------------------------------------------------------------------- watchers


def of_watchers(most: int) -> Chart:
    opened = Line("open a stream", "flat")
    delivery = Line("a delivery, of a write to all", "flat")
    beside = Line("append 1 x 64 B to a topic that none watches", "flat")
    limits = Limits(max_watch_sessions=WATCHERS_MAX + 1, max_watch_bytes=1 << 40)
    desk = Desk.in_memory(limits)
    for name in ("t", "other"):
        desk.run(put(name))
    small, other = (append(name, append_body(1, 64)) for name in ("t", "other"))
    commands = desk.engine.watch_commands
    streams: list[tuple[object, ...]] = []

    def deliver() -> None:
        """A write, and the event of it for each stream, as its transport would take it."""
        desk.run(small)
        for session, stream in streams:
            while (frame := commands.next_frame(stream, desk.now_ms)) is not None:
                ident = composite(session.watched.values())  # type: ignore[attr-defined]
                texts = ()
                if isinstance(frame, RecordFrame) and "sse" not in frame.texts:
                    texts = read(frame.records, blocking=True)  # type: ignore[assignment]
                sse.encode(frame, ident, texts)

    held = 0
    for size in sizes(1, WATCHERS_MAX, most):
        begun = time.thread_time()
        for n in range(held, size):
            asked = b'{"topics":{"t":{"tail":true}}}'
            desk.run(parse_watch(asked, desk.limits, wid=f"w{n}", lenient=False))
            streams.append(commands.open_stream(f"w{n}", None, lambda: None, desk.now_ms))
        opened.add(size, (time.thread_time() - begun) / (size - held))
        held = size
        deliver()
        delivery.add(size, least_s(deliver, repeats=5) / size)
        beside.add(size, run_s(desk, other))
    return Chart("watchers", "watchers of a topic", [opened, delivery, beside])


# ---------------------------------------------------------------------- deletes


def of_deletes(home: Path, most: int) -> Chart:
    """Every second record of a stretch goes at once, by its tag; the stretches are sealed."""
    whole = Line("delete by tag, every second record", "linear")
    longest = Line("... its longest turn on the event loop", "flat")
    page = Line("page of 1,000 across what is left", "flat")
    desk = Desk.on_disk(home)
    desk.run(put("t"))
    begins: dict[int, int] = {}
    head = 0
    for size in sizes(1, DELETES_MAX, most):
        begins[size] = head
        batch = min(size, 500)
        command = append("t", append_body(2 * batch, 64, tags=(f"n{size}", "keep")))
        for _ in range(size // batch):
            desk.run(command)
            desk.seal_full()
        head += 2 * (size // batch) * batch
    desk.seal_all()
    desk.turns(delete("t", b'{"match":["tag","Eq","none"]}'))  # opens the segments
    for size, begin in begins.items():
        asked = delete("t", b'{"match":["tag","Eq","n%d"]}' % size)
        _, turns = desk.turns(asked)
        whole.add(size, sum(turns))
        longest.add(size, max(turns))
        desk.sync()
        desk.store.flip()
        if size >= 2 * PAGE:  # fewer leave most of a page in one piece
            page.add(size, page_s(desk, b'{"from_seq":%d,"limit":%d}' % (begin, PAGE)))
    desk.kill()
    return Chart("deletes", "records deleted at once", [whole, longest, page])


# ---------------------------------------------------------------------- a whole server


def of_server(home: Path, most: int) -> Chart:
    page = Line("page of 1,000 of so many records", "flat")
    cached = Line("304 for such a page", "flat")
    one = Line("append 1 record, beside so many topics", "flat")
    delivery = Line("a delivery to so many watchers", "flat")
    with serve_topics(home) as serving:
        _serve_records(serving, min(most, SERVED_MAX), page, cached)
        _serve_topics(serving, min(most, SERVED_MAX // 10), one)
    with serve_topics(home / "watched") as serving:
        for size in sizes(1, 1000, most):
            watching = Watching(serving, size)
            watching.write(2)
            delivery.add(size, served_s(serving, partial(watching.write, max(200 // size, 5))))
            watching.close()
    return Chart("server", "records, topics or watchers", [page, cached, one, delivery])


def served_s(serving: Serving, work: Callable[[], int], rounds: int = 5) -> float:
    """CPU time of the server for each of what `work` counts; the least of several rounds."""
    best = float("inf")
    for _ in range(rounds):
        begun_s = serving.cpu_s()
        count = work()
        best = min(best, (serving.cpu_s() - begun_s) / count)
    return best


def _serve_records(serving: Serving, most: int, page: Line, cached: Line) -> None:
    held = 0
    for size in sizes(1000, most, most):
        alone(serving, append_request("t", 1000), (size - held) // 1000)
        held = size
        after = size - PAGE
        body = b'{"from_seq":%d,"limit":%d}' % (after, PAGE)
        sent = request("POST", "/v0/topics/t/diff", body)
        page.add(size, served_s(serving, partial(alone, serving, sent, 200)))
        target = f"/v0/topics/t/records?from_seq={after}&limit={PAGE}"
        with serving.connect() as connection:
            got = ask(connection, request("GET", target))
        etag = got.partition(b"etag: ")[2].partition(b"\r\n")[0]
        again = request("GET", target).replace(b"\r\n\r\n", b"\r\nif-none-match: %b\r\n\r\n" % etag)
        cached.add(size, served_s(serving, partial(revalidate, serving, again, 200)))


def revalidate(serving: Serving, sent: bytes, count: int) -> int:
    with serving.connect() as connection:
        for _ in range(count):
            connection.sendall(sent)
            got = b""
            while not got.endswith(b"\r\n\r\n"):
                got += connection.recv(1 << 16)
            if not got.startswith(b"HTTP/1.1 304"):
                raise RuntimeError(got[:300].decode(errors="replace"))
    return count


def _serve_topics(serving: Serving, most: int, one: Line) -> None:
    held = 0
    for size in sizes(1, most, most):
        with serving.connect() as connection:
            for n in range(held, size):
                ask(connection, append_request(f"n{n}"))
        held = size
        sent = append_request(f"n{size // 2}")
        one.add(size, served_s(serving, partial(alone, serving, sent, 300)))


# ---------------------------------------------------------------------- all of it


def measured(home: Path, most: int) -> Iterator[Chart]:
    """One chart after the other."""
    yield of_records(home / "records", most)
    yield of_topics(most)
    yield of_watchers(most)
    yield of_deletes(home / "deletes", most)
    yield of_server(home / "server", most)


@click.command()
@click.option("--max", "most", default=RECORDS_MAX, show_default=True, help="Of any number.")
@click.option("--out", type=click.Path(path_type=Path), default=PLOTS, show_default=True)
@click.option("--dir", "scratch", type=click.Path(path_type=Path), help="Where the data goes.")
def main(most: int, out: Path, scratch: Path | None) -> None:
    """Measure, and write the figures."""
    said = machine()
    charts = []
    with tempfile.TemporaryDirectory(prefix="topics-growth-", dir=scratch) as home:
        for chart in measured(Path(home), most):
            charts.append(chart)
            for line in chart.lines:
                told = ", ".join(
                    f"{s:,}: {p:,.1f}" for s, p in zip(line.sizes, line.points, strict=True)
                )
                click.echo(f"{chart.name}: {line.name} (us): {told}")
    out.mkdir(exist_ok=True)
    text = json.dumps(msgspec.to_builtins(Figures(said, charts)), indent=1)
    (out / DATA).write_text(text + "\n")


if __name__ == "__main__":
    main()
