"""The readers of a server, seen from the engine's process: started, shown the log, given connections,
replaced, ended.

Owns the shared page and one channel to each reader.  The engine's process accepts every connection,
and gives one away between two requests when the next is a reader's; a reader gives it back when the
next is not.  A reader is never needed: without one, the engine's process serves what it would have
served.

Invariants: the page is stored before anybody is answered; a reader that does not keep up with it is
killed and replaced, and with it end its connections, whose clients resume.
"""

import asyncio
import logging
import mmap
import os
import pickle
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from typing import Any, Final, NamedTuple

from topics.protocol.decide.topics import note_read
from topics.protocol.http.metrics import Family
from topics.protocol.model.errors import Rejection
from topics.protocol.state.lent_sessions import LentSession, image_of, lend, take_back
from topics.protocol.state.watched import Stream
from topics.protocol.state.watches import Session
from topics.server.process.latecomers import http2
from topics.server.readers.channel import Channel, Handed, channel_pair
from topics.server.readers.figures import Figures, families
from topics.server.readers.moving import Arrivals
from topics.server.readers.page import Page, Timing, page_bytes
from topics.server.readers.sorting import Sorting, asked
from topics.server.runtime.runtime import Runtime
from topics.server.transport.connection import Connection
from topics.server.transport.shared import Shared
from topics.settings import TABLE, Settings

TICK_S: Final = 0.25
HANG_S: Final = 1.0
"""A reader that is behind the page and shows no life for so long is replaced."""
LIFELESS_S: Final = 10.0
"""One that shows no life for so long is replaced though there is nothing to follow."""
AGAIN_S: Final = (0.05, 0.2, 1.0, 5.0)
"""How long after its end a reader is started again, by how often it ended without a quiet time."""
QUIET_S: Final = 60.0
END_S: Final = 3.0
"""How long readers may take to end in a stop."""
RELEASE_S: Final = 5.0
"""How long readers may hold a file that was unlinked for an erasure."""
PATIENCE: Final = 8
PATIENCE_MAX: Final = 1 << 16
"""Reads in a row after which a connection that came back is given away again; four times as many at
each return, so that one that reads and writes in turn stays in one process."""
PENDING_MAX: Final = 1 << 20

log = logging.getLogger("topics.readers")


class Standing(StrEnum):
    """Where a reader's process is in its life."""

    STARTING = "starting"
    READY = "ready"
    GONE = "gone"


class _Lent(NamedTuple):
    """A session that a reader has, what stands in its place here, and which of all loans it is."""

    session: Session
    stand_in: Stream
    number: int


class _Process:
    """One reader's process."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.standing = Standing.GONE
        self.popen: subprocess.Popen[bytes] | None = None
        self.channel: Channel | None = None
        self.stats: dict[str, float] = {}
        self.begun_s = 0.0
        self.ends = 0
        self.restarts = 0
        self.requests_before = 0
        self.cpu_before_s = 0.0
        self.seen: tuple[int, int] = (0, 0)
        self.seen_s = 0.0
        self.released = 0
        self.lent: dict[str, _Lent] = {}
        self.in_flight: dict[str, int] = {}
        self.told: Counter[str] = Counter()
        """What it was told of requests in flight elsewhere."""
        self.given = 0
        """Connections that were given to it and have not come back; it says how many it has."""

    def figures(self, newest: int, page: Page) -> Figures:
        """What metrics tell of it."""
        stats = self.stats
        return Figures(
            up=self.standing is Standing.READY,
            behind=newest - page.words(self.index)[0],
            connections=int(stats.get("connections", 0)),
            hot_bytes=int(stats.get("hot_bytes", 0)),
            requests=self.requests_before + int(stats.get("requests", 0)),
            cpu_s=self.cpu_before_s + stats.get("cpu_s", 0.0),
            restarts=self.restarts,
        )


class Pool:
    """The readers of one server.

    Args:
        settings: With at least one reader.
    """

    def __init__(self, settings: Settings, runtime: Runtime) -> None:
        self._settings = settings
        self._runtime = runtime
        self._store: Any = runtime.store
        self._exchange: Any = runtime.exchange
        self._memory_file = os.memfd_create("topics-page", os.MFD_CLOEXEC)
        size = page_bytes(settings.readers)
        os.truncate(self._memory_file, size)
        self.page = Page(mmap.mmap(self._memory_file, size))
        self._processes = [_Process(index) for index in range(settings.readers)]
        self._loop: asyncio.AbstractEventLoop
        self._shared: Shared
        self._arrivals = Arrivals()
        self._tick_handle: asyncio.TimerHandle | None = None
        self._is_ending = False
        self._all_ended = asyncio.Event()
        self._release = 0
        self._loans = 0
        self._has_released = threading.Condition()

    # ------------------------------------------------------------------ life

    def start(self, shared: Shared) -> None:
        """The log is replayed: start the readers."""
        self._loop = asyncio.get_running_loop()
        self._shared = shared
        self._runtime.driver.when_shown = self.show
        self._store.when_cleared = self._wait_released
        self.show()
        for process in self._processes:
            self._start(process)
        self._tick()

    def _start(self, process: _Process) -> None:
        if self._is_ending:
            return
        ours, theirs = channel_pair()
        self.page.clear(process.index)
        process.begun_s = self._loop.time()
        process.standing = Standing.STARTING
        process.stats = {}
        process.released = self._release
        process.seen, process.seen_s = (0, 0), process.begun_s
        channel = process.channel = Channel(
            ours,
            on_message=lambda message: self._on_message(process, message),
            on_handed=lambda handed, sock: self._on_handed(process, handed, sock),
            on_end=lambda: self._on_gone(process),
            on_unsent=self._on_unsent,
        )
        values = {setting.name: getattr(self._settings, setting.name) for setting in TABLE}
        hello = {
            "index": process.index,
            "readers": len(self._processes),
            "log_format": self._settings.log_format,
            "settings": pickle.dumps(Settings(**values)),
        }
        ours.send(pickle.dumps(hello))

        def spawn() -> subprocess.Popen[bytes]:
            with theirs:
                return subprocess.Popen(
                    [
                        *(sys.executable, "-m", "topics.server.readers"),
                        *(str(theirs.fileno()), str(self._memory_file)),
                    ],
                    pass_fds=(theirs.fileno(), self._memory_file),
                    stdin=subprocess.DEVNULL,
                )

        def spawned(done: "asyncio.Future[subprocess.Popen[bytes]]") -> None:
            if done.exception() is not None:
                log.error("reader %d cannot be started: %s", process.index, done.exception())
                channel.close()
                self._on_gone(process)
                return
            popen = done.result()
            if process.channel is channel:
                process.popen = popen
            else:
                self._end(popen)  # its channel was closed meanwhile

        self._loop.run_in_executor(None, spawn).add_done_callback(spawned)

    def _on_gone(self, process: _Process) -> None:
        """A reader has ended, or its channel has: start another."""
        if process.standing is Standing.GONE:
            return
        process.standing = Standing.GONE
        process.channel = None
        for wid in list(process.lent):
            self._take_back(process, wid, None)
        process.in_flight, process.told = {}, Counter()
        self._count_in_flight()
        self._kill(process)
        with self._has_released:
            self._has_released.notify_all()
        if self._is_ending:
            if all(each.standing is Standing.GONE for each in self._processes):
                self._all_ended.set()
            return
        process.requests_before += int(process.stats.get("requests", 0))
        process.cpu_before_s += process.stats.get("cpu_s", 0.0)
        process.stats = {}
        process.restarts += 1
        lived_s = self._loop.time() - process.begun_s
        process.ends = 0 if lived_s > QUIET_S else process.ends + 1
        again_s = AGAIN_S[min(max(process.ends - 1, 0), len(AGAIN_S) - 1)]
        log.warning("reader %d has ended; another one starts", process.index)
        self._loop.call_later(again_s, self._start, process)

    def _kill(self, process: _Process) -> None:
        popen, process.popen = process.popen, None
        if popen is not None:
            self._end(popen)

    @staticmethod
    def _end(popen: "subprocess.Popen[bytes]") -> None:
        popen.kill()
        # It is dead at once, or hangs in the kernel: a thread waits for either.
        threading.Thread(target=popen.wait, name="topics-reader-end", daemon=True).start()

    def drain(self) -> None:
        """Have the readers end, their streams with a last frame."""
        if self._is_ending:
            return
        self._is_ending = True
        self._runtime.driver.when_shown = None
        if self._tick_handle is not None:
            self._tick_handle.cancel()
        for process in self._processes:
            if process.standing is Standing.STARTING:
                assert process.channel is not None
                process.channel.close()
                self._on_gone(process)
            elif process.channel is not None:
                process.channel.send({"drain": True})
        if all(each.standing is Standing.GONE for each in self._processes):
            self._all_ended.set()

    async def stop(self) -> None:
        """Wait until they have ended, or end them."""
        self.drain()
        try:
            async with asyncio.timeout(END_S):
                await self._all_ended.wait()
        except TimeoutError:
            log.warning("readers did not end in time")
        for process in self._processes:
            if process.channel is not None:
                process.channel.close()
            self._kill(process)
            process.standing = Standing.GONE
        with self._has_released:
            self._has_released.notify_all()
        os.close(self._memory_file)

    def reload(self) -> None:
        """The keys were read again."""
        for process in self._ready():
            process.channel.send({"reload": True})  # type: ignore[union-attr]

    def _ready(self) -> list[_Process]:
        return [each for each in self._processes if each.standing is Standing.READY]

    # ------------------------------------------------------------------ the page

    def show(self) -> None:
        """Store what readers may see by now, before anybody is answered.

        Never raises: where it cannot be stored, no reader may go on showing what was stored before.
        """
        try:
            self._show()
        except Exception:
            log.exception("readers cannot be shown the log any more, and end")
            self._runtime.driver.when_shown = None
            self._is_ending = True
            for process in self._processes:
                self._replace(process)

    def _show(self) -> None:
        runtime = self._runtime
        if runtime.engine.read_only:
            return  # what is shown stays as it is; what was being written may be in the log
        unit, store = runtime.engine.unit, self._store
        # Of a write that is on its way, nothing is shown, though the log may have it.
        batch = self.page.last.batch if unit.is_on_its_way else store.written_batch
        held = unit.publication.held()
        if self.page.store(batch, held, Timing(*runtime.clock.course)):
            for process in self._processes:
                if process.standing is Standing.READY and self.page.waits(process.index):
                    assert process.channel is not None
                    process.channel.send({"wake": True})

    def _tick(self) -> None:
        if self._is_ending:
            return
        self._tick_handle = self._loop.call_later(TICK_S, self._tick)
        self.show()  # the clock may have another course
        self._tell_in_flight()
        now_s = self._loop.time()
        for process in self._processes:
            if process.standing is Standing.READY and self._hangs(process, now_s):
                log.warning("reader %d hangs, and is replaced", process.index)
                assert process.channel is not None
                process.channel.close()
                self._on_gone(process)

    def _hangs(self, process: _Process, now_s: float) -> bool:
        applied, beat, _ = self.page.words(process.index)
        if (applied, beat) != process.seen:
            process.seen, process.seen_s = (applied, beat), now_s
        still_s = now_s - process.seen_s
        return still_s >= (HANG_S if applied < self.page.last.number else LIFELESS_S)

    # ------------------------------------------------------------------ connections

    def http1(self, connection: Connection) -> Sorting:
        """The speaker of a connection that was accepted here."""
        return Sorting(connection, self._sort)

    def _sort(self, sorting: Sorting, data: bytes, at: int) -> bool:
        """Whether the connection goes on in a reader."""
        what = asked(data, at)
        if what is None:
            sorting.reads = 0
            return False
        sorting.reads += 1
        if len(data) - at > PENDING_MAX:
            return False
        if what.wid:
            return self._sort_stream(sorting, what.wid)
        if sorting.reads <= self._patience(sorting) or not self._is_theirs(what.topic):
            return False
        process = self._idlest()
        return process is not None and self._give(sorting, process)

    def _give(self, sorting: Sorting, process: _Process, lent: bytes = b"") -> bool:
        given = sorting.connection.give_away()
        if given is None:
            return False
        descriptor, pending = given
        assert process.channel is not None
        process.given += 1
        handed = Handed(pending, lent=lent, returns=sorting.returns)
        process.channel.hand(handed, descriptor)
        return True

    def _sort_stream(self, sorting: Sorting, wid: str) -> bool:
        """A stream goes where its session is, which goes to a reader that can serve it."""
        session = self._runtime.engine.watches.sessions.get(wid)
        if session is None:
            return False
        for process in self._processes:
            if wid in process.lent:
                return not self._is_ending and self._give(sorting, process)
        if session.stream is not None or sorting.reads <= self._patience(sorting):
            return False
        reader = self._idlest()
        number = self._loans + 1
        image = self._image(session, number)
        if reader is None or image is None:
            return False
        self._loans = number
        watches = self._runtime.engine.watches
        stand_in = lend(watches, session, lambda: self._on_stand_in_ended(reader, wid, number))
        reader.lent[wid] = _Lent(session, stand_in, number)
        if self._give(sorting, reader, image):
            return True
        self._take_back(reader, wid, image_of(session))
        return False

    def _on_stand_in_ended(self, process: _Process, wid: str, number: int) -> None:
        """The stream in the reader is to end; the session is this process's at once."""
        lent = process.lent.get(wid)
        if lent is None or lent.number != number:
            return
        del process.lent[wid]
        # Of what the reader has sent by now only its client knows: what that remembers counts.
        lent.session.is_behind = True
        why = lent.stand_in.ended_by
        if process.channel is not None and why is not None:
            process.channel.send({"end": wid, "number": number, "why": why.name})

    def _image(self, session: Session, number: int) -> bytes | None:
        """A session to be lent; None where a reader cannot serve all of it, or where this process
        has to refuse it."""
        watches, state = self._runtime.engine.watches, self._runtime.engine.state
        try:
            watches.connection_shares.require(session.holder)
        except Rejection:
            return None
        for watched in session.watched.values():
            topic = state.topics.get(watched.name)
            if topic is None or topic.topic_id != watched.topic_id or watched.view.strong:
                return None
            if not self._is_theirs(watched.name):
                return None
        entry, keys = None, self._exchange.keys
        if keys is not None:
            entry = keys.entry_of(session.owner)
            if entry is None:
                return None
        return pickle.dumps((image_of(session), entry, number))

    def _take_back(self, process: _Process, wid: str, image: LentSession | None) -> None:
        lent = process.lent.pop(wid, None)
        if lent is not None:
            watches, now_ms = self._runtime.engine.watches, self._runtime.now_ms
            take_back(watches, lent.session, lent.stand_in, now_ms, image)

    @staticmethod
    def _patience(sorting: Sorting) -> int:
        if not sorting.returns:
            return 0
        return min(PATIENCE << (2 * (sorting.returns - 1)), PATIENCE_MAX)

    def _is_theirs(self, name: str) -> bool:
        """Whether a reader may serve a topic; it looks for itself, so this may be wrong."""
        state = self._runtime.engine.state
        topic = state.topics.get(name)
        return (
            topic is not None
            and topic.durability.is_logged
            and not topic.volatile_runs
            and not state.routers.is_derived(topic.topic_id)
        )

    def _idlest(self) -> _Process | None:
        """The reader with the fewest connections that takes another."""
        if self._is_ending:
            return None
        ready = [each for each in self._ready() if each.channel and each.channel.is_clear]
        return min(ready, key=lambda each: each.given, default=None)

    def _on_unsent(self, handed: Handed, sock: socket.socket) -> None:
        """A connection was about to go to a reader that has ended: it goes on here."""
        made = Connection(
            self._shared,
            lambda connection: Sorting(connection, self._sort, returns=handed.returns),
            http2,
        )
        self._arrivals.adopt(sock, made, handed.pending)

    def _on_handed(self, process: _Process, handed: Handed, sock: socket.socket) -> None:
        process.given -= 1
        made = Connection(
            self._shared,
            lambda connection: Sorting(connection, self._sort, returns=handed.returns + 1),
            http2,
        )
        self._arrivals.adopt(sock, made, handed.pending)

    # ------------------------------------------------------------------ what readers say

    def _on_message(self, process: _Process, message: dict[str, Any]) -> None:
        if "ready" in message:
            process.standing = Standing.READY
            process.seen_s = self._loop.time()
            process.given = 0
        elif "stats" in message:
            process.stats = message["stats"]
            process.given = int(process.stats["connections"])
            self._note_reads(message["reads"])
        elif "in_flight" in message:
            process.in_flight = message["in_flight"]
            self._count_in_flight()
        elif "returned" in message:
            image, number = pickle.loads(message["returned"]), message["number"]
            lent = process.lent.get(image.wid)
            if lent is not None and lent.number == number:
                self._take_back(process, image.wid, image)
        elif "forgotten" in message:
            lent = process.lent.get(message["forgotten"])
            if lent is not None and lent.number == message["number"]:
                self._take_back(process, message["forgotten"], None)
        elif "released" in message:
            with self._has_released:
                process.released = message["released"]
                self._has_released.notify_all()

    def _count_in_flight(self) -> None:
        """What keys have in flight in readers counts here."""
        counts = (Counter(each.in_flight) for each in self._processes)
        self._exchange.in_flight.elsewhere = sum(counts, Counter())

    def _tell_in_flight(self) -> None:
        """And in each reader, what they have in flight here and in the other readers."""
        in_flight = self._exchange.in_flight
        everywhere = Counter(in_flight.counts()) + Counter(in_flight.elsewhere)
        for process in self._ready():
            elsewhere = everywhere - Counter(process.in_flight)
            if elsewhere != process.told and process.channel is not None:
                process.told = elsewhere
                process.channel.send({"elsewhere": dict(elsewhere)})

    def _note_reads(self, reads: dict[int, int]) -> None:
        for topic_id, at_ms in reads.items():
            topic = self._runtime.engine.state.by_id.get(topic_id)
            if topic is not None and (topic.last_read_ms or 0) < at_ms:
                note_read(topic, at_ms)

    # ------------------------------------------------------------------ erasures

    def _wait_released(self) -> None:
        """*Blocking*, on a thread: no reader holds a file that was unlinked.  One that does for too
        long is ended, which closes its files."""
        with self._has_released:
            self._release += 1
            number = self._release
            self._loop.call_soon_threadsafe(self._ask_to_release, number)
            done = self._has_released.wait_for(lambda: self._are_released(number), RELEASE_S)
        if not done:
            self._loop.call_soon_threadsafe(self._end_holders, number)
            with self._has_released:
                self._has_released.wait_for(lambda: self._are_released(number), RELEASE_S)

    def _are_released(self, number: int) -> bool:
        return all(
            each.standing is Standing.GONE or each.released >= number for each in self._processes
        )

    def _ask_to_release(self, number: int) -> None:
        for process in self._processes:
            if process.standing is Standing.STARTING:
                # It may have opened anything by now.
                self._replace(process)
            elif process.channel is not None:
                process.channel.send({"release": number})

    def _end_holders(self, number: int) -> None:
        for process in self._processes:
            if process.standing is not Standing.GONE and process.released < number:
                log.warning("reader %d holds erased files, and is replaced", process.index)
                self._replace(process)

    def _replace(self, process: _Process) -> None:
        if process.channel is not None:
            process.channel.close()
        self._on_gone(process)

    # ------------------------------------------------------------------ metrics

    def families(self) -> Iterator[Family]:
        """What metrics tell of the readers."""
        newest = self.page.last.number
        return families([each.figures(newest, self.page) for each in self._processes])
