"""The jobs of one claim: read, and set aside where they cannot be.

A claim skips jobs that cannot be read.  Where none of its jobs can be read, it claims again, and more
jobs than the client asked for, to get past a long run of damage quickly; the surplus goes back to the
queue.
"""

from collections.abc import Sequence
from typing import Final

from topics.protocol.driver.streams import Streams
from topics.protocol.model.commands import Claim
from topics.protocol.model.errors import Corrupt
from topics.protocol.model.outcomes import Grant, Granted, Records
from topics.protocol.model.records import Buffer
from topics.server.service import texts
from topics.server.service.shell import Phase, Shell, not_serving

PROBE_MAX: Final = 1000
"""The most jobs that a repeated claim takes to get past unreadable ones."""


class Claiming:
    """One claim, from its first lease to the text of its jobs."""

    __slots__ = ("_begun_ms", "_claim", "_rounds", "_shell")

    def __init__(self, shell: Shell, claim: Claim) -> None:
        self._shell = shell
        self._claim = claim
        self._begun_ms = shell.now_ms
        self._rounds = 0

    def read_now(self, records: Records) -> list[Buffer] | None:
        """The jobs' text with its commas; None where a thread is to read it."""
        if self._rounds:
            return None
        try:
            return texts.of_jobs(records, blocking=False)
        except (Corrupt, OSError):
            return None

    def read(self, records: Records) -> "list[Buffer] | texts.OneByOne | Exception":
        """*Blocking.* The same; or each job by itself, where a part cannot be read."""
        try:
            if not self._rounds:
                try:
                    found = texts.of_jobs(records, blocking=True)
                    assert found is not None
                    return found
                except (Corrupt, OSError):
                    pass
            return texts.OneByOne(list(texts.one_by_one(records)))
        except Exception as error:
            return error

    def keep_sound(
        self, granted: Granted, read: "texts.OneByOne"
    ) -> tuple[Granted, Sequence[Buffer]] | None:
        """What is left of a claim, and its text: the jobs that can be read, and no more than were asked
        for; None where there are none.  The others are set aside."""
        shell, jobs = self._shell, granted.jobs
        assert jobs is not None
        each = list(zip(jobs.grant.seqs, read.texts, strict=True))
        damaged = {seq: text for seq, text in each if isinstance(text, Exception)}
        sound = [(seq, text) for seq, text in each if not isinstance(text, Exception)]
        surplus = {seq for seq, _ in sound[self._claim.limit :]}
        left = Streams(shell.engine).set_aside(jobs.grant, damaged, surplus, shell.moment)
        shell.nudge()
        if left is None:
            return None
        kept = [text for _, text in sound[: self._claim.limit]]
        return left, [piece for text in kept for piece in (b",", text)][1:]

    def again(self) -> Claim:
        """The claim that follows where no job could be read.

        Raises:
            Rejection: The server has stopped meanwhile.
        """
        shell, claim = self._shell, self._claim
        if shell.phase is not Phase.READY:
            raise not_serving(shell)
        self._rounds += 1
        limit = min(claim.limit << min(3 * self._rounds, 30), PROBE_MAX)
        left_ms = max(claim.wait_ms - (shell.now_ms - self._begun_ms), 0)
        limit = max(limit, claim.limit)
        return Claim(claim.topic, claim.node, limit, claim.lease_ms, left_ms)


def take_back(shell: Shell, grant: Grant) -> None:
    """The worker does not get its jobs: they are ready again (§10.2)."""
    Streams(shell.engine).set_aside(grant, {}, grant.seqs, shell.moment)
    shell.nudge()
