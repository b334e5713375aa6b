"""Freed memory goes back to the system when the server is at rest, and not before."""

import subprocess
import sys

from topics.server.runtime.freed_memory import REST_BYTES, WORTH_BYTES, FreedMemory


class Server:
    """What it has written, whether it seals, and its timer."""

    def __init__(self) -> None:
        self.written_bytes = 0
        self.is_busy = False
        self.waiting: list[object] = []
        self.given_back = 0
        self.freed = FreedMemory(
            lambda: self.written_bytes,
            lambda: self.is_busy,
            lambda _, call: self.waiting.append(call),
            self._give_back,
        )

    def _give_back(self) -> None:
        self.given_back += 1

    def write(self, size: int) -> None:
        self.written_bytes += size
        self.freed.look()

    def pass_a_second(self) -> None:
        calls, self.waiting = self.waiting, []
        for call in calls:
            call()  # type: ignore[operator]


def test_a_server_that_wrote_little_has_nothing_to_give_back() -> None:
    server = Server()
    server.write(WORTH_BYTES - 1)
    assert server.waiting == []


def test_memory_goes_back_once_after_a_burst() -> None:
    """A second after the last of it, however long it was; then the next burst counts."""
    server = Server()
    for _ in range(5):
        server.write(WORTH_BYTES)
        assert len(server.waiting) == 1
        server.write(REST_BYTES)
        server.pass_a_second()
        assert server.given_back == 0
    server.write(REST_BYTES - 1)

    server.pass_a_second()

    assert (server.given_back, server.waiting) == (1, [])
    server.write(WORTH_BYTES - 1)
    assert server.waiting == []
    server.write(1)
    server.pass_a_second()
    assert server.given_back == 2


def test_what_is_being_sealed_is_waited_for() -> None:
    """It frees the memory."""
    server = Server()
    server.write(WORTH_BYTES)
    server.is_busy = True
    server.pass_a_second()
    assert server.given_back == 0
    server.is_busy = False

    server.pass_a_second()

    assert server.given_back == 1


FREE = """
from topics.server.runtime.freed_memory import trim

def anonymous_kb():
    for line in open("/proc/self/status"):
        if line.startswith("RssAnon:"):
            return int(line.split()[1])

bytearray(30 << 20)  # from here on the allocator takes large blocks from its heap
blocks, pins = [], []
for _ in range(20):
    blocks.append(bytearray(1 << 20))
    pins.append(bytearray(600))
full = anonymous_kb()
blocks.clear()
trim()
print(full - anonymous_kb())
"""


def test_whole_pages_go_back() -> None:
    """Also those between blocks in use."""
    ran = subprocess.run([sys.executable, "-c", FREE], capture_output=True, text=True, check=True)
    assert int(ran.stdout) > 15 << 10
