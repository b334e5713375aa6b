"""`Redrive`: dead letters back into their queue.

The server moves them, each in one step, so that a run can be interrupted anywhere.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from topics.cli.exits import REFUSED, Stop, were
from topics.cli.printing import warn
from topics.client import Client, Tombstone, TopicState

BATCH: Final = 1000
"""Letters of one call."""
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


class Redrive:
    """One run.

    Args:
        match: Only letters of this tag.
        seqs: Only these letters, in ascending order; none stands for all.

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
        seqs: Sequence[int] = (),
    ) -> None:
        self.moved = 0
        self.left = 0
        self._client = client
        self._source = source
        self._queue = queue
        self._match = match
        self._report = report
        self._seqs = seqs

    @property
    def done(self) -> str:
        """What was done, in a line."""
        moved = were(self.moved, "letter")
        return f"{moved} moved from {self._source.topic} to {self._queue}"

    def rehearse(self) -> int:
        """Report what would be moved, and change nothing; returns how many letters."""
        count = 0
        for letter in self._letters():
            count += 1
            self._report(self._line(letter))
        self._count_left()
        return count

    def run(self) -> None:
        """Move the letters, as many as were there when this was made.

        Raises:
            TopicsError: The queue refused a letter, or the server cannot be reached; the letters
                before it are moved.
        """
        if self._seqs:
            self._run_named()
            return
        left, more = self._source.count, True
        while left > 0 and more:
            found = self._client.redrive(
                self._source.topic, self._queue, match=self._match, max=min(left, BATCH)
            )
            self.moved += found.moved
            left -= found.moved
            more = found.more and found.moved > 0
        self._count_left()

    def _run_named(self) -> None:
        for first in range(0, len(self._seqs), BATCH):
            seqs = list(self._seqs[first : first + BATCH])
            found = self._client.redrive(self._source.topic, self._queue, seqs=seqs)
            self.moved += found.moved

    def _count_left(self) -> None:
        counts = self._client.topic(self._source.topic, touch=False).queue
        self.left = 0 if counts is None else counts.in_flight + counts.delayed

    # ------------------------------------------------------------------ letters

    def _letters(self) -> Iterator[Letter]:
        wanted = frozenset(self._seqs)
        for letter in self._all_letters():
            if not wanted or letter.seq in wanted:
                yield letter
            if wanted and letter.seq >= self._seqs[-1]:
                return

    def _all_letters(self) -> Iterator[Letter]:
        topic = self._source.topic
        items = self._client.read(
            topic,
            from_seq=self._seqs[0] - 1 if self._seqs else 0,
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

    def _line(self, letter: Letter) -> str:
        parts = [f"{self._source.topic} {letter.seq} -> {self._queue}"]
        if letter.tag is not None:
            parts.append(letter.tag)
        deliveries = (letter.meta or {}).get(f"{MARKS}deliveries")
        if deliveries is not None:
            parts.append(f"(deliveries: {bytes(deliveries).decode('utf-8', 'replace')})")
        return " ".join(parts)


def _warn_of_loss(topic: str, lost: Tombstone) -> None:
    warn(f"records {lost.gap_from} to {lost.gap_to} of {topic} are lost ({lost.reason})")
