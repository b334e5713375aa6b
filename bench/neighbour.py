"""A client in good faith beside an attack, and what the attack costs it.

Owns the measurement and the table of it, which is the command of every module with attacks: the
latencies of the client without an attack, with the attack against the server, and with the same
attack against another process: one that throws everything away and uses as much CPU time as the
server did, or, where the attack waits for answers, a second server.  The last says what a client waits
for a CPU: attacker, server and client have two cores.  Knows nothing of what is asked and of how the
attacker attacks.
"""

import multiprocessing
import selectors
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import click

from bench.serving import Serving, serve_topics

PAUSE_S: Final = 0.002
ROUND_S: Final = 0.0005
"""A process that uses a part of a CPU uses that part of each such time, as a server does."""
REST_S: Final = 0.5
ACCEPTED: Final = b"HTTP/1.1 101 Switching Protocols\r\n\r\n"

TITLES: Final = (
    f"{'p99 before':>11} {'sink':>11} {'attacked':>11} {'ratio':>9} {'to sink':>9}"
    f" {'429':>4} {'peak RSS':>10} {'CPU':>8} {'attacked':>9}"
)

Ask = Callable[[], bool]
"""One request, and its answer; whether it was refused with 429."""
Setup = Callable[[Serving, str], AbstractContextManager[Ask]]
"""What is there before an attack, and the client in good faith, for as long as it lasts."""
Attack = Callable[[int, str, int], None]
"""Attacks a port, by the attack's name, from so many connections or sets of them, for ever."""


@dataclass(frozen=True, slots=True)
class Row:
    """What an attack did.

    Attributes:
        before_ms, sink_ms, attacked_ms: The client's p99 without an attack, with one against another
            process, and with one against the server.
        refused: Requests of the client that were refused meanwhile.
        grown_mib: By how much the server's peak RSS grew.
        cpu_before_ms, cpu_ms: The p99 of the CPU time of the server, of all its threads, while the
            client waited for an answer.
    """

    before_ms: float
    sink_ms: float
    attacked_ms: float
    refused: int
    grown_mib: int
    cpu_before_ms: float
    cpu_ms: float

    def __str__(self) -> str:
        ratio = self.attacked_ms / self.before_ms
        to_sink = self.attacked_ms / max(self.sink_ms, self.before_ms)
        return (
            f"{self.before_ms:8.2f} ms {self.sink_ms:8.2f} ms {self.attacked_ms:8.2f} ms"
            f" {ratio:7.1f} x {to_sink:7.1f} x {self.refused:4} {self.grown_mib:6} MiB"
            f" {self.cpu_before_ms:5.2f} ms {self.cpu_ms:6.2f} ms"
        )


def attacked(
    serving: Serving,
    ask: Ask,
    attack: Attack,
    name: str,
    clients: int,
    *,
    seconds: float,
    elsewhere: AbstractContextManager[int] | None,
) -> Row:
    """Measure a client that asks a server, without and with an attack.

    Args:
        attack: Runs in a process of its own.
        seconds: How long it lasts; the rest takes as long again.
        elsewhere: A second server, prepared for the attack, and its port; None: the attack goes on
            without an answer, so that it may be sent where nobody reads it.
    """
    asked(serving, ask, seconds / 6)
    sink_ms = 0.0
    if elsewhere is not None:
        with elsewhere as port:
            args = (port, name, clients)
            sink_ms, _, _ = _beside(serving, ask, attack, args, seconds / 1.5)
    before_ms, cpu_before_ms, _ = asked(serving, ask, seconds / 2)
    forget_peak(serving)
    rss, used_s = rss_mib(serving, "VmRSS"), serving.cpu_s()
    attacked_ms, cpu_ms, refused = _beside(
        serving, ask, attack, (serving.port, name, clients), seconds
    )
    grown = rss_mib(serving, "VmHWM") - rss
    share = (serving.cpu_s() - used_s) / seconds
    if elsewhere is None:
        time.sleep(REST_S)  # the server lets go of the attacker's connections
        ours, theirs = multiprocessing.Pipe()
        sink = multiprocessing.Process(target=_throw_away, args=(theirs, share))
        sink.start()
        try:
            args = (ours.recv(), name, clients)
            sink_ms, _, _ = _beside(serving, ask, attack, args, seconds / 1.5)
        finally:
            sink.kill()
            sink.join()
    return Row(before_ms, sink_ms, attacked_ms, refused, grown, cpu_before_ms, cpu_ms)


def _beside(
    serving: Serving, ask: Ask, attack: Attack, args: tuple[int, str, int], seconds: float
) -> tuple[float, float, int]:
    attacker = multiprocessing.Process(target=attack, args=args)
    attacker.start()
    try:
        return asked(serving, ask, seconds)
    finally:
        attacker.kill()
        attacker.join()


def asked(serving: Serving, ask: Ask, seconds: float) -> tuple[float, float, int]:
    """The p99 of the client's latency, and of the server's CPU time meanwhile, ms; and the number of
    requests that were refused."""
    waits: list[float] = []
    costs: list[float] = []
    refused = 0
    until_s = time.perf_counter() + seconds
    while (begun_s := time.perf_counter()) < until_s or not waits:
        cpu_s = serving.cpu_s()
        refused += ask()
        waits.append(time.perf_counter() - begun_s)
        costs.append(serving.cpu_s() - cpu_s)
        time.sleep(PAUSE_S)
    return p99_ms(waits), p99_ms(costs), refused


def table(
    attacks: Sequence[str],
    setup: Setup,
    attack: Attack,
    *,
    has_sink: bool = True,
    options_of: Callable[[str], Sequence[str]] = lambda _: (),
) -> click.Command:
    """The command that measures attacks and prints a row for each; every attack gets a server of its
    own, and a traceback in its log is told.

    Args:
        options_of: Of `topics serve`, by the attack.
    """

    @click.command()
    @click.argument("names", metavar="[ATTACK]...", nargs=-1, type=click.Choice(attacks))
    @click.option("--clients", default=1, show_default=True, help="Connections that attack.")
    @click.option("--other", type=click.Path(path_type=Path), help="A checkout to attack instead.")
    @click.option("--seconds", default=3.0, show_default=True, help="How long an attack lasts.")
    @click.option("--readers", default=0, show_default=True, help="As for `topics serve`.")
    def main(
        names: tuple[str, ...], clients: int, other: Path | None, seconds: float, readers: int
    ) -> None:
        """Measure ATTACKs, or all of them; CPU and memory are those of the first process alone."""
        print(f"{'attack':28} {TITLES}")
        checkout = other.absolute() if other else None
        options = ("--readers", str(readers)) if readers else ()

        @contextmanager
        def elsewhere(home: str, name: str) -> Iterator[int]:
            with (
                serve_topics(
                    Path(home) / "elsewhere", checkout, *options, *options_of(name)
                ) as second,
                setup(second, name),
            ):
                yield second.port

        for name in names or attacks:
            with tempfile.TemporaryDirectory() as home:
                where = Path(home) / "server"
                with (
                    serve_topics(where, checkout, *options, *options_of(name)) as serving,
                    setup(serving, name) as ask,
                ):
                    row = attacked(
                        serving,
                        ask,
                        attack,
                        name,
                        clients,
                        seconds=seconds,
                        elsewhere=None if has_sink else elsewhere(home, name),
                    )
                log = (where / "log").read_text(errors="replace")
            print(f"{name:28} {row}{'  TRACEBACK' if 'Traceback' in log else ''}", flush=True)

    return main


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
