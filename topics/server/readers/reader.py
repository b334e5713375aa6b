"""One reader process: it carries the connections that it is given, until a request is not its own.

Owns the process: its channel to the engine's process, its follower, its connections, and its end.
It is started by `pool` and by nothing else, is told its settings over the channel, and ends with the
engine's process, however that ends.  It ignores the signals of a terminal and of a supervisor: a
stop is the engine's to say.
"""

import asyncio
import gc
import logging
import mmap
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from topics.protocol.driver.follower import Follower
from topics.protocol.driver.reply import Deliver, Ticket
from topics.protocol.driver.streams import StreamEnd
from topics.protocol.model.access import ANYONE, Caller
from topics.protocol.model.commands import GetTopic
from topics.server.access.keys import Entry
from topics.server.http.exchange import ConnectionExchange, TopicsExchange
from topics.server.http.holders import Holders
from topics.server.http.store_files import StoreFiles
from topics.server.links.link import Link
from topics.server.observing import usage
from topics.server.process import later_imports, logs
from topics.server.process.cpus import busy_poll_s
from topics.server.process.foreground import run_on_loop
from topics.server.process.parent import Parent
from topics.server.readers.arrivals import Arrivals
from topics.server.readers.assembly import ReaderParts, parts_of
from topics.server.readers.channel import Channel, Handed
from topics.server.readers.handover import Handover, ReadKind, asked
from topics.server.readers.held_files import holds_unlinked
from topics.server.readers.messages import (
    AskClients,
    Borrow,
    Crowded,
    Drain,
    Elsewhere,
    End,
    Forgotten,
    HeadsMoved,
    Hello,
    InFlightCounts,
    KeyFailures,
    Keys,
    Lent,
    ReadTimes,
    Recall,
    Release,
    Released,
    Rest,
    Returned,
    Serving,
    Stats,
    ToldClients,
    decode_hello,
    decode_to_reader,
    settings_of,
)
from topics.server.readers.service import ReaderService
from topics.server.readers.shared_heads import SharedHeadsView, heads_bytes
from topics.server.readers.shell import ReaderShell
from topics.server.service.shell import Phase
from topics.server.service.slots import Slot
from topics.server.transport.budget import Budget
from topics.server.transport.connection import Connection
from topics.server.transport.listener import max_connections
from topics.server.transport.shared import Shared

TICK_S: Final = 0.1
"""How often a reader notes that it lives, and looks at the shared heads though nobody woke it."""
STATS_TICKS: Final = 10
REST_S: Final = 0.005
"""Between two looks that nobody waits for."""
GRACE_S: Final = 4.0
"""How long requests in flight may take to complete in a stop; less than the engine waits."""
BEGINS: Final = 5
"""Attempts to read the directory: the engine may retire a file between two of its names."""
SETTLED_RUNS: Final = 64
IDLE_S: Final = 1.0
"""How long a session stays without a stream: a client that connects again finds it here."""
UNSENT_S: Final = 0.005
LETS_GO_S: Final = 0.02
EXIT_BROKEN: Final = 1

log = logging.getLogger("topics.readers")


class Reader:
    """The process's one reader.

    Args:
        hello: What the engine's process told it first.
        engine: That process.
    """

    def __init__(
        self, hello: Hello, channel_socket: socket.socket, heads: int, engine: Parent
    ) -> None:
        self._index = hello.index
        self._settings = settings_of(hello.settings)
        self._has_keys = hello.has_keys
        self._engine = engine
        self._keys: list[Entry] | None = None
        """Keys in force in the engine's process, which alone reads where they come from."""
        self._keys_told = asyncio.Event()
        self._has_begun = False
        memory = mmap.mmap(heads, heads_bytes(hello.readers))
        self._view = SharedHeadsView(memory, self._index)
        self._channel_socket = channel_socket
        self._ended = asyncio.Event()
        self._code = 0
        self._tick_handle: asyncio.TimerHandle | None = None
        self._ticks = 0
        self._is_resting = False
        """It looks again in a moment, and is not to be woken before."""
        self._is_crowded = False
        """Connections stay here, whatever they ask for."""
        self._in_flight: dict[str, int] = {}
        self._borrowed: dict[str, float] = {}
        """Sessions that are here, and when each last had a stream."""
        self._lent_sessions: dict[str, int] = {}
        """Which loan each of them is."""
        self._arrivals = Arrivals()
        self._tasks: set[asyncio.Task[None]] = set()
        self._parts: ReaderParts
        self._follower: Follower
        self._shell: ReaderShell
        self._shared: Shared
        self._link: Link
        self._service: ReaderService
        self._channel: Channel
        self._borrows: dict[int, Callable[[], None]] = {}
        """What goes on once a session that was asked for is here, or does not come."""
        self._asked = 0

    async def run(self) -> int:
        """Serve until the engine's process says to stop, or ends; returns the exit code."""
        self._channel = Channel(
            self._channel_socket,
            on_message=self._or_ends(self._on_message),
            on_handed=self._or_ends(self._on_handed),
            on_end=self._on_engine_gone,
            on_relayed=lambda data: self._link.received_all(data),
        )
        if self._has_keys:
            await self._keys_told.wait()
        await self._begin()
        self._tick()
        self._channel.send(Serving())
        later_imports.load(later_imports.OF_READERS)
        await self._ended.wait()
        return self._code

    async def _begin(self) -> None:
        settings = self._settings
        for attempt in range(BEGINS):
            parts = parts_of(settings, self._keys)
            follower = Follower(settings.limits, parts.store, moved=self._on_moved)
            shell = ReaderShell(
                settings.limits,
                parts.store,
                follower,
                self._view,
                broken=self._on_broken,
                ask=self._ask_topic,
                check=self._check_engine,
            )
            self._follower, self._shell, self._parts = follower, shell, parts
            try:
                await shell.begin()
                break
            except OSError:
                # `StoreError`s end the process; the engine starts another one.
                parts.store.close()
                if attempt == BEGINS - 1:
                    raise
        holders = Holders(settings.trusted_proxies)
        limits = parts.transport_limits(max_connections(settings.limits.max_connections))
        answers = Budget(limits.answers_bytes)
        link = self._link = Link(self._channel, answers, self._key_of, ends_with_it=True)
        service = self._service = ReaderService(shell, link, self, self._tell_reads)
        exchange = TopicsExchange(
            shell,
            parts.origins,
            parts.observer,
            holders,
            guard=parts.guard,
            trace_meta=settings.trace_meta,
            files=StoreFiles(settings.data_dir),
            service=service,
            is_strict=settings.handling == "strict",
        )
        if exchange.failures is not None:
            exchange.failures.hand_on()
        self._shared = Shared(
            exchange,
            limits=limits,
            peer=holders.peer,
            timeouts=parts.timeouts,
            busy_poll_s=busy_poll_s(settings.busy_poll_us, 1 + settings.readers),
            answers=answers,
        )
        self._shared.busy_poll.may_poll = lambda: not shell.has_threads_at_work
        self._nobody = Slot(exchange.slots, "")
        self._exchange, self._has_begun = exchange, True
        if self._keys is not None:
            exchange.put_keys(self._keys)  # others may have come while it began
        gc.freeze()
        gc.enable()

    # ------------------------------------------------------------------ the link

    def _key_of(self, caller: Caller) -> bytes:
        keys = self._exchange.keys
        return b"" if keys is None else keys.digest_of(caller)

    def _ask_topic(self, command: GetTopic, deliver: Deliver) -> Ticket:
        """The engine is asked by this process itself, whoever waits here."""
        self._tell_reads(self._shell.take_reads())
        return self._link.submit(command, deliver, self._nobody)

    def _tell_reads(self, reads: Mapping[int, int]) -> None:
        if reads:
            self._channel.send(ReadTimes(dict(reads)))

    # ------------------------------------------------------------------ the shared heads

    def _tick(self) -> None:
        self._tick_handle = asyncio.get_running_loop().call_later(TICK_S, self._tick)
        self._or_ends(self._do_by_time)()

    def _do_by_time(self) -> None:
        self._ticks += 1
        self._look()
        self._return_idle()
        self._tell_in_flight()
        self._tell_failures()
        if self._ticks % STATS_TICKS == 0:
            self._tell_stats()
            store = self._parts.store
            self._shell.read_in_thread(lambda: store.settle_flags(SETTLED_RUNS))

    def _look(self) -> None:
        """Follow, and ask to be woken when there is more."""
        if self._shell.look():
            if self._is_resting:
                return
            self._tell(waits=True)
            self._shell.look()  # what was stored before the engine could see that this one waits
        else:
            self._tell(waits=False)
            self._shell.when_current(self._look)

    def _on_wake(self) -> None:
        """There is more.  Where nobody waits for it here, the next is looked for in a while: to wake a
        process costs the engine a fifth of a write."""
        if not self._shell.is_waited_for and not self._is_resting:
            self._is_resting = True
            asyncio.get_running_loop().call_later(REST_S, self._rested)
        self._look()

    def _rested(self) -> None:
        self._is_resting = False
        self._or_ends(self._look)()

    def _tell(self, *, waits: bool) -> None:
        self._view.tell(applied=self._follower.shown.number, beat=time.monotonic_ns(), waits=waits)

    def _tell_in_flight(self) -> None:
        """What keys have in flight here counts everywhere (§11)."""
        counts = self._exchange.slots.of_keys.counts()
        if counts != self._in_flight:
            self._in_flight = counts
            self._channel.send(InFlightCounts(counts))

    def _tell_failures(self) -> None:
        """Wrong keys are counted by address, whichever process met them (§12)."""
        failures = self._exchange.failures
        counts = {} if failures is None else failures.take()
        if counts:
            self._channel.send(KeyFailures(counts))

    def _tell_stats(self) -> None:
        self._tell_reads(self._shell.take_reads())
        self._channel.send(
            Stats(
                self._shell.requests,
                self._service.asked_total,
                len(self._shared.connections),
                usage.cpu_s() or 0.0,
                self._follower.state.memory.total_bytes,
                self._parts.observer.measures.take(),
            )
        )

    # ------------------------------------------------------------------ connections

    def _on_handed(self, handed: Handed, sock: socket.socket) -> None:
        made = Connection(
            self._shared,
            lambda connection: Handover(
                connection, self._sort, returns=handed.returns, exchange=self._of_connection()
            ),
            lambda connection: later_imports.http2(connection, self._of_connection()),
        )
        if handed.lent is not None:
            self._take(handed.lent)
        self._arrivals.adopt(sock, made, handed.pending)

    def _of_connection(self) -> ConnectionExchange:
        return ConnectionExchange(self._exchange, self._service.connection())

    def _sort(self, sorting: Handover, data: bytes, at: int) -> bool:
        """Whether the connection does not go on here."""
        if self._is_crowded:
            return False
        match asked(data, at):
            case (ReadKind.SOCKET, _):
                return False
            case (ReadKind.RECORDS, name):
                if not self._shell.look():
                    if not self._shell.can_follow:
                        return self._give_back(sorting)
                    self._shell.when_current(sorting.connection.work_soon)
                    return True
                if self._shell.serves(name, is_prompt=self._service.is_prompt):
                    return False
            case (ReadKind.LIST, _) if self._service.is_prompt:
                return False
            case (ReadKind.STREAM, wid) if wid in self._borrowed:
                if not self._shell.look():
                    self._shell.when_current(sorting.connection.work_soon)
                    return True
                if self.serves(wid):
                    return False
        return self._give_back(sorting)

    # ------------------------------------------------------------------ watch sessions

    def _take(self, lent: Lent) -> None:
        """Have a session of the engine's here; one of a key that is not in force here goes back."""
        image, number = lent.image, lent.number
        assert image is not None
        owner: Caller | None = ANYONE
        if lent.entry is not None:
            keys = self._exchange.keys
            owner = None if keys is None else keys.caller_of(lent.entry)
        if owner is None:
            self._channel.send(Returned(image, number))
            return
        self._follower.streams.borrow(image, self._shell.now_ms, owner)
        self._borrowed[image.wid], self._lent_sessions[image.wid] = time.monotonic(), number

    # Implements `service.Sessions`.

    def has(self, wid: str) -> bool:
        return wid in self._borrowed

    def borrow(self, wid: str, caller: str, then: Callable[[], None]) -> None:
        self._asked += 1
        self._borrows[self._asked] = then
        self._channel.send(Borrow(self._asked, wid, caller))

    def _on_lent(self, lent: Lent) -> None:
        if lent.image is not None:
            self._take(lent)
        self._borrows.pop(lent.asked)()

    def serves(self, wid: str) -> bool:
        if self._follower.serves_session(wid):
            self._borrowed[wid] = time.monotonic()
            return True
        self._return(wid)
        return False

    def _return(self, wid: str, why: StreamEnd | None = None) -> None:
        """Give a session back, with the positions that its stream has reached."""
        del self._borrowed[wid]
        number = self._lent_sessions.pop(wid)
        image = self._follower.streams.give_back(wid, why)
        if image is not None:
            self._channel.send(Returned(image, number))
        else:
            self._channel.send(Forgotten(wid, number))

    def _end_stream(self, wid: str, number: int, why: StreamEnd) -> None:
        """The session is the engine's again: its stream here ends, and nothing of it goes back."""
        if self._lent_sessions.get(wid) != number:
            return
        del self._lent_sessions[wid], self._borrowed[wid]
        self._follower.streams.give_back(wid, why)

    def _recall(self, wid: str, number: int) -> None:
        """Another stream of the session takes over elsewhere: the one here ends, and the session goes
        back."""
        if self._lent_sessions.get(wid) != number:
            return  # it is on its way
        self._return(wid, StreamEnd.TAKEN_OVER)

    def _return_idle(self) -> None:
        """Give back the sessions that had no stream for a while."""
        now_s = time.monotonic()
        for wid, since_s in list(self._borrowed.items()):
            if self._follower.streams.is_open(wid):
                self._borrowed[wid] = now_s
            elif now_s - since_s >= IDLE_S:
                self._return(wid)

    def _give_back(self, sorting: Handover) -> bool:
        given = sorting.connection.give_away()
        if given is None:
            # An answer is still on its way to the client; or the client is gone.
            self._shell.later(UNSENT_S, sorting.connection.work_soon)
            return True
        descriptor, pending = given
        self._channel.hand(Handed(pending, returns=sorting.returns), descriptor)
        return True

    def _on_moved(self, topic_id: int) -> None:
        """A topic is the engine's from now on."""
        if self._shell.phase is Phase.STARTING:
            return  # a thread reads the directory, and nobody waits or watches yet
        self._shell.release(topic_id)
        name = self._follower.name_of(topic_id)
        assert name is not None
        self._follower.streams.end_of_topic(name, StreamEnd.MOVED)

    # ------------------------------------------------------------------ what the engine says

    def _on_message(self, data: bytes) -> None:
        match decode_to_reader(data):
            case HeadsMoved():
                self._on_wake()
            case End(wid, number, why):
                self._end_stream(wid, number, StreamEnd[why])
            case Recall(wid, number):
                self._recall(wid, number)
            case Lent() as lent:
                self._on_lent(lent)
            case Elsewhere(counts):
                self._exchange.slots.of_keys.elsewhere = counts
            case Release(number):
                self._task(self._let_go(number))
            case Rest():
                if self._shell.look():
                    self._parts.store.pass_retired()
            case Keys(entries):
                self._put_keys(entries)
            case Crowded(is_crowded):
                self._is_crowded = is_crowded
            case AskClients(number, asked):
                self._channel.send(ToldClients(number, self._exchange.clients.page(asked)))
            case Drain():
                # At once: the ends of streams that come behind it are those of a stop.
                self._shared.is_draining = True
                self._shell.drain()
                self._task(self._drain())

    def _put_keys(self, entries: list[Entry]) -> None:
        self._keys = entries
        self._keys_told.set()
        if self._has_begun:
            self._exchange.put_keys(entries)

    def _task(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self._on_broken(error)  # what the engine waits for would never come

    async def _let_go(self, number: int) -> None:
        """Hold no file that the engine has unlinked; then say so."""
        while not self._shell.look():
            await asyncio.sleep(LETS_GO_S)
        while True:
            self._follower.streams.forget_frames()
            owes = self._follower.free_some()
            self._parts.store.pass_retired()
            if not owes and holds_unlinked(self._settings.data_dir):
                self._parts.store.rest()
                gc.collect()
            if not owes and not holds_unlinked(self._settings.data_dir):
                break
            await asyncio.sleep(LETS_GO_S)
        self._channel.send(Released(number))

    async def _drain(self) -> None:
        """End as the engine's process does: the streams with their last frame."""
        quiet = asyncio.Event()
        shared = self._shared
        shared.when_quiet = quiet.set
        if shared.busy:
            try:
                async with asyncio.timeout(GRACE_S):
                    await quiet.wait()
            except TimeoutError:
                log.warning("%d connections did not end in time", shared.busy)
        # The engine's process says the last word on streams of its own.
        await _until(lambda: not self._link.has_streams)
        self._shell.stop()
        shared.drain()
        await _until(lambda: not any(each.unsent_bytes for each in shared.connections))
        self._end(0)

    # ------------------------------------------------------------------ the end

    def _check_engine(self) -> None:
        """End where the engine's process has: a stop of this one may have kept that from being heard."""
        if not self._engine.is_there:
            self._on_engine_gone()

    def _on_engine_gone(self) -> None:
        # Nothing that is shown can be vouched for any more.
        os._exit(EXIT_BROKEN)

    def _or_ends(self, call: Callable[..., None]) -> Callable[..., None]:
        """A call after whose failure this process does not go on: what it and the engine's process
        know of each other, who has which session and who waits for what, would not agree any more."""

        def made(*given: Any) -> None:
            try:
                call(*given)
            except Exception as error:
                log.exception("a fault in reader %d", self._index)
                self._on_broken(error)

        return made

    def _on_broken(self, error: Exception) -> None:
        log.warning("reader %d ends, and begins anew: %s", self._index, error)
        logging.shutdown()
        os._exit(EXIT_BROKEN)

    def _end(self, code: int) -> None:
        self._code = code
        if self._tick_handle is not None:
            self._tick_handle.cancel()
        for connection in list(self._shared.connections):
            connection.abort()
        self._ended.set()


async def _until(is_so: Callable[[], bool]) -> None:
    """Wait until it is so, or for a second."""
    for _ in range(100):
        if is_so():
            return
        await asyncio.sleep(0.01)


def main(arguments: list[str]) -> int:
    """`python -m topics.server.readers CHANNEL PAGE ENGINE`: descriptors that were inherited, and the
    process that started this one."""
    engine = Parent(int(arguments[2]))
    if not engine.is_there:
        return EXIT_BROKEN  # it ended before the kernel was asked to end this one with it
    for name in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)
    os.umask(0o077)
    channel = socket.socket(fileno=int(arguments[0]))
    heads = int(arguments[1])
    for descriptor in (channel.fileno(), heads):
        os.set_inheritable(descriptor, False)
    hello = decode_hello(_first(channel))
    logs.configure(settings_of(hello.settings).log_format)
    code = EXIT_BROKEN

    async def serve() -> None:
        nonlocal code
        code = await Reader(hello, channel, heads, engine).run()

    try:
        run_on_loop(serve())
    except Exception as error:
        log.error("reader %d cannot serve: %s", hello.index, error)
        return EXIT_BROKEN
    return code


def _first(channel: socket.socket) -> bytes:
    """The first packet, which is small."""
    channel.setblocking(True)
    packet = channel.recv(1 << 20)
    if not packet:
        sys.exit(EXIT_BROKEN)  # the engine's process has ended already
    return packet
