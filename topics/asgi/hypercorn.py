"""`topics serve --server hypercorn`: the application on hypercorn's own worker.

Owns hypercorn's configuration, and the order of a stop: first no new work, then the pending
replies, then hypercorn's connections, then the disk.  Uses hypercorn by its public API alone, so
that any version from 0.17 serves; it is the only module that imports it.

hypercorn bounds heads, messages and streams of a connection.  It does not bound connections, and
it answers what it cannot parse by itself, without the envelope of §0.5.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from typing import Any, Final, cast

from hypercorn.asyncio import serve as serve_app
from hypercorn.config import Config

from topics.asgi.hosted import Hosted, StoppedEarly
from topics.asgi.limits import HEAD_BYTES_MAX
from topics.asgi.streaming import MESSAGE_BYTES_MAX
from topics.server.process.foreground import GRACE_S, announce, run, write_port_file
from topics.server.process.signals import STOP_S, Stop
from topics.server.runtime.collector import Collector
from topics.server.transport.listener import BACKLOG

STARTUP_S: Final = 7 * 24 * 3600
"""What a replay may take: as long as it takes.  hypercorn's default is 60 s."""
SENT_S: Final = 1
"""How long the last bytes may take, once every request has ended or had `GRACE_S`."""
CLOSE_S: Final = 1
"""How long hypercorn may take to close them."""
PING_S: Final = 20
"""Between two pings of a WebSocket."""

log = logging.getLogger("topics")


def serve(settings: Any, create: Callable[[Any], Any] | None = None) -> int:
    """Run a server on hypercorn until a signal stops it.

    Args:
        create: Makes the runtime; by default the one over the data directory of the settings.

    Returns:
        The exit code, as `topics.server.process.foreground.run` has them.
    """
    make = create or _create()

    async def main(listener: socket.socket, stop: Stop) -> None:
        if settings.readers:
            log.warning("TOPICS_READERS has no effect here: hypercorn serves in one process")
        write_port_file(settings, listener)
        await _serve(settings, listener, stop, lambda: make(settings))

    return run(settings, main)


async def _serve(
    settings: Any, listener: socket.socket, stop: Stop, create: Callable[[], Any]
) -> None:
    hosted = Hosted(create)
    collector = Collector(lambda: hosted.topics)
    quiet = asyncio.Event()

    async def wait_stop() -> None:
        """hypercorn's trigger: called when the log is replayed, and returns once the pending
        replies are written."""
        collector.settle()
        announce(settings, listener)
        await stop.wait()
        log.info("stopping: %d requests in flight", hosted.requests)
        hosted.drain()
        try:
            async with asyncio.timeout(GRACE_S):
                await hosted.wait_quiet()
        except TimeoutError:
            log.warning("%d requests did not end in time", hosted.requests)
        quiet.set()

    asyncio.get_running_loop().set_exception_handler(_on_exception)
    collector.start()
    stop.reload = hosted.reload
    app = cast(Any, hosted)  # hypercorn's types of messages are finer than ASGI's
    serving = asyncio.create_task(
        serve_app(
            app,
            configuration(listener, settings.keep_alive_ms),
            shutdown_trigger=wait_stop,
            mode="asgi",
        )
    )
    # Before the replay is complete, hypercorn does not call its trigger.
    early = asyncio.create_task(_drain_at(stop, hosted))
    late = asyncio.create_task(_cut_after(quiet, hosted, serving))
    try:
        (ended,) = await asyncio.gather(serving, return_exceptions=True)
        if late.done() and late.result():
            await hosted.stop()
            await _end_tasks()
            return
        failure = hosted.failure or ended
        if failure is not None and not isinstance(failure, StoppedEarly):
            raise failure
    finally:
        early.cancel()
        late.cancel()
        collector.close()


async def _cut_after(quiet: asyncio.Event, hosted: Hosted, serving: asyncio.Task[None]) -> bool:
    """Give hypercorn up where it does not end: it waits without a bound for a client that does not
    read.

    Returns:
        Whether it was given up; its task is cancelled, and ends some time later.
    """
    await quiet.wait()
    await asyncio.sleep(SENT_S + CLOSE_S)
    if hosted.is_ending:
        return False
    log.warning("connections did not take their last bytes in time")
    serving.cancel()
    return True


async def _end_tasks() -> None:
    """End the tasks left on the loop; a connection of hypercorn's has to be cancelled twice."""
    for _ in range(3):
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=CLOSE_S)


def _create() -> Callable[[Any], Any]:
    # Only now: what the runtime imports takes a while, and clients may connect meanwhile.
    from topics.server.assembly import create

    return create


def _on_exception(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """The event loop's handler of exceptions that no task took.

    A connection at which hypercorn failed is one line, because a client can cause that (0.18: more
    of a body after the answer, over HTTP/2).  A connection that was cancelled at the end of a stop
    is none: asyncio's streams report each.
    """
    failure = context.get("exception")
    if isinstance(failure, asyncio.CancelledError):
        return
    if failure is not None and "transport" in context:
        log.warning("hypercorn failed at a connection: %s", "; ".join(map(repr, _leaves(failure))))
        return
    loop.default_exception_handler(context)


def _leaves(failure: BaseException) -> list[BaseException]:
    if not isinstance(failure, BaseExceptionGroup):
        return [failure]
    return [leaf for each in failure.exceptions for leaf in _leaves(each)]


async def _drain_at(stop: Stop, hosted: Hosted) -> None:
    await stop.wait()
    hosted.drain()


def configuration(listener: socket.socket, keep_alive_ms: int) -> Config:
    """hypercorn's configuration over a socket that listens; it gets a descriptor of its own.

    Args:
        keep_alive_ms: Without a request, until a connection is closed.
    """
    config = Config()
    config.bind = [f"fd://{os.dup(listener.fileno())}"]
    config.backlog = BACKLOG
    config.accesslog = None
    config.errorlog = logging.getLogger("topics.hypercorn")
    config.errorlog.setLevel(logging.WARNING)  # where it listens is announced already
    config.include_server_header = False
    config.startup_timeout = STARTUP_S
    config.shutdown_timeout = STOP_S
    config.graceful_timeout = SENT_S
    config.keep_alive_timeout = keep_alive_ms / 1000
    # On HTTP/2 a connection would end after so many requests, streams in flight included.
    config.keep_alive_max_requests = 1 << 30
    config.h11_max_incomplete_size = HEAD_BYTES_MAX
    config.h2_max_header_list_size = HEAD_BYTES_MAX
    config.h2_max_concurrent_streams = 100
    config.websocket_max_message_size = MESSAGE_BYTES_MAX
    config.websocket_ping_interval = PING_S
    return config
