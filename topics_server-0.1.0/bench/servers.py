"""One append of one record over each server that the application runs on: `python -m bench.servers`.

A lone connection that is kept, the next request when the answer before it is whole.  The servers take
turns; the table has the least of the rounds, and the ratio to `topics serve`.
"""

import signal
import socket
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import click

from bench.conftest import machine
from bench.peers.topics import http_reply
from bench.serving import Serving, serve_application, serve_topics

BODY: Final = (
    b'{"records":[{"data":"0123456789012345678901234567890123456789012345678901234567890"}]}'
)
REQUEST: Final = (
    b"POST /v0/topics/t HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    b"content-length: %d\r\n\r\n%b" % (len(BODY), BODY)
)


def servers(home: Path, stack: ExitStack) -> dict[str, Serving]:
    """All of them, running; they are stopped with the stack."""
    app = "topics.asgi:app"
    made = {
        "topics serve": serve_topics(home / "own"),
        "topics serve --server hypercorn": serve_topics(
            home / "hypercorn", None, "--server", "hypercorn"
        ),
        "uvicorn": serve_application(home / "uvicorn", "uvicorn", app, "--no-access-log"),
        "granian": serve_application(home / "granian", "granian", app, "--interface", "asgi"),
    }
    for serving in made.values():
        stack.callback(_stop, serving)
    return made


def _stop(serving: Serving) -> None:
    """By a signal, as granian's worker is another process, which it then stops."""
    serving.process.send_signal(signal.SIGTERM)
    serving.process.wait(30)


def round_of(connection: socket.socket, requests: int) -> float:
    """Seconds for one append, on average."""
    begun = time.perf_counter()
    for _ in range(requests):
        connection.sendall(REQUEST)
        reply = bytearray()
        while not http_reply(reply):
            reply += connection.recv(1 << 16)
    return (time.perf_counter() - begun) / requests


@click.command()
@click.option("--requests", default=1000, show_default=True, help="Appends in one round.")
@click.option("--rounds", default=7, show_default=True, help="Rounds of each server.")
def main(requests: int, rounds: int) -> None:
    """Time one append over each server."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        serving = servers(Path(folder), stack)
        connections = {name: stack.enter_context(each.connect()) for name, each in serving.items()}
        least = dict.fromkeys(serving, float("inf"))
        for _ in range(rounds):
            for name, connection in connections.items():
                least[name] = min(least[name], round_of(connection, requests))
    own = least["topics serve"]
    print(f"{machine()}\n\n| server | one append | ratio |\n|---|---|---|")
    for name, seconds in least.items():
        print(f"| {name} | {seconds * 1e6:.0f} µs | {seconds / own:.2f} |")


if __name__ == "__main__":
    main()
