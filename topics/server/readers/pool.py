"""The readers of a server, seen from the engine's process: started, shown the log, given connections,
replaced, ended.  Implements `ports.LogFollowers`.

Owns the shared heads and which process gets a connection.  The engine's process accepts every
connection, and gives one away between two requests when the next is a reader's; a reader gives it back
when the next is not, unless a crowd writes (`crowd`).  One that speaks HTTP/2 is given away at its begin, and stays: what is not the
reader's comes back over its relay.  A reader is never needed: without one, the engine's process serves
what it would have served.

Invariants: the shared heads are stored before anybody is answered; a reader that does not keep up with it is
killed and replaced, and with it end its connections, whose clients resume.
"""

import asyncio
import logging
import mmap
import os
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

from topics.protocol.driver.follower import Timing
from topics.protocol.driver.loop_time import LoopTime
from topics.protocol.driver.streams import Streams
from topics.protocol.model.access import Caller
from topics.server.links.desk import Desk
from topics.server.links.served_streams import STREAMS
from topics.server.observing.metrics import Family
from topics.server.process.later_imports import http2
from topics.server.readers.arrivals import Arrivals
from topics.server.readers.channel import Channel, Handed, require_channels
from topics.server.readers.clients import ReaderClients
from topics.server.readers.crowd import Crowd
from topics.server.readers.early_handover import EarlyHandover
from topics.server.readers.figures import families
from topics.server.readers.handover import Handover, ReadKind, asked, may_write
from topics.server.readers.lent_sessions import LentSessions
from topics.server.readers.messages import (
    Borrow,
    Crowded,
    Drain,
    Elsewhere,
    Forgotten,
    HeadsMoved,
    Hello,
    InFlightCounts,
    KeyFailures,
    Keys,
    Lent,
    ReadTimes,
    Released,
    Returned,
    Serving,
    Stats,
    ToldClients,
    decode_from_reader,
    pack_settings,
)
from topics.server.readers.process import ReaderPhase, ReaderProcess
from topics.server.readers.releases import Releases
from topics.server.readers.shared_heads import SharedHeads, heads_bytes, shared_file
from topics.server.runtime.runtime import Runtime
from topics.server.service.service import LocalService
from topics.server.transport.connection import Connection
from topics.server.transport.shared import Shared
from topics.settings import Settings

TICK_S: Final = 0.25
"""Between two looks at the readers.  No more counts of a longer pause: the readers were stopped, too, as
when a container is paused, and have yet to show that they live."""
END_S: Final = 3.0
"""How long readers may take to end in a stop."""
PATIENCE: Final = 8
PATIENCE_MAX: Final = 1 << 16
"""Reads in a row after which a connection that came back is given away again; four times as many at
each return, so that one that reads and writes in turn stays in one process."""
PENDING_MAX: Final = 1 << 20

log = logging.getLogger("topics.readers")


class Pool:
    """The readers of one server.

    Args:
        settings: With at least one reader.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        require_channels()
        size = heads_bytes(settings.readers)
        self._memory_file = shared_file(size)
        self.heads = SharedHeads(mmap.mmap(self._memory_file, size))
        self._processes = [ReaderProcess(index) for index in range(settings.readers)]
        self._desks: dict[int, Desk] = {}
        """What each reader asks for, by its place."""
        self._clients = ReaderClients(self._processes, self._desks)
        self._is_begun = False
        """The runtime is known, and its readers were started: what is declared below has values."""
        self._runtime: Runtime
        self._streams: Streams
        self._store: Any
        self._exchange: Any
        self._lent_sessions: LentSessions
        self._releases: Releases
        self._loop: asyncio.AbstractEventLoop
        self._shared: Shared
        self._arrivals = Arrivals()
        self._crowd = Crowd()
        self._tick_handle: asyncio.TimerHandle | None = None
        self._ran = LoopTime(int(TICK_S * 1000))
        self._is_ending = False
        self._is_stopped = False
        self._all_ended = asyncio.Event()

    # ------------------------------------------------------------------ life

    def start(self, runtime: Runtime, shared: Shared) -> None:
        """The log of the runtime is replayed: start the readers."""
        self._loop = asyncio.get_running_loop()
        self._runtime, self._store = runtime, runtime.store
        self._streams = Streams(runtime.engine)
        self._exchange = runtime.exchange
        self._exchange.connected.readers = self._clients
        self._shared = shared
        self._lent_sessions = LentSessions(runtime, lambda: self._exchange.keys, self._may_serve)
        self._releases = Releases(self._processes, self._loop, self._replace)
        self._is_begun = True
        self.shown()
        for process in self._processes:
            self._start(process)
        self._tick()

    def _start(self, process: ReaderProcess) -> None:
        if self._is_ending:
            return
        self.heads.clear(process.index)
        process.released = self._releases.number
        has_keys = self._exchange.keys is not None
        settings = pack_settings(self._settings)
        hello = Hello(process.index, len(self._processes), has_keys, settings)

        def make_channel(ours: socket.socket) -> Channel:
            channel = Channel(
                ours,
                on_message=lambda message: self._on_message(process, message),
                on_handed=lambda handed, sock: self._on_handed(process, handed, sock),
                on_end=lambda: self._on_gone(process),
                on_unsent=self._on_unsent,
                on_relayed=lambda data: desk.received_all(data),
            )
            desk = Desk(
                self._shared,
                channel,
                LocalService(self._runtime),
                self._exchange.slots,
                self._caller_of,
                STREAMS,
                self._exchange.reporters(),
            )
            self._desks[process.index] = desk
            return channel

        process.start(hello, self._memory_file, make_channel, failed=lambda: self._on_gone(process))
        self._tell_keys(process)

    def _tell_keys(self, process: ReaderProcess) -> None:
        keys = self._exchange.keys
        if keys is not None:
            process.send(Keys(keys.entries))

    def _caller_of(self, digest: bytes) -> Caller | None:
        """A reader has judged the key; what it may do is looked up here."""
        keys = self._exchange.keys
        caller: Caller | None = None if keys is None else keys.by_digest(digest)
        return caller

    def _on_gone(self, process: ReaderProcess) -> None:
        """A reader has ended, or its channel has: start another."""
        if process.standing is ReaderPhase.GONE:
            return
        again_s = process.gone(self._loop.time())
        self._lent_sessions.reader_gone(process)
        self._desks.pop(process.index).close()
        self._clients.gone(process.index)
        self._count_in_flight()
        self._releases.process_gone()
        if self._is_ending:
            self._note_end()
            return
        process.restarts += 1
        log.warning("reader %d has ended; another one starts", process.index)
        self._loop.call_later(again_s, self._start, process)

    def _note_end(self) -> None:
        if all(each.standing is ReaderPhase.GONE for each in self._processes):
            self._all_ended.set()

    def _replace(self, process: ReaderProcess) -> None:
        if process.channel is not None:
            process.channel.close()
        self._on_gone(process)

    def drain(self) -> None:
        """Have the readers end, their streams with a last frame."""
        if self._is_ending:
            return
        self._is_ending = True
        if self._tick_handle is not None:
            self._tick_handle.cancel()
        for process in self._processes:
            if process.standing is ReaderPhase.STARTING:
                self._replace(process)
            else:
                process.send(Drain())
        self._note_end()

    async def stop(self) -> None:
        """Wait until they have ended, or end them.  May be called again."""
        if self._is_stopped:
            return
        self._is_stopped = True
        self.drain()
        try:
            async with asyncio.timeout(END_S):
                await self._all_ended.wait()
        except TimeoutError:
            log.warning("readers did not end in time")
        for process in self._processes:
            self._replace(process)
        os.close(self._memory_file)

    def dropping(self) -> None:
        if self._is_begun:
            self._releases.unlinking(self.heads)

    def reading(self) -> Callable[[], bool]:
        return self._releases.is_read(self.heads) if self._is_begun else _have_read

    def cleared(self, wholly: bool) -> None:
        """Readers are shown first what the files ended with."""
        if self._is_begun:
            self._loop.call_soon_threadsafe(self._show)
            self._releases.cleared(wholly)

    def reload(self) -> None:
        """The keys were read again: all readers have those in force, one that is just starting too."""
        for process in self._processes if self._is_begun else ():
            self._tell_keys(process)

    def _ready(self) -> list[ReaderProcess]:
        return [each for each in self._processes if each.standing is ReaderPhase.READY]

    # ------------------------------------------------------------------ the shared heads

    def shown(self) -> None:
        if self._is_begun and not self._is_ending:
            self._crowd.turn()
            self._show()

    def _show(self) -> None:
        """Store what readers may see by now.

        Never raises: where it cannot be stored, no reader may go on showing what was stored before.
        """
        try:
            self._store_heads()
        except Exception:
            log.exception("readers cannot be shown the log any more, and end")
            self._is_ending = True
            for process in self._processes:
                self._replace(process)

    def _store_heads(self) -> None:
        runtime = self._runtime
        if runtime.engine.read_only:
            return  # what is shown stays as it is; what was being written may be in the log
        # Of a write that is on its way, nothing is shown, though the log may have it.
        is_writing = runtime.engine.is_writing
        batch = self.heads.last.batch if is_writing else self._store.written_batch
        held = runtime.engine.held_heads()
        if self.heads.store(batch, held, Timing(*runtime.clock.course)):
            for process in self._processes:
                if process.standing is ReaderPhase.READY and self.heads.waits(process.index):
                    process.send(HeadsMoved())

    def _tick(self) -> None:
        if self._is_ending:
            return
        if self._runtime.engine.read_only:
            # They read text in the log, which the disk may have lost; this process has it in memory.
            log.warning("the log is read-only: readers end, and this process serves alone")
            self.drain()
            return
        self._tick_handle = self._loop.call_later(TICK_S, self._tick)
        self._show()  # the clock may have another course
        self._tell_in_flight()
        for desk in self._desks.values():
            self._crowd.came(*desk.take_writes())
        if self._crowd.tick():
            self._tell_crowd(self._ready())
        ran_ms = self._ran.look(int(self._loop.time() * 1000))
        for process in self._ready():
            if process.hangs(self.heads, ran_ms):
                log.warning("reader %d hangs, and is replaced", process.index)
                self._replace(process)

    def _tell_crowd(self, processes: list[ReaderProcess]) -> None:
        for process in processes:
            process.send(Crowded(self._crowd.is_here))

    # ------------------------------------------------------------------ connections

    def http1(self, connection: Connection) -> Handover:
        """The speaker of a connection that was accepted here."""
        return Handover(connection, self._sort)

    def http2(self, connection: Connection) -> EarlyHandover:
        """The same of one that speaks HTTP/2: it goes to a reader as a whole."""
        return EarlyHandover(connection, self._pass, http2)

    def _pass(self, connection: Connection) -> bool:
        process = self._idlest()
        return process is not None and self._give(connection, process)

    def _sort(self, sorting: Handover, data: bytes, at: int) -> bool:
        """Whether the connection goes on in a reader."""
        what = asked(data, at) if self._is_begun else None
        if what is None:
            sorting.reads = 0
            return may_write(data, at) and self._sort_write(sorting, len(data) - at)
        sorting.reads += 1
        if len(data) - at > PENDING_MAX:
            return False
        if what.kind is ReadKind.SOCKET:
            idlest = self._idlest()
            return idlest is not None and self._give_sorted(sorting, idlest)
        if what.kind is ReadKind.STREAM:
            return self._sort_stream(sorting, what.name)
        if sorting.reads <= patience(sorting.returns):
            return False
        if what.kind is ReadKind.RECORDS and not self._may_serve(what.name):
            return False
        process = self._idlest()
        return process is not None and self._give_sorted(sorting, process)

    def _sort_write(self, sorting: Handover, size: int) -> bool:
        """A write is the engine's, unless a crowd writes: then a reader parses it."""
        crowd = self._crowd
        is_first = sorting.wrote_in != crowd.ticks
        sorting.wrote_in = crowd.ticks
        crowd.came(1, is_first)
        if not crowd.is_here or size > PENDING_MAX:
            return False
        process = self._idlest()
        # Its way back is no sign that it reads and writes in turn.
        return process is not None and self._give(
            sorting.connection, process, returns=sorting.returns - 1
        )

    def _sort_stream(self, sorting: Handover, wid: str) -> bool:
        """A stream goes where its session is, which goes to a reader that can serve it."""
        if self._streams.topics_of(wid) is None:
            return False
        holder = self._lent_sessions.holder_of(wid)
        if holder is not None:
            return not self._is_ending and self._give_sorted(sorting, holder)
        if self._streams.is_open(wid) or sorting.reads <= patience(sorting.returns):
            return False
        process = self._idlest()
        lent = None if process is None else self._lent_sessions.lend(wid, process)
        if process is None or lent is None:
            return False
        if self._give_sorted(sorting, process, lent):
            return True
        self._lent_sessions.undo(wid)
        return False

    def _give_sorted(
        self, sorting: Handover, process: ReaderProcess, lent: Lent | None = None
    ) -> bool:
        return self._give(sorting.connection, process, lent, sorting.returns)

    def _give(
        self,
        connection: Connection,
        process: ReaderProcess,
        lent: Lent | None = None,
        returns: int = 0,
    ) -> bool:
        given = connection.give_away()
        if given is None:
            return False
        descriptor, pending = given
        assert process.channel is not None
        process.given += 1
        handed = Handed(pending, lent=lent, returns=returns)
        process.channel.hand(handed, descriptor)
        return True

    def _lend(self, process: ReaderProcess, borrow: Borrow) -> None:
        """A reader asks for a session, to serve a stream of it over HTTP/2.  One that another reader
        has comes back first, and its stream there ends."""
        wid, channel = borrow.wid, process.channel

        def lend() -> None:
            if process.channel is not channel:
                return  # the reader that asked has ended meanwhile
            lent = None
            if not self._is_ending and not self._streams.is_open(wid):
                lent = self._lent_sessions.lend(wid, process, borrow.asked)
            process.send(lent or Lent(borrow.asked))

        owner = self._streams.owner_of(wid)
        if owner is not None and owner.name == borrow.caller:
            self._lent_sessions.recall(wid, lend)
        else:
            process.send(Lent(borrow.asked))

    def _may_serve(self, name: str) -> bool:
        """Whether a reader may serve a topic; it looks for itself, so this may be wrong."""
        return self._runtime.engine.is_logged(name)

    def _idlest(self) -> ReaderProcess | None:
        """The reader with the fewest connections that takes another."""
        if self._is_ending:
            return None
        takers = (each for each in self._processes if each.takes)
        return min(takers, key=lambda each: each.given, default=None)

    def _on_unsent(self, handed: Handed, sock: socket.socket) -> None:
        """A connection was about to go to a reader that has ended: it goes on here."""
        self._adopt(handed, sock, handed.returns)

    def _on_handed(self, process: ReaderProcess, handed: Handed, sock: socket.socket) -> None:
        process.given -= 1
        self._adopt(handed, sock, handed.returns + 1)

    def _adopt(self, handed: Handed, sock: socket.socket, returns: int) -> None:
        made = Connection(
            self._shared,
            lambda connection: Handover(connection, self._sort, returns=returns),
            self.http2,
        )
        self._arrivals.adopt(sock, made, handed.pending)

    # ------------------------------------------------------------------ what readers say

    def _on_message(self, process: ReaderProcess, data: bytes) -> None:
        match decode_from_reader(data):
            case Serving():
                process.ready(self._ran.ms)
                self._releases.process_ready(process)
                self._tell_in_flight()  # before any connection goes there
                self._tell_crowd([process])
            case Stats() as stats:
                process.stats = stats
                process.given = stats.connections
                self._exchange.measures.add(stats.answers)
            case ReadTimes(at_ms):
                for topic_id, ms in at_ms.items():
                    self._runtime.engine.note_read(topic_id, ms)
            case InFlightCounts(counts):
                process.in_flight = counts
                self._count_in_flight()
                self._tell_in_flight()
            case KeyFailures(counts):
                if self._exchange.failures is not None:
                    self._exchange.failures.note_all(counts)
            case Borrow() as borrow:
                self._lend(process, borrow)
            case Returned() as returned:
                self._lent_sessions.returned(process, returned)
            case Forgotten() as forgotten:
                self._lent_sessions.forgotten(process, forgotten)
            case Released(number):
                self._releases.released(process, number)
            case ToldClients() as told:
                self._clients.told(process.index, told)

    def _count_in_flight(self) -> None:
        """What keys have in flight in readers counts here."""
        counts = (Counter(each.in_flight) for each in self._processes)
        self._exchange.slots.of_keys.elsewhere = sum(counts, Counter())

    def _tell_in_flight(self) -> None:
        """And in each reader, what they have in flight here and in the other readers."""
        in_flight = self._exchange.slots.of_keys
        everywhere = Counter(in_flight.counts()) + Counter(in_flight.elsewhere)
        for process in self._ready():
            elsewhere = everywhere - Counter(process.in_flight)
            if elsewhere != process.told:
                process.told = elsewhere
                process.send(Elsewhere(dict(elsewhere)))

    # ------------------------------------------------------------------ metrics

    def families(self) -> Iterator[Family]:
        """What metrics tell of the readers."""
        newest = self.heads.last.number
        return families([each.figures(newest, self.heads) for each in self._processes])


def _have_read() -> bool:
    """No reader has been started."""
    return True


def patience(returns: int) -> int:
    """After how many reads in a row a connection is given away that came back so often; less than 0 of one
    that was given for a crowd, and did not arrive."""
    return min(PATIENCE << (2 * (returns - 1)), PATIENCE_MAX) if returns > 0 else 0
