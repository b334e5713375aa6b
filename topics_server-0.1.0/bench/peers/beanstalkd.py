"""beanstalkd, which has queues alone: its binlog synced each 50 ms for `disk`."""

import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from socket import create_server, socket
from typing import Final

from bench.peers.wording import CLAIM_JOBS, Ask, Lines
from bench.serving import Serving, serve_program

_RESERVED: Final = re.compile(rb"RESERVED (\d+) ")


def ask(request: bytes, lines: int) -> Ask:
    return Ask(request, lambda: Lines(lines, b"NOT_FOUND"))


class Beanstalkd:
    name = "beanstalkd"

    @staticmethod
    def is_installed() -> bool:
        return shutil.which("beanstalkd") is not None

    def start(self, home: Path, *, fsync: bool) -> Serving:
        home.mkdir(parents=True, exist_ok=True)
        with create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        sync = ["-f", "0" if fsync else "50"]
        command = ["beanstalkd", "-l", "127.0.0.1", "-p", str(port), "-b", str(home), *sync]
        return serve_program("beanstalkd", home, command, port, b"list-tube-used\r\n", b"USING")

    def greet(self, connection: socket, number: int) -> None: ...

    def addressed(self, ask: Ask, number: int) -> Ask:
        return ask

    def create_queue(self, key: str) -> Iterable[Ask]:
        return ()

    def put_jobs(self, key: str, data: bytes, jobs: int) -> Ask:
        one = b"put 1 0 60 %d\r\n%b\r\n" % (len(data), data)
        return ask(b"use %b\r\n" % key.encode() + one * jobs, 1 + jobs)

    def claim(self, key: str, worker: int) -> Ask:
        name = key.encode()
        watch = b"watch %b\r\n" % name
        return Ask(watch + b"reserve-with-timeout 0\r\n" * CLAIM_JOBS, lambda: _granted)

    def ack(self, key: str, worker: int, reply: bytes) -> Ask:
        ids = _RESERVED.findall(reply)
        return ask(b"".join(b"delete %b\r\n" % each for each in ids), len(ids))


def _granted(reply: bytearray) -> bool:
    """The answer to `watch`, then two lines a job, or one that says there is none."""
    jobs, none = len(_RESERVED.findall(bytes(reply))), reply.count(b"TIMED_OUT\r\n")
    return jobs + none == CLAIM_JOBS and reply.count(b"\n") >= 1 + 2 * jobs + none
