"""NATS JetStream with file storage: its default sync for `disk`, `sync_interval: always` for `fsync`.

By its text protocol, with acknowledged publishes.  A batch is as many publishes at once; a page is a
direct get of a batch; followers and workers are consumers of JetStream.
"""

import json
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from socket import create_server, socket
from typing import Final

from bench.peers.wording import CLAIM_JOBS, PAGE_RECORDS, Ask, Lines, exchange
from bench.serving import Serving, serve_program

INBOX: Final = b"INBOX.000"
_ACK: Final = re.compile(rb"MSG \S+ 1 (\$JS\.ACK\S+) ")


def publish(subject: bytes, payload: bytes) -> bytes:
    """A publish whose answer comes to the inbox of connection 0; see `Nats.addressed`."""
    return b"PUB %b %b %d\r\n%b\r\n" % (subject, INBOX, len(payload), payload)


class Replies:
    """As many messages of two lines each; one that tells an error is a refusal."""

    def __init__(self, messages: int) -> None:
        self._lines = Lines(2 * messages, b"-ERR")

    def __call__(self, reply: bytearray) -> bool:
        is_whole = self._lines(reply)
        if is_whole and b'"error"' in reply:
            raise ValueError(bytes(reply[:500]).decode(errors="replace"))
        return is_whole


def api(call: str, body: object) -> Ask:
    request = publish(f"$JS.API.{call}".encode(), json.dumps(body).encode())
    return Ask(request, lambda: Replies(1))


class Nats:
    name = "nats"

    @staticmethod
    def is_installed() -> bool:
        return shutil.which("nats-server") is not None

    def start(self, home: Path, *, fsync: bool) -> Serving:
        home.mkdir(parents=True, exist_ok=True)
        with create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        sync = "sync_interval: always" if fsync else ""
        config = home / "nats.conf"
        config.write_text(
            f"listen: 127.0.0.1:{port}\nping_interval: 3600\nmax_payload: 8MB\n"
            f'jetstream {{ store_dir: "{home}"\n{sync} }}\n'
        )
        command = ["nats-server", "-c", str(config)]
        return serve_program("nats", home, command, port, b"CONNECT {}\r\nPING\r\n", b"INFO")

    def greet(self, connection: socket, number: int) -> None:
        hello = (
            b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}\r\n'
        )
        connection.sendall(hello + b"SUB INBOX.%03d 1\r\nPING\r\n" % number)
        got = b""
        while not got.endswith(b"PONG\r\n"):
            got += connection.recv(1 << 16)

    def addressed(self, ask: Ask, number: int) -> Ask:
        """The same with another connection's inbox."""
        if not number:
            return ask
        return Ask(ask.request.replace(INBOX, b"INBOX.%03d" % number), ask.judge)

    def create(self, key: str, *, fsync: bool) -> Iterable[Ask]:
        about = {"name": key, "subjects": [f"s.{key}"], "storage": "file", "allow_direct": True}
        yield api(f"STREAM.CREATE.{key}", about)

    def append(self, key: str, data: bytes, records: int) -> Ask:
        request = publish(b"s." + key.encode(), data) * records
        return Ask(request, lambda: Replies(records))

    def append_followed(self, key: str, data: bytes, records: int) -> Ask:
        return self.append(key, data, records)

    def page(self, key: str, after: int) -> Ask:
        asked = {"seq": after + 1, "batch": PAGE_RECORDS}
        request = publish(f"$JS.API.DIRECT.GET.{key}".encode(), json.dumps(asked).encode())
        return Ask(request, lambda: _last_of_batch)

    def follow(self, connection: socket, key: str, number: int) -> None:
        name = f"c{number}"
        connection.sendall(f"SUB D.{name} 2\r\n".encode())
        config = {
            "deliver_subject": f"D.{name}",
            "deliver_policy": "new",
            "ack_policy": "none",
            "name": name,
        }
        asked = {"stream_name": key, "config": config}
        exchange(connection, self.addressed(api(f"CONSUMER.CREATE.{key}.{name}", asked), number))

    def create_queue(self, key: str) -> Iterable[Ask]:
        about = {
            "name": key,
            "subjects": [f"s.{key}"],
            "storage": "file",
            "retention": "workqueue",
        }
        yield api(f"STREAM.CREATE.{key}", about)
        config = {"durable_name": "g", "ack_policy": "explicit", "max_ack_pending": 100_000}
        yield api(f"CONSUMER.DURABLE.CREATE.{key}.g", {"stream_name": key, "config": config})

    def put_jobs(self, key: str, data: bytes, jobs: int) -> Ask:
        return self.append(key, data, jobs)

    def claim(self, key: str, worker: int) -> Ask:
        asked = json.dumps({"batch": CLAIM_JOBS, "no_wait": True}).encode()
        request = publish(f"$JS.API.CONSUMER.MSG.NEXT.{key}.g".encode(), asked)
        return Ask(request, lambda: _granted)

    def ack(self, key: str, worker: int, reply: bytes) -> Ask:
        """Each ack is confirmed, as ours are."""
        subjects = _ACK.findall(reply)
        request = b"".join(publish(subject, b"+ACK") for subject in subjects)
        return Ask(request, lambda: Replies(len(subjects)))


def _last_of_batch(reply: bytearray) -> bool:
    """The end of a batch is a message without data and with status 204."""
    if b"NATS/1.0 4" in reply[:200]:
        raise ValueError(bytes(reply[:500]).decode(errors="replace"))
    return b"NATS/1.0 204" in reply[-400:] and reply.endswith(b"\r\n\r\n\r\n")


def _granted(reply: bytearray) -> bool:
    """Eight jobs; or fewer, and a status that says so."""
    jobs = len(_ACK.findall(bytes(reply)))
    if jobs == CLAIM_JOBS:
        return reply.count(b"\n") >= 2 * jobs
    return b"NATS/1.0 40" in reply and reply.endswith(b"\r\n\r\n\r\n")
