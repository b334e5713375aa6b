"""Servers that are nodes of one cluster, as processes on this machine: for tests, and for a try.

    python -m tests.nodes --brokers 3      brokers of Kafka and three nodes, until it is stopped

Each node is `topics serve` with a directory of its own, listens on loopback, and starts again with its
port and its data.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from tests import brokers
from tests.ports import unused_ports

NODES: Final = 3
PATIENCE_SECONDS: Final = 100
"""Bounds a hang."""


class Answered(Exception):
    """An answer that is an error: its status, and the document."""

    def __init__(self, status: int, document: Any) -> None:
        super().__init__(f"{status}: {document}")
        self.status, self.document = status, document


class NodeServer:
    """One node.

    Attributes:
        number: From 1.
        url: Where it is reached.
        token: The key that `ask` sends; empty: none.
        is_paused: Its process is stopped by SIGSTOP.
    """

    token = ""

    def __init__(self, folder: Path, number: int, port: int, environment: dict[str, str]) -> None:
        self.number, self.port = number, port
        self.url = f"http://127.0.0.1:{port}"
        self.is_paused = False
        self.data_dir = folder / f"node-{number}"
        self._out = folder / f"node-{number}.out"
        self._environment = {**os.environ, **environment}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Does not wait."""
        assert self._process is None
        where = ["--data-dir", str(self.data_dir), "--port", str(self.port)]
        with self._out.open("ab") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "topics", "serve", *where],
                env=self._environment,
                stdout=out,
                stderr=out,
            )

    @property
    def is_started(self) -> bool:
        return self._process is not None

    @property
    def pid(self) -> int:
        """Of the process, which runs."""
        assert self._process is not None
        return self._process.pid

    @property
    def out(self) -> str:
        """What it has logged."""
        return self._out.read_text(errors="replace")

    def kill(self) -> None:
        """kill -9."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """SIGSTOP: it answers nothing, and its connections stay."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        self.is_paused = True

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)
        self.is_paused = False

    def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        return self._end(signal.SIGTERM)

    def signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def _end(self, number: int) -> int:
        process, self._process = self._process, None
        self.is_paused = False
        if process is None:
            return 0
        process.send_signal(number)
        try:
            return process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()

    def wait_end(self) -> int:
        """Of a node that cannot start: its exit code."""
        process, self._process = self._process, None
        assert process is not None
        return process.wait(PATIENCE_SECONDS)

    def ask(self, path: str, body: Any = None, *, method: str | None = None) -> Any:
        """The document of an answer.

        Raises:
            Answered: It is an error.
            OSError: There is none.
        """
        return self.ask_with_headers(path, body, method=method)[0]

    def ask_with_headers(
        self,
        path: str,
        body: Any = None,
        *,
        method: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> tuple[Any, dict[str, str]]:
        data = None if body is None else json.dumps(body).encode()
        also = {"content-type": "application/json", **(headers or {})}
        if self.token:
            also["authorization"] = f"Bearer {self.token}"
        request = Request(self.url + path, data=data, method=method, headers=also)
        try:
            with urlopen(request, timeout=30) as answer:
                return json.load(answer), {k.lower(): v for k, v in answer.headers.items()}
        except HTTPError as refusal:
            with refusal:
                raise Answered(refusal.code, json.load(refusal)) from None
        except URLError as error:
            raise ConnectionError(str(error.reason)) from None

    def wait_ready(self) -> None:
        until = time.monotonic() + PATIENCE_SECONDS
        why: object = None
        while time.monotonic() < until:
            assert self._process is not None
            assert self._process.poll() is None, self.out
            try:
                self.ask("/v0/ready")
                return
            except (Answered, OSError) as error:
                why = error
            time.sleep(0.1)
        raise AssertionError(f"node {self.number} is not ready: {why}\n{self.out}")


class NodeServers:
    """The nodes of a cluster, in a folder.

    Args:
        bootstrap: The brokers.
        copies: Of the log; as many as there are brokers, and three at most.
    """

    def __init__(self, folder: Path, bootstrap: str, copies: int, **environment: str) -> None:
        also = {
            "TOPICS_CLUSTER_KAFKA": bootstrap,
            "TOPICS_CLUSTER_REPLICATION": str(copies),
            "TOPICS_CLUSTER_MIN_ISR": str(max(1, copies - 1)),
            **environment,
        }
        ports = unused_ports(NODES)
        self.nodes = [NodeServer(folder, at, port, also) for at, port in enumerate(ports, start=1)]

    def start(self) -> None:
        """Start those that do not run, and wait for all, and for one that leads."""
        for node in self.nodes:
            if not node.is_started:
                node.start()
        for node in self.nodes:
            node.wait_ready()
        self.leader()

    @property
    def alive(self) -> list[NodeServer]:
        """Nodes that run and are not paused."""
        return [node for node in self.nodes if node.is_started and not node.is_paused]

    def leader(self) -> NodeServer:
        """The one that runs and leads, once all that run say so."""
        until = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < until:
            urls = set()
            for node in self.alive:
                with contextlib.suppress(Answered, OSError):
                    urls.add(node.ask("/v0/cluster")["leader_url"])
            leads = [node for node in self.alive if urls == {node.url}]
            if leads:
                return leads[0]
            time.sleep(0.1)
        raise AssertionError("no node leads")

    def stop(self) -> None:
        for node in self.nodes:
            node.kill()


@contextlib.contextmanager
def running(bootstrap: str, copies: int = 1, **environment: str) -> Iterator[NodeServers]:
    """Nodes in a folder of their own, killed and removed at the end."""
    with tempfile.TemporaryDirectory(prefix="topics-nodes-") as folder:
        servers = NodeServers(Path(folder), bootstrap, copies, **environment)
        try:
            servers.start()
            yield servers
        finally:
            servers.stop()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.nodes", description=__doc__)
    parser.add_argument("--brokers", type=int, default=3, choices=(1, 3))
    count = parser.parse_args(arguments).brokers
    # SIGTERM ends as Ctrl-C does: no process outlives this one.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        print(f"{count} of Kafka's brokers start, then {NODES} nodes; Ctrl-C ends all", flush=True)
        with brokers.running(count) as kafka, running(kafka.bootstrap, count) as servers:
            print(f"brokers  {kafka.bootstrap}")
            leader = servers.leader()
            for node in servers.nodes:
                print(f"node {node.number}   {node.url}{'  leads' if node is leader else ''}")
            print(f"try      curl {servers.nodes[0].url}/v0/cluster", flush=True)
            try:
                signal.pause()
            finally:
                # A second one would leave processes behind.
                for number in (signal.SIGINT, signal.SIGTERM):
                    signal.signal(number, signal.SIG_IGN)
    except brokers.NoBrokers as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
