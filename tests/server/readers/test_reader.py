"""A reader process, driven by a test in the place of the engine's process."""

import asyncio
import os
import socket
import subprocess
from collections.abc import Callable
from dataclasses import replace
from mmap import mmap
from pathlib import Path
from typing import Any

import orjson
import pytest
from contract.wire import Http1

import topics
from topics.protocol.driver.follower import Follower, Timing
from topics.protocol.model.commands import ListTopics
from topics.protocol.model.limits import Limits
from topics.protocol.model.outcomes import Outcome, TopicsListed
from topics.server.links.codec import decode_command, encode_outcome
from topics.server.links.messages import Answered, Ended, Submit, decode_all_to_decide
from topics.server.observing.measures import RequestMeasures
from topics.server.readers.channel import Channel, Handed, channel_pair
from topics.server.readers.messages import (
    Drain,
    HeadsMoved,
    Hello,
    Lent,
    ReadTimes,
    Release,
    Released,
    Serving,
    Stats,
    decode_from_reader,
    encode,
    pack_settings,
)
from topics.server.readers.process import command
from topics.server.readers.shared_heads import SharedHeads, heads_bytes
from topics.server.runtime.clock import Clock
from topics.settings import Settings
from topics.store.files import OsFiles
from topics.store.following import FollowingStore

from .served import WithReaders, append, put


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with a topic of three records; its server has ended."""
    server = WithReaders(tmp_path_factory.mktemp("server"))
    with server.start():
        wire = Http1(server.port)
        put(wire, "t")
        append(wire, "t", 1, 2, 3)
        wire.reset()
    return server.data


def hello_of(data: Path) -> bytes:
    """What a reader is told first."""
    settings = pack_settings(replace(Settings(), data_dir=data))
    return encode(Hello(0, 1, has_keys=False, settings=settings))


class Engine:
    """The engine's side of one reader."""

    def __init__(self, home: Path) -> None:
        store = FollowingStore(OsFiles(home))
        store.begin(Follower(Limits(), store), 1 << 62)
        self.batch = store.batch
        store.close()
        self.page_file = os.memfd_create("page")
        os.truncate(self.page_file, heads_bytes(1))
        self.heads = SharedHeads(mmap(self.page_file, heads_bytes(1)))
        self.heads.store(self.batch, {}, Timing(*Clock().course))
        ours, theirs = channel_pair()
        self.messages: list[Any] = []
        self.asked: list[Any] = []
        """What came over the link."""
        self.came_back: list[tuple[Handed, socket.socket]] = []
        self.has_ended = False
        self.channel = Channel(
            ours,
            on_message=lambda data: self.messages.append(decode_from_reader(data)),
            on_relayed=lambda data: self.asked.extend(decode_all_to_decide(data)),
            on_handed=lambda handed, sock: self.came_back.append((handed, sock)),
            on_end=self._ended,
        )
        ours.send(hello_of(home))
        with theirs:
            self.process = subprocess.Popen(
                command(theirs.fileno(), self.page_file),
                pass_fds=(theirs.fileno(), self.page_file),
                stderr=subprocess.PIPE,
            )

    def _ended(self) -> None:
        self.has_ended = True

    async def until(self, probe: Callable[[], object]) -> None:
        while not probe():
            await asyncio.sleep(0.002)

    async def heard(self, kind: type) -> Any:
        """The next message of a kind, on the channel or its link."""
        await self.until(lambda: self._of(kind))
        found = self._of(kind)[0]
        (self.messages if found in self.messages else self.asked).remove(found)
        return found

    def _of(self, kind: type) -> list[Any]:
        return [each for each in (*self.messages, *self.asked) if isinstance(each, kind)]

    def answer(self, asked: Submit, outcome: Outcome) -> None:
        kind, head = encode_outcome(outcome)
        answered = Answered(asked.number, kind, head, 0, 0, 0, 0, b"", is_held=False)
        self.channel.relay(encode(answered))  # type: ignore[arg-type]

    def hand(self, *sent: bytes, pending: bytes = b"") -> socket.socket:
        """Give it a connection with what came of it; returns the client's end."""
        listener = socket.create_server(("127.0.0.1", 0))
        client = socket.create_connection(listener.getsockname())
        accepted, _ = listener.accept()
        listener.close()
        for data in sent:
            client.sendall(data)
        self.channel.hand(Handed(pending), accepted.detach())
        return client

    async def code(self) -> int:
        """Its exit code."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, self.process.wait)

    def close(self) -> None:
        self.channel.close()
        self.process.kill()
        self.process.wait()
        assert self.process.stderr is not None
        self.process.stderr.close()
        os.close(self.page_file)


def driven(home: Path, story: Callable[[Engine], Any]) -> None:
    async def run() -> None:
        engine = Engine(home)
        try:
            async with asyncio.timeout(100):
                await story(engine)
        finally:
            engine.close()

    asyncio.run(run())


def request(path: str, body: bytes = b"", method: str = "POST") -> bytes:
    kind = b"Host: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
    return f"{method} {path} HTTP/1.1\r\n".encode() + kind % (len(body), body)


async def received(client: socket.socket) -> bytes:
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(None, client.recv, 1 << 16)


def test_it_serves_a_connection_until_a_request_is_not_its_own(home: Path) -> None:
    """Bytes that came with it are a request like any other; with the one that is not its own the
    connection goes back, and nothing of that was taken."""

    async def story(engine: Engine) -> None:
        await engine.heard(Serving)
        client = engine.hand(pending=request("/v0/topics/t/diff", b'{"from_seq":1}'))
        answer = await received(client)
        assert answer.startswith(b"HTTP/1.1 200")
        page = orjson.loads(answer.partition(b"\r\n\r\n")[2])
        assert [record["data"] for record in page["records"]] == [2, 3]
        client.sendall(request("/v0/topics/t/records", method="GET"))
        assert b"\r\netag: " in (await received(client)).lower()

        write = request("/v0/topics/t", b'{"records":[{"data":4}]}')
        client.sendall(write)

        await engine.until(lambda: engine.came_back)
        (handed, sock), *_ = engine.came_back
        assert handed.pending == write
        sock.close()
        client.close()

    driven(home, story)


def test_a_connection_with_nothing_of_its_own_goes_back_at_once(home: Path) -> None:
    """Every other route is the engine's."""

    async def story(engine: Engine) -> None:
        await engine.heard(Serving)
        clients = []
        for path, method in (
            ("/v0/topics/t", "GET"),
            ("/v0/routers/r", "GET"),
            ("/v0/watch/unknown", "GET"),
            ("/v0/topics/t/claim", "POST"),
        ):
            clients.append(engine.hand(pending=request(path, method=method)))
        await engine.until(lambda: len(engine.came_back) == len(clients))
        for _, sock in engine.came_back:
            sock.close()
        for client in clients:
            client.close()

    driven(home, story)


def test_a_list_is_asked_of_the_engine(home: Path) -> None:
    """With what was read there before; its answer is the client's. A client that leaves takes its
    question back. (§1.3)"""

    async def story(engine: Engine) -> None:
        await engine.heard(Serving)
        client = engine.hand(pending=request("/v0/topics/t/diff", b"{}"))
        await received(client)
        client.sendall(request("/v0/topics?page_size=7", method="GET"))
        asked = await engine.heard(Submit)
        assert list((await engine.heard(ReadTimes)).at_ms) == [1]
        assert decode_command(asked.kind, asked.head) == ListTopics("", 7, "")
        engine.answer(asked, TopicsListed([], "next"))
        told = await received(client)
        assert orjson.loads(told.partition(b"\r\n\r\n")[2])["topics"] == []
        client.sendall(request("/v0/routers", method="GET"))
        asked = await engine.heard(Submit)
        client.close()
        assert await engine.heard(Ended) == Ended(asked.number)

    driven(home, story)


def test_where_the_engine_does_not_answer_lists_go_back_to_it(home: Path) -> None:
    """A connection goes on in the engine's process, as with all that is no reader's; reads are
    served meanwhile."""

    async def story(engine: Engine) -> None:
        await engine.heard(Serving)

        clients = [engine.hand(pending=request("/v0/topics", method="GET"))]
        await engine.heard(Submit)
        while not engine.came_back:
            clients.append(engine.hand(pending=request("/v0/topics?prefix=a", method="GET")))
            await engine.until(lambda: engine.came_back or engine.asked)
            engine.asked.clear()
        (handed, sock), *_ = engine.came_back
        assert handed.pending == request("/v0/topics?prefix=a", method="GET")
        clients.append(engine.hand(pending=request("/v0/topics/t/diff", b"{}")))
        assert (await received(clients[-1])).startswith(b"HTTP/1.1 200")
        for each in (sock, *clients):
            each.close()

    driven(home, story)


def test_a_stop_is_the_engines_to_say(home: Path) -> None:
    """It ends with 0 when it is told, and signals of a supervisor are not that."""

    async def story(engine: Engine) -> None:
        await engine.heard(Serving)
        engine.process.terminate()
        engine.channel.send(Release(4))
        assert (await engine.heard(Released)).number == 4

        engine.channel.send(Drain())

        assert await engine.code() == 0

    driven(home, story)


def test_it_ends_with_the_engines_process(home: Path) -> None:
    """Nothing that it shows can be vouched for any more."""

    async def story(engine: Engine) -> None:
        await engine.heard(Serving)
        engine.channel.close()
        assert await engine.code() == 1

    driven(home, story)


def test_it_tells_what_it_did(home: Path) -> None:
    """Requests, connections, memory, and when each topic was read, once a second."""

    async def story(engine: Engine) -> None:
        await engine.heard(Serving)
        client = engine.hand(pending=request("/v0/topics/t/diff", b"{}"))
        await received(client)
        told = await engine.heard(Stats)
        while not told.requests:
            told = await engine.heard(Stats)
        assert told.requests == 1
        assert told.connections == 1
        assert len((await engine.heard(ReadTimes)).at_ms) == 1
        measures = RequestMeasures()
        measures.add(told.answers)
        assert measures.totals() == (1, 1)
        client.close()

    driven(home, story)


def test_a_page_that_names_what_the_log_has_not_ends_it(home: Path) -> None:
    """It would show less than was acknowledged; the engine starts another one."""

    async def story(engine: Engine) -> None:
        await engine.heard(Serving)
        engine.heads.store(engine.batch + 5, {}, Timing(*Clock().course))
        engine.channel.send(HeadsMoved())
        assert await engine.code() == 1
        await engine.until(lambda: engine.has_ended)

    driven(home, story)


@pytest.mark.parametrize("message", [Lent(7), Serving()])
def test_a_fault_between_the_two_processes_ends_it(home: Path, message: Any) -> None:
    """What they know of each other's sessions would not agree any more; it says where it was."""

    async def story(engine: Engine) -> None:
        await engine.heard(Serving)
        engine.channel.send(message)
        assert await engine.code() == 1
        assert engine.process.stderr is not None
        assert b"a fault in reader 0" in engine.process.stderr.read()

    driven(home, story)


def test_a_directory_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    """On standard error, and the process ends."""
    page_file = os.memfd_create("page")
    os.truncate(page_file, heads_bytes(1))
    ours, theirs = channel_pair()
    ours.send(hello_of(tmp_path))
    with ours, theirs:
        ended = reader(theirs.fileno(), page_file)
    os.close(page_file)

    assert ended.returncode == 1
    assert "not a data directory of topics" in ended.stderr


def test_it_ends_where_the_engines_process_ended_first() -> None:
    """Before it was told what to serve."""
    page_file = os.memfd_create("page")
    ours, theirs = channel_pair()
    ours.close()
    with theirs:
        ended = reader(theirs.fileno(), page_file)
    os.close(page_file)

    assert ended.returncode == 1
    assert ended.stderr == ""


def test_it_ends_where_another_process_has_become_its_parent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The engine's ended before the kernel was asked to end this one with it."""
    monkeypatch.setattr(os, "getpid", os.getppid)
    page_file = os.memfd_create("page")
    ours, theirs = channel_pair()
    with ours, theirs:
        ended = reader(theirs.fileno(), page_file)
    os.close(page_file)

    assert (ended.returncode, ended.stderr) == (1, "")


def test_a_folder_of_the_same_name_where_the_server_was_started_is_not_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A project may have a package `topics` of its own."""
    (tmp_path / "topics").mkdir()
    (tmp_path / "topics" / "__init__.py").write_text("raise SystemExit(77)")
    monkeypatch.chdir(tmp_path)
    page_file = os.memfd_create("page")
    ours, theirs = channel_pair()
    ours.close()
    with theirs:
        ended = reader(theirs.fileno(), page_file)
    os.close(page_file)

    assert (ended.returncode, ended.stderr) == (1, "")


def test_a_checkout_that_is_not_installed_has_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    """`python -m topics serve` in it finds them where it was found itself."""
    monkeypatch.chdir(Path(topics.__file__).parents[1])
    assert "-P" not in command(3, 4)


def reader(channel: int, page_file: int) -> "subprocess.CompletedProcess[str]":
    """A reader process that ends by itself."""
    return subprocess.run(
        command(channel, page_file),
        pass_fds=(channel, page_file),
        capture_output=True,
        text=True,
        check=False,
    )
