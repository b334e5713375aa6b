"""What the signals of a server process do (§0.2)."""

import asyncio
import logging
import signal
import subprocess
import sys

import pytest

from topics.server.process import signals
from topics.server.process.signals import Stop


def test_a_hangup_is_no_stop(caplog: pytest.LogCaptureFixture) -> None:
    """SIGHUP is logged; SIGTERM is what `Stop` waits for."""

    async def story() -> None:
        loop = asyncio.get_running_loop()
        stop = Stop()
        stop.hear(loop)
        waiting = asyncio.ensure_future(stop.wait())
        signal.raise_signal(signal.SIGHUP)
        await asyncio.sleep(0.01)
        assert not waiting.done()
        signal.raise_signal(signal.SIGTERM)
        async with asyncio.timeout(100):
            await waiting
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.remove_signal_handler(number)

    with caplog.at_level(logging.INFO, "topics"):
        asyncio.run(story())
    signals.faulthandler.cancel_dump_traceback_later()
    assert ["SIGHUP" in record.getMessage() for record in caplog.records] == [True]


SCRIPT = """
import asyncio, os, signal
from topics.server.process import signals

async def main():
    signals.STOP_S = {stop_s}
    stop = signals.Stop()
    stop.hear(asyncio.get_running_loop())
    os.kill(os.getpid(), signal.{first})
    await stop.wait()
    {then}

asyncio.run(main())
"""


@pytest.mark.parametrize("first", ["SIGTERM", "SIGINT"])
@pytest.mark.parametrize(
    "then",
    ["os.kill(os.getpid(), signal.SIGTERM); await asyncio.Event().wait()", "while True: pass"],
)
def test_the_process_ends_whatever_hangs(first: str, then: str) -> None:
    """At a second signal, or some time after the first where the loop itself hangs: code 1."""
    stop_s = 0.3 if "while" in then else 1000
    code = SCRIPT.format(stop_s=stop_s, first=first, then=then)

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=100)

    assert done.returncode == 1


def test_signals_are_heard_before_the_server_is_loaded() -> None:
    """So a signal that comes while the rest is imported stops the process in order."""
    code = (
        "import sys, topics.server.process.signals\n"
        "print([name for name in sys.modules if name.startswith(('topics.protocol', 'msgspec'))])"
    )
    got = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert got.stdout == "[]\n"
