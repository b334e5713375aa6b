"""`Redrive`: dead letters back into their queue.

Invariant: a letter is appended to the queue before it is deleted from its topic, under a key made
of that topic's epoch and the letter's seq.  So a run can be interrupted anywhere: when it is begun
again, the server recognises the letters that it has appended.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final

import msgspec

from topics.cli.exits import REFUSED, Stop, were
from topics.cli.printing import warn
from topics.client import Appended, Client, Job, NewRecord, Tombstone, TopicsError, TopicState

BATCH: Final = 100
"""Letters between two deletes: the most that a run after an interruption appends again."""
CLAIMED: Final = 20
"""Letters of one claim, where the dead-letter topic is a queue itself."""
MARKS: Final = "$dead_letter_"
"""The prefix of the keys that the server adds to a dead letter's meta (§10.6)."""


class Letter(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename={"seq": "$seq", "node": "$node", "tag": "$tag"},
):
    """A dead letter in a log; its JSON is not decoded."""

    seq: int
    node: str | None = None
    tag: str | None = None
    data: msgspec.Raw
    meta: dict[str, msgspec.Raw] | None = None


class LetterJob(Job[msgspec.Raw], frozen=True, kw_only=True):
    """A dead letter in a queue; its JSON is not decoded."""

    meta: dict[str, msgspec.Raw] | None = None


class Redrive:
    """One run.

    Attributes:
        moved: How many letters were moved.
        left: How many letters were leased or delayed at the end, and stayed.
    """

    def __init__(
        self,
        client: Client,
        source: TopicState,
        queue: str,
        match: str | None,
        report: Callable[[str], None],
    ) -> None:
        self.moved = 0
        self.left = 0
        self._deduped = 0
        self._client = client
        self._source = source
        self._queue = queue
        self._match = match
        self._report = report

    @property
    def done(self) -> str:
        """What was done, in a line."""
        before = f", {self._deduped:,} of them by an earlier run" if self._deduped else ""
        moved = were(self.moved, "letter")
        return f"{moved} moved from {self._source.topic} to {self._queue}{before}"

    def rehearse(self) -> int:
        """Report what would be moved, and change nothing; returns how many letters."""
        count = 0
        for letter in self._letters():
            count += 1
            self._report(self._line(letter, ""))
        self._count_left()
        return count

    def run(self) -> None:
        """Move the letters.

        Raises:
            TopicsError: The queue refused a letter, or the server cannot be reached; the letters
                before it are moved.
        """
        if self._source.type == "queue":
            self._from_queue()
        else:
            self._from_log()

    def _count_left(self) -> None:
        counts = self._client.topic(self._source.topic, touch=False).queue
        self.left = 0 if counts is None else counts.in_flight + counts.delayed

    # ------------------------------------------------------------------ a log

    def _from_log(self) -> None:
        appended: list[int] = []
        try:
            for letter in self._letters():
                self._append(letter)
                appended.append(letter.seq)
                if len(appended) == BATCH:
                    self._delete(appended)
        except BaseException:
            # The letters that were appended are deleted, also where the next one was refused.
            with suppress(TopicsError):
                self._delete(appended)
            raise
        self._delete(appended)

    def _letters(self) -> Iterator[Letter]:
        topic = self._source.topic
        items = self._client.read(
            topic,
            record_type=Letter,
            match=self._match,
            include_tags=True,
            epoch=self._source.epoch,
            page_records=BATCH,
        )
        for item in items:
            if isinstance(item, Letter):
                yield item
            elif item.reason == "recreated":
                raise Stop(f"{topic} was deleted and made again meanwhile; {self.done}", REFUSED)
            else:
                _warn_of_loss(topic, item)

    def _delete(self, appended: list[int]) -> None:
        if appended:
            # With the same bound and match as what was appended, so that nothing else is deleted.
            before_seq = appended[-1] + 1
            self._client.delete(self._source.topic, before_seq=before_seq, match=self._match)
            appended.clear()

    # ------------------------------------------------------------------ a queue

    def _from_queue(self) -> None:
        topic = self._source.topic
        kept = []
        with self._client.work(topic, job_type=LetterJob, max=CLAIMED, drain=True) as work:
            for job in work:
                if not self._matches(job.tag):
                    # Kept in hand, or it would be claimed again; the end of the work gives it back.
                    kept.append(job)
                    continue
                with job:
                    self._append(job)
        self._count_left()

    def _matches(self, tag: str | None) -> bool:
        """Whether a tag matches, in the grammar of a bare-string `match` (§5)."""
        if self._match is None:
            return True
        if tag is None:
            return False
        if self._match.endswith("*"):
            return tag.startswith(self._match[:-1])
        return tag == self._match

    # ------------------------------------------------------------------ letters

    def _append(self, letter: Any) -> None:
        meta = {n: v for n, v in (letter.meta or {}).items() if not n.startswith(MARKS)}
        record = NewRecord(letter.data, tag=letter.tag, node=letter.node, meta=meta or None)
        key = f"redrive:{self._source.epoch or self._source.topic}:{letter.seq}"
        answer = self._client.append(self._queue, record, create=False, idempotency_key=key)
        self._count(letter, answer)

    def _count(self, letter: Any, answer: Appended) -> None:
        self.moved += 1
        self._deduped += answer.deduped
        self._report(self._line(letter, f" {answer.first_seq}"))

    def _line(self, letter: Any, where: str) -> str:
        parts = [f"{self._source.topic} {letter.seq} -> {self._queue}{where}"]
        if letter.tag is not None:
            parts.append(letter.tag)
        deliveries = (letter.meta or {}).get(f"{MARKS}deliveries")
        if deliveries is not None:
            parts.append(f"(deliveries: {bytes(deliveries).decode('utf-8', 'replace')})")
        return " ".join(parts)


def _warn_of_loss(topic: str, lost: Tombstone) -> None:
    warn(f"records {lost.gap_from} to {lost.gap_to} of {topic} are lost ({lost.reason})")
