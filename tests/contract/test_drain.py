"""A stop under load: what was acknowledged survives, streams end with a last frame, exit 0 (§8.2)."""

import json
import socket
import threading
from contextlib import suppress
from pathlib import Path

from .api import Api
from .server import Server, until
from .streams import Sse1
from .wire import Ended, Http1

WRITERS, POLLERS, WATCHERS = 60, 20, 20
CLASSES = ("memory", "disk", "fsync")


class Writer(threading.Thread):
    """Appends its own numbers to a topic, one after the other, until the server says no.  A busy machine's server
    says 429, and is asked again.

    Attributes:
        acked: How many were acknowledged.
        last: The status of the answer that was not 200, 201 or 429; None where the connection ended.
    """

    def __init__(self, port: int, number: int) -> None:
        super().__init__(daemon=True)
        self.wire = Http1(port)
        self.topic = f"{CLASSES[number % 3]}-{number}"
        self.acked = 0
        self.last: int | None = None

    def run(self) -> None:
        headers = {"content-type": "application/json"}
        with suppress(Ended, OSError):
            while True:
                body = json.dumps({"records": [{"data": self.acked}]}).encode()
                self.wire.send("POST", f"/v0/topics/{self.topic}", body, headers)
                answer = self.wire.receive()
                if answer.status == 429:
                    continue
                if answer.status not in (200, 201):
                    self.last = answer.status
                    break
                self.acked += 1
        self.wire.reset()


class Poller(threading.Thread):
    """Waits for a record that does not come; `status` is what it was answered."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.wire = Http1(port)
        self.status = 0

    def run(self) -> None:
        headers = {"content-type": "application/json"}
        with suppress(Ended, OSError):
            body = b'{"from_seq":0,"wait_ms":30000}'
            self.wire.send("POST", "/v0/topics/quiet/diff", body, headers)
            self.status = self.wire.receive().status
        self.wire.reset()


class Watcher(threading.Thread):
    """Reads a stream to its end; `kinds` are the events that came."""

    def __init__(self, port: int, wid: str) -> None:
        super().__init__(daemon=True)
        self.client = Sse1(port, wid)
        self.kinds: list[str] = []

    def run(self) -> None:
        with suppress(OSError):
            while data := self.client.socket.recv(1 << 16):
                self.kinds += [news.kind for news in self.client.take(data)]
        self.client.socket.close()


def test_a_stop_with_a_hundred_busy_clients(tmp_path: Path) -> None:
    """Every acknowledged record is there after the next start, in every class that is logged; long
    polls are answered, streams get an `error` frame, and the server stops by itself."""
    with Server(tmp_path / "home") as server:
        api = Api(server.connect(Http1))
        api.put("quiet")
        for number in range(WRITERS):
            topic = f"{CLASSES[number % 3]}-{number}"
            api.put(topic, durability=CLASSES[number % 3])
        wid = [
            api.ok("POST", "/v0/watch", {"topics": {f"disk-{1 + 3 * n}": {}}})["wid"]
            for n in range(WATCHERS)
        ]
        writers = [Writer(server.port, number) for number in range(WRITERS)]
        pollers = [Poller(server.port) for _ in range(POLLERS)]
        watchers = [Watcher(server.port, one) for one in wid]
        clients: list[threading.Thread] = [*writers, *pollers, *watchers]
        for client in clients:
            client.start()
        until("all are busy", lambda: all(writer.acked > 3 for writer in writers))
        until("all have news", lambda: all(watcher.kinds for watcher in watchers))
        code = server.stop()
        for client in clients:
            client.join()

        assert code == 0
        assert {writer.last for writer in writers} <= {503, None}
        assert {poller.status for poller in pollers} == {200}
        assert {watcher.kinds[-1] for watcher in watchers} == {"error"}
        server.start()
        api = Api(server.connect(Http1))
        for writer in writers:
            found = [record["data"] for record in api.walk(writer.topic)]
            assert found[: writer.acked] == list(range(writer.acked)), writer.topic
            assert len(found) <= writer.acked + 1, "one may have been under way"
        with socket.create_connection(("localhost", server.port)):
            assert server.stop() == 0
        server.assert_log_is_quiet()
