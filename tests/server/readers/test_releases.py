"""An erasure is answered when no reader holds a file that was unlinked for it. (§5)"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from topics.protocol.driver.follower import Timing
from topics.server.readers.messages import Release, Rest
from topics.server.readers.process import ReaderPhase, ReaderProcess
from topics.server.readers.releases import Releases
from topics.server.readers.shared_heads import SharedHeads, SharedHeadsView, heads_bytes


class Channel:
    """What a reader was asked, and what it does then."""

    def __init__(self, asked: Callable[[int], None]) -> None:
        self._asked = asked
        self.messages: list[Any] = []

    def send(self, message: Any) -> None:
        self.messages.append(message)
        if isinstance(message, Release):
            self._asked(message.number)


class Readers:
    """Two readers, those that were replaced, and erasures that wait for them."""

    def __init__(
        self, *, lets_go: tuple[bool, bool], release_s: float = 60.0, follow_s: float = 60.0
    ) -> None:
        self.processes = [ReaderProcess(index) for index in range(2)]
        self.replaced: list[int] = []
        self.releases = Releases(
            self.processes, asyncio.get_running_loop(), self._replace, release_s, follow_s
        )
        for process, lets in zip(self.processes, lets_go, strict=True):
            channel: Any = Channel(self._releaser(process) if lets else lambda number: None)
            process.channel, process.standing = channel, ReaderPhase.READY

    def _releaser(self, process: ReaderProcess) -> Callable[[int], None]:
        return lambda number: self.releases.released(process, number)

    def _replace(self, process: ReaderProcess) -> None:
        self.replaced.append(process.index)
        process.standing, process.channel = ReaderPhase.GONE, None
        self.releases.process_gone()

    def erased(self) -> Awaitable[None]:
        """Whether an erasure may be answered."""
        return asyncio.get_running_loop().run_in_executor(None, self.releases.cleared, True)


def run(story: Callable[[], Any]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await story()

    asyncio.run(bounded())


def page_of(*applied: int) -> SharedHeads:
    """What readers have applied of a page that was stored three times."""
    memory: Any = bytearray(heads_bytes(len(applied)))
    page = SharedHeads(memory)
    for batch in (1, 2, 3):
        page.store(batch, {}, Timing())
    for reader, number in enumerate(applied):
        SharedHeadsView(memory, reader).tell(applied=number, beat=1, waits=False)
    return page


def test_a_file_stays_until_readers_know_that_it_goes() -> None:
    """A reader that reads from it opens it then."""

    async def story() -> None:
        readers = Readers(lets_go=(True, True))
        page = page_of(3, 2)
        loop = asyncio.get_running_loop()
        waiting = loop.run_in_executor(None, readers.releases.unlinking, page)
        await asyncio.wait([waiting], timeout=0.02)
        assert not waiting.done()
        SharedHeadsView(page._memory, 1).tell(applied=3, beat=2, waits=True)
        await waiting
        assert readers.replaced == []

    run(story)


@pytest.mark.parametrize("standing", [ReaderPhase.STARTING, ReaderPhase.GONE])
def test_a_file_stays_for_no_reader_that_does_not_serve(standing: ReaderPhase) -> None:
    """It has begun to read nothing; or it has ended meanwhile."""

    async def story() -> None:
        readers = Readers(lets_go=(True, True))
        loop = asyncio.get_running_loop()
        waiting = loop.run_in_executor(None, readers.releases.unlinking, page_of(3, 0))
        await asyncio.wait([waiting], timeout=0.02)
        assert not waiting.done()
        readers.processes[1].standing = standing
        readers.releases.process_gone()
        await waiting

    run(story)


def test_a_file_does_not_stay_for_ever() -> None:
    """For a reader that lives and does not come further: it begins anew where it misses the file."""

    async def story() -> None:
        readers = Readers(lets_go=(True, True), follow_s=0.01)
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, readers.releases.unlinking, page_of(3, 2))

    run(story)


def test_whether_all_have_read_the_log_is_told_of_a_moment() -> None:
    """What is stored afterwards does not count, nor does a reader that does not serve."""

    async def story() -> None:
        readers = Readers(lets_go=(True, True))
        page = page_of(3, 2)
        is_read = readers.releases.is_read(page)
        assert not is_read()
        page.store(4, {}, Timing())
        SharedHeadsView(page._memory, 1).tell(applied=3, beat=1, waits=False)
        assert is_read()
        later = readers.releases.is_read(page)
        assert not later()
        for process in readers.processes:
            process.standing = ReaderPhase.STARTING
        assert later()

    run(story)


def test_it_waits_for_every_reader() -> None:
    """Each is asked once, and says that it holds nothing."""

    async def story() -> None:
        readers = Readers(lets_go=(True, False))
        waiting = asyncio.ensure_future(readers.erased())
        while readers.processes[0].released < 1:
            await asyncio.sleep(0)
        assert not waiting.done()
        readers.releases.released(readers.processes[1], 1)
        await waiting
        assert readers.replaced == []
        assert readers.releases.number == 1

    run(story)


def test_a_reader_that_does_not_let_go_is_replaced() -> None:
    """Its end closes its files, so the erasure is answered all the same."""

    async def story() -> None:
        readers = Readers(lets_go=(True, False), release_s=0.01)
        await readers.erased()
        assert readers.replaced == [1]

    run(story)


def test_a_reader_that_has_ended_holds_nothing() -> None:
    """Nobody waits for it."""

    async def story() -> None:
        readers = Readers(lets_go=(True, False))
        waiting = asyncio.ensure_future(readers.erased())
        readers._replace(readers.processes[1])
        await waiting

    run(story)


def test_a_reader_that_is_starting_is_asked_when_it_serves() -> None:
    """It may have opened any file, and takes no message yet.  To start it anew would keep it from
    ever serving where erasures come sooner than it starts."""

    async def story() -> None:
        readers = Readers(lets_go=(True, True))
        late = readers.processes[1]
        late.standing = ReaderPhase.STARTING
        waiting = asyncio.ensure_future(readers.erased())
        while readers.processes[0].released < 1:
            await asyncio.sleep(0)
        assert not waiting.done()

        late.standing = ReaderPhase.READY
        readers.releases.process_ready(late)

        await waiting
        assert readers.replaced == []
        channel: Any = late.channel
        assert channel.messages == [Release(1)]
        readers.releases.process_ready(late)
        assert channel.messages == [Release(1)]

    run(story)


def test_one_that_starts_for_too_long_is_replaced() -> None:
    """As one that does not let go."""

    async def story() -> None:
        readers = Readers(lets_go=(True, True), release_s=0.01)
        readers.processes[1].standing = ReaderPhase.STARTING
        await readers.erased()
        assert readers.replaced == [1]

    run(story)


def test_nothing_waits_for_space_that_is_given_back() -> None:
    """Readers that serve are told to close what they do not read; none is asked, and none ends."""

    async def story() -> None:
        readers = Readers(lets_go=(False, False))
        readers.processes[1].standing = ReaderPhase.STARTING
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, readers.releases.cleared, False)
        serving, starting = (process.channel for process in readers.processes)
        told: Any = serving
        while not told.messages:
            await asyncio.sleep(0)
        assert told.messages == [Rest()]
        assert starting.messages == []  # type: ignore[union-attr]
        assert (readers.replaced, readers.releases.number) == ([], 0)

    run(story)


@pytest.mark.parametrize("newest_first", [False, True])
def test_who_let_go_of_a_later_erasure_did_of_an_earlier_one(newest_first: bool) -> None:
    """Erasures may wait at the same time; one answer is enough for those before it."""

    async def story() -> None:
        readers = Readers(lets_go=(False, False))
        both = [asyncio.ensure_future(readers.erased()) for _ in range(2)]
        while readers.releases.number < 2:
            await asyncio.sleep(0)
        for process in readers.processes:
            for number in (2,) if newest_first else (1, 2):
                readers.releases.released(process, number)
        await asyncio.gather(*both)

    run(story)


def test_readers_that_were_stopped_with_the_engine_are_given_their_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A container that is paused for an hour while an erasure waits: the reader answers afterwards, and is
    not replaced."""
    times = iter(range(0, 10**9, 3_600_000))
    monkeypatch.setattr("topics.server.readers.releases._now_ms", lambda: next(times))

    async def story() -> None:
        readers = Readers(lets_go=(True, False), release_s=5.0)
        waits = readers.erased()
        while not readers.releases.number:
            await asyncio.sleep(0)
        readers.releases.released(readers.processes[1], readers.releases.number)
        await waits
        assert readers.replaced == []

    run(story)
