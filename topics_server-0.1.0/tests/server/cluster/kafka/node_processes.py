"""Processes of nodes, and what they tell, as tests want it."""

import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from topics.server.cluster.kafka.settings import KafkaSettings

PATIENCE_SECONDS = 90
"""Bounds a hang; nothing is asserted of how long anything takes."""


class NodeProcess:
    """One of them.

    Attributes:
        lines: All that it has told, in words.
    """

    def __init__(self, settings: KafkaSettings, number: int) -> None:
        self.number = number
        self.lines: list[list[str]] = []
        self._coming: queue.SimpleQueue[list[str] | None] = queue.SimpleQueue()
        module = "tests.server.cluster.kafka.node_process"
        said = [settings.servers, settings.name, number, settings.replication, settings.min_isr]
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *map(str, said)], stdout=subprocess.PIPE, text=True
        )
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if not line.endswith("\n"):
                break  # it was killed while it told this
            words = line.split()
            self.lines.append(words)
            self._coming.put(words)
        self._coming.put(None)

    def until(self, word: str, count: int = 1) -> list[str]:
        """The line with which it told this so often, from now on."""
        while True:
            words = self._coming.get(timeout=PATIENCE_SECONDS)
            assert words is not None, f"node {self.number} ended"
            count -= words[0] == word
            if not count:
                return words

    def told(self, word: str) -> list[int]:
        return [int(words[1]) for words in self.lines if words[0] == word]

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        """kill -9; afterwards `lines` has all that it told."""
        self._process.kill()
        self._process.wait()
        while self._coming.get(timeout=PATIENCE_SECONDS) is not None:
            pass

    def holds(self) -> list[int]:
        """All that it has applied, in order; it ends."""
        self.signal(signal.SIGTERM)
        while True:
            words = self._coming.get(timeout=PATIENCE_SECONDS)
            assert words is not None
            if words[0] == "holds":
                return [int(word) for word in words[1:]]

    def end(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


@contextmanager
def nodes(settings: KafkaSettings, count: int) -> Iterator[list[NodeProcess]]:
    found = [NodeProcess(settings, number) for number in range(1, count + 1)]
    try:
        for node in found:
            node.until("joined")
        yield list(found)
    finally:
        for node in found:
            node.end()


def leader_of(found: Sequence[NodeProcess]) -> NodeProcess:
    """The first of these that tells that it leads, after which it has told so."""
    # Which of them it is, is Kafka's choice: each is listened to on a thread until one has told.
    first: queue.SimpleQueue[NodeProcess] = queue.SimpleQueue()
    done = threading.Event()

    def listen(node: NodeProcess) -> None:
        while not done.is_set():
            if any(words[0] == "leads" for words in node.lines):
                first.put(node)
                return
            done.wait(0.02)

    for node in found:
        threading.Thread(target=listen, args=(node,), daemon=True).start()
    try:
        return first.get(timeout=PATIENCE_SECONDS)
    finally:
        done.set()


def writer_of(found: Sequence[NodeProcess], count: int) -> NodeProcess:
    """The first of these that tells of so many accepted marks from now on: who leads may change."""
    before = {node.number: len(node.told("accepted")) for node in found}
    until = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < until:
        for node in found:
            if len(node.told("accepted")) >= before[node.number] + count:
                return node
        time.sleep(0.1)
    raise AssertionError(f"none of {sorted(before)} has led for {PATIENCE_SECONDS} s")
