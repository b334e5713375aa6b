"""`topics work`: a command for each job of a queue.

A job is done when its command ends with 0; else it is nacked, and handed out again after a delay.
The command gets the job's data on standard input, and the rest in the environment (`VARIABLES`), as
bytes of UTF-8 whatever the locale is.  What would let it be this worker stays here: the keys, and the
password of the URL (`SECRETS`).  It runs in a session of its own, so that a ^C on the terminal reaches
this process and not the command.

A job that no command can be started for is a job that failed: it comes again after its delay, and those
behind it are worked on meanwhile.
"""

import errno
import os
import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import click

from topics.cli.completion import topic_argument
from topics.cli.exits import FAILED, INTERRUPTED, OK, UNUSABLE, Stop, counted
from topics.cli.moments import age_ms
from topics.cli.printing import say, warn
from topics.cli.target import with_async_client
from topics.visible import without_password

if TYPE_CHECKING:
    from topics.client import AsyncClient, AsyncHeldJob, AsyncWork
    from topics.client.target import Target

VARIABLES: Final[dict[str, tuple[str, Callable[["AsyncHeldJob[Any]"], Any]]]] = {
    "TOPICS_JOB_QUEUE": ("name of the queue", lambda job: job.queue),
    "TOPICS_JOB_SEQ": ("sequence number", lambda job: job.seq),
    "TOPICS_JOB_TS": ("when it was appended, ms since the epoch", lambda job: job.ts_ms),
    "TOPICS_JOB_DELIVERIES": ("how often it was handed out", lambda job: job.deliveries),
    "TOPICS_JOB_LEASE_ID": ("id of this delivery's lease", lambda job: job.lease_id),
    "TOPICS_JOB_TAG": ("its tag, if it has one", lambda job: job.tag),
    "TOPICS_JOB_NODE": ("its writer, if it named one", lambda job: job.node),
    "TOPICS_JOB_META": ("its meta as JSON, if it has any", lambda job: _json(job.meta)),
}
"""Variables of a command's environment, each with its meaning and its value."""

SECRETS: Final = ("TOPICS_API_KEY", "TOPICS_API_KEYS", "TOPICS_API_KEYS_FILE", "TOPICS_CLUSTER_KAFKA_CONFIG",
                  "TOPICS_PROFILE")  # fmt: skip
"""Variables that a command does not inherit: keys, and where they are."""
OF_MACHINE: Final = 32 << 10
"""Bytes of a job's variables up to which it is not the job that makes an environment too large."""


def _limit_ms(context: click.Context, option: click.Parameter, text: str | None) -> int | None:
    limit_ms = age_ms(context, option, text)
    if limit_ms == 0:
        raise click.BadParameter("no command ends in no time")
    return limit_ms


@click.command("work")
@topic_argument("queue")
@click.argument("words", nargs=-1, required=True, metavar="-- COMMAND [ARGUMENT]...")
@click.option(
    "--jobs",
    "-j",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="Commands that run at the same time.",
)
@click.option("--node", help="Name of the worker; by default this machine and process.")
@click.option(
    "--lease",
    callback=age_ms,
    metavar="DURATION",
    help="How soon other workers may have the jobs of one that died: 30s, 5m; by default the "
    "queue's lease_ms. While a command runs, the lease of its job is "
    "extended.",
)
@click.option(
    "--delay",
    callback=age_ms,
    default="1s",
    show_default=True,
    metavar="DURATION",
    help="Delay before a job whose command failed is handed out again; doubles with each delivery, "
    "to 5 minutes or this, whichever is longer.",
)
@click.option(
    "--time-limit",
    callback=_limit_ms,
    metavar="DURATION",
    help="A command that runs longer is killed, with all that it started, and has failed: 30s, 5m.",
)
@click.option("--max-jobs", type=click.IntRange(min=1), metavar="N", help="End after so many jobs.")
@click.option("--drain", is_flag=True, help="End when no job is ready, instead of waiting.")
@click.option(
    "--pass-key",
    is_flag=True,
    help="Let the command have this worker's server and key, as TOPICS_URL and TOPICS_API_KEY.",
)
@with_async_client
async def command(
    client: "AsyncClient",
    queue: str,
    words: tuple[str, ...],
    jobs: int,
    node: str | None,
    lease: int | None,
    delay: int,
    time_limit: int | None,
    max_jobs: int | None,
    drain: bool,
    pass_key: bool,
) -> int:
    """Run COMMAND for each job of QUEUE: its data as a line of JSON on standard input, the rest in
    the environment (TOPICS_JOB_SEQ, _TAG, _DELIVERIES, _LEASE_ID, _META, ...), without the API key.

    A job whose command ends with 0 is done, and deleted; any other end gives it back, to be handed
    out again after --delay. The lease is extended while the command runs.

    The first SIGTERM or ^C ends it when the running commands have ended; the second one kills them
    and gives their jobs back. Ends with 5 if --drain or --max-jobs was given and a command failed.

    \b
    topics work jobs -- ./resize
    topics work jobs --jobs 4 --time-limit 5m -- sh -c 'jq -r .url | xargs curl -fsS'
    topics work jobs --drain -- ./nightly --verbose
    """
    _require_command(words[0])
    from msgspec import Raw

    from topics.client import Job
    from topics.client.worker_state import LONGEST_DELAY_MS

    class RawJob(Job[Raw], frozen=True, kw_only=True):
        """A job as the server has it: nothing of it is decoded, so that each can be taken up."""

        meta: Raw = Raw(b"")  # type: ignore[assignment]

    work = client.work(
        queue,
        job_type=RawJob,
        node=node,
        lease_ms=lease,
        first_delay_ms=delay,
        longest_delay_ms=max(delay, LONGEST_DELAY_MS),
        drain=drain,
        limit=max_jobs,
    )
    targets = client.session.targets if pass_key else ()
    limit_s = None if time_limit is None else time_limit / 1000
    runner = Runner(work, words, inherited(os.environb, targets), limit_s)
    return await runner.run(jobs, ends_by_itself=drain or max_jobs is not None)


def _require_command(word: str) -> None:
    """Refuse what no machine runs, before a job is claimed: a delivery counts (§10.6)."""
    path = shutil.which(word)
    if path is None:
        raise Stop(f"{word}: no such command", UNUSABLE)
    try:
        with open(path, "rb") as file:
            start = file.read(256)
    except OSError:  # it may be executed, and not be read
        return
    # A program in machine code, and what a loader of its own runs, has a NUL early on.
    if not start.startswith(b"#!") and b"\0" not in start:
        raise Stop(f"{word}: it has no first line such as #!/bin/sh", UNUSABLE)


class Runner:
    """Runs the command for one job after the other, and handles signals."""

    def __init__(
        self,
        work: "AsyncWork[Any]",
        words: tuple[str, ...],
        inherited: Mapping[bytes, bytes],
        limit_s: float | None = None,
    ) -> None:
        self._work = work
        self._words = words
        self._inherited = inherited
        self._limit_s = limit_s
        self._running = 0
        self._failed = 0
        self._fault: OSError | None = None
        self._is_stopping = False

    async def run(self, concurrency: int, *, ends_by_itself: bool) -> int:
        """Work until there are no more jobs, or a signal comes; returns the exit code."""
        import asyncio

        async with self._work as work:
            working = asyncio.ensure_future(
                work.run(
                    self._handle,
                    concurrency=concurrency,
                    on_error=self._report,
                    time_limit_s=self._limit_s,
                )
            )
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self._signalled, working)
            if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as `nohup` has it
                loop.add_signal_handler(signal.SIGHUP, self._stop)
            await asyncio.wait([working])
        if working.cancelled():
            warn("interrupted; the commands were killed, their jobs given back")
            return INTERRUPTED
        done = working.result()
        if self._fault is not None:
            raise Stop(f"{self._words[0]}: {self._fault.strerror}", UNUSABLE)
        say(self._summary(done), err=True)
        return FAILED if self._failed and ends_by_itself and not self._is_stopping else OK

    def _signalled(self, working: Any) -> None:
        if self._is_stopping:
            working.cancel()
            return
        self._stop()
        if self._running:
            noun = "command is" if self._running == 1 else "commands are"
            warn(f"stopping; {self._running} {noun} still running (again: kill)")

    def _stop(self) -> None:
        """Claim no more.  Where a terminal is closed, this comes once or twice, and nobody is there to be told."""
        self._is_stopping = True
        self._work.stop()

    def _summary(self, done: int) -> str:
        failed = f", {self._failed:,} failed" if self._failed else ""
        return f"{counted(done, 'job')} done{failed}"

    async def _handle(self, job: "AsyncHeldJob[Any]") -> None:
        self._running += 1
        try:
            code = await self._execute(job)
        except OSError as error:
            if is_of_job(error, job):
                raise _Failed(f"it cannot be started: {error.strerror}") from None
            # The fault of the machine and not of the job, which is given back without a delay.
            self._fault = error
            self._work.stop()
            await job.nack(delay_ms=0)
            return
        finally:
            self._running -= 1
        if code:
            raise _Failed(f"exit {code}" if code > 0 else f"killed by {_name(-code)}")

    async def _execute(self, job: "AsyncHeldJob[Any]") -> int:
        """Run the command to its end; returns its exit code, negative where a signal ended it."""
        import asyncio

        process = await asyncio.create_subprocess_exec(
            *self._words,
            stdin=asyncio.subprocess.PIPE,
            env={**self._inherited, **variables(job)},
            start_new_session=True,
        )
        try:
            await process.communicate(bytes(job.data) + b"\n")
        except asyncio.CancelledError:
            with suppress(ProcessLookupError):
                # The whole process group, with all that the command has started.
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
            raise
        assert process.returncode is not None
        return process.returncode

    def _report(self, job: "AsyncHeldJob[Any]", error: Exception) -> None:
        from topics.client import LeaseLost, TimeLimitExceeded

        if isinstance(error, LeaseLost):
            warn(error.message)
        elif isinstance(error, _Failed | TimeLimitExceeded):
            self._failed += 1
            why = error.message if isinstance(error, TimeLimitExceeded) else error
            warn(f"job {job.seq} failed: {why} (delivery {job.deliveries})")
        else:
            raise error


class _Failed(Exception):
    """A command that did not end with 0."""


def inherited(environ: Mapping[bytes, bytes], targets: "Sequence[Target]") -> dict[bytes, bytes]:
    """The environment that every command has.

    Args:
        environ: That of this process.
        targets: The server, or nodes of a cluster, and the key that the command is to have; none: no key.
    """
    left_out = {os.fsencode(name) for name in (*VARIABLES, *SECRETS)}
    kept = {name: value for name, value in environ.items() if name not in left_out}
    if targets:
        kept[b"TOPICS_URL"] = ",".join(target.url for target in targets).encode()
        if targets[0].api_key is not None:
            kept[b"TOPICS_API_KEY"] = targets[0].api_key.encode()
    elif b"TOPICS_URL" in kept:
        text = kept[b"TOPICS_URL"].decode("utf-8", "surrogateescape")
        kept[b"TOPICS_URL"] = without_password(text).encode("utf-8", "surrogateescape")
    return kept


def variables(job: "AsyncHeldJob[Any]") -> dict[bytes, bytes]:
    """The variables of a job, in UTF-8."""
    known = {name: value_of(job) for name, (_, value_of) in VARIABLES.items()}
    return {n.encode(): _encoded(value) for n, value in known.items() if value is not None}


def _encoded(value: Any) -> bytes:
    if isinstance(value, int | str):
        # No variable can hold a NUL; a tag could.
        return str(value).replace("\0", "\ufffd").encode("utf-8", "surrogateescape")
    return bytes(value)


def _json(meta: Any) -> bytes | None:
    """Meta as the server has it; None where there is none."""
    return None if bytes(meta) in (b"", b"null") else bytes(meta)


def is_of_job(error: OSError, job: "AsyncHeldJob[Any]") -> bool:
    """Whether it is this job that the machine starts no command for: its tag, node or meta is larger
    than an environment may be."""
    size = sum(len(name) + len(value) for name, value in variables(job).items())
    return error.errno == errno.E2BIG and size > OF_MACHINE


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
