"""Performing a repair: copies first, then files that no event can mend, then events.

Owns the order.  Invariants: what is taken out has a durable copy before it goes.  What is lost is
written as events by a process of the engine, which stops cleanly; killed at any call, the repair can
be run again, or the directory refuses to start as before.
"""

from typing import Final

import numpy as np

from topics.protocol.driver.inline_host import InlineHost
from topics.protocol.engine import Engine
from topics.protocol.model.errors import InUse, Unusable
from topics.protocol.model.events import RecordsDeleted, RunsDropped, RunsSealed, TailLost
from topics.protocol.model.limits import Limits
from topics.protocol.model.ports import SealEntry, SealPiece
from topics.protocol.model.records import DELETED, LIVE
from topics.protocol.state.topic import Topic
from topics.repair.plan import BadRun, Lost, Plan
from topics.store import identity, segment
from topics.store.files import File, Files, publish, publish_with, read_at_most, write_all
from topics.store.layout import (
    FAILED_NAME,
    FORMAT_VERSION,
    IDENTITY_NAME,
    LOG_HEADER,
    LOG_HEADERS,
    LOG_MAGIC,
    PAGE,
    aligned,
    header_holds,
    log_name,
    numbers,
    seal_header,
    segment_name,
    version_of,
)
from topics.store.runs import NEAREST
from topics.store.space import LEAST_FILE_BYTES
from topics.store.store import DiskStore
from topics.store.wal import LogPosition

QUARANTINE: Final = ".quarantine"
"""Behind the name of the copy of a file that was taken out.  The store leaves such files alone."""
COPY_BYTES: Final = 1 << 20


def perform(files: Files, found: Plan, *, now_ms: int, may_lose: bool) -> list[str]:
    """*Blocking.* Do what a plan says.

    Args:
        files: Not locked; no process uses the directory.
        may_lose: Give up what cannot be read; else only what loses no record is done.

    Returns:
        Names of the copies that were made.

    Raises:
        StoreError, OSError: It could not be done; it can be run again.
    """
    files.prepare(create=False)
    if not files.lock():
        raise InUse(files.path)
    copied = []
    for name in [*found.checkpoints, *found.orphans]:
        copied += _set_aside(files, name)
    for name in found.flags:
        _mend_flags(files, name)
    for name in [*found.torn, *found.unfinished]:
        files.unlink(name)
    files.sync_dir()
    if found.loses and not may_lose:
        return copied
    for number in (*found.segments, *found.stale):
        copied += _copied(files, segment_name(number))
    if found.cut is not None:
        copied += _cut_log(files, found)
    if found.loses or found.stale or found.report.torn_bytes:
        _give_up(files, found, now_ms)
    return copied


# -- files -------------------------------------------------------------------------------------


def _copied(files: Files, name: str) -> list[str]:
    """Copy a file into the quarantine, as far as it can be read; nothing where it is missing."""
    if name not in files.names():
        return []
    kept = name + QUARANTINE
    file = files.open(name)

    def write(copy: File) -> None:
        for at in range(0, file.size(), COPY_BYTES):
            try:
                data = read_at_most(file, COPY_BYTES, at)
            except OSError:
                continue  # what a disk cannot read is left as zeros
            write_all(copy, data, at)

    try:
        publish_with(files, kept, write)
    finally:
        file.close()
    return [kept]


def _set_aside(files: Files, name: str) -> list[str]:
    kept = name + QUARANTINE
    files.rename(name, kept)
    return [kept]


def _mend_flags(files: Files, name: str) -> None:
    """Write the nearer value in place of each byte that is no flag, as readers take it."""
    known = identity.read(files)
    assert known is not None
    path = f"{files.path}/{name}"
    file = files.open(name, write=True)
    try:
        header = segment.read_header(file, path, number=int(name[:10]), instance=known.instance)
        raw = segment.read_exact(file, path, header.flags_offset, header.flags_bytes)
        flags = np.frombuffer(raw, np.uint8)
        meant = NEAREST[flags].astype(np.uint8)
        for at in np.flatnonzero(meant != flags).tolist():
            write_all(file, meant[at : at + 1].tobytes(), header.flags_offset + at)
        file.sync_data()
    finally:
        file.close()


def _cut_log(files: Files, found: Plan) -> list[str]:
    """End the log where it does not verify, in a history of its own: seqs that the lost part had
    given out may be given again.

    The marks of the new history come first: after a kill in between, the log is still refused.
    """
    assert found.cut is not None
    cut, names = found.cut, files.names()
    following = [n for n in numbers(names, "wal") if n >= cut.file_number]
    copied = [kept for number in following for kept in _copied(files, log_name(number))]
    known = identity.read(files)
    assert known is not None
    least = max(
        [known.incarnation, found.incarnation, *(_incarnation(files, n) for n in following)]
    )
    least += 1
    history = files.entropy(8)
    made = identity.Identity(0, known.instance, history, least)
    publish(files, IDENTITY_NAME, identity.encode(made))
    publish(files, FAILED_NAME, b"")
    for number in reversed(following):
        if number != cut.file_number:
            files.unlink(log_name(number))
    files.sync_dir()
    if cut.file_number in following and _incarnation(files, cut.file_number):
        _zero(files, log_name(cut.file_number), max(cut.offset, PAGE))
    else:
        _begin_anew(files, cut, known.instance, least)
    return copied


def _begin_anew(files: Files, cut: LogPosition, instance: bytes, incarnation: int) -> None:
    """Put an empty log file where the one that the log ends in is missing or has no header.

    Its kernel is unknown, so that the next start counts what followed as lost.
    """
    size = max(aligned(cut.offset, PAGE), LEAST_FILE_BYTES)
    header = seal_header(
        LOG_HEADER,
        LOG_MAGIC,
        FORMAT_VERSION,
        0,
        incarnation,
        instance,
        cut.file_number,
        cut.batch,
        cut.digest,
        cut.batch,
        bytes(16),
        size,
    )

    def write(file: File) -> None:
        file.allocate(size)
        write_all(file, header, 0)

    publish_with(files, log_name(cut.file_number), write)


def _incarnation(files: Files, number: int) -> int:
    file = files.open(log_name(number))
    try:
        data = read_at_most(file, LOG_HEADER.size, 0)
    except OSError:
        return 0
    finally:
        file.close()
    version = version_of(data, LOG_MAGIC)
    if not version or not header_holds(LOG_HEADERS[version], data):
        return 0
    return int(LOG_HEADERS[version].unpack(data[: LOG_HEADERS[version].size])[3])


def _zero(files: Files, name: str, begin: int) -> None:
    file = files.open(name, write=True)
    try:
        for at in range(begin, file.size(), COPY_BYTES):
            write_all(file, bytes(min(COPY_BYTES, file.size() - at)), at)
        file.sync()
    finally:
        file.close()


# -- events ------------------------------------------------------------------------------------


def _give_up(files: Files, found: Plan, now_ms: int) -> None:
    """Start as a server does, write what is lost, move what lies beside it, and stop cleanly."""
    damaged = {**found.segments, **found.stale}
    store = DiskStore(files, forgiven=frozenset(damaged))
    host = InlineHost(Limits(), store, now_ms)
    engine = host.driver.engine
    recovery = store.recover(engine.state)
    host.not_before(engine.state.now_ms)
    engine.advance(host.now_ms)
    try:
        _write_losses(engine, store, found, host.now_ms)
        engine.finish_recovery(recovery, host.now_ms)
        engine.on_written(store.write(engine.take_frames()))
        lsn = store.sync()
        engine.on_synced(lsn)
        host.driver.commit.recovered(lsn)
        for number in damaged:
            if number not in engine.state.segments:
                store.drop(number)
        host.driver.start()
        ended: list[Exception | None] = []
        host.driver.drain()
        host.driver.stop(ended.append)
        host.settle()
    except BaseException:
        store.close(None)
        raise
    if ended != [None]:
        raise Unusable(files.path, f"the repair could not be ended: {ended[0] if ended else '-'}")


def _write_losses(engine: Engine, store: DiskStore, found: Plan, now_ms: int) -> None:
    state, emit = engine.state, engine.unit.emit
    by_topic: dict[int, list[BadRun]] = {}
    for runs in (*found.segments.values(), *found.stale.values()):
        for run in runs:
            by_topic.setdefault(run.topic_id, []).append(run)
    lost_of: dict[int, list[Lost]] = {}
    for one in found.lost:
        lost_of.setdefault(one.topic_id, []).append(one)
    for topic_id, bad in by_topic.items():
        topic = state.by_id[topic_id]
        lost = lost_of.get(topic_id, [])
        if lost:
            spans = np.array([(each.first_seq, each.last_seq) for each in lost], "<u8")
            gone = int((spans[:, 1] - spans[:, 0]).sum()) + len(spans)
            count = max(topic.count - gone, 0)
            emit(RecordsDeleted(now_ms, topic_id, spans.tobytes(), count, topic.size_bytes))
        for run in sorted(bad, key=lambda run: run.first_seq):
            if run.rows is None:
                emit(RunsDropped(now_ms, topic_id, [run.first_seq], topic.floors))
            else:
                _rewrite(engine, store, topic, run, now_ms)
        for each in lost:
            count, size_bytes = topic.recount()
            emit(
                TailLost(
                    now_ms, topic_id, each.first_seq, each.last_seq, "crash", count, size_bytes
                )
            )
    if found.cut is not None:
        # Flags of deletes behind the cut are in the segments, and not in the counters.
        for topic in state.by_id.values():
            count, size_bytes = topic.recount()
            if (count, size_bytes) != (topic.count, topic.size_bytes):
                emit(TailLost(now_ms, topic.topic_id, 1, 0, "crash", count, size_bytes))


def _rewrite(engine: Engine, store: DiskStore, topic: Topic, bad: BadRun, now_ms: int) -> None:
    """Put what can be read of a run into a segment of its own, so that the damaged one can go."""
    run = topic.runs.at(bad.first_seq)
    assert run is not None
    flags = run.flags.copy()
    flags[bad.rows] = DELETED
    if not np.any(flags == LIVE):
        engine.unit.emit(RunsDropped(now_ms, topic.topic_id, [run.first_seq], topic.floors))
        return
    entry = SealEntry(topic.topic_id, run.first_seq, (SealPiece(run, 0, run.count, flags),))
    refs = store.seal([entry])
    last_seq = run.first_seq + run.count - 1
    engine.unit.emit(RunsSealed(now_ms, topic.topic_id, run.first_seq, last_seq, refs))
