"""A client in good faith beside an attack, and what the attack costs it.

Owns the measurement: the latencies of the client without an attack, with the attack against the
server, and with the same attack against a process that throws everything away and uses as much CPU
time as the server did.  The last says what a client waits for a CPU: attacker, server and client have
two cores.  Knows nothing of what is asked and of how the attacker attacks.
"""

import multiprocessing
import selectors
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from bench.serving import Serving

PAUSE_S: Final = 0.002
BEFORE_S: Final = 1.5
SINK_S: Final = 2.0
ROUND_S: Final = 0.0005
"""A process that uses a part of a CPU uses that part of each such time, as a server does."""
ATTACK_S: Final = 3.0
REST_S: Final = 0.5
ACCEPTED: Final = b"HTTP/1.1 101 Switching Protocols\r\n\r\n"

TITLES: Final = (
    f"{'p99 before':>11} {'sink':>11} {'attacked':>11} {'ratio':>9} {'to sink':>9}"
    f" {'peak RSS':>10} {'CPU':>8} {'attacked':>9}"
)


@dataclass(frozen=True, slots=True)
class Row:
    """What an attack did.

    Attributes:
        before_ms, sink_ms, attacked_ms: The client's p99 without an attack, with one against a
            process that throws everything away, and with one against the server.
        grown_mib: By how much the server's peak RSS grew.
        cpu_before_ms, cpu_ms: The p99 of the CPU time of the server, of all its threads, while the
            client waited for an answer.
    """

    before_ms: float
    sink_ms: float
    attacked_ms: float
    grown_mib: int
    cpu_before_ms: float
    cpu_ms: float

    def __str__(self) -> str:
        ratio = self.attacked_ms / self.before_ms
        to_sink = self.attacked_ms / max(self.sink_ms, self.before_ms)
        return (
            f"{self.before_ms:8.2f} ms {self.sink_ms:8.2f} ms {self.attacked_ms:8.2f} ms"
            f" {ratio:7.1f} x {to_sink:7.1f} x {self.grown_mib:6} MiB"
            f" {self.cpu_before_ms:5.2f} ms {self.cpu_ms:6.2f} ms"
        )


def attacked(
    serving: Serving,
    ask: Callable[[], None],
    attack: Callable[..., None],
    args: tuple[Any, ...],
) -> Row:
    """Measure a client that asks a server, without and with an attack.

    Args:
        ask: One request, and its answer.
        attack: Runs in a process of its own, for ever, with a port and `args`.
    """
    asked(serving, ask, 0.5)
    before_ms, cpu_before_ms = asked(serving, ask, BEFORE_S)
    forget_peak(serving)
    rss, used_s = rss_mib(serving, "VmRSS"), serving.cpu_s()
    attacked_ms, cpu_ms = _beside(serving, ask, attack, (serving.port, *args), ATTACK_S)
    grown = rss_mib(serving, "VmHWM") - rss
    share = (serving.cpu_s() - used_s) / ATTACK_S
    time.sleep(REST_S)  # the server lets go of the attacker's connections
    ours, theirs = multiprocessing.Pipe()
    sink = multiprocessing.Process(target=_throw_away, args=(theirs, share))
    sink.start()
    try:
        sink_ms, _ = _beside(serving, ask, attack, (ours.recv(), *args), SINK_S)
    finally:
        sink.kill()
        sink.join()
    return Row(before_ms, sink_ms, attacked_ms, grown, cpu_before_ms, cpu_ms)


def _beside(
    serving: Serving,
    ask: Callable[[], None],
    attack: Callable[..., None],
    args: tuple[Any, ...],
    seconds: float,
) -> tuple[float, float]:
    attacker = multiprocessing.Process(target=attack, args=args)
    attacker.start()
    try:
        return asked(serving, ask, seconds)
    finally:
        attacker.kill()
        attacker.join()


def asked(serving: Serving, ask: Callable[[], None], seconds: float) -> tuple[float, float]:
    """The p99 of the client's latency, and of the server's CPU time meanwhile; ms."""
    waits, costs = [], []
    until_s = time.perf_counter() + seconds
    while (begun_s := time.perf_counter()) < until_s:
        cpu_s = serving.cpu_s()
        ask()
        waits.append(time.perf_counter() - begun_s)
        costs.append(serving.cpu_s() - cpu_s)
        time.sleep(PAUSE_S)
    return p99_ms(waits), p99_ms(costs)


def p99_ms(seconds: list[float]) -> float:
    return sorted(seconds)[int(len(seconds) * 0.99)] * 1e3


def rss_mib(serving: Serving, which: str) -> int:
    """`VmRSS` is the server's memory now, `VmHWM` the most since `forget_peak`."""
    status = Path(f"/proc/{serving.process.pid}/status").read_text()
    return int(status.partition(f"{which}:")[2].split()[0]) >> 10


def forget_peak(serving: Serving) -> None:
    Path(f"/proc/{serving.process.pid}/clear_refs").write_text("5")


def _throw_away(ready: Connection, share: float) -> None:
    """Accept, read, forget; open WebSockets, so that an attacker goes on.  Use `share` of a CPU."""
    selector = selectors.DefaultSelector()
    listening = socket.create_server(("127.0.0.1", 0), backlog=1000)
    listening.setblocking(False)
    selector.register(listening, selectors.EVENT_READ)
    ready.send(listening.getsockname()[1])
    begun_s = time.perf_counter()
    while True:
        wanted_s = min(share, 1.0) * (time.perf_counter() - begun_s)
        while time.thread_time() < wanted_s:
            pass
        for key, _ in selector.select(ROUND_S):
            with suppress(OSError):
                _serve(selector, key.fileobj, listening)


def _serve(selector: selectors.BaseSelector, found: Any, listening: socket.socket) -> None:
    if found is listening:
        accepted, _ = listening.accept()
        accepted.setblocking(False)
        selector.register(accepted, selectors.EVENT_READ)
        return
    data = found.recv(1 << 18)
    if b"upgrade: websocket" in data:
        found.send(ACCEPTED)
    if not data:
        selector.unregister(found)
        found.close()
