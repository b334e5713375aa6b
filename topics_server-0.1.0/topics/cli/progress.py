"""A progress bar on standard error, where that is a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def byte_bar(what: str) -> Iterator[Callable[[int], None]]:
    """A bar that counts bytes, of which it does not know how many there will be; yields a function
    that is called with how many more were done."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda _bytes: None
        return
    from rich.console import Console
    from rich.progress import (
        DownloadColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
        TransferSpeedColumn,
    )

    columns = (
        *(SpinnerColumn(), TextColumn("{task.description}"), DownloadColumn()),
        *(TransferSpeedColumn(), TimeElapsedColumn()),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda more_bytes: bar.advance(task, more_bytes)
