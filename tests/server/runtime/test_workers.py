"""Calls on a thread: in order, reported on the loop, without blocking it."""

import asyncio
import threading
import weakref
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from topics.server.runtime.workers import AtWork, Worker, show_name, threads


def play(story: Callable[[Worker], Awaitable[None]]) -> None:
    async def main() -> None:
        worker = Worker("of-a-test")
        async with asyncio.timeout(100):
            await story(worker)
        worker.stop()

    asyncio.run(main())


def test_calls_are_made_in_order_and_not_on_the_loop() -> None:
    """One thread makes all calls."""
    threads: list[int] = []
    order: list[int] = []

    async def story(worker: Worker) -> None:
        for n in range(20):
            worker.do(lambda n=n: (order.append(n), threads.append(threading.get_ident())))  # type: ignore[misc]
        await worker.wait_for(lambda: None)

    play(story)

    assert order == list(range(20))
    assert len(set(threads)) == 1
    assert threads[0] != threading.get_ident()


def test_a_call_is_reported_on_the_loop() -> None:
    """A call reports its value, or None and its exception."""
    told: list[tuple[Any, BaseException | None, int]] = []
    error = OSError("no space")

    async def story(worker: Worker) -> None:
        def done(value: Any, raised: BaseException | None) -> None:
            told.append((value, raised, threading.get_ident()))

        worker.do(lambda: 7, done)
        worker.do(lambda: _raise(error), done)
        await worker.wait_for(lambda: None)

    play(story)

    assert told == [(7, None, threading.get_ident()), (None, error, threading.get_ident())]


def test_a_call_that_fails_does_not_end_the_thread() -> None:
    """Later calls are made whatever an earlier one raised."""

    async def story(worker: Worker) -> None:
        with pytest.raises(SystemExit):
            await worker.wait_for(lambda: _raise(SystemExit(3)))
        assert await worker.wait_for(lambda: "made") == "made"

    play(story)


def test_the_loop_goes_on_while_a_call_waits() -> None:
    """A blocking call does not block the loop."""
    may_go = threading.Event()

    async def story(worker: Worker) -> None:
        waiting = asyncio.ensure_future(worker.wait_for(lambda: may_go.wait(100)))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not waiting.done()
        may_go.set()
        assert await waiting

    play(story)


def test_calls_that_threads_have_yet_to_end_are_counted() -> None:
    """Calls of several workers, and of a pool, count whatever comes of them: the loop knows when none is left."""
    at_work = AtWork()
    may_go = threading.Event()

    async def main() -> None:
        workers = [Worker("of-a-test", at_work) for _ in range(2)]
        with ThreadPoolExecutor(1) as pool:
            reading = at_work.run(pool, lambda: may_go.wait(100))
            failing = at_work.run(pool, lambda: _raise(OSError("no space")))
            for worker in workers:
                worker.do(lambda: may_go.wait(100))  # nobody asks what came of it
            ended = [asyncio.ensure_future(each.wait_for(lambda: None)) for each in workers]
            await asyncio.sleep(0)
            assert at_work.calls == 6
            may_go.set()
            await asyncio.gather(reading, failing, *ended, return_exceptions=True)
        assert at_work.calls == 0
        for worker in workers:
            worker.stop()

    asyncio.run(main())
    assert at_work.calls == 0


def test_a_cancelled_wait_disturbs_nothing() -> None:
    """A cancelled call is made all the same, and later calls are reported."""
    may_go = threading.Event()

    async def story(worker: Worker) -> None:
        waiting = asyncio.ensure_future(worker.wait_for(lambda: may_go.wait(100)))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        may_go.set()
        assert await worker.wait_for(lambda: "next") == "next"

    play(story)


def test_a_stop_makes_pending_calls() -> None:
    """Pending calls are made, then the thread ends."""
    made: list[int] = []
    threads: list[threading.Thread] = []

    async def story(worker: Worker) -> None:
        for n in range(5):
            worker.do(lambda n=n: made.append(n))  # type: ignore[misc]
        worker.do(lambda: threads.append(threading.current_thread()))
        worker.stop()

    play(story)
    while not threads:
        threading.Event().wait(0.001)
    threads[0].join(100)

    assert made == list(range(5))
    assert not threads[0].is_alive()


def test_a_worker_without_calls_has_no_thread() -> None:
    """A worker starts its thread with its first call."""
    before = threading.active_count()

    async def story(worker: Worker) -> None:
        assert threading.active_count() == before

    play(story)


def test_a_closed_loop_gets_no_report() -> None:
    """A call that returns after the loop was closed is not reported."""
    may_go, has_gone = threading.Event(), threading.Event()
    worker = Worker("of-a-test")

    async def main() -> None:
        worker.do(lambda: may_go.wait(100), lambda value, error: None)
        worker.do(has_gone.set)

    asyncio.run(main())
    may_go.set()

    assert has_gone.wait(100)
    worker.stop()


def test_nothing_of_a_call_is_kept_until_the_next() -> None:
    """A call may hold a body of 64 MiB, so the worker drops it before it waits for the next."""

    class Body:
        """An object with a weak reference."""

    kept: list[weakref.ref[Body]] = []

    def make() -> Body:
        body = Body()
        kept.append(weakref.ref(body))
        return body

    async def story(worker: Worker) -> None:
        let_go = asyncio.Event()
        worker.do(make, lambda value, error: let_go.set())
        await let_go.wait()
        # The thread lets go of it before it takes another.
        await worker.wait_for(lambda: None)
        assert kept[0]() is None

    play(story)


def _raise(error: BaseException) -> None:
    raise error


def test_the_kernel_shows_what_a_thread_is_for() -> None:
    """`top -H` tells which one is busy; a name is cut to what the kernel keeps."""

    def shown() -> str:
        return Path(f"/proc/self/task/{threading.get_native_id()}/comm").read_text().strip()

    async def story() -> str:
        worker = Worker("topics-maintain-and-more")
        try:
            return str(await worker.wait_for(shown))
        finally:
            worker.stop()

    assert asyncio.run(story()) == "topics-maintain"
    with threads(1, "topics-zip") as pool:
        assert pool.submit(shown).result() == "topics-zip"


def test_a_thread_without_a_name_works() -> None:
    """Where there is no /proc, the kernel shows the process's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading, "get_native_id", lambda: "nobody")
        show_name("topics-zip")
