"""Where a page is read: an empty folder with a server, a shell and a Python beside it.

The server is `topics serve` in that folder, on a free port in place of 4000. Folders that pages name
by their absolute paths are in the folder. `systemctl` stops and starts that server.
"""

import json
import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from signal import SIGINT
from types import TracebackType
from typing import Final, Self

PATIENCE_S: Final = 600.0
"""How long a command may take; some install packages."""
INTERRUPT_S: Final = 5.0
"""Between two interrupts of a command that goes on: a second one soon after the first deadlocks taskiq's worker."""

SYSTEMCTL: Final = """#!/bin/sh
# The part of systemd that a page needs: one service, which is the server of this folder.
case "$1" in
stop|restart)
    kill "$(cat "$PLACE/pid")"
    tail -s 0.02 --pid="$(cat "$PLACE/pid")" -f /dev/null ;;
esac
case "$1" in
start|restart)
    rm -f "$PLACE/port"
    export TOPICS_PORT="$(cat "$PLACE/at")" TOPICS_PORT_FILE="$PLACE/port"
    cd "$PLACE/.." && setsid topics serve >>"$PLACE/log" 2>&1 </dev/null & echo $! >"$PLACE/pid"
    for _ in $(seq 1000); do
        [ -s "$PLACE/port" ] && curl -sfo /dev/null "http://$(cat "$PLACE/port")/v0/ready" && exit 0
        kill -0 "$(cat "$PLACE/pid")" || break
        sleep 0.1
    done
    cat "$PLACE/log"; exit 1 ;;
esac
"""

ENDED: Final = "\0"
PIP: Final = """#!/bin/sh
# What pages install from the checkout is there, unless it is a clone to try them in.
if [ -n "$CLONE" ]; then cd "$CLONE" && exec python -m pip --quiet --disable-pip-version-check "$@"; fi
"""

DRIVER: Final = """
import json, sys, traceback
names = {"__name__": "__main__"}
for line in iter(sys.stdin.readline, ""):
    how = "done"
    try:
        exec(compile(json.loads(line), "<page>", "exec"), names)
    except KeyboardInterrupt:
        how = "interrupted"
    except BaseException:
        traceback.print_exc()
        how = "failed"
    print("\\0" + how, flush=True)
"""
"""An interpreter that is given a block a line, and keeps its names."""


class Place:
    """A folder, and what runs in it; use it in a `with`.

    Attributes:
        folder: Where commands are typed.
        tools: The programs of the environment with `topics`.
        clone: A checkout of its own, into whose environment pages install what they need.
    """

    def __init__(self, folder: Path, tools: Path, clone: Path | None = None) -> None:
        self.folder = folder
        self._port = ""
        self._hidden = folder / ".place"
        self._python: subprocess.Popen[str] | None = None
        (self._hidden / "bin").mkdir(parents=True)
        for name, text in (("systemctl", SYSTEMCTL), ("pip", PIP), ("git", "#!/bin/sh\n")):
            (self._hidden / "bin" / name).write_text(text)
            (self._hidden / "bin" / name).chmod(0o755)
        (folder / ".curlrc").write_text("silent\nshow-error\n")  # as on a terminal: no meter
        for away in ("/var/lib", "/backup", "/etc/topics"):
            (self._hidden / away[1:]).mkdir(parents=True)
        (self._hidden / "var/lib/topics").symlink_to(folder / "topics-data")
        kept = {k: v for k, v in os.environ.items() if not k.startswith("TOPICS_")}
        kept = {k: v for k, v in kept.items() if k not in ("VIRTUAL_ENV", "PYTHONPATH")}
        path = [self._hidden / "bin", tools, os.environ["PATH"]]
        self.environment = {
            **kept,
            "PATH": os.pathsep.join(map(str, path)),
            "HOME": str(folder),
            "XDG_CONFIG_HOME": str(folder / ".config"),
            "PLACE": str(self._hidden),
            "CLONE": str(clone or ""),
        }

    def __enter__(self) -> Self:
        (self._hidden / "at").write_text("0")
        self._service("start")
        self._port = (self._hidden / "port").read_text().strip().rpartition(":")[2]
        (self._hidden / "at").write_text(self._port)
        self.environment["TOPICS_URL"] = f"http://127.0.0.1:{self._port}"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._python is not None:
            self._python.kill()
            self._python.communicate()
        self._service("stop")

    def _service(self, what: str) -> None:
        run(["systemctl", what], self.folder, self.environment)

    def here(self, code: str) -> str:
        """A block, with the port and the folders of this place."""
        code = re.sub(r"(localhost|127\.0\.0\.1):4000", rf"\1:{self._port}", code)
        code = re.sub(r"(?<=--port )4000\b", str(self._port), code)
        return re.sub(r"(?<![\w.])/(var/lib|backup|etc/topics)(?=/)", rf"{self._hidden}/\1", code)

    def shell(self, code: str) -> str:
        """Run a script that ends at the first command that fails; what it printed.

        Raises:
            AssertionError: A command of it failed.
        """
        return run(
            ["bash", "-euo", "pipefail", "-c", self.here(code)], self.folder, self.environment
        )

    def type(self, command: str) -> str:
        """Type a command at a prompt; what it printed, also where it failed."""
        line = ["bash", "-c", self.here(command)]
        return run(line, self.folder, self.environment, may_fail=True)

    def until(self, command: str, words: str, meanwhile: str | None) -> str:
        """Start a command that goes on, and interrupt it when it has printed the words.  A command that ends
        by itself before what happens meanwhile has happened is started again."""
        begun_s = time.monotonic()
        while (printed := self._once(command, words, meanwhile)) is None:
            assert time.monotonic() < begun_s + PATIENCE_S, command
        return printed

    def _once(self, command: str, words: str, meanwhile: str | None) -> str | None:
        started = subprocess.Popen(
            ["bash", "-uc", self.here(command)], cwd=self.folder, env=self.environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            process_group=0, preexec_fn=heed_interrupts,
        )  # fmt: skip
        try:
            printed = self._read(started, words, meanwhile)
            if words not in printed:
                has_ended_well = meanwhile is not None and started.wait() == 0
                assert has_ended_well, f"{command}\n{printed}"
                return None
            return printed + self._read(started, interrupt=lambda: os.killpg(started.pid, SIGINT))
        finally:
            if started.poll() is None:
                os.killpg(started.pid, signal.SIGKILL)
            started.communicate()

    def python(self, code: str, words: str | None = None, meanwhile: str | None = None) -> str:
        """Run a block in the page's interpreter, which keeps its names; what it printed.

        With `words` it goes on, and is interrupted when it has printed them.
        """
        if self._python is None:
            self._python = subprocess.Popen(
                ["python", "-uc", DRIVER], cwd=self.folder, env=self.environment,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                preexec_fn=heed_interrupts,
            )  # fmt: skip
        at = self._python
        assert at.stdin is not None
        at.stdin.write(json.dumps(self.here(code)).encode() + b"\n")
        at.stdin.flush()
        printed = ""
        if words is not None:
            printed = self._read(at, words, meanwhile)
            at.send_signal(SIGINT)
        printed += self._read(at, ENDED) if ENDED not in printed else ""
        text, _, how = printed.partition(ENDED)
        assert how.strip() == ("done" if words is None else "interrupted"), f"{code}\n{printed}"
        return text

    def _read(
        self,
        process: subprocess.Popen[bytes],
        words: str | None = None,
        meanwhile: str | None = None,
        interrupt: Callable[[], None] = lambda: None,
    ) -> str:
        """What a process prints until the words are there, or its end."""
        assert process.stdout is not None
        printed = b""
        interrupt_s = time.monotonic()
        deadline_s = interrupt_s + PATIENCE_S
        while words is None or words.encode() not in printed:
            assert time.monotonic() < deadline_s, printed.decode(errors="replace")
            if time.monotonic() >= interrupt_s:
                interrupt()
                interrupt_s = time.monotonic() + INTERRUPT_S
            if meanwhile is not None:
                self.shell(meanwhile)
            if select.select([process.stdout], [], [], 0.5)[0]:
                piece = os.read(process.stdout.fileno(), 65536)
                if not piece:
                    break
                printed += piece
        return printed.decode(errors="replace")


def heed_interrupts() -> None:
    """^C ends a program as on a terminal, also where these tests run in the background of a shell."""
    signal.signal(SIGINT, signal.SIG_DFL)


def run(
    command: list[str], folder: Path, environment: dict[str, str], *, may_fail: bool = False
) -> str:
    """What a command printed, on both streams.

    Raises:
        AssertionError: It did not end with 0, and must not fail.
    """
    done = subprocess.run(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PATIENCE_S,
    )  # fmt: skip
    assert may_fail or done.returncode == 0, f"{command[-1]}\n{done.stdout}"
    return done.stdout
