"""What the server's own long work costs a small append: `python -m bench.beside [--other CHECKOUT]`.

A client appends one record every two milliseconds, alone and while the server seals, makes checkpoints, reads from a
disk, or parses large bodies.  Sealing and checkpoints are made to happen by bodies of 250 KB, which stand in a row of
their own.  What asks for that work sleeps between two requests, so that both cores are not taken by
the measurement.  Cells are the p50 and the p99 of the append, milliseconds, and how much of that work was done.
"""

import contextlib
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
import numpy as np
import orjson

from bench.serving import Serving, serve_topics
from bench.small_requests import append, ask, request

SECONDS: Final = 6.0
PAUSE_S: Final = 0.002
KB: Final = "x" * 1000


class Work(NamedTuple):
    """What the server does beside the client.

    Attributes:
        options: Of `topics serve`.
        prepare: Called before the clock runs.
        step: One request of whoever asks for the work; called again and again, with the directory.
        pause_s: Between two steps.
    """

    name: str
    options: Sequence[str]
    prepare: Callable[[Serving], None]
    step: Callable[[Serving, Path, int], None]
    pause_s: float


def _batch(topic: str, records: int, text: str = KB) -> bytes:
    body = orjson.dumps({"records": [{"data": text}] * records})
    return request("POST", f"/v0/topics/{topic}", body)


def _nothing(serving: Serving) -> None: ...


def _large_body(serving: Serving, home: Path, number: int) -> None:
    with serving.connect() as connection:
        ask(connection, _batch("large", 5000))


def _some_records(serving: Serving, home: Path, number: int) -> None:
    with serving.connect() as connection:
        ask(connection, _batch("sealed", 250))


def _many_topics(serving: Serving) -> None:
    with serving.connect() as connection:
        for number in range(5000):
            ask(connection, append(f"of-many-{number}"))


def _sealed_records(serving: Serving) -> None:
    with serving.connect() as connection:
        for _ in range(200):
            ask(connection, _batch("cold", 500))


def _cold_page(serving: Serving, home: Path, number: int) -> None:
    for path in (home / "data").glob("*.seg"):
        with contextlib.suppress(OSError):
            file = os.open(path, os.O_RDONLY)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(file)
    body = b'{"from_seq":%d,"limit":300}' % (number * 7919 % 90_000)
    with serving.connect() as connection:
        ask(connection, request("POST", "/v0/topics/cold/diff", body))


SMALL_LOG: Final = ("--wal-file-bytes", "1048576")
WORKS: Final = (
    Work("bodies of 5 MB", (), _nothing, _large_body, 0.1),
    Work("bodies of 250 KB", (), _nothing, _some_records, 0.05),
    Work("sealing", ("--segment-max-bytes", "2097152"), _nothing, _some_records, 0.05),
    Work("checkpoints of 5,000 topics", SMALL_LOG, _many_topics, _some_records, 0.05),
    Work(
        "pages from a disk", ("--segment-max-bytes", "4194304"), _sealed_records, _cold_page, 0.02
    ),
)


def latencies(serving: Serving) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    """Of one append every two milliseconds for some seconds, milliseconds, ascending."""
    took = []
    with serving.connect() as connection:
        sent = append("small")
        end_s = time.perf_counter() + SECONDS
        while (begun_s := time.perf_counter()) < end_s:
            ask(connection, sent)
            took.append((time.perf_counter() - begun_s) * 1000)
            time.sleep(PAUSE_S)
    return np.sort(np.asarray(took))


def measured(work: Work, home: Path, checkout: Path | None) -> tuple[list[float], int]:
    """The p50 and the p99 without the work and with it, and how often it was asked for."""
    with serve_topics(home, checkout, *work.options) as serving:
        work.prepare(serving)
        latencies(serving)  # the server's first seconds
        alone = latencies(serving)
        context = multiprocessing.get_context("fork")
        steps = context.Value("Q", 0)
        asker = context.Process(target=_ask_for, args=(work, serving, home, steps), daemon=True)
        asker.start()
        try:
            with_work = latencies(serving)
        finally:
            asker.kill()
            asker.join()
    found = [float(np.percentile(each, p)) for p in (50, 99) for each in (alone, with_work)]
    return found, steps.value


def _ask_for(work: Work, serving: Serving, home: Path, steps: Any) -> None:
    while True:
        work.step(serving, home, steps.value)
        steps.value += 1
        time.sleep(work.pause_s)


@click.command()
@click.option("--other", type=click.Path(path_type=Path), help="A checkout to compare with.")
@click.option("--only", multiple=True, help="Work whose name holds this; may be repeated.")
def main(other: Path | None, only: tuple[str, ...]) -> None:
    """Print a row for each kind of work."""
    checkouts = {"": None} if other is None else {"": None, " (other)": other.absolute()}
    click.echo(
        f"{'beside':42}{'p50':>8}{'with':>8}{'p99':>8}{'with':>8}{'ratio':>8}{'requests':>10}"
    )
    for work in WORKS:
        if only and not any(word in work.name for word in only):
            continue
        for name, checkout in checkouts.items():
            with tempfile.TemporaryDirectory() as home:
                (p50, p50_with, p99, p99_with), done = measured(work, Path(home) / "h", checkout)
            row = f"{work.name + name:42}{p50:8.2f}{p50_with:8.2f}{p99:8.2f}{p99_with:8.2f}"
            click.echo(f"{row}{p99_with / p99:8.2f}{done:10,.0f}")


if __name__ == "__main__":
    main()
