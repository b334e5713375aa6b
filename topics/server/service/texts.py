"""The text of the records that an answer shows.

What is made here owns its bytes: views of text in memory that never moves, or copies.  A delete, an
erasure or a seal that comes later takes nothing from an answer that was decided, and waits for none.

On the event loop at most `TURN_BYTES` of an answer are read, copied or cut; what has more is made on
a thread, in steps.  A view keeps all of the memory that it is a view of; what an answer keeps is at
most twice its size (`_owned`).
"""

import logging
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from topics.protocol.model.errors import Corrupt, DamagedRun, Rejection, unreadable
from topics.protocol.model.outcomes import Records
from topics.protocol.model.ports import Extent, Run, Span
from topics.protocol.model.records import PACKED, Buffer
from topics.protocol.model.render import project

log = logging.getLogger("topics.service")

TURN_BYTES: Final = 256 << 10
"""Text of one answer that the event loop reads, copies or cuts: a fifth of a millisecond."""
STEP_BYTES: Final = 64 << 10
"""Text that a thread reads, copies or cuts before it lets others have the interpreter."""
YIELD_S: Final = 10e-6
"""Between two steps of a thread: the event loop gets the interpreter if it waits for it."""
SPAN_BYTES: Final = 2 << 10
"""What a span counts for beside its text: it costs 3 µs where it is cut anew."""
JOINED_BYTES: Final = 64 << 10
"""An answer up to this size is joined as soon as it is made, so that it keeps no view."""


def read(records: Records, *, blocking: bool) -> list[Buffer] | Rejection | None:
    """The records' text with its commas; None where a thread has to do it."""
    wanted = records.text
    if wanted is not None and wanted.text is not None:
        return [wanted.text]
    try:
        texts = _texts(records, blocking=blocking)
    except Corrupt as damage:
        return _unreadable(records, damage.reason, str(damage))
    except OSError as error:
        return _unreadable(records, "read_error", error.strerror or "read error")
    keep = None if wanted is None else wanted.keep
    # What a thread reads is large, or cold: it is not what is read again and again.
    if keep is None or texts is None or blocking or sum(map(len, texts)) > TURN_BYTES:
        return texts
    text = b"".join(texts)
    keep(text)
    return [text]


def of_jobs(records: Records, *, blocking: bool) -> list[Buffer] | None:
    """The text of jobs, with the commas between them; None where a thread has to do it.

    Raises:
        Corrupt, OSError: Some of it cannot be read; `one_by_one` says which.
    """
    return _texts(records, blocking=blocking)


class OneByOne(NamedTuple):
    """The text of each job of a claim, or why it cannot be read."""

    texts: list[Buffer | Exception]


def one_by_one(records: Records) -> Iterator[Buffer | Exception]:
    """*Blocking.* The text of each job, or the error with which it cannot be read; jobs beside a
    damaged one still can.  The records have inserts."""
    inserts = iter(records.inserts)
    for run, spans in records.extents:
        lost: DamagedRun | None = None
        for first, last in spans:
            for row in range(first, last):
                extents = [Extent(run, [(row, row + 1)])]
                view = records.tags, records.meta, records.data
                one = Records(extents, *view, [next(inserts)])
                if lost is not None and run.first_seq + row <= lost.last_seq:
                    yield lost  # the damage takes this job as well
                    continue
                try:
                    texts = _texts(one, blocking=True)
                    what = f"seq {run.first_seq + row} is live and has no text"
                    yield texts[0] if texts else Corrupt(repr(run), 0, what)
                except DamagedRun as damage:
                    lost = damage
                    yield damage
                except (Corrupt, OSError) as error:
                    yield error


def is_large(records: Records) -> bool:
    """Whether there is more text than the event loop makes in one go; not where that cannot be
    read."""
    extents = records.extents
    if any(run.form == PACKED and not run.is_warm for run, _ in extents):
        return True
    try:
        return sum(_size(*extent) for extent in extents) > TURN_BYTES
    except (Corrupt, OSError):
        return False


def _unreadable(records: Records, reason: str, what: str) -> Rejection:
    log_damage(what)
    first, last = records.extents[0], records.extents[-1]
    first_seq = first.run.first_seq + first.spans[0][0]
    return unreadable(reason, first_seq, last.run.first_seq + last.spans[-1][1] - 1)


def refusal_of(damage: DamagedRun) -> Rejection:
    """The refusal for a run that was found damaged before any record of it was read."""
    log_damage(damage)
    return damage.refusal()


def log_damage(what: object) -> None:
    """For the operator: the client's refusal names seqs, and no files."""
    log.error("cannot read stored records: %s", what)


def _texts(records: Records, *, blocking: bool) -> list[Buffer] | None:
    out: list[Buffer] = []
    left_bytes = TURN_BYTES
    inserts = iter(records.inserts) if records.inserts else None
    for run, spans in records.extents:
        is_verbatim = records.is_verbatim(run, spans)
        views = run.views(spans) if is_verbatim else None
        if views is not None:
            _join(out, views)
            continue
        if not blocking and run.form == PACKED and not run.is_warm:
            return None  # its sizes are not known before it is open
        if not blocking:
            left_bytes -= _size(run, spans)
            if left_bytes < 0:
                return None
        for part in _parts(run, spans) if blocking else [spans]:
            texts = run.read_blocking(part) if blocking else run.read(part)
            if texts is None:
                return None
            if not is_verbatim:
                view = {"tags": records.tags, "meta": records.meta, "data": records.data}
                texts = project(run, part, texts, inserts=inserts, **view)
            _join(out, ([text] for text in texts))
            if blocking and part[-1] != spans[-1]:
                time.sleep(YIELD_S)
    return _owned(out, None if blocking else left_bytes)


def _join(out: list[Buffer], spans: Iterable[Sequence[Buffer]]) -> None:
    """Add the text of spans, each in one or more buffers, with commas between them; rows without text are
    nothing."""
    for buffers in spans:
        if not any(map(len, buffers)):
            continue
        if out:
            out.append(b",")
        out += buffers


def _size(run: Run, spans: Sequence[Span]) -> int:
    """What it costs to make the spans' text, in bytes of a single span."""
    columns = run.columns
    offset, size = columns.offset, columns.size
    text = sum(int(offset[hi - 1]) + int(size[hi - 1]) - int(offset[lo]) for lo, hi in spans)
    return text + SPAN_BYTES * len(spans)


def _parts(run: Run, spans: Sequence[Span]) -> Iterator[list[Span]]:
    """The same rows in parts of `STEP_BYTES`, but for the last row of each."""
    columns = run.columns
    offset, size = columns.offset, columns.size
    part: list[Span] = []
    room = STEP_BYTES
    for lo, hi in spans:
        while lo < hi:
            begin = int(offset[lo])
            end = lo + max(int(offset[lo:hi].searchsorted(begin + room)), 1)
            part.append((lo, end))
            room -= int(offset[end - 1]) + int(size[end - 1]) - begin + SPAN_BYTES
            lo = end
            if room <= 0:
                yield part
                part, room = [], STEP_BYTES
    if part:
        yield part


def _owned(texts: list[Buffer], most_bytes: int | None) -> list[Buffer] | None:
    """The same texts, where those that are views of much more memory are copied.

    Args:
        most_bytes: That may be copied, else None is returned; None: it is a thread that copies.
    """
    if sum(map(len, texts)) <= JOINED_BYTES:
        return texts
    used: Counter[int] = Counter()
    for text in texts:
        if isinstance(text, memoryview):
            used[id(text.obj)] += len(text)
    sparse = {
        id(text.obj)
        for text in texts
        if isinstance(text, memoryview) and 2 * used[id(text.obj)] < memoryview(text.obj).nbytes
    }
    if most_bytes is not None and sum(used[each] for each in sparse) > most_bytes:
        return None
    out: list[Buffer] = []
    copied_bytes = 0
    for text in texts:
        if not isinstance(text, memoryview) or id(text.obj) not in sparse:
            out.append(text)
            continue
        for at in range(0, len(text), STEP_BYTES):
            out.append(bytes(text[at : at + STEP_BYTES]))
            copied_bytes += len(out[-1])
            if most_bytes is None and copied_bytes >= STEP_BYTES:
                copied_bytes = 0
                time.sleep(YIELD_S)
    return out
