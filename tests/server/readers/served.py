"""A real server with readers, for tests of what only processes show."""

import os
import signal
from pathlib import Path
from typing import Any

import orjson
from contract.server import Server, until
from contract.streams import News, Sse1
from contract.streams import read as read_news
from contract.wire import Answer, Http1, Wire, ask


class WithReaders(Server):
    """A server over a data directory, with reader processes."""

    def start_all(self, readers: int = 2) -> "WithReaders":
        self._settings["readers"] = readers
        self.start()
        until("readers", lambda: self.metric("topics_reader_up") == readers)
        return self

    def http(self) -> Http1:
        return self.connect(Http1)

    def metric(self, name: str) -> float:
        """The sum of a family."""
        wire = Http1(self.port)
        text = ask(wire, "GET", "/v0/metrics").body.decode()
        wire.reset()
        lines = [
            line.split() for line in text.splitlines() if line.startswith((name + "{", name + " "))
        ]
        return sum(float(value) for _, value in lines)

    def reader_pids(self) -> list[int]:
        """The reader processes, ascending."""
        return sorted(children(self.pid))


def children(parent: int) -> list[int]:
    """The readers of a server, which has another process for syncs."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if command and b"topics.server.readers" not in command:
                continue
            rest = stat.rpartition(")")[2].split()
            if int(rest[1]) == parent and rest[0] != "Z":
                found.append(int(entry.name))
    return found


def is_alive(pid: int) -> bool:
    try:
        return (Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]) != "Z"
    except OSError:
        return False


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def read(wire: Wire, topic: str, **fields: Any) -> Answer:
    """A read; a fresh connection that sends one is given to a reader."""
    return ask(wire, "POST", f"/v0/topics/{topic}/diff", orjson.dumps({"from_seq": 0, **fields}))


def append(wire: Wire, topic: str, *datas: Any, **fields: Any) -> Answer:
    records = [{"data": data} for data in datas]
    body = orjson.dumps({"records": records, **fields})
    return ask(wire, "POST", f"/v0/topics/{topic}", body)


def put(wire: Wire, topic: str, **config: Any) -> Answer:
    return ask(wire, "PUT", f"/v0/topics/{topic}", orjson.dumps(config))


class Sse:
    """A client of a watch session's stream."""

    def __init__(
        self, port: int, wid: str, last_id: str | None = None, *, kind: Any = Sse1
    ) -> None:
        self._client = kind(port, wid, last_id)
        self._news: list[News] = []
        self.last_id = last_id or ""

    def _next(self) -> News:
        while not self._news:
            self._news += read_news(self._client)[1]
        found = self._news.pop(0)
        self.last_id = found.id
        return found

    def seqs(self, count: int) -> list[int]:
        """The seqs of so many records."""
        found: list[int] = []
        while len(found) < count:
            one = self._next()
            assert one.kind != "error", one
            if one.kind == "record":
                found += [record["$seq"] for record in one.fields["records"]]
        return found

    def caught_up(self) -> None:
        while self._next().kind != "caught-up":
            pass

    def seqs_before_caught_up(self) -> list[int]:
        """The seqs of the records that come before the stream says that it is at the end."""
        found: list[int] = []
        while (one := self._next()).kind != "caught-up":
            assert one.kind == "record", one
            found += [record["$seq"] for record in one.fields["records"]]
        return found

    def last_error(self) -> Any:
        """The fields of the stream's last event, an error."""
        while (found := self._next()).kind != "error":
            pass
        return found.fields

    def reset(self) -> None:
        self._client.socket.close()
