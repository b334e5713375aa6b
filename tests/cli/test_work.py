"""`topics work`: a command for each job, and what becomes of it when either is cut short."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import interrupts
import pytest
from msgspec import Raw

from bench.flights import Server
from topics.cli import work
from topics.cli.work import SECRETS, VARIABLES, inherited, variables
from topics.client import NewRecord, Unreachable, endpoints
from topics.client.target import parse_target
from topics.testing import MemoryTopics

SHOW = 'echo "$(cat) $TOPICS_JOB_QUEUE $TOPICS_JOB_SEQ ${TOPICS_JOB_TAG-none} $TOPICS_JOB_DELIVERIES" >>'


@pytest.fixture
def jobs(memory: MemoryTopics) -> MemoryTopics:
    """A queue."""
    memory.client.put_topic("jobs", type="queue", lease_ms=30_000)
    return memory


def counts(memory: MemoryTopics) -> tuple[int, int, int]:
    """(ready, in flight, delayed) of the queue."""
    queue = memory.client.topic("jobs").queue
    assert queue is not None
    return (queue.ready, queue.in_flight, queue.delayed)


def test_a_command_for_each_job(jobs: MemoryTopics, run: Any, tmp_path: Path) -> None:
    """Data on standard input byte for byte, the rest in the environment; 0 acks. (§10.4)"""
    out = tmp_path / "out"
    jobs.client.append("jobs", {"n": 1}, "two", tag="t:1")
    jobs.client.append("jobs", 3)

    done = run("work", "jobs", "--drain", "--", "sh", "-c", f"{SHOW} {out}")

    assert (done.exit_code, done.stderr) == (0, "3 jobs done\n")
    assert out.read_text().splitlines() == [
        '{"n":1} jobs 1 t:1 1',
        '"two" jobs 2 t:1 1',
        "3 jobs 3 none 1",
    ]
    assert jobs.client.topic("jobs").count == 0


def test_a_command_that_fails(jobs: MemoryTopics, run: Any) -> None:
    """Its job is given back, to come again after a while, and the code is 5. (§10.5)"""
    jobs.client.append("jobs", "a")

    done = run("work", "jobs", "--drain", "--", "sh", "-c", "exit 3")

    assert (done.exit_code, done.stderr.splitlines()) == (
        5,
        ["topics: job 1 failed: exit 3 (delivery 1)", "0 jobs done, 1 failed"],
    )
    assert counts(jobs) == (0, 0, 1)
    jobs.advance(ms=1000)
    assert counts(jobs) == (1, 0, 0)


def test_a_command_that_is_killed(jobs: MemoryTopics, run: Any) -> None:
    """A signal is a failure, told by its name."""
    jobs.client.append("jobs", "a", "b")

    done = run("work", "jobs", "--max-jobs", 1, "--", "sh", "-c", "kill -9 $$")

    assert done.exit_code == 5
    assert "topics: job 1 failed: killed by SIGKILL (delivery 1)" in done.stderr
    assert counts(jobs) == (1, 0, 1)


def test_a_command_that_takes_too_long(jobs: MemoryTopics, run: Any, tmp_path: Path) -> None:
    """It is killed, with what it started, and its job has failed for that reason. (§10.5)"""
    jobs.client.append("jobs", "a")
    alive = tmp_path / "alive"  # has a writer for as long as a process of the command lives
    os.mkfifo(alive)
    takes_long = f"exec 3>{alive}; sleep 1000 & wait"

    with ThreadPoolExecutor() as pool:
        dead = pool.submit(alive.read_bytes)
        arguments = ("--time-limit", "300ms", "--max-jobs", 1, "--", "sh", "-c", takes_long)
        done = run("work", "jobs", *arguments)
        with suppress(
            OSError
        ):  # the reader is gone already, unless the command had not come so far
            os.close(os.open(alive, os.O_WRONLY | os.O_NONBLOCK))
        dead.result(60)

    assert (done.exit_code, done.stderr.splitlines()) == (
        5,
        ["topics: job 1 failed: time limit of 0.3 s (delivery 1)", "0 jobs done, 1 failed"],
    )
    (job,) = jobs.client.jobs("jobs")
    assert [one.reason for one in job.reasons] == ["time limit of 0.3 s"]


@pytest.mark.parametrize(
    ("delay", "deliveries", "waits_ms"),
    [("10s", 1, 10_000), ("10s", 3, 40_000), ("10s", 9, 300_000), ("20m", 3, 1_200_000)],
)
def test_delays(jobs: MemoryTopics, run: Any, delay: str, deliveries: int, waits_ms: int) -> None:
    """A job rests for --delay, doubled with each delivery to five minutes or --delay. (§10.5)"""
    jobs.client.append("jobs", "a")
    for _ in range(deliveries - 1):
        jobs.client.nack("jobs", jobs.client.claim("jobs", node="w").jobs, node="w")

    run("work", "jobs", "--delay", delay, "--drain", "--", "false")

    jobs.advance(ms=waits_ms - 1)
    assert counts(jobs) == (0, 0, 1)
    jobs.advance(ms=1)
    assert counts(jobs) == (1, 0, 0)


def test_options_reach_the_claim(
    jobs: MemoryTopics, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """--node and --lease are what the queue knows the job by. (§10.2)"""
    asked: list[Any] = []

    def refuse(*_names: Any, **options: Any) -> Any:
        asked.append(options)
        raise Unreachable("unreachable", 0, "enough")

    monkeypatch.setattr(endpoints, "claim", refuse)

    run("work", "jobs", "--node", "w7", "--lease", "5m", "--max-jobs", 3, "--", "true")

    assert [(o["node"], o["lease_ms"], o["max"]) for o in asked] == [("w7", 300_000, 1)]


def test_several_at_once(jobs: MemoryTopics, run: Any, tmp_path: Path) -> None:
    """--jobs commands run at the same time: here each waits for the other."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    jobs.client.append("jobs", "a", "b")

    both = f"if [ $TOPICS_JOB_SEQ = 1 ]; then echo >{pipe}; else cat {pipe}; fi"
    done = run("work", "jobs", "--jobs", 2, "--drain", "--", "sh", "-c", both)

    assert (done.exit_code, done.stderr) == (0, "2 jobs done\n")


def test_a_command_that_reads_nothing(jobs: MemoryTopics, run: Any) -> None:
    """What a command does not want to know is no failure, however long it is."""
    jobs.client.append("jobs", "x" * 900_000)

    assert run("work", "jobs", "--drain", "--", "true").exit_code == 0


def test_no_such_command(jobs: MemoryTopics, run: Any) -> None:
    """It is said before any job is touched, and is 2."""
    jobs.client.append("jobs", "a")

    done = run("work", "jobs", "--", "no-such-command-as-this")

    assert (done.exit_code, done.stderr) == (
        2,
        "topics: no-such-command-as-this: no such command\n",
    )
    assert counts(jobs) == (1, 0, 0)


def test_a_command_that_cannot_be_run(jobs: MemoryTopics, run: Any, tmp_path: Path) -> None:
    """Where the machine refuses it, the work ends with 2, and the job is there for others at once."""
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    jobs.client.append("jobs", "a", "b")

    done = run("work", "jobs", "--drain", "--", script)

    assert (done.exit_code, done.stderr) == (2, f"topics: {script}: No such file or directory\n")
    assert counts(jobs) == (2, 0, 0)


@pytest.mark.parametrize("text", ["echo no shebang\n", ""])
def test_a_script_without_an_interpreter(
    jobs: MemoryTopics, run: Any, tmp_path: Path, text: str
) -> None:
    """No machine runs it, which is known before a job is claimed and a delivery is counted."""
    script = tmp_path / "script"
    script.write_text(text)
    script.chmod(0o755)
    jobs.client.append("jobs", "a")

    done = run("work", "jobs", "--drain", "--", script)

    said = f"topics: {script}: it has no first line such as #!/bin/sh\n"
    assert (done.exit_code, done.stderr) == (2, said)
    assert [job.deliveries for job in jobs.client.claim("jobs", node="other").jobs] == [1]


@pytest.mark.parametrize("queue", ["log", "missing"])
def test_refusals(jobs: MemoryTopics, run: Any, queue: str) -> None:
    """A topic that is no queue, or is not there, is 1 and one line. (§10)"""
    jobs.client.put_topic("log")

    done = run("work", queue, "--drain", "--", "true")

    assert (done.exit_code, done.stderr.count("\n")) == (1, 1)


@pytest.mark.parametrize(
    "args",
    [
        ["jobs"],
        ["jobs", "--"],
        ["jobs", "--jobs", 0, "--", "true"],
        ["jobs", "--lease", "5", "true"],
        ["jobs", "--time-limit", "5", "true"],
        ["jobs", "--time-limit", "0s", "true"],
    ],
    ids=str,
)
def test_mistakes(jobs: MemoryTopics, run: Any, args: list[Any]) -> None:
    """What cannot be meant is 2, and no stack trace."""
    done = run("work", *args)

    assert done.exit_code == 2
    assert "Traceback" not in done.stderr


FIELDS = {"queue": "jobs", "seq": 7, "ts_ms": 5, "deliveries": 2, "lease_id": "l1"}


def job(tag: str | None = None, node: str | None = None, meta: bytes = b"") -> Any:
    return SimpleNamespace(**FIELDS, tag=tag, node=node, meta=Raw(meta))


def test_what_a_command_can_know() -> None:
    """Every variable has its value, in UTF-8; what a job has not is not set, whoever set it before."""
    known = variables(job(tag="a\0é", node="wéb", meta=b'{"k": [1.0]}'))

    assert known == {
        b"TOPICS_JOB_QUEUE": b"jobs",
        b"TOPICS_JOB_SEQ": b"7",
        b"TOPICS_JOB_TS": b"5",
        b"TOPICS_JOB_DELIVERIES": b"2",
        b"TOPICS_JOB_LEASE_ID": b"l1",
        b"TOPICS_JOB_TAG": "a\ufffdé".encode(),
        b"TOPICS_JOB_NODE": "wéb".encode(),
        b"TOPICS_JOB_META": b'{"k": [1.0]}',
    }
    assert known.keys() == {name.encode() for name in VARIABLES}
    missing = {b"TOPICS_JOB_TAG", b"TOPICS_JOB_NODE", b"TOPICS_JOB_META"}
    assert known.keys() - variables(job(meta=b"null")).keys() == missing
    assert known.keys() - variables(job()).keys() == missing
    environ = {b"HOME": b"/home/me", b"TOPICS_JOB_TAG": b"of another job", b"ODD\xff": b"\xff"}
    assert inherited(environ, ()) == {b"HOME": b"/home/me", b"ODD\xff": b"\xff"}


URL = "https://ada:pass@topics.test/base"


def test_a_command_has_no_key_and_no_password() -> None:
    """It works on data of others: what lets it be the worker stays with the worker."""
    environ = {name.encode(): b"secret" for name in SECRETS}

    found = inherited({**environ, b"TOPICS_URL": URL.encode(), b"PATH": b"/bin"}, ())

    assert found == {b"PATH": b"/bin", b"TOPICS_URL": b"https://topics.test/base"}
    assert {b"TOPICS_API_KEY", b"TOPICS_API_KEYS"} <= environ.keys()


def test_a_command_has_the_key_where_it_is_passed() -> None:
    """With the server that the key is of, however the worker was told of both."""
    target = parse_target(
        "https://topics.test", api_key="tk_1", timeout_s=1, http2=False, compress=False
    )
    environ = {b"TOPICS_URL": b"https://other.test", b"TOPICS_API_KEY": b"of another"}

    found = inherited(environ, [target])

    assert found == {b"TOPICS_URL": b"https://topics.test", b"TOPICS_API_KEY": b"tk_1"}
    assert inherited(environ, [target, target])[b"TOPICS_URL"] == b",".join(
        [target.url.encode()] * 2
    )


@pytest.mark.parametrize("passes", [True, False])
def test_keys_reach_a_command_on_demand_only(
    jobs: MemoryTopics, run: Any, tmp_path: Path, passes: bool
) -> None:
    """`--pass-key` says so."""
    out = tmp_path / "out"
    jobs.client.append("jobs", 1)
    option = ["--pass-key"] if passes else []

    run("work", "jobs", "--drain", *option, "--", "sh", "-c", f"env >{out}", TOPICS_API_KEY="tk_1")

    assert ("TOPICS_API_KEY=tk_1" in out.read_text().splitlines()) is passes
    assert "TOPICS_JOB_SEQ=1" in out.read_text()


def test_a_job_that_no_command_can_be_started_for(
    jobs: MemoryTopics, run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has failed, and rests; those behind it are done. (§10.5)"""
    out = tmp_path / "out"
    monkeypatch.setattr(work, "variables", lambda job: {**variables(job), **huge(job)})

    def huge(job: Any) -> dict[bytes, bytes]:
        return {b"TOPICS_JOB_META": b"1" * (1 << 18)} if job.seq == 1 else {}

    jobs.client.append("jobs", 1, 2, 3)
    done = run("work", "jobs", "--drain", "--", "sh", "-c", f"cat >>{out}")

    assert (done.exit_code, done.stderr.splitlines()) == (
        5,
        [
            "topics: job 1 failed: it cannot be started: Argument list too long (delivery 1)",
            "2 jobs done, 1 failed",
        ],
    )
    assert out.read_text() == "2\n3\n"
    assert counts(jobs) == (0, 0, 1)


def test_an_environment_that_is_too_large_is_the_machines(
    jobs: MemoryTopics, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No command could be started for any job: none is made a dead letter for it. (§10.6)"""
    monkeypatch.setenv("HUGE", "1" * (1 << 18))
    jobs.client.append("jobs", 1)

    done = run("work", "jobs", "--drain", "--", "true")

    assert (done.exit_code, done.stderr) == (2, "topics: true: Argument list too long\n")
    assert counts(jobs) == (1, 0, 0)


def test_meta_that_python_cannot_hold(jobs: MemoryTopics, run: Any, tmp_path: Path) -> None:
    """What a job says beside its data is not decoded: the command gets it byte for byte."""
    out = tmp_path / "out"
    meta = b'{"n": 1e999, "i": ' + b"1" * 5000 + b"}"
    jobs.client.append("jobs", NewRecord(1, meta=Raw(meta)))  # type: ignore[arg-type]

    done = run("work", "jobs", "--drain", "--", "sh", "-c", f'printf %s "$TOPICS_JOB_META" >{out}')

    assert done.exit_code == 0
    assert out.read_bytes() == meta


# ---------------------------------------------------------------------- before a real server


class Working:
    """`topics work jobs` on a server; its commands meet the test at named pipes."""

    def __init__(self, server: Server, *args: str) -> None:
        command = [sys.executable, "-m", "topics", "work", "jobs", "--url", server.url, *args]
        with interrupts.heard():
            self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)

    def line(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.readline()

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self) -> tuple[int, str]:
        """Its exit code, and what it still said."""
        assert self.process.stderr is not None
        said = self.process.stderr.read()
        self.process.stderr.close()
        return self.process.wait(60), said


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path / "server")
    server.home.mkdir()
    server.start()
    with server.client() as client:
        client.put_topic("jobs", type="queue", lease_ms=1000)
    yield server
    server.end()


@pytest.fixture
def start(server: Server) -> Iterator[Callable[..., Working]]:
    """Start a worker; none outlives the test."""
    begun: list[Working] = []

    def start(*args: str) -> Working:
        begun.append(Working(server, *args))
        return begun[-1]

    yield start
    for working in begun:
        working.process.kill()
        working.process.wait()
        assert working.process.stderr is not None
        working.process.stderr.close()


class Meeting:
    """Where a command and the test wait for each other, once in each direction."""

    def __init__(self, home: Path) -> None:
        self.begun, self.go = home / "begun", home / "go"
        os.mkfifo(self.begun)
        os.mkfifo(self.go)

    @property
    def command(self) -> list[str]:
        return ["--", "sh", "-c", f"echo $TOPICS_JOB_DELIVERIES >{self.begun}; cat {self.go}"]

    def wait(self) -> str:
        """Until a command has begun; how often its job was delivered."""
        return self.begun.read_text().strip()

    def release(self) -> None:
        self.go.write_text("\n")


@pytest.fixture
def meeting(tmp_path: Path) -> Meeting:
    return Meeting(tmp_path)


def queue_of(server: Server) -> Any:
    with server.client() as client:
        return client.topic("jobs").queue


@pytest.mark.parametrize("locale", ["C", "POSIX", "de_DE.ISO-8859-1"])
def test_a_worker_in_any_locale(server: Server, tmp_path: Path, locale: str) -> None:
    """Tags, nodes and names of files are bytes: none is lost in a locale that cannot spell it."""
    out = tmp_path / "größe"
    with server.client() as client:
        client.append("jobs", "日", tag="grün", node="日本")
    shown = 'printf "%s|%s|%s" "$(cat)" "$TOPICS_JOB_TAG" "$TOPICS_JOB_NODE"'
    done = subprocess.run(
        [
            *(sys.executable, "-m", "topics", "work", "jobs", "--drain", "--url", server.url),
            *("--", "sh", "-c", f"{shown} >'{out}'"),
        ],
        env={"PATH": os.environ["PATH"], "LC_ALL": locale, "PYTHONUTF8": "0", "OLD": "ä\udcff"},
        capture_output=True,
        timeout=60,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, b"1 job done\n")
    assert out.read_text("utf-8") == '"日"|grün|日本'


def test_a_signal_lets_commands_finish(server: Server, start: Any, meeting: Meeting) -> None:
    """SIGTERM: nothing more is claimed, the running command ends in peace, and the code is 0."""
    with server.client() as client:
        client.append("jobs", "a", "b")
    working = start(*meeting.command)
    meeting.wait()

    working.signal(signal.SIGTERM)
    told = working.line()
    meeting.release()
    code, said = working.end()

    assert told == "topics: stopping; 1 command is still running (again: kill)\n"
    assert (code, said) == (0, "1 job done\n")
    assert queue_of(server).ready == 1
    assert queue_of(server).in_flight == 0


def test_a_terminal_that_is_closed_lets_commands_finish(
    server: Server, start: Any, meeting: Meeting
) -> None:
    """SIGHUP, which a shell and the kernel may both send: the command is not left behind without a lease."""
    with server.client() as client:
        client.append("jobs", "a", "b")
    working = start(*meeting.command)
    meeting.wait()

    working.signal(signal.SIGHUP)
    working.signal(signal.SIGHUP)
    meeting.release()

    assert working.end() == (0, "1 job done\n")
    assert queue_of(server).ready == 1
    assert queue_of(server).in_flight == 0


def test_a_worker_under_nohup_goes_on(server: Server, start: Any, meeting: Meeting) -> None:
    """It ignores SIGHUP, as its parent did."""
    with server.client() as client:
        client.append("jobs", "a", "b")
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        working = start("--drain", *meeting.command)
    finally:
        signal.signal(signal.SIGHUP, before)
    meeting.wait()
    working.signal(signal.SIGHUP)
    meeting.release()
    meeting.wait()
    meeting.release()

    assert working.end() == (0, "2 jobs done\n")


def test_an_idle_worker_stops_at_once(server: Server, start: Any) -> None:
    """A worker that waits for a job is not waited for."""
    with server.client() as client:
        client.append("jobs", "a")
    working = start("--", "sh", "-c", "exit 1")
    assert working.line() == "topics: job 1 failed: exit 1 (delivery 1)\n"

    working.signal(signal.SIGINT)

    assert working.end() == (0, "0 jobs done, 1 failed\n")


def test_a_second_signal_kills(server: Server, start: Any, meeting: Meeting) -> None:
    """The command goes, its job is there for others at once, and the code is 130. (§10.5)"""
    with server.client() as client:
        client.append("jobs", "a")
    working = start("--lease", "1h", *meeting.command)
    meeting.wait()

    working.signal(signal.SIGINT)
    working.line()
    working.signal(signal.SIGINT)
    code, said = working.end()

    assert code == 130
    assert said == "topics: interrupted; the commands were killed, their jobs given back\n"
    with server.client() as client:
        assert [job.deliveries for job in client.claim("jobs", node="w2").jobs] == [2]


def test_a_worker_that_is_killed(server: Server, start: Any, meeting: Meeting) -> None:
    """After a SIGKILL its job is another's as soon as its lease ends. (§10.3)"""
    with server.client() as client:
        client.append("jobs", "a")
    first = start(*meeting.command)
    assert meeting.wait() == "1"

    first.signal(signal.SIGKILL)
    # What it had started lives on, as after any kill.
    meeting.release()
    assert first.end()[0] == -signal.SIGKILL
    second = start("--max-jobs", "1", *meeting.command)
    assert meeting.wait() == "2"
    meeting.release()

    assert second.end() == (0, "1 job done\n")
    assert queue_of(server).ready == queue_of(server).in_flight == 0


def test_a_worker_that_comes_too_late(server: Server, start: Any, meeting: Meeting) -> None:
    """A worker that stood still past its lease changes nothing for the holder of its job. (§10.4)"""
    with server.client() as client:
        client.append("jobs", "a")
        late = start("--max-jobs", "1", *meeting.command)
        meeting.wait()
        late.signal(signal.SIGSTOP)
        (job,) = client.claim("jobs", node="w2", wait_ms=30_000, lease_ms=60_000).jobs
        meeting.release()
        late.signal(signal.SIGCONT)
        code, said = late.end()

        assert code == 0
        assert said.splitlines() == [
            "topics: the lease of job 1 of jobs ran out: another has it, or had it",
            "0 jobs done",
        ]
        assert client.ack("jobs", job, node="w2").acked == 1


def test_a_server_that_is_killed(server: Server, start: Any, tmp_path: Path) -> None:
    """Workers outlive a SIGKILL of their server; every job is done, and none is left. (§10.1)"""
    port = server.url.rpartition(":")[2]
    out, total = tmp_path / "out", 60
    out.touch()
    with server.client() as client:
        client.append("jobs", *range(total))
    working = start("--jobs", "2", "--", "sh", "-c", f"cat >>{out}")

    for at_least in (5, 25):
        while len(out.read_text().split()) < at_least:
            assert working.process.poll() is None
        server.kill()
        server.start(port=port)
    with server.client() as client:
        while client.topic("jobs").count:
            assert working.process.poll() is None
    working.signal(signal.SIGTERM)
    code, said = working.end()

    done = [int(line) for line in out.read_text().split()]
    assert set(done) == set(range(total))
    assert code == 0, said
