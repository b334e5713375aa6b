"""The language of transcripts, and the world that runs them.

A transcript is a list of commands, each followed by its results, one a line: a word and a JSON
object.  A result must have the fields of that object; other fields are not compared, lists are
compared as a whole.  Lines that begin with `#` are comments.

    POST /v0/topics/jobs {"records": [{"data": 1}]}     a request, as HTTP has it
    201 {"seqs": [1]}
    POST /v0/topics/jobs idempotency-key:k {...}        headers come before the body
    ASK poll POST /v0/topics/jobs/diff {"wait_ms": 10}  a request that may wait
    waits
    OPEN tail GET /v0/watch/<wid>                       a stream, or with /v0/ws a WebSocket
    200
    READ tail                                           all results so far, or `nothing`
    record {"id": {"jobs": 1}, "topic": "jobs"}
    SEND socket {"op": "ping"}                          a message to a WebSocket
    CLOSE tail                                          the client disconnects
    WAIT 1000                                           advances the clock, milliseconds
    RESTART                                             a clean stop and a start
    KILL                                                the process dies, the kernel goes on
    POWER-CUT                                           keeps only what was synced
    POWER-CUT torn                                      loses only the last sector written
    started {"clean": false, "same_boot": false}
    CHECKPOINT                                          a round of maintenance with a checkpoint
    FAIL write                                          the next write fails (or `sync`)
    FULL                                                the disk has no space left
    ROOM                                                the disk has space again
    LIMITS {"max_topics": 2}                            an empty server with these limits

The first `"<name>"` in a result matches any string and binds it; later ones must equal it, and
`<name>` in a command stands for it.  `"<absent>"` means that the field must be missing.  `<100>` in a
command is a hundred letters.

The exchange, driver, engine and store are the real ones.  The files are simulated, only `WAIT` moves
the clock, and there are no threads.
"""

import asyncio
import json
import random
import re
from base64 import urlsafe_b64decode
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import msgspec
from sim.files import Fault, SimFiles

from topics.protocol.driver.inline_host import InlineHost
from topics.protocol.driver.reply import Deliver, Reply, Ticket
from topics.protocol.model.commands import Command
from topics.protocol.model.errors import StoreError
from topics.protocol.model.limits import Limits
from topics.protocol.model.moment import Moment
from topics.protocol.model.ports import Recovery
from topics.protocol.model.records import Buffer
from topics.server.http.exchange import TopicsExchange
from topics.server.http.interface import Answer, Head, Socket, Source, Streaming
from topics.server.service.shell import Phase, Process
from topics.store.layout import SECTOR, log_name, numbers
from topics.store.store import DiskStore

T = TypeVar("T")

START_MS = 1_750_000_000_000
WAL_BYTES = 64 << 10
TURNS = 30
"""Turns of the event loop after which every task that is ready has run."""

METHODS = ("GET", "HEAD", "PUT", "POST", "PATCH", "DELETE", "OPTIONS")
VERBS = (
    *("ASK", "OPEN", "SEND", "READ", "CLOSE", "WAIT", "RESTART", "KILL", "POWER-CUT"),
    *("CHECKPOINT", "FAIL", "FULL", "ROOM", "LIMITS"),
)
COMMANDS = {*METHODS, *VERBS}

ABSENT = "<absent>"


@dataclass(frozen=True)
class Line:
    """One result of a command: a status or an event's name, and its document, if any."""

    word: str
    document: dict[str, Any] | None = None

    @classmethod
    def parse(cls, text: str) -> "Line":
        word, _, rest = text.partition(" ")
        return cls(word, json.loads(rest) if rest else None)

    def __str__(self) -> str:
        if self.document is None:
            return self.word
        return f"{self.word} {json.dumps(self.document, ensure_ascii=False)}"


NOTHING = [Line("nothing")]


# -- a script --------------------------------------------------------------------------------------


@dataclass
class Step:
    """A command and the results it must have; `at` is the command's line number, from 1."""

    at: int
    command: str
    wanted: list[Line] = field(default_factory=list)


def parse(text: str) -> list[Step]:
    """The steps of a transcript.  Raises ValueError for a result without a command."""
    steps: list[Step] = []
    for at, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        if line.split(" ", 1)[0] in COMMANDS:
            steps.append(Step(at, line))
        elif steps:
            steps[-1].wanted.append(Line.parse(line))
        else:
            raise ValueError(f"line {at} is no command: {line}")
    return steps


class Names:
    """The strings that `<name>` is bound to."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def put_in(self, text: str) -> str:
        def meant(found: re.Match[str]) -> str:
            name = found[1]
            return "x" * int(name) if name.isdigit() else self._known.get(name, found[0])

        return re.sub(r"<(\w+)>", meant, text)

    def holds(self, wanted: str, found: object) -> bool:
        """Whether a string equals what is wanted; binds an unbound name."""
        name = re.fullmatch(r"<(\w+)>", wanted)
        if name is None:
            return found == wanted
        return isinstance(found, str) and self._known.setdefault(name[1], found) == found


def lacks(found: Any, wanted: Any, names: Names, where: str = "") -> str:
    """The first difference between `found` and `wanted`, as text; empty if there is none."""
    if isinstance(wanted, dict):
        if not isinstance(found, dict):
            return f"{where}: {found!r} is no object"
        for key, value in wanted.items():
            if value == ABSENT:
                if key in found:
                    return f"{where}.{key} is there: {found[key]!r}"
                continue
            if key not in found:
                return f"{where}.{key} is missing in {found}"
            if trouble := lacks(found[key], value, names, f"{where}.{key}"):
                return trouble
        return ""
    if isinstance(wanted, list):
        if not isinstance(found, list) or len(found) != len(wanted):
            return f"{where}: {found!r}, not {wanted!r}"
        each = enumerate(zip(found, wanted, strict=True))
        return next((t for i, (f, w) in each if (t := lacks(f, w, names, f"{where}[{i}]"))), "")
    if isinstance(wanted, str):
        return "" if names.holds(wanted, found) else f"{where}: {found!r}, not {wanted!r}"
    is_same = type(found) is type(wanted) and found == wanted
    return "" if is_same else f"{where}: {found!r}, not {wanted!r}"


def differs(found: list[Line], wanted: list[Line], names: Names) -> str:
    """The first difference between two lists of results, as text; empty if there is none."""
    if [line.word for line in found] != [line.word for line in wanted]:
        return "came:\n" + "\n".join(map(str, found))
    for line, want in zip(found, wanted, strict=True):
        if want.document is not None and (
            trouble := lacks(line.document, want.document, names, line.word)
        ):
            return trouble
    return ""


def shaped(found: Any, wanted: Any) -> Any:
    """`found` reduced to the fields of `wanted`; names stay names."""
    if isinstance(found, dict) and isinstance(wanted, dict):
        each = {key: shaped(found.get(key, ABSENT), wanted[key]) for key in wanted}
        return {k: v for k, v in each.items() if v != ABSENT or wanted[k] == ABSENT}
    if isinstance(found, list) and isinstance(wanted, list):
        more = [None] * (len(found) - len(wanted))
        return [shaped(f, w) for f, w in zip(found, [*wanted, *more], strict=False)]
    is_name = isinstance(wanted, str) and wanted != ABSENT and re.fullmatch(r"<\w+>", wanted)
    return wanted if is_name and isinstance(found, str) else found


def rewritten(text: str) -> str:
    """The transcript with the results that its commands have now, in the fields that it names."""
    lines = text.splitlines()
    out: list[str] = []
    names = Names()
    end = 0
    with World() as world:
        for step in parse(text):
            out += lines[end : step.at]
            end = step.at + _count_of_answers(lines, step.at)
            found = world.do(names.put_in(step.command))
            wanted: list[Line | None] = [*step.wanted, *[None] * len(found)]
            for line, want in zip(found, wanted, strict=False):
                if want is not None and want.word == line.word:
                    document = None
                    if want.document is not None:
                        lacks(line.document, want.document, names)
                        document = shaped(line.document, want.document)
                    line = Line(line.word, document)
                out.append(str(line))
    return "\n".join([*out, *lines[end:]]) + "\n"


def _count_of_answers(lines: list[str], begin: int) -> int:
    """How many lines from index `begin` on are results."""
    count = 0
    for line in lines[begin:]:
        if not line.strip() or line.startswith("#") or line.split(" ", 1)[0] in COMMANDS:
            break
        count += 1
    return count


# -- the world -------------------------------------------------------------------------------------


class World:
    """A data directory, the processes that run on it one after the other, and their clients."""

    def __init__(self) -> None:
        self.files = SimFiles()
        self.limits = Limits()
        self.shell: _Shell
        self._loop = _Loop(lambda: (self.shell.now_ms - START_MS) / 1000)
        self._clients: dict[str, _Poll | _Stream] = {}
        self._verbs: dict[str, Callable[[str], list[Line]]] = {
            "ASK": self._ask,
            "OPEN": self._open,
            "SEND": self._send,
            "READ": self._read,
            "CLOSE": self._close,
            "WAIT": self._wait,
            "RESTART": self._restart,
            "KILL": self._kill,
            "POWER-CUT": self._power_cut,
            "CHECKPOINT": self._checkpoint,
            "FAIL": self._fail,
            "FULL": self._full,
            "ROOM": self._room,
            "LIMITS": self._limit,
        }
        self._start(START_MS)

    def __enter__(self) -> "World":
        return self

    def __exit__(self, *_: object) -> None:
        for client in self._clients.values():
            client.close()
        self._turn()
        self._loop.close()

    def do(self, command: str) -> list[Line]:
        """Carry out one command and return its results."""
        verb, _, rest = command.partition(" ")
        if verb in METHODS:
            return self._request(command).take()
        found = self._verbs[verb](rest)
        self._turn()
        return found

    def _turn(self) -> None:
        """Run every task that is ready."""

        async def turns() -> None:
            for _ in range(TURNS):
                await asyncio.sleep(0)
                self.shell.settle()

        self._loop.run_until_complete(turns())

    # -- clients -------------------------------------------------------------------------------

    def _request(self, request: str) -> "_Poll":
        head, body = _parse_request(request)
        begun = self.shell.exchange.begin(head)
        found = begun if isinstance(begun, Answer) else begun.finish([body] if body else [])
        assert not isinstance(found, Streaming) or found.feed is None, "OPEN a stream"
        poll = _Poll(found)
        self._turn()
        return poll

    def _ask(self, rest: str) -> list[Line]:
        name, _, request = rest.partition(" ")
        poll = self._clients[name] = self._request(request)
        return poll.take() if poll.is_answered else [Line("waits")]

    def _open(self, rest: str) -> list[Line]:
        name, _, request = rest.partition(" ")
        head, _ = _parse_request(request)

        async def opened() -> Answer | Socket | Streaming:
            if head.path == b"/v0/ws":
                return self.shell.exchange.connect(head)
            begun = self.shell.exchange.begin(head)
            found = begun if isinstance(begun, Answer) else begun.finish([])
            assert isinstance(found, Answer | Streaming)
            return found

        found = self._loop.run_until_complete(opened())
        if isinstance(found, Answer):
            return _Poll(found).take()
        far = found.feed if isinstance(found, Streaming) else found
        assert far is not None
        self._clients[name] = _Stream(far, self._loop)
        return [Line("200" if isinstance(found, Streaming) else "101")]

    def _send(self, rest: str) -> list[Line]:
        name, _, message = rest.partition(" ")
        stream = self._clients[name]
        assert isinstance(stream, _Stream)
        stream.send(message)
        return []

    def _read(self, name: str) -> list[Line]:
        return self._clients[name].read(self._turn) or NOTHING

    def _close(self, name: str) -> list[Line]:
        self._clients.pop(name).close()
        return []

    # -- time, and the machine -----------------------------------------------------------------

    def _wait(self, rest: str) -> list[Line]:
        end_ms = self.shell.now_ms + int(rest)
        while (at_ms := self.shell.driver.alarm_ms()) is not None and at_ms < end_ms:
            self.shell.host.advance(max(at_ms - self.shell.now_ms, 1))
            self._turn()
        self.shell.host.advance(end_ms - self.shell.now_ms)
        return []

    def _limit(self, rest: str) -> list[Line]:
        self.limits = Limits(**json.loads(rest))
        self.files = SimFiles()
        self._start(START_MS)
        return []

    def _restart(self, _: str) -> list[Line]:
        self.shell.drain()
        self._turn()
        self.shell.stop()
        return self._go_on(self.files.kill())

    def _kill(self, _: str) -> list[Line]:
        return self._crash(self.files.kill())

    def _power_cut(self, rest: str) -> list[Line]:
        if not rest:
            return self._crash(self.files.cut(_Nothing()))
        assert rest == "torn"
        newest = self.files.inodes[log_name(max(numbers(self.files.names(), "wal")))]
        newest.dirty.discard(max(newest.dirty))
        return self._crash(self.files.cut(_Everything()))

    def _crash(self, found: SimFiles) -> list[Line]:
        for client in self._clients.values():
            client.cut_off()
        return self._go_on(found)

    def _go_on(self, found: SimFiles) -> list[Line]:
        """Start the next process on the directory."""
        self.files = found
        try:
            recovery = self._start(self.shell.now_ms)
        except StoreError as error:
            return [Line("refused", {"error": str(error)})]
        found_so = {**msgspec.structs.asdict(recovery), "is_torn": recovery.torn_bytes > 0}
        return [Line("started", json.loads(json.dumps(found_so)))]

    def _start(self, now_ms: int) -> Recovery:
        # With sectors of 512 bytes a power cut does not depend on the seed.
        self.files.page_bytes = SECTOR
        store = DiskStore(self.files, wal_file_bytes=WAL_BYTES, reserve_bytes=WAL_BYTES)
        shell = _Shell(self.limits, store, now_ms)
        recovery = shell.driver.recover()
        shell.driver.start()
        self.shell = shell
        return recovery

    def _checkpoint(self, _: str) -> list[Line]:
        ended: list[Exception | None] = []
        self.shell.driver.maintenance.round(ended.append, checkpoint=True)
        self.shell.settle()
        assert ended == [None], ended
        return []

    def _fail(self, rest: str) -> list[Line]:
        self.files.faults = _NextCall(rest, self.files)
        return []

    def _full(self, _: str) -> list[Line]:
        self.files.capacity_bytes -= self.files.free_bytes()
        return []

    def _room(self, _: str) -> list[Line]:
        self.files.capacity_bytes = 1 << 40
        return []


def _parse_request(request: str) -> tuple[Head, bytes]:
    method, target, *rest = request.split(" ", 2)
    headers: list[tuple[bytes, bytes]] = []
    body = rest[0] if rest else ""
    while body and body[0] not in '{["':
        header, _, body = body.partition(" ")
        name, _, value = header.partition(":")
        headers.append((name.encode(), value.encode()))
    if body:
        headers.append((b"content-type", b"application/json"))
    path, _, query = target.encode().partition(b"?")
    return Head(method, path, query, headers), body.encode()


class _Poll:
    """A request whose answer may come later."""

    def __init__(self, found: Any) -> None:
        self._answers: list[Answer] = []
        self._cancel: Callable[[], None] = lambda: None
        self._is_cut_off = False
        if isinstance(found, Answer):
            self._answers.append(found)
        elif isinstance(found, Streaming):
            self._answers.append(Answer(found.status, found.headers, []))
        else:
            found.then(self._answers.append)
            self._cancel = found.cancel

    @property
    def is_answered(self) -> bool:
        return bool(self._answers)

    def take(self) -> list[Line]:
        assert self._answers, "it waits: ASK it"
        answer = self._answers[0]
        body = b"".join(answer.body)
        return [Line(str(answer.status), _without_figures(json.loads(body)) if body else None)]

    def read(self, _: Callable[[], None]) -> list[Line]:
        if self._answers:
            return self.take()
        return [Line("broken")] if self._is_cut_off else []

    def cut_off(self) -> None:
        self._is_cut_off = True

    def close(self) -> None:
        self._cancel()


class _Stream:
    """A client of a stream or a WebSocket that reads only on command."""

    def __init__(self, far: Source, loop: asyncio.AbstractEventLoop) -> None:
        self._far = far
        self._loop = loop
        self._messages: deque[bytes] = deque()
        self._ahead: Buffer | None = None
        """What was taken when it came, and is not read: there is room for one piece."""
        self._last: list[Line] = []
        """The result of reading a stream that has ended."""
        self._on_loop(lambda: far.listen(lambda: loop.call_soon(self._on_news)))

    def _on_news(self) -> None:
        self._send_all()
        if self._ahead is None and not self._last:
            self._ahead = self._far.take()

    def _on_loop(self, call: Callable[[], T]) -> T:
        async def called() -> T:
            return call()

        return self._loop.run_until_complete(called())

    def send(self, message: str) -> None:
        """Messages are carried out one after the other, as by a driver."""
        self._messages.append(message.encode())
        self._loop.call_soon(self._send_all)

    def _send_all(self) -> None:
        if isinstance(self._far, Socket):
            while self._messages and not self._far.is_busy:
                self._far.hear(self._messages.popleft())

    def read(self, turn: Callable[[], None]) -> list[Line]:
        """Everything that the server has sent so far."""
        found: list[Line] = []
        while not self._last:
            turn()
            piece, self._ahead = self._ahead, None
            if piece is None:
                piece = self._on_loop(self._far.take)
            if piece is None:
                if not self._far.is_over:
                    turn()
                    if self._ahead is None:
                        return found
                    continue
                self._last = [Line("end")]
            elif isinstance(self._far, Socket):
                found.append(_of_message(str(piece, "utf-8")))
            else:
                found += _of_events(bytes(piece).decode())
        return found + self._last

    def cut_off(self) -> None:
        self._messages.clear()
        self._last = [Line("broken")]

    def close(self) -> None:
        if self._last != [Line("broken")]:
            self._far.close()


def _of_message(message: str) -> Line:
    document = json.loads(message)
    return Line(document.pop("op"), _without_figures(document))


def _of_events(text: str) -> list[Line]:
    """Server-Sent Events as results.  A composite id is decoded as `id`, and kept as `cursor`."""
    return [_of_event(block) for block in text.split("\n\n") if block]


def _of_event(block: str) -> Line:
    if block.startswith(": hb "):
        return Line("hb", {"ms": int(block.removeprefix(": hb "))})
    fields = dict(line.split(": ", 1) for line in block.split("\n"))
    document: dict[str, Any] = {}
    if "id" in fields and fields["id"].isdigit():
        document["id"] = int(fields["id"])
    elif "id" in fields:
        document["id"] = json.loads(urlsafe_b64decode(fields["id"] + "=="))
        document["cursor"] = fields["id"]
    if "retry" in fields:
        return Line("retry", {"ms": int(fields["retry"]), **document})
    return Line(fields["event"], {**document, **json.loads(fields["data"])})


def _without_figures(document: dict[str, Any]) -> dict[str, Any]:
    """Keep the fields of `performance` that do not depend on the machine."""
    figures = document.pop("performance", {})
    lasting = {k: v for k, v in figures.items() if k in ("records_scanned", "throttle_wait_ms")}
    return {**document, "performance": lasting} if lasting else document


# -- what the world stands on ----------------------------------------------------------------------


class _Loop(asyncio.SelectorEventLoop):
    """An event loop whose time is that of the transcript."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        super().__init__()
        self._now_s = now_s

    def time(self) -> float:
        return self._now_s()


class _Shell:
    """Implements `shell.Shell` without threads.  A sync happens when a command or the flush timer
    needs it."""

    def __init__(self, limits: Limits, store: DiskStore, now_ms: int) -> None:
        self.limits = limits
        self.store = store
        self.phase = Phase.READY
        self.host = InlineHost(limits, store, now_ms)
        self.driver = self.host.driver
        self.engine = self.driver.engine
        self.exchange = TopicsExchange(self)
        self._start_ms = now_ms

    @property
    def now_ms(self) -> int:
        return self.host.now_ms

    @property
    def uptime_ms(self) -> int:
        return self.now_ms - self._start_ms

    @property
    def moment(self) -> Moment:
        return self.driver.moment

    def submit(self, command: Command, deliver: Deliver) -> Reply | Ticket:
        return self.driver.submit(command, deliver)

    def settle(self) -> None:
        self.host.ring()

    def nudge(self) -> None:
        self.driver.nudge()

    def later(self, delay_s: float, call: Callable[[], object]) -> None:
        """The figures of the last hour are no part of a story, and nothing else waits."""

    def drain(self) -> None:
        self.phase = Phase.DRAINING
        for stream in self.engine.watches.streams:
            stream.wake()
        self.driver.drain()

    def stop(self) -> None:
        ended: list[Exception | None] = []
        self.driver.stop(ended.append)
        self.settle()
        assert ended, "it has not stopped"
        if ended != [None]:
            self.store.close(None)

    def process(self) -> Process:
        return Process(
            ready=not self.engine.read_only,
            recovery_progress=1.0,
            uptime_ms=self.uptime_ms,
            queue_depth=0,
            queue_depth_peak=0,
            submit_full_total=0,
            read_only=self.engine.read_only,
        )

    async def written(self) -> bool:
        self.host.settle()
        return not self.engine.read_only

    async def synced(self) -> bool:
        self.driver.commit.want_sync()
        return not self.engine.read_only

    def read_in_thread(self, call: Callable[[], T]) -> "_Done[T]":
        return _Done(call())

    def decode_in_thread(self, call: Callable[[], T]) -> "_Done[T]":
        return _Done(call())


@dataclass(frozen=True, slots=True)
class _Done(Generic[T]):
    """Implements `shell.Reading` for a call that has returned."""

    value: T

    def add_done_callback(self, fn: Callable[[Any], object], /) -> None:
        fn(self)

    def cancel(self) -> bool:
        return False

    def result(self) -> T:
        return self.value

    def __await__(self) -> Generator[Any, None, T]:
        return self.value
        yield


class _NextCall(dict[int, Fault]):
    """Faults of `SimFiles`: only the next call whose name begins with `word` fails."""

    def __init__(self, word: str, files: SimFiles) -> None:
        super().__init__()
        self._word = word
        self._files = files

    def get(self, _: int, default: Any = None) -> Any:
        if not self._word or not self._files.log[-1].startswith(self._word):
            return default
        self._word = ""
        return Fault()


class _Nothing(random.Random):
    """Draws with which a power cut keeps only what was synced."""

    def choice(self, seq: Any) -> Any:
        return seq[0]

    def randint(self, a: int, b: int) -> int:
        return a

    def random(self) -> float:
        return 0.99


class _Everything(random.Random):
    """Draws with which a power cut keeps everything written."""

    def choice(self, seq: Any) -> Any:
        return seq[-1]

    def randint(self, a: int, b: int) -> int:
        return b

    def random(self) -> float:
        return 0.0
