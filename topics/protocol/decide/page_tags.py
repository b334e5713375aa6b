"""The tag of a page: a name that two pages have only if they are equal, byte for byte (§3.4).

A record of an instance of a topic never changes: its text is rendered once, and its seq is never given
to another.  So which records a page shows, how it shows them, where the next one begins and what was
lost before it decide its bytes.  The tag is made of these, of columns alone: a cache that has the page
is told so without a look at its text.  How the records lie in runs is not in it: a seal, a rewrite or
a restart changes no tag.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

from topics.protocol.model.commands import ReadLatest, ReadPage
from topics.protocol.state.selection import Selection
from topics.protocol.state.topic import Tombstone

FORM: Final = 1
"""Of the answer: to be raised where the same records are to be rendered otherwise."""
TAG_BYTES: Final = 16
"""A client that chooses what it appends and deletes could make two pages of a short tag."""


def page_tag(epoch: str, command: ReadPage, selection: Selection, stone: Tombstone | None) -> str:
    """The tag of what was selected for a command, in hexadecimal.

    Args:
        epoch: Of the instance of the topic.
        stone: What the page says was lost.
    """
    asked = (
        *(command.from_seq, command.limit, command.budget_bytes),
        *(command.include_tags, command.include_meta, command.epoch),
    )
    said = (FORM, epoch, asked, selection.next_seq, stone, _seq_spans(selection))
    return blake2b(repr(said).encode(), digest_size=TAG_BYTES).hexdigest()


def latest_tag(command: ReadLatest, named: Sequence[object], after: str | None) -> str:
    """The tag of an answer with the latest records.

    Args:
        named: The epochs of the topics that have them, and their seqs.
        after: Where the next page begins.
    """
    said = (FORM, command.include_tags, command.include_meta, named, after)
    return blake2b(repr(said).encode(), digest_size=TAG_BYTES).hexdigest()


def _seq_spans(selection: Selection) -> list[list[int]]:
    """The seqs of the page, ascending: spans [first, last], as long as they can be."""
    spans: list[list[int]] = []
    for run, rows in selection.extents:
        for lo, hi in rows:
            first, last = run.first_seq + lo, run.first_seq + hi - 1
            if spans and spans[-1][1] + 1 == first:
                spans[-1][1] = last
            else:
                spans.append([first, last])
    return spans
