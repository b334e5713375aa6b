"""A server of this contract, over HTTP/1.1."""

import re
from collections.abc import Iterable
from pathlib import Path
from socket import socket
from typing import Final

from bench.peers.wording import CLAIM_JOBS, PAGE_RECORDS, Ask, exchange
from bench.serving import Serving, serve_other, serve_topics

_SEQ: Final = re.compile(rb'"\$seq":(\d+)')


def http_reply(reply: bytearray) -> bool:
    """A head that says 200 or 201, and the bytes that its Content-Length promises."""
    end = reply.find(b"\r\n\r\n")
    if end < 0:
        return False
    head = reply[:end].lower()
    at = head.index(b"content-length:") + len(b"content-length:")
    stop = head.find(b"\r\n", at)
    if len(reply) < end + 4 + int(head[at : stop if stop >= 0 else end]):
        return False
    if not head.startswith(b"http/1.1 20"):
        raise ValueError(reply[: end + 200].decode(errors="replace"))
    return True


def _stream_reply(reply: bytearray) -> bool:
    """The head of an event stream, and its first event or comment."""
    end = reply.find(b"\r\n\r\n")
    if end >= 0 and not reply.startswith(b"HTTP/1.1 200"):
        raise ValueError(reply[: end + 200].decode(errors="replace"))
    return end >= 0 and b"caught-up" in reply


class Topics:
    """Args:
    name: Its column.
    checkout: Of another version of this project; None: this one.
    running: A server that runs already, with its process for the CPU time; None: it is started.
    command: Of a server that somebody else has made (`serve_other`).
    """

    def __init__(
        self,
        name: str = "topics",
        checkout: Path | None = None,
        running: Serving | None = None,
        command: str | None = None,
    ) -> None:
        self.name = name
        self._checkout = checkout
        self._running = running
        self._command = command

    def start(self, home: Path, *, fsync: bool) -> Serving:
        if self._command is not None:
            return serve_other(home, self._command)
        return self._running or serve_topics(home, self._checkout)

    def greet(self, connection: socket, number: int) -> None: ...

    def addressed(self, ask: Ask, number: int) -> Ask:
        return ask

    def create(self, key: str, *, fsync: bool) -> Iterable[Ask]:
        durability = b"fsync" if fsync else b"disk"
        yield self._ask(b"PUT", key, b"", b'{"durability":"%b"}' % durability)

    def append(self, key: str, data: bytes, records: int) -> Ask:
        rows = b",".join([b'{"data":%b}' % data] * records)
        return self._ask(b"POST", key, b"", b'{"records":[%b]}' % rows)

    def append_followed(self, key: str, data: bytes, records: int) -> Ask:
        return self.append(key, data, records)

    def page(self, key: str, after: int) -> Ask:
        body = b'{"from_seq":%d,"limit":%d,"max_batch_bytes":8388608}' % (after, PAGE_RECORDS)
        return self._ask(b"POST", key, b"/diff", body)

    def follow(self, connection: socket, key: str, number: int) -> None:
        body = b'{"topics":{"%b":{"tail":true}}}' % key.encode()
        made = exchange(connection, _http(b"POST", b"/v0/watch", body))
        found = re.search(rb'"wid":"([^"]+)"', made)
        assert found is not None
        request = b"GET /v0/watch/%b HTTP/1.1\r\nhost: 127.0.0.1\r\n" % found[1]
        request += b"accept: text/event-stream\r\n\r\n"
        exchange(connection, Ask(request, lambda: _stream_reply))

    def create_queue(self, key: str) -> Iterable[Ask]:
        yield self._ask(b"PUT", key, b"", b'{"type":"queue","lease_ms":60000}')

    def put_jobs(self, key: str, data: bytes, jobs: int) -> Ask:
        return self.append(key, data, jobs)

    def claim(self, key: str, worker: int) -> Ask:
        body = b'{"node":"w%d","max":%d}' % (worker, CLAIM_JOBS)
        return self._ask(b"POST", key, b"/claim", body)

    def ack(self, key: str, worker: int, reply: bytes) -> Ask:
        seqs = b",".join(_SEQ.findall(reply))
        body = b'{"node":"w%d","seqs":[%b]}' % (worker, seqs)
        return self._ask(b"POST", key, b"/ack", body)

    @staticmethod
    def _ask(method: bytes, key: str, after: bytes, body: bytes) -> Ask:
        return _http(method, b"/v0/topics/%b%b" % (key.encode(), after), body)


def _http(method: bytes, path: bytes, body: bytes) -> Ask:
    head = (
        b"%b %b HTTP/1.1\r\nhost: 127.0.0.1\r\n"
        b"content-type: application/json\r\ncontent-length: %d\r\n\r\n"
    ) % (method, path, len(body))
    return Ask(head + body, lambda: http_reply)
