"""The bytes of an answer: its ready pieces, and the records that are read for it."""

import logging
from collections.abc import Iterator, Sequence

from topics.protocol.http.answers import Piece
from topics.protocol.model.errors import Corrupt, DamagedRun, Rejection, unreadable
from topics.protocol.model.outcomes import Records
from topics.protocol.model.ports import Extent
from topics.protocol.model.records import Buffer
from topics.protocol.model.render import project

log = logging.getLogger("topics.exchange")


def payload(pieces: Sequence[Piece], *, blocking: bool) -> list[Buffer] | Rejection | None:
    """The pieces with records in place; None where that must wait for a disk."""
    out: list[Buffer] = []
    for piece in pieces:
        if not isinstance(piece, Records):
            out.append(piece)
            continue
        texts = read(piece, blocking=blocking)
        if texts is None or isinstance(texts, Rejection):
            return texts
        out += texts
    return out


def spliced(pieces: Sequence[Piece], *, blocking: bool) -> list[Buffer] | None:
    """As `payload`, for jobs.

    Raises:
        Corrupt, OSError: Some of it cannot be read; `one_by_one` says which.
    """
    out: list[Buffer] = []
    for piece in pieces:
        if not isinstance(piece, Records):
            out.append(piece)
            continue
        texts = _texts(piece, blocking=blocking)
        if texts is None:
            return None
        out += texts
    return out


def read(records: Records, *, blocking: bool) -> list[Buffer] | Rejection | None:
    """The records' text with its commas; None where that must wait for a disk."""
    try:
        return _texts(records, blocking=blocking)
    except Corrupt as damage:
        return _unreadable(records, "corrupt", str(damage))
    except OSError as error:
        return _unreadable(records, "read_error", error.strerror or "read error")


def of_jobs(records: Records, *, blocking: bool) -> list[Buffer] | None:
    """The text of jobs, with the commas between them; None where that must wait for a disk.

    Raises:
        Corrupt, OSError: Some of it cannot be read; `one_by_one` says which.
    """
    return _texts(records, blocking=blocking)


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
                try:
                    texts = [] if lost is not None else _texts(one, blocking=True) or []
                    yield lost or texts[0]
                except DamagedRun as damage:
                    lost = damage  # the run's other jobs are lost with it
                    yield damage
                except (Corrupt, OSError) as error:
                    yield error


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
    inserts = iter(records.inserts) if records.inserts else None
    for run, spans in records.extents:
        texts = run.read_blocking(spans) if blocking else run.read(spans)
        if texts is None:
            return None
        if not records.is_verbatim:
            texts = project(
                run,
                spans,
                texts,
                tags=records.tags,
                meta=records.meta,
                data=records.data,
                inserts=inserts,
            )
        for text in texts:
            if out:
                out.append(b",")
            out.append(text)
    return out
