"""The order of a real server's system calls: no answer goes out before the sync that it promises.

strace sees what no injected file can: that the bytes of a write, the sync and the answer are those of
one file and one request, and happen in this order.
"""

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from contract.api import Api
from contract.hosts import OWN, Host
from contract.server import Server, until
from contract.wire import Http1

CALLS = "pwrite64,pwritev,pwritev2,fdatasync,fsync,sendto,sendmsg,write,writev"
LINE = re.compile(r"(\d+) +(\w+)\((\d+)<([^>]*)>(.*)")
RESUMED = re.compile(r"(\d+) +<\.\.\. (\w+) resumed>(.*)")


@dataclass(frozen=True, slots=True)
class Call:
    """A call that has returned: `path` is that of its file, `text` its arguments and result."""

    name: str
    path: str
    text: str


def traced(trace: Path) -> Host:
    """A server that strace looks at from aside: signals go to the server itself."""
    command = ("strace", "-D", "-f", "-y", "-s", "400", "-o", str(trace), "-e", f"trace={CALLS}")
    return Host("traced", lambda port: command + OWN.command(port), has_port_file=True)


def calls(trace: Path) -> Iterator[Call]:
    """All calls in the order in which they returned."""
    begun: dict[str, Call] = {}
    for line in trace.read_text(errors="replace").splitlines():
        if found := LINE.match(line):
            thread, name, _, path, text = found.groups()
            call = Call(name, path, text)
            if text.endswith("<unfinished ...>"):
                begun[thread] = call
            else:
                yield call
        elif (found := RESUMED.match(line)) and found[1] in begun:
            call = begun.pop(found[1])
            yield Call(call.name, call.path, call.text + found[3])


def test_an_answer_follows_its_sync(tmp_path: Path) -> None:
    """Of each write to an `fsync` topic: its bytes are written to a log file, that file is synced
    after it, and then comes the answer; of each to a `disk` topic: its bytes are written, and then
    comes the answer. (F2, F9)"""
    if shutil.which("strace") is None:
        pytest.skip("no strace")
    trace = tmp_path / "trace"
    with Server(tmp_path / "home", traced(trace)) as server:
        pid = server.pid
        api = Api(server.connect(Http1))
        for kind in ("disk", "fsync"):
            api.put(kind, durability=kind)
        for number in range(30):
            for kind in ("disk", "fsync"):
                api.append(kind, f"token-{kind}-{number}-")
        assert server.stop() == 0
    # strace pads a short pid.
    ended = re.compile(rf"^{pid} +\+\+\+ exited with 0 \+\+\+$", re.MULTILINE)
    until("the whole trace", lambda: ended.search(trace.read_text()))

    written: dict[str, str] = {}
    synced: set[str] = set()
    answered = {"disk": 0, "fsync": 0}
    for call in calls(trace):
        is_log = call.path.endswith(".wal")
        if call.name.startswith("pwrite") and is_log:
            assert not call.text.endswith("= -1"), call
            for token in re.findall(r"token-\w+-\d+-", call.text):
                written[token] = call.path
        elif call.name in ("fdatasync", "fsync") and is_log:
            assert call.text.rstrip().endswith("= 0"), call
            synced |= {token for token, path in written.items() if path == call.path}
        elif found := re.search(r'\\"topic\\":\\"(disk|fsync)\\",\\"first_seq\\":(\d+)', call.text):
            kind, token = found[1], f"token-{found[1]}-{int(found[2]) - 1}-"
            answered[kind] += 1
            assert token in written, (token, call)
            assert kind == "disk" or token in synced, (token, call)

    assert answered == {"disk": 30, "fsync": 30}
