"""Bugs sown on purpose: each is one plausible slip of a store or an engine, put in by monkeypatch, and
the simulation has to find it, by an invariant with a name.

`BUGS` is the table; `PLAN` says which of them stand for which of thirty classic slips; `HARMLESS` has
those that the worlds proved to be no bug here, and why.
"""

import dataclasses
import errno
import itertools
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

import topics
from tests.export.lakes import MemorySink
from topics.export import target
from topics.protocol import engine
from topics.protocol.commit import publication, unit_of_work
from topics.protocol.commit.admission import Admission
from topics.protocol.commit.publication import Publication
from topics.protocol.commit.unit_of_work import StateUnknown, UnitOfWork
from topics.protocol.decide import forwarding, queues, reads
from topics.protocol.decide.forwarding import Forwarding
from topics.protocol.decide.leases import Leases
from topics.protocol.decide.partial_scans import Finding, PartialScans
from topics.protocol.decide.queues import QueueCommands
from topics.protocol.decide.wait_queue import JobWaiter, WaitQueues
from topics.protocol.driver.group_commit import GroupCommit
from topics.protocol.engine import Engine
from topics.protocol.maintenance.checkpointing import Checkpointing
from topics.protocol.maintenance.compaction import Compaction
from topics.protocol.maintenance.erasure import Erasure
from topics.protocol.maintenance.schedule import Schedule
from topics.protocol.maintenance.steps import (
    Blocking,
    Rotation,
    Task,
    UntilWritten,
    yield_to_commands,
)
from topics.protocol.model import codec
from topics.protocol.model.codec import Frames
from topics.protocol.model.commands import Append, Claim, Command
from topics.protocol.model.errors import ReadFailed, Rejection, WriteFailed
from topics.protocol.model.events import (
    Event,
    Floors,
    JobsLeased,
    JobsReleased,
    RecordsAppended,
    TopicConfigured,
    TopicDeleted,
)
from topics.protocol.model.ports import Recovery, Run
from topics.protocol.state import selection, state, watches
from topics.protocol.state.hot_run import HotRun
from topics.protocol.state.job import Job
from topics.protocol.state.queue import Queue
from topics.protocol.state.segment_usage import SegmentUsage
from topics.protocol.state.selection import ReadQuery, Selection
from topics.protocol.state.topic import Removal, Topic
from topics.store import cache, checkpoint, store, wal
from topics.store.files import File
from topics.store.layout import EVENTS, FAILED_NAME, log_name, numbers
from topics.store.reader import ReadOnlyStore
from topics.store.replay import FileHeader, LogBatch, LogWalk, Tail
from topics.store.runs import SealedRun
from topics.store.segments import Segments
from topics.store.store import DiskStore
from topics.store.wal import Log

from .files import SimFile, SimFiles
from .invariants import Violation
from .stories import style_of, told_story
from .traffic import LARGE

Patch = pytest.MonkeyPatch
SOURCES = Path(topics.__file__).parent

FIRST: dict[str, int] = {
    "a_head_waits_for_a_sync_that_is_over": 422,
    "an_export_reads_what_a_power_loss_may_take": 7,
    "batch_split_in_two": 6,
    "caps_evict_leased_jobs": 3,
    "checkpoint_not_synced": 10,
    "claims_die_with_the_first_of_them": 5,
    "cursor_not_logged_with_its_copies": 3,
    "dead_space_never_a_candidate": 9,
    "dead_space_of_runs_that_are_gone_not_counted": 34,
    "delete_trimmed_before_its_flags": 27,
    "deleted_jobs_sent_by_a_slow_stream": 1,
    "deletes_lost_in_a_seal": 3,
    "deletes_without_flags_forgotten_at_the_next_start": 1,
    "deletes_without_flags_left_out_of_a_checkpoint": 1,
    "engine_time_left_out_of_a_checkpoint": 2,
    "error_of_another_process_believed_to_be_none": 54,
    "expiry_counted_twice": 26,
    "failed_sync_kept_quiet": 77,
    "failed_sync_told_in_a_new_file_only": 73,
    "failed_sync_tried_again": 81,
    "failures_that_are_no_disks_not_heeded": 1,
    "files_of_an_export_not_synced": 5,
    "flags_flipped_before_their_delete_is_durable": 306,
    "floors_of_the_dead_believed": 6,
    "half_a_frame_kept_by_a_full_disk": 8,
    "jobs_end_as_soon_as_they_may_be_claimed": 1,
    "jobs_end_only_at_a_claim": 2,
    "key_remembered_before_its_append": 2,
    "leases_outlive_every_crash": 3,
    "leases_outlive_their_jobs": 40,
    "log_file_without_its_directory_entry": 1,
    "memory_of_the_log_believed": 264,
    "names_of_an_export_not_synced": 4,
    "one_generation_of_the_log_left_by_an_erasure": 225,
    "pages_of_a_sync_written_again": 11,
    "prepared_file_not_synced": 19,
    "prepared_file_unlinked_by_a_start": 239,
    "reads_in_parts_believe_what_they_found": 4,
    "reservation_ignored": 14,
    "runs_that_were_dead_at_a_start_never_looked_at": 101,
    "segment_named_before_its_log_is_durable": 19,
    "segment_not_synced": 10,
    "segment_numbers_used_again": 18,
    "segments_left_by_an_erasure": 331,
    "short_write_believed": 7,
    "sync_of_another_process_covers_what_came_later": 272,
    "sync_that_another_process_died_over_believed": 49,
    "text_not_compared_with_its_digest": 10,
    "the_clock_followed_back": 2,
    "three_files_of_the_log_unsynced": 1,
    "time_stands_still_for_what_goes_on_in_parts": 13,
    "vouching_ignored": 3,
    "what_routers_passed_not_logged_before_their_copies": 580,
    "who_came_while_the_log_failed_not_answered": 2,
    "whole_runs_dropped_by_first_seq": 154,
}
"""The first world that meets the bug."""


def acknowledged_before_the_sync(patch: Patch) -> None:
    patch.setattr(Log, "_timed_sync", lambda self, file: None)


def log_file_without_its_directory_entry(patch: Patch) -> None:
    sync_dir = SimFiles.sync_dir

    def forgetful(self: SimFiles) -> None:
        last = self.log[-1] if self.log else ""
        if not (last.startswith("rename") and last.endswith(".wal")):
            sync_dir(self)

    patch.setattr(SimFiles, "sync_dir", forgetful)


def _unsynced(patch: Patch, ending: str) -> None:
    sync = SimFile.sync

    def forgetful(self: SimFile) -> None:
        if not self.name.endswith(ending):
            sync(self)

    patch.setattr(SimFile, "sync", forgetful)


def checkpoint_not_synced(patch: Patch) -> None:
    _unsynced(patch, ".ckpt.tmp")


def segment_not_synced(patch: Patch) -> None:
    _unsynced(patch, ".seg.tmp")


def log_trimmed_before_the_checkpoint(patch: Patch) -> None:
    rotate = DiskStore.rotate

    def hasty(self: DiskStore, **given: Any) -> int:
        boundary = rotate(self, **given)
        files = self._files
        for number in numbers(files.names(), "wal"):
            if number < self._log.position.file_number:
                files.unlink(log_name(number))
        return boundary

    patch.setattr(DiskStore, "rotate", hasty)


def delete_trimmed_before_its_flags(patch: Patch) -> None:
    patch.setattr(DiskStore, "flip", lambda self: 0)
    patch.setattr(Segments, "unflagged", lambda self, lsn: [])


def flags_have_no_place(patch: Patch) -> None:
    """No segment can be read when its flags are to be written; that alone is no bug."""

    def unread(self: Segments, number: int, *_: object) -> int:
        raise ReadFailed(errno.EIO, "unreadable")

    patch.setattr(Segments, "_flip_one", unread)


def deletes_without_flags_left_out_of_a_checkpoint(patch: Patch) -> None:
    flags_have_no_place(patch)
    patch.setattr(Segments, "unflagged", lambda self, lsn: [])


def deletes_without_flags_forgotten_at_the_next_start(patch: Patch) -> None:
    flags_have_no_place(patch)
    patch.setattr(Segments, "restore_unflagged", lambda self, unflagged: None)


def flags_flipped_before_their_delete_is_durable(patch: Patch) -> None:
    flip = Segments.flip
    patch.setattr(Segments, "flip", lambda self, synced_lsn: flip(self, 1 << 60))


def failed_sync_tried_again(patch: Patch) -> None:
    sync = Log.sync

    def stubborn(self: Log) -> int:
        try:
            return sync(self)
        except WriteFailed:
            self.failed = None
            return sync(self)

    patch.setattr(Log, "sync", stubborn)


def failed_sync_kept_quiet(patch: Patch) -> None:
    for module in (wal, store):
        patch.setattr(module, "leave_failure_mark", lambda files: "")


def failed_sync_told_in_a_new_file_only(patch: Patch) -> None:
    rename = SimFiles.rename

    def never(self: SimFiles, source: str, target: str) -> None:
        if target != FAILED_NAME:
            rename(self, source, target)

    patch.setattr(SimFiles, "rename", never)


def memory_of_the_log_believed(patch: Patch) -> None:
    patch.setattr(cache, "is_on_disk", lambda file, before: True)


def short_write_believed(patch: Patch) -> None:
    def once(file: File, data: Any, offset: int) -> None:
        file.write(data, offset)

    patch.setattr(wal, "write_parts", lambda file, parts, at: once(file, b"".join(parts), at))


def error_of_another_process_believed_to_be_none(patch: Patch) -> None:
    end_sync = Log.end_sync

    def quiet(self: Log, begun: Any, took_us: int = 0, error: Exception | None = None) -> int:
        return end_sync(self, begun, took_us)

    patch.setattr(Log, "end_sync", quiet)


def sync_that_another_process_died_over_believed(patch: Patch) -> None:
    patch.setattr(Log, "finish_sync", Log.end_sync)


def sync_of_another_process_covers_what_came_later(patch: Patch) -> None:
    end_sync = Log.end_sync

    def late(self: Log, begun: Any, took_us: int = 0, error: Exception | None = None) -> int:
        begun = begun._replace(lsn=self.written_lsn, batch=self._batch, dirty=self._dirty)
        return end_sync(self, begun, took_us, error)

    patch.setattr(Log, "end_sync", late)


def pages_of_a_sync_written_again(patch: Patch) -> None:
    patch.setattr(Log, "_end_page", lambda self: None)


def prepared_file_not_synced(patch: Patch) -> None:
    _unsynced(patch, ".wal.tmp")


def prepared_file_unlinked_by_a_start(patch: Patch) -> None:
    set_aside = DiskStore._set_aside

    def tidy(self: DiskStore, tail: Tail) -> None:
        for number in tail.unused_files[::-1]:
            self._files.unlink(log_name(number))
        self._files.sync_dir()
        set_aside(self, dataclasses.replace(tail, unused_files=[]))

    patch.setattr(DiskStore, "_set_aside", tidy)


def segment_named_before_its_log_is_durable(patch: Patch) -> None:
    patch.setattr(Log, "sync_batches", lambda self: self._batch)


def one_checkpoint_kept(patch: Patch) -> None:
    patch.setattr(checkpoint, "GENERATIONS", 1)


def vouching_ignored(patch: Patch) -> None:
    judge = LogWalk._judge

    def lenient(self: LogWalk, tail: Tail, begun: FileHeader) -> None:
        self.vouched = 0
        judge(self, tail, begun)

    patch.setattr(LogWalk, "_judge", lenient)


def digest_chain_not_checked(patch: Patch) -> None:
    batch = LogWalk.batch

    def lenient(self: LogWalk, number: int, offset: int) -> LogBatch | None:
        found = batch(self, number, offset)
        if found is not None:
            found.previous = self._end.digest
        return found

    patch.setattr(LogWalk, "batch", lenient)
    patch.setattr(FileHeader, "follows", lambda self, batch, digest: self.last_batch == batch)


def segment_numbers_used_again(patch: Patch) -> None:
    seal = Segments.seal

    def thrifty(self: Segments, entries: Any, batch: int) -> Any:
        taken = set(numbers(self._files.names(), "seg"))
        self.next_number = next(n for n in itertools.count(1) if n not in taken)
        return seal(self, entries, batch)

    patch.setattr(Segments, "seal", thrifty)


def _written(patch: Patch, change: Callable[[Event], Event]) -> None:
    """The log gets an event that differs from the one that was applied."""
    encode = codec.encode
    patch.setattr(unit_of_work, "encode", lambda event: encode(change(event)))


def evict_floor_not_logged(patch: Patch) -> None:
    def change(event: Event) -> Event:
        if isinstance(event, RecordsAppended):
            return msgspec.structs.replace(event, floors=Floors())
        return event

    _written(patch, change)


def key_not_logged(patch: Patch) -> None:
    def change(event: Event) -> Event:
        return (
            msgspec.structs.replace(event, key=b"") if isinstance(event, RecordsAppended) else event
        )

    _written(patch, change)


def caps_count_deleted_records(patch: Patch) -> None:
    eviction = Topic.eviction

    def greedy(self: Topic, records: int, size_bytes: int, *, before_seq: int) -> Removal | None:
        dead = sum(run.dead for run in self.runs)
        return eviction(self, records + dead, size_bytes, before_seq=before_seq)

    patch.setattr(Topic, "eviction", greedy)


def key_remembered_before_its_append(patch: Patch) -> None:
    submit = Engine.submit

    def hasty(self: Engine, command: Command, **context: Any) -> Any:
        try:
            return submit(self, command, **context)
        except Rejection:
            topic = self.state.topics.get(getattr(command, "topic", ""))
            if isinstance(command, Append) and command.key and topic is not None:
                self.state.keys.remember(
                    topic.topic_id,
                    command.key,
                    topic.head_seq + 1,
                    len(command.datas),
                    self.state.now_ms,
                )
            raise

    patch.setattr(Engine, "submit", hasty)


def reservation_ignored(patch: Patch) -> None:
    finish = Engine.finish_recovery

    def careless(self: Engine, recovery: Recovery, now_ms: int) -> None:
        finish(self, msgspec.structs.replace(recovery, same_boot=True), now_ms)

    patch.setattr(Engine, "finish_recovery", careless)


def tombstone_off_by_one(patch: Patch) -> None:
    select = selection.select

    def lenient(topic: Topic, query: ReadQuery) -> Selection:
        page = select(topic, query)
        stone = page.tombstone
        if stone is not None and query.from_seq + 2 == topic.floors.evict_floor:
            page.tombstone = None
        return page

    for module in (reads, forwarding, watches):
        patch.setattr(module, "select", lenient)


def expiry_counted_twice(patch: Patch) -> None:
    patch.setattr(UnitOfWork, "log_expiry", lambda self, topic, now_ms: None)


def floors_of_the_dead_believed(patch: Patch) -> None:
    patch.setattr(state, "risen", lambda floors, other: other)


def whole_runs_dropped_by_first_seq(patch: Patch) -> None:
    everything = property(lambda self: 1 << 60, lambda self, dead: None)
    patch.setattr(HotRun, "dead", everything, raising=False)


def batch_split_in_two(patch: Patch) -> None:
    write = DiskStore.write

    def halved(self: DiskStore, frames: Frames) -> int:
        body = memoryview(b"".join(frames.parts))
        lsn = 0 if frames else write(self, frames)
        for event in codec.decode_all(body, frames.count):
            lsn = write(self, Frames.of([event]))
        return lsn

    patch.setattr(DiskStore, "write", halved)


def records_shown_before_their_sync(patch: Patch) -> None:
    def written(self: Publication, topic: Topic) -> bool:
        pending = self._heads.setdefault(topic.topic_id, publication._PendingHead(topic))
        pending.written = topic.head_seq
        return False

    patch.setattr(Publication, "plan", written)


def deletes_lost_in_a_seal(patch: Patch) -> None:
    patch.setattr(state, "carry_deletes", lambda old, new: None)


# Queues.


def dead_letters_in_two_entries(patch: Patch) -> None:
    def change(event: Event) -> Event:
        if isinstance(event, RecordsAppended):
            return msgspec.structs.replace(event, cause=None)
        return event

    _written(patch, change)


def _not_logged(patch: Patch, kind: type) -> None:
    emit = UnitOfWork.emit

    def forgetful(self: UnitOfWork, event: Event, *, logged: bool = True, **given: Any) -> None:
        emit(self, event, logged=logged and not isinstance(event, kind), **given)

    patch.setattr(UnitOfWork, "emit", forgetful)


def leases_not_logged(patch: Patch) -> None:
    _not_logged(patch, JobsLeased)


def releases_not_logged(patch: Patch) -> None:
    _not_logged(patch, JobsReleased)


def leases_outlive_every_crash(patch: Patch) -> None:
    patch.setattr(state.State, "recover_jobs", lambda self, clean: None)


def leases_outlive_their_jobs(patch: Patch) -> None:
    patch.setattr(Queue, "reconcile", lambda self, live: None)


def leases_of_another_time_believed(patch: Patch) -> None:
    patch.setattr(Queue, "lose_track", lambda self: None)


def leases_left_out_of_the_last_checkpoint(patch: Patch) -> None:
    image = Queue.image
    patch.setattr(Queue, "image", lambda self, *, lasting: image(self, lasting=False))


def lease_numbers_begin_again(patch: Patch) -> None:
    patch.setattr(engine, "LEASES_BITS", 0)


def a_lease_ends_at_its_deadline(patch: Patch) -> None:
    patch.setattr(Job, "ends_ms", property(lambda self: self.until_ms))


def caps_evict_leased_jobs(patch: Patch) -> None:
    patch.setattr(Admission, "first_held", lambda self, topic: None)


def tokens_not_compared(patch: Patch) -> None:
    held = Queue.held
    patch.setattr(Queue, "held", lambda self, seqs, node, leases: held(self, seqs, node, None))


def unpublished_jobs_claimed(patch: Patch) -> None:
    first_live = Topic.first_live

    def hasty(self: Topic, first_seq: int, limit: int) -> list[int]:
        published, self.published_seq = self.published_seq, self.head_seq
        try:
            return first_live(self, first_seq, limit)
        finally:
            self.published_seq = published

    patch.setattr(Topic, "first_live", hasty)


def who_waits_is_not_woken(patch: Patch) -> None:
    patch.setattr(QueueCommands, "on_published", lambda self, topic: None)


def lasting_leases_of_who_waited_not_logged(patch: Patch) -> None:
    grant = Leases.grant

    def forgetful(self: Leases, topic: Topic, queue: Queue, who: Any, *args: Any) -> Any:
        if isinstance(who, Claim):
            return grant(self, topic, queue, who, *args)
        emit = self._unit.emit
        with patch.context() as unlogged:
            lost = lambda event, **given: emit(event, **{**given, "logged": False})  # noqa: E731
            unlogged.setattr(self._unit, "emit", lost)
            return grant(self, topic, queue, who, *args)

    patch.setattr(Leases, "grant", forgetful)


def claims_given_more_than_they_asked_for(patch: Patch) -> None:
    patch.setattr(JobWaiter, "wants", property(lambda self: self.limit + 1))


def dead_space_never_a_candidate(patch: Patch) -> None:
    patch.setattr(Compaction, "candidates", lambda self: [])


def dead_space_of_runs_that_are_gone_not_counted(patch: Patch) -> None:
    measure = SegmentUsage.measure

    def blind(self: SegmentUsage, segment: int, rows: int, text_bytes: int) -> None:
        use = self._usages.get(segment)
        if use is not None:
            measure(self, segment, use.rows, use.text_bytes)

    patch.setattr(SegmentUsage, "measure", blind)


def runs_that_were_dead_at_a_start_never_looked_at(patch: Patch) -> None:
    add = Compaction._add_remains

    def blind(self: Compaction, *given: Any) -> Any:
        steps, attention, is_more = add(self, *given), self._state.attention, True
        while is_more:
            before = dict(attention)
            is_more = any(True for _ in itertools.islice(steps, 1))
            attention.clear()
            attention.update(before)
            yield

    patch.setattr(Compaction, "_look_at_recovered", lambda self: None)
    patch.setattr(Compaction, "_add_remains", blind)


def what_routers_passed_not_logged_before_their_copies(patch: Patch) -> None:
    append = Forwarding._append

    def hasty(self: Forwarding, *given: Any) -> None:
        passed, self._passed = self._passed, {}
        try:
            append(self, *given)
        finally:
            self._passed = passed

    patch.setattr(Forwarding, "_append", hasty)


def three_files_of_the_log_unsynced(patch: Patch) -> None:
    leave = Log._leave

    def late(self: Log, size: int) -> Any:
        if len(self._unsynced) != 2:
            return leave(self, size)
        first = self._unsynced.pop(0)
        try:
            return leave(self, size)
        finally:
            self._unsynced.insert(0, first)

    patch.setattr(Log, "_leave", late)


def segments_left_by_an_erasure(patch: Patch) -> None:
    patch.setattr(Erasure, "segments_to_check", lambda self, topic_ids: [])


def one_generation_of_the_log_left_by_an_erasure(patch: Patch) -> None:
    checkpoint = Schedule._checkpoint

    def once(self: Schedule, *, fresh: bool = False) -> Task:
        self.is_odd = fresh and not getattr(self, "is_odd", False)  # type: ignore[attr-defined]
        return checkpoint(self, fresh=fresh) if not self.is_odd else iter(())  # type: ignore

    patch.setattr(Schedule, "_checkpoint", once)


def jobs_end_only_at_a_claim(patch: Patch) -> None:
    patch.setattr(Queue, "next_end_ms", lambda self: None)


def jobs_end_as_soon_as_they_may_be_claimed(patch: Patch) -> None:
    patch.setattr(Queue, "_end_ms", lambda self, job: max(job.since_ms, self._opened_ms))


def engine_time_left_out_of_a_checkpoint(patch: Patch) -> None:
    restore = state.State.restore

    def timeless(self: state.State, checkpoint: Any) -> None:
        checkpoint.now_ms = 0
        restore(self, checkpoint)

    patch.setattr(state.State, "restore", timeless)


def image_taken_behind_its_boundary(patch: Patch) -> None:
    begin = Checkpointing.begin

    def prepare(self: Schedule, *, fresh: bool) -> Task:
        yield UntilWritten()
        boundary = yield Rotation(fresh=fresh)
        yield Blocking(yield_to_commands)
        plan = begin(self.checkpointing, self._host.now_ms)
        yield from self._make_images(plan)
        while (job := self.checkpointing.plan_seal(plan)) is not None:
            yield from self._seal(job, plan)
        yield from self._make_images(plan)
        self._unsaved = plan.image, boundary

    patch.setattr(Schedule, "_prepare_checkpoint", prepare)


def checkpoints_never_due(patch: Patch) -> None:
    patch.setattr(Schedule, "is_checkpoint_due", lambda self: False)


def who_came_while_the_log_failed_not_answered(patch: Patch) -> None:
    fail = GroupCommit.fail

    def forgetful(self: GroupCommit, error: Exception) -> None:
        self._syncing.clear()
        fail(self, error)

    patch.setattr(GroupCommit, "fail", forgetful)


def failures_that_are_no_disks_not_heeded(patch: Patch) -> None:
    """Out of memory in a write is taken for a write of nothing, and the log goes on at its place."""
    append = Log._append

    def careless(self: Log, kind: int, frames: Frames) -> None:
        try:
            append(self, kind, frames)
        except WriteFailed as failed:
            if isinstance(failed.__cause__, OSError):
                raise
            self.failed = None
            self.written_lsn += kind == EVENTS

    patch.setattr(Log, "_append", careless)


def cursor_not_logged_with_its_copies(patch: Patch) -> None:
    dead_letters_in_two_entries(patch)


def losses_of_a_source_kept_quiet(patch: Patch) -> None:
    patch.setattr(Forwarding, "_pass_loss", lambda self, *args: False)


def debts_never_paid(patch: Patch) -> None:
    patch.setattr(Engine, "barrier_for", lambda self, command: None)


# -- and those of the second round ------------------------------------------------------------


def half_a_frame_kept_by_a_full_disk(patch: Patch) -> None:
    write_parts = wal.write_parts

    def careless(file: File, parts: Any, at: int) -> None:
        try:
            write_parts(file, parts, at)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise

    patch.setattr(wal, "write_parts", careless)


def class_switches_not_logged(patch: Patch) -> None:
    _not_logged(patch, TopicConfigured)


def deletions_of_topics_not_logged(patch: Patch) -> None:
    _not_logged(patch, TopicDeleted)


def writes_to_a_destination_not_logged(patch: Patch) -> None:
    """What a client appends to a topic that a router fills is taken for a copy, and derived."""
    emit = UnitOfWork.emit

    def forgetful(self: UnitOfWork, event: Event, *, logged: bool = True, **given: Any) -> None:
        if isinstance(event, RecordsAppended) and event.cause is None:
            name = self.state.by_id[event.topic_id].name
            routers = self.state.routers.by_id.values()
            logged = logged and all(router.config.dest != name for router in routers)
        emit(self, event, logged=logged, **given)

    patch.setattr(UnitOfWork, "emit", forgetful)


def an_early_tick_grants_a_lease_twice(patch: Patch) -> None:
    patch.setattr(Job, "ends_ms", property(lambda self: self.until_ms - 60))


def the_clock_followed_back(patch: Patch) -> None:
    def follow(self: state.State, now_ms: int) -> int:
        self.now_ms = now_ms
        return now_ms

    patch.setattr(state.State, "advance", follow)


def who_watches_is_not_woken(patch: Patch) -> None:
    patch.setattr(watches.Watches, "on_published", lambda self, topic_id: None)


def claims_die_with_the_first_of_them(patch: Patch) -> None:
    def forget(self: WaitQueues, token: object) -> None:
        for _, waiting in self.all():
            if token in waiting.waiters:
                waiting.waiters.clear()

    patch.setattr(WaitQueues, "forget", forget)


def deleted_jobs_sent_by_a_slow_stream(patch: Patch) -> None:
    patch.setattr(queues, "_still_held", lambda queue, grant: grant)


def a_stream_keeps_its_leases_when_it_closes(patch: Patch) -> None:
    close = QueueCommands.close

    def hasty(self: QueueCommands, stream: Any, moment: Any) -> None:
        stream.held.clear()
        close(self, stream, moment)

    patch.setattr(QueueCommands, "close", hasty)


def own_records_are_read(patch: Patch) -> None:
    select = selection.select

    def careless(topic: Topic, query: ReadQuery) -> Selection:
        return select(topic, msgspec.structs.replace(query, skip_nodes=()))

    for module in (reads, forwarding, watches):
        patch.setattr(module, "select", careless)


def full_topics_take_what_is_rejected(patch: Patch) -> None:
    patch.setattr(Admission, "_require_space", staticmethod(lambda *args: None))


def deletes_in_parts_believe_what_they_found(patch: Patch) -> None:
    stale = Finding._stale

    def trusting(self: Finding) -> list[Run]:
        for piece in self.pieces.values():
            piece.dead = piece.run.dead
        return stale(self)

    patch.setattr(Finding, "_stale", trusting)


def deletes_in_parts_bounded_by_the_head_at_their_call(patch: Patch) -> None:
    search = Finding.search

    def hasty(self: Finding) -> Iterator[Sequence[Run]]:
        self.before_seq = self.end_seq
        return search(self)

    patch.setattr(Finding, "search", hasty)


def reads_in_parts_believe_what_they_found(patch: Patch) -> None:
    patch.setattr(Topic, "live_among", lambda self, seqs: seqs)


def time_stands_still_for_what_goes_on_in_parts(patch: Patch) -> None:
    part = PartialScans._part

    def timeless(self: PartialScans, *given: Any) -> None:
        with pytest.MonkeyPatch.context() as still:
            still.setattr(self._unit, "expire", lambda *_: None)
            part(self, *given)

    patch.setattr(PartialScans, "_part", timeless)


# -- harmless ---------------------------------------------------------------------------------


def an_export_reads_what_a_power_loss_may_take(patch: Patch) -> None:
    follow = ReadOnlyStore.follow
    patch.setattr(
        ReadOnlyStore, "follow", lambda self, sink, **given: follow(self, sink, to_the_end=True)
    )


def files_of_an_export_not_synced(patch: Patch) -> None:
    patch.setattr(MemorySink, "sync", lambda self: None)


def names_of_an_export_not_synced(patch: Patch) -> None:
    patch.setattr(target, "sync_directories_of", lambda lake, paths: None)


def text_not_compared_with_its_digest(patch: Patch) -> None:
    patch.setattr(SealedRun, "_check", lambda self, *given: None)


def a_head_waits_for_a_sync_that_is_over(patch: Patch) -> None:
    on_written = Publication.on_written

    def forgetful(self: Publication, lsn: int) -> None:
        self._synced_lsn = -1
        on_written(self, lsn)

    patch.setattr(Publication, "on_written", forgetful)


def _synced_behind_their_name(patch: Patch, ending: str) -> None:
    """A file gets its name first, and its bytes are made durable then."""
    sync, rename = SimFile.sync, SimFiles.rename

    def later(self: SimFile) -> None:
        if not self.name.endswith(ending + ".tmp"):
            sync(self)

    def first(self: SimFiles, source: str, target: str) -> None:
        rename(self, source, target)
        if source.endswith(ending + ".tmp"):
            sync(self.open(target, write=True))  # type: ignore[arg-type]

    patch.setattr(SimFile, "sync", later)
    patch.setattr(SimFiles, "rename", first)


def checkpoints_named_before_their_sync(patch: Patch) -> None:
    _synced_behind_their_name(patch, ".ckpt")


def segments_named_before_their_sync(patch: Patch) -> None:
    _synced_behind_their_name(patch, ".seg")


# -- the table --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bug:
    """One sown bug.

    Attributes:
        sow: Puts it in.
        kind: Of the worlds that meet it.
        worlds: What is different in their style.
    """

    sow: Callable[[Patch], None]
    kind: str = "life"
    worlds: Mapping[str, Any] = field(default_factory=dict)


BAD_DISK = {"faults": 0.05}
NO_NEW_FILES = {"faults": 0.3, "in_a_row": (2,), "classes": ("disk",), "evicts": 1.0}
"""A sync fails, no file can be made after it, and the kernel forgets what it had of the log."""
SLOW_LOG = {"held": 0.7}
RECONFIGURED = {"faults": 0.0, "reconfigured": 0.3, "classes": ("disk",)}
ERASED = {
    "routed": False,
    "caps": (0,),
    "ttls_ms": (0,),
    "classes": ("disk", "fsync"),
    "segment_max_records": 8,
    "checkpoint_bytes": 4 << 10,
}

ERASED_IN_TIME = ERASED | {"ttls_ms": (50, 500), "caps": (0, 20), "faults": 0.0}

PASSING = {"routed": True, "caps": (3,), "ttls_ms": (0,), "faults": 0.0, "classes": ("disk",)}
LARGE_LOG = {"sizes": (LARGE,), "faults": 0.0, "classes": ("disk",), "harsh": True}

BUGS: dict[str, Bug] = {
    bug.sow.__name__: bug
    for bug in (
        *map(
            Bug,
            (
                cursor_not_logged_with_its_copies,
                losses_of_a_source_kept_quiet,
                debts_never_paid,
                acknowledged_before_the_sync,
                log_file_without_its_directory_entry,
                checkpoint_not_synced,
                segment_not_synced,
                log_trimmed_before_the_checkpoint,
                delete_trimmed_before_its_flags,
                deletes_without_flags_left_out_of_a_checkpoint,
                deletes_without_flags_forgotten_at_the_next_start,
                flags_flipped_before_their_delete_is_durable,
                pages_of_a_sync_written_again,
                prepared_file_not_synced,
                prepared_file_unlinked_by_a_start,
                segment_named_before_its_log_is_durable,
                one_checkpoint_kept,
                vouching_ignored,
                digest_chain_not_checked,
                segment_numbers_used_again,
                failed_sync_tried_again,
                error_of_another_process_believed_to_be_none,
                sync_that_another_process_died_over_believed,
                sync_of_another_process_covers_what_came_later,
                short_write_believed,
                evict_floor_not_logged,
                key_not_logged,
                caps_count_deleted_records,
                key_remembered_before_its_append,
                reservation_ignored,
                tombstone_off_by_one,
                expiry_counted_twice,
                floors_of_the_dead_believed,
                whole_runs_dropped_by_first_seq,
                batch_split_in_two,
                records_shown_before_their_sync,
                deletes_lost_in_a_seal,
                dead_space_never_a_candidate,
                dead_space_of_runs_that_are_gone_not_counted,
                one_generation_of_the_log_left_by_an_erasure,
                engine_time_left_out_of_a_checkpoint,
                checkpoints_never_due,
                class_switches_not_logged,
                deletions_of_topics_not_logged,
                writes_to_a_destination_not_logged,
                the_clock_followed_back,
                who_watches_is_not_woken,
                own_records_are_read,
                full_topics_take_what_is_rejected,
            ),
        ),
        *(
            Bug(sow, "work")
            for sow in (
                jobs_end_only_at_a_claim,
                jobs_end_as_soon_as_they_may_be_claimed,
                who_waits_is_not_woken,
                lasting_leases_of_who_waited_not_logged,
                claims_given_more_than_they_asked_for,
                dead_letters_in_two_entries,
                leases_not_logged,
                releases_not_logged,
                leases_outlive_every_crash,
                leases_outlive_their_jobs,
                leases_left_out_of_the_last_checkpoint,
                lease_numbers_begin_again,
                a_lease_ends_at_its_deadline,
                an_early_tick_grants_a_lease_twice,
                caps_evict_leased_jobs,
                tokens_not_compared,
                unpublished_jobs_claimed,
                claims_die_with_the_first_of_them,
                deleted_jobs_sent_by_a_slow_stream,
                a_stream_keeps_its_leases_when_it_closes,
            )
        ),
        *(
            Bug(sow, worlds=BAD_DISK)
            for sow in (
                failed_sync_kept_quiet,
                memory_of_the_log_believed,
                who_came_while_the_log_failed_not_answered,
                failures_that_are_no_disks_not_heeded,
                half_a_frame_kept_by_a_full_disk,
            )
        ),
        *(
            Bug(sow, "export")
            for sow in (
                an_export_reads_what_a_power_loss_may_take,
                files_of_an_export_not_synced,
                names_of_an_export_not_synced,
            )
        ),
        *(
            Bug(sow, "tight")
            for sow in (text_not_compared_with_its_digest, a_head_waits_for_a_sync_that_is_over)
        ),
        *(
            Bug(sow, "scan")
            for sow in (
                deletes_in_parts_believe_what_they_found,
                deletes_in_parts_bounded_by_the_head_at_their_call,
                reads_in_parts_believe_what_they_found,
                time_stands_still_for_what_goes_on_in_parts,
            )
        ),
        Bug(segments_left_by_an_erasure, worlds=ERASED),
        Bug(what_routers_passed_not_logged_before_their_copies, worlds=PASSING),
        Bug(three_files_of_the_log_unsynced, worlds=LARGE_LOG),
        Bug(runs_that_were_dead_at_a_start_never_looked_at, worlds=ERASED_IN_TIME),
        Bug(image_taken_behind_its_boundary, worlds=SLOW_LOG),
        Bug(failed_sync_told_in_a_new_file_only, worlds=NO_NEW_FILES),
        Bug(leases_of_another_time_believed, "work", worlds=RECONFIGURED),
    )
}

CRASHES = 6
SEEDS = 600
"""Worlds that are tried where the pinned one does not meet the bug any more."""


def found_in(bug: Bug, seed: int) -> BaseException | None:
    """Why a world with the bug in it fails; None where it does not."""
    try:
        told_story(seed, crashes=CRASHES, style=style_of(bug.kind, seed), **bug.worlds)
    except AssertionError as found:
        return found.__cause__
    return None


def is_own_assertion(reason: BaseException | None) -> bool:
    """Whether an assertion of the engine or the store itself does not hold. (A1)"""
    if isinstance(reason, StateUnknown):
        reason = reason.__cause__
    if not isinstance(reason, AssertionError):
        return False
    where = traceback.extract_tb(reason.__traceback__)[-1].filename
    return Path(where).is_relative_to(SOURCES)


def find(bug: Bug) -> int:
    """Sow a bug, and look for it from its pinned world on; returns how many stops that took.

    Raises:
        AssertionError: It was not found by an invariant with a name.
    """
    first = FIRST.get(bug.sow.__name__, 0)
    others = set[str]()
    with Patch.context() as patch:
        bug.sow(patch)
        for seed in range(first, first + SEEDS):
            reason = found_in(bug, seed)
            if isinstance(reason, Violation) or is_own_assertion(reason):
                return CRASHES * (seed - first + 1)
            if reason is not None:
                others.add(f"{type(reason).__name__}: {reason}"[:80])
    raise AssertionError(f"not found in {SEEDS} worlds from {first} on; {sorted(others)[:3]}")


# -- the classic slips ------------------------------------------------------------------------

HARMLESS: dict[str, str] = {
    "checkpoints_named_before_their_sync": "a checkpoint counts once its directory is synced, which"
    " follows both; one whose bytes a cut took does not verify, and the one before it, with the log that"
    " it needs, is still there",
    "segments_named_before_their_sync": "the event that names a segment is written after both; what a"
    " cut leaves of it is removed by the next start",
    "truncation_not_synced": "a log file that a start cuts keeps what stood behind its end: the header of"
    " the file after it, durable before, says where the log had ended",
    "no_incarnation": "a start begins a new file and no file is used again, so that no old bytes stand"
    " behind a new end; batch number and digest chain refuse them besides",
    "ttl_walks_only_the_front": "times do not fall within a topic (I14), so what expired is its front",
    "mark_of_an_idle_log_vouches_for_less": "recovery is only more careful",
    "segment_entry_not_synced_by_itself": "the sync of the next log file or checkpoint covers it before"
    " anything durable refers to it; what it lacks is lost with the batch that names it",
    "last_time_left_out_of_a_checkpoint": "engine time is in the same checkpoint and is never below it;"
    " where a seek by time looks at it, no live record follows",
    "expired_through_left_out_of_a_checkpoint": "what lies between that and the floor was deleted: to"
    " walk it again removes nothing",
    "erasure_without_its_last_look": "the syncs before have unlinked the files, but where one of them"
    " fails, which `tests/server/runtime/test_erase.py` has",
}
"""Slips that are no bug here, and the reason.  The first two can be sown (`SOWN_IN_VAIN`)."""

SOWN_IN_VAIN = (checkpoints_named_before_their_sync, segments_named_before_their_sync)

PLAN: dict[str, str] = {
    "ack before fsync": "acknowledged_before_the_sync",
    "no directory sync after a log file was made": "log_file_without_its_directory_entry",
    "checkpoint's temporary file not synced": "checkpoint_not_synced",
    "rename before the sync": "checkpoints_named_before_their_sync",
    "log trimmed before the checkpoint's directory sync": "log_trimmed_before_the_checkpoint",
    "delete trimmed before the flags' sync": "delete_trimmed_before_its_flags",
    "flag flipped before the delete is durable": "flags_flipped_before_their_delete_is_durable",
    "recovery's truncation not synced": "truncation_not_synced",
    "digest without a place": "digest_chain_not_checked",
    "no incarnation": "no_incarnation",
    "retry after a failed sync": "failed_sync_tried_again",
    "a failed write followed by others": "failures_that_are_no_disks_not_heeded",
    "short write not continued": "short_write_believed",
    "half a frame kept on a full disk": "half_a_frame_kept_by_a_full_disk",
    "class switch forgotten": "class_switches_not_logged",
    "topic deletion forgotten": "deletions_of_topics_not_logged",
    "evict floor not logged": "evict_floor_not_logged",
    "copies made twice": "cursor_not_logged_with_its_copies",
    "direct write into a router's destination": "writes_to_a_destination_not_logged",
    "cap counts deleted records": "caps_count_deleted_records",
    "cap evicts leased jobs": "caps_evict_leased_jobs",
    "lease granted twice by an early tick": "an_early_tick_grants_a_lease_twice",
    "dead letter in two batches": "dead_letters_in_two_entries",
    "idempotency key remembered before its commit": "key_remembered_before_its_append",
    "head goes back for class memory": "reservation_ignored",
    "tombstone off by one": "tombstone_off_by_one",
    "time to live walks the front only": "ttl_walks_only_the_front",
    "lost wake-up of a watch": "who_watches_is_not_woken",
    "waiting claims die with their first": "claims_die_with_the_first_of_them",
    "lease numbers begin at 1 again": "lease_numbers_begin_again",
}
"""The thirty slips that every store of this kind has made once, and the bug that stands for each."""
