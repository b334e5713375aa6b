"""A world in which one seed decides everything: what clients request, when the disk stops, what is
kept.

Owns the processes one after the other, the model after each write, and the choice of the next
step.  Refuses to know how a batch or a page is made.  Invariant: whatever a recovery shows is the
model after some write that the kind of stop permits, and is final then.
"""

import dataclasses
import errno
import random
from collections.abc import Callable
from typing import Any

import orjson

from topics.protocol.model.commands import Claim, Command, Diff, GetTopic
from topics.protocol.model.errors import ErrorCode, Rejection, StoreError
from topics.protocol.model.events import (
    DeadLettered,
    Event,
    JobsLeased,
    RecordsAppended,
    RecordsDeleted,
    Redriven,
    ScatteredDeleted,
)
from topics.protocol.model.outcomes import Parked
from topics.protocol.model.ports import Recovery, Store
from topics.protocol.state.job import JobPlace
from topics.store.layout import FAILED_NAME
from topics.store.store import DiskStore

from .exporting import Exporting
from .files import Cut, Fault, SimFiles
from .invariants import (
    Violation,
    check,
    i2_two_files_of_the_log_are_unsynced_at_most,
    i2_what_a_stop_takes_is_a_suffix,
    i3_a_batch_is_whole,
    i6_what_is_deleted_stays_deleted,
    i13_the_count_is_of_what_is_read,
    i14_times_do_not_fall,
    i26_one_copy_of_each,
    i30_the_config_is_one_that_was_put,
)
from .jobs import shown_jobs
from .model import Found, Key, Model
from .process import Helped, Process, payload
from .pushing import Pushing
from .reading import Ask, Page
from .rot import check_rot
from .routing import Router, follow
from .space import check_rest, come_to_rest
from .traffic import Clients, Style, Traffic, diff_of, split
from .waiting import SLACK_MS, Waiting
from .watching import Watching

TIMED = (JobPlace.LEASED, JobPlace.DELAYED)
START_MS = 1_750_000_000_000
WAL_BYTES = 64 << 10
RESERVE_BYTES = WAL_BYTES
"""The least that a store keeps back, so that commands wait for room in the log, and dead letters are
postponed."""
PLENTY = 1 << 40


class World:
    """A directory, its processes one after the other, and the model beside them.

    Attributes:
        operations: What clients asked for so far.
        recovery_calls: File calls of the last recovery after a crash.
        clock_ms: The wall clock, which may jump; `highest_ms` the most it ever said.
        history: The model after each write that a power loss may still take, by lsn.
        durable_lsn: What a sync has covered, or what was acknowledged as if it were.
        in_flight: The model as a write has it that was begun and has not returned.
        is_full: The disk may refuse.
        was_disturbed: It refused something to the start of this process.
        is_unseen: A process was stopped in the call that was to leave a mark of its failed sync:
            only the kernel's page cache shows it.
    """

    def __init__(self, seed: int, style: Style | None = None) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.whims = random.Random(-seed - 1)
        self.style = style or Style.drawn(self.rng)
        if style is None or style.queues:
            # Drawn apart, so that nothing else of a seed's world is another for it.
            held = self.whims.choice((0.0, 0.0, 0.4))
            self.style = dataclasses.replace(self.style, held=max(held, self.style.held))
        self.files = SimFiles(seed)
        self.clock_ms = self.highest_ms = START_MS
        self.model = Model(now_ms=START_MS)
        self.clients = Clients()
        self.steps = self.operations = 0
        self.recovery_calls = 0
        self.crashes = self.evictions = 0
        self._evicting: list[tuple[str, int]] = []
        self.process: Process
        self.recovery: Recovery
        self.recovered_ms = 0
        self.history: list[tuple[int, Model]] = []
        self.durable_lsn = 0
        self.in_flight: Model | None = None
        self.is_full = False
        self.was_disturbed = False
        self.is_unseen = False
        self.asked: str | None = None
        self._is_between = False
        self.traffic = Traffic(self)
        self.waiting = Waiting(self)
        self.watching = Watching(self)
        self.pushing = Pushing(self)
        self.exporting = Exporting(self) if self.style.exported else None
        self.asides = random.Random(f"asides {seed}")
        self._syncs = random.Random(f"syncs {seed}")
        self._is_helped = self._syncs.random() < 0.5

    # -- life ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin the first process on an empty directory."""
        self._recover()
        self.history = [(0, self.model.copy())]

    def _helped(self) -> Helped | None:
        """In half of all worlds a process syncs, as long as it lives."""
        if not self._is_helped or self._syncs.random() < 0.1:
            return None
        return Helped(self._syncs.random() < 0.5, self._syncs.random() < 0.1)

    def _recover(self) -> None:
        self.clock_ms = max(self.clock_ms, self.highest_ms)
        self.process = Process(
            self.store(),
            self.style.limits,
            writing=self._writing,
            wrote=self._wrote,
            moved=self.moved,
            copied=self._heard,
            holds=lambda: self.whims.random() < self.style.held,
            helped=self._helped,
        )
        back_ms = self.whims.choice((0, 0, 5000, 10_000_000))
        self.recovery = self.process.recover(self.clock_ms - back_ms)
        # The wall clock was set back while no process ran, and is corrected at once: the engine
        # reads it before it may be set back again.
        self.recovered_ms = self.process.engine.state.now_ms
        self.process.now_ms = self.clock_ms
        self.process.engine.advance(self.clock_ms)
        self.process.listen_to_evictions(self._evicted)
        self.process.between = self._between
        self.process.unerased = self._unerased

    def _unerased(self, refusal: Rejection) -> None:
        """A delete was done and its bytes are still there: the disk, or a stop, is the reason."""
        is_ending = refusal.code is ErrorCode.SHUTTING_DOWN or self.process.failed
        is_disturbed = self.has_no_space or self.files.is_stuck or self.files.spoiled_reads > 0
        check(is_ending or is_disturbed, "C2", f"not erased: {refusal}")

    def store(self) -> Store:
        """The store of a process, not yet recovered."""
        return DiskStore(self.files, wal_file_bytes=WAL_BYTES, reserve_bytes=RESERVE_BYTES)

    def _writing(self) -> None:
        self.model.logged_ms = max(self.model.logged_ms, self.process.logged_ms)
        self.in_flight = self.model.copy()

    def _wrote(self, lsn: int) -> None:
        assert self.in_flight is not None
        if not self.files.lies:
            i2_two_files_of_the_log_are_unsynced_at_most(self.files.dirty_logs)
        self.history.append((lsn, self.in_flight))
        self.in_flight = None

    def moved(self) -> None:
        """Dead letters may have moved. (§10.6)"""
        places = self.places()
        self._reap(places)
        self.learn_epochs()
        is_due = self.process.is_reading or self.process.failed
        dying = [n for n, jobs in places.items() if JobPlace.DYING in jobs.values()]
        check(is_due or not dying, "I23", f"jobs of {dying} are dying, and nothing is read")

    def _reap(self, places: dict[str, dict[int, JobPlace]]) -> None:
        waited_for = {claimer.command.topic for claimer in self.waiting.claimers}
        waited_for |= {stream.name for stream in self.pushing.open}
        served = waited_for if self.asked is None else waited_for | {self.asked}
        after_ms = self.style.limits.dead_letter_after_ms
        self.model.reap(
            places,
            served=served,
            after_ms=after_ms,
            lacked_room=self.process.take_lack_of_room(),
        )

    def places(self) -> dict[str, dict[int, JobPlace]]:
        """Where the engine has its jobs; it need not have read the clock yet."""
        state, now_ms = self.process.engine.state, self.model.now_ms
        return {
            state.by_id[topic_id].name: {
                seq: JobPlace.AGAIN if job.place in TIMED and job.ends_ms <= now_ms else job.place
                for seq, job in queue.jobs.items()
            }
            for topic_id, queue in state.queues.items()
        }

    def learn_epochs(self) -> None:
        """Of topics that a dead letter created, which no client requested."""
        for name, topic in self.model.topics.items():
            held = self.process.engine.state.topics.get(name)
            if not topic.epoch and held is not None:
                topic.epoch = held.epoch

    def _heard(self, event: Event) -> None:
        """An event was applied; changes that no client requested directly are learned from it
        alone."""
        follow(self.model, self.process.engine.state, event)
        if not isinstance(self.process.command, Claim | None):
            return
        match event:
            case (
                RecordsDeleted()
                | ScatteredDeleted()
                | RecordsAppended(cause=DeadLettered() | Redriven())
            ):
                self._reap(self.places())
                self.learn_epochs()
            case JobsLeased():
                self.waiting.granted(event)

    def _evicted(self, name: str, through: int, used_bytes: int) -> None:
        """Memory was full, and the oldest records of a topic that is in memory only were evicted; those of
        the command that is just decided among them, which the model has a moment later."""
        self.evictions += 1
        ahead = self.style.hot_bytes // 16  # a little more than is needed is freed at once
        check(used_bytes > self.style.hot_bytes - ahead, "I10", f"{name}: for {used_bytes}")
        self._evicting.append((name, through))
        if self.process.command is None:
            self.take_evictions()

    def take_evictions(self) -> None:
        """The model has the command; it loses what memory had no room for."""
        evicting, self._evicting = self._evicting, []
        for name, through in evicting:
            self._lose(name, through)

    def _lose(self, name: str, through: int) -> None:
        topic = self.model.topics[name]
        gone = [seq for seq in topic.records if seq <= through]
        check(topic.config.discard == "old", "I17", f"{name} rejects, and lost {gone}")
        held = topic.jobs.first_held()
        check(through < topic.head_seq, "I10", f"{name}: all of it was evicted")
        check(held is None or through < held, "I18", f"{name}: {held} is leased, and evicted")
        topic.lose(gone)

    def crash(self, how: str, *, disturb: Callable[[], None] | None = None) -> None:
        """Stop here, and compare what the next process finds; its recovery may be cut off
        itself: by chance, or once as `disturb` says."""
        self.crashes += 1
        self.files.capacity_bytes, self.is_full = PLENTY, False
        stop = how
        if self._lost_pages() or FAILED_NAME in self.files.names() or self.process.failed:
            # What a failed sync left clean may be lost in any next process: as at a power cut.
            how = "cut"
        candidates = self._candidates(how)
        if self.exporting is not None:
            self.exporting.stop(stop)
        self.files = self._next_files(stop)
        self._heed(self.process.last_words)
        check_rot(self)
        restarts = self.rng.choice((0, 0, 1, 2)) if disturb is None else 1
        while True:
            disturbed = restarts > 0
            if disturbed:
                restarts -= 1
                (disturb or self._disturb)()
            try:
                self._recover()
                self.recovery_calls = self.files.calls
                break
            except (Cut, StoreError) as why:
                check(disturbed, "F1", f"refused: {why}")
                again = self.rng.choice(("kill", "cut"))
                if isinstance(why, Cut) and FAILED_NAME in str(why):
                    # Memory has told, and its word is not kept yet: nobody promises this once more.
                    again = "cut"
                if again == "cut" or not isinstance(why, Cut):
                    how, candidates = "cut", self._candidates("cut")
                self.files = self._next_files(again)
                self._heed(str(why))
        self.files.cut_at = None
        self.was_disturbed = self._was_refused_a_call
        self.files.faults.clear()
        self._adopt(how, candidates)
        if self.exporting is not None:
            self.exporting.check_stop()
        self._recover_again()

    def _heed(self, told: str) -> None:
        """An operator who reads that the disk took no mark of its failure leaves one."""
        if FAILED_NAME in told and FAILED_NAME not in self.files.names():
            self.files.put(FAILED_NAME, b"")

    def _disturb(self) -> None:
        """Let the next recovery be cut off or fail."""
        at = self.files.calls + self.rng.randint(0, 30)
        if self.style.faults and self.rng.random() < 0.5:
            for call in range(at + 1, at + 1 + self._calls_that_fail()):
                self.files.faults[call] = Fault(self.rng.choice((errno.EIO, errno.ENOSPC)))
        else:
            self.files.cut_at = at

    def stop(self) -> None:
        """A clean stop and the next start; heads are exact then."""
        if not self.process.stop():
            self.crash("kill")
            return
        self.files.capacity_bytes, self.is_full = PLENTY, False
        self.files = self._next_files(self.rng.choice(("kill", "cut")))
        self._recover()
        self._adopt("clean", [self.model])

    def _lost_pages(self) -> bool:
        files = self.files
        return any(
            at <= files.calls and fault.error and fault.cleans
            for at, fault in files.faults.items()
            if files.log[at - 1 : at] and files.log[at - 1].startswith("sync ")
        )

    @property
    def _was_refused_a_call(self) -> bool:
        return any(at <= self.files.calls for at in self.files.faults)

    @property
    def has_no_space(self) -> bool:
        """Whether the disk is full, or refused a file to this process that the log needs."""
        return self.is_full or self.was_disturbed or self._was_refused_a_call

    def _next_files(self, how: str) -> SimFiles:
        if how == "cut":
            return self.files.cut(self.rng, harsh=self.style.harsh)
        found = self.files.kill()
        if not self.is_unseen and self.rng.random() < self.style.evicts:
            found.drop_caches()
        return found

    def _candidates(self, how: str) -> list[Model]:
        """The model after each write that may have been the last, newest first."""
        written = self.history[-1][0]
        least = written if how != "cut" else self.durable_lsn
        found = [model for lsn, model in self.history if lsn >= least]
        if self.in_flight is not None:
            found.append(self.in_flight)
        return found[::-1]

    def _adopt(self, how: str, candidates: list[Model]) -> None:
        found, routers = self.found(), self.found_routers()
        matching, reasons = [], []
        for candidate in candidates:
            model = candidate.copy()
            try:
                model.survive(
                    found,
                    how=how,
                    clean=self.recovery.is_complete,
                    seen=self.clients.seen,
                    now_ms=self.clock_ms,
                    opened_ms=self.recovered_ms,
                )
                check(model.routers == routers, "I25", f"{model.routers} is {routers}")
                matching.append(model)
            except Violation as why:
                reasons.append(why)
        if not matching:
            told = " | ".join(str(reason)[:70] for reason in reversed(reasons))
            raise Violation(reasons[0].invariant, f"after {how}, oldest first: {told}")
        self._check_clients(how, found)
        self.model = matching[0]
        least_ms = min(model.logged_ms for model in matching)
        check(self.recovered_ms >= least_ms, "I14", f"{self.recovered_ms} after {least_ms}")
        # Of writes that changed nothing visible, the log need not have the later one.
        self.model.logged_ms = least_ms
        self._check_seeks(found)
        _doubt_keys(self.model, matching)
        self._begin_history()

    def _check_clients(self, how: str, found: dict[str, Found]) -> None:
        """What was found, against what clients know and the model never had."""
        clients, last = self.clients, self.history[-1][1].copy()
        last.pass_time(self.clock_ms)
        # An instance that a crash took may be followed by another with its epoch.
        epochs = {topic.epoch for topic in found.values()}
        for memory in (clients.inner, clients.gone, clients.configs):
            for epoch in memory.keys() - epochs:
                del memory[epoch]
        clients.configured &= epochs
        promised = self.durable_lsn if how == "cut" else self.history[-1][0]
        for name, topic in found.items():
            epoch, known = topic.epoch, last.topics.get(name)
            inner = clients.inner.get(epoch, set())
            if not topic.ends_with_a_loss:
                i3_a_batch_is_whole(epoch, topic.head_seq, inner)
            i13_the_count_is_of_what_is_read(name, topic.count, topic.texts)
            if epoch in clients.configured & clients.configs.keys():
                i30_the_config_is_one_that_was_put(name, topic.config, clients.configs[epoch])
            clients.configs[epoch] = [topic.config]
            clients.configured.add(epoch)
            clients.inner[epoch] = {seq for seq in inner if seq < topic.head_seq}
            gone = clients.gone.get(epoch, {})
            gone = clients.gone[epoch] = {s: 0 for s, lsn in gone.items() if lsn <= promised}
            i6_what_is_deleted_stays_deleted(epoch, topic.texts, gone)
            if not (self.traffic.has_plain_copies or self.style.queues):
                i26_one_copy_of_each(name, topic.texts.values())
            i14_times_do_not_fall(name, [topic.texts[seq] for seq in sorted(topic.texts)])
            if known is not None and known.epoch == epoch and self.in_flight is None:
                # Time passes by the `ttl_ms` that is back, where a change of it was lost.
                known.config = topic.config
                known.expire(last.now_ms)
                before = {seq for seq, record in known.records.items() if not record.volatile}
                i2_what_a_stop_takes_is_a_suffix(name, before, topic.texts, how=how)

    def _check_seeks(self, found: dict[str, Found]) -> None:
        """A read from the time of a topic's last record finds it. (§3, decision of seeking by
        time)"""
        self.process.pays = False
        for name, topic in found.items():
            for seq in sorted(topic.texts)[-1:]:
                at_ms = orjson.loads(topic.texts[seq])["$ts"]
                page = self.page(diff_of(name, Ask(None, from_ts=at_ms, limit=1000)))
                texts = split(page)
                while not page.fields["caught_up"]:  # a loss before it is told first
                    page = self.page(diff_of(name, Ask(page.next_seq, limit=1000)))
                    texts += split(page)
                seqs = [orjson.loads(text)["$seq"] for text in texts]
                check(seq in seqs, "I11", f"{name}: {seq} at {at_ms} is not in {seqs}")
        self.process.pays = True

    def _begin_history(self) -> None:
        self.clients.acked.clear()
        self.clients.floors.clear()
        self.waiting.end()
        self.watching.end()
        self.pushing.end()
        self.in_flight, self.is_unseen = None, False
        lsn = self.process.store.written_lsn
        self.history, self.durable_lsn = [(lsn, self.model.copy())], lsn

    def _recover_again(self) -> None:
        """A second recovery of the same directory shows the same. (I31)"""
        if self.rng.random() > 0.3:
            return
        before, process, files = self.found(), self.process, self.files
        was_clean = self.recovery.clean
        self.files = files.kill()
        self._recover()
        again = self.found()
        routers = {n: r.image() for n, r in process.engine.state.routers.by_name.items()}
        known = {n: r.image() for n, r in self.process.engine.state.routers.by_name.items()}
        check(known == routers, "I31", f"{routers} {known}")
        for name in sorted({*before, *again}):
            first, second = before.get(name), again.get(name)
            if was_clean and first is not None and first.config.durability == "ephemeral":
                # The first of the two may have given out seqs that only its memory knew.
                continue
            if was_clean and first and second and not first.config.leases_durable:
                # The second of the two follows a crash, which takes leases.
                first = dataclasses.replace(first, jobs=second.jobs)
            check(first == second, "I31", f"{name}: {_without_texts(first, second)}")
        self.process, self.files = process, files

    def shown_by(self, files: SimFiles) -> tuple[dict[str, Found], dict[str, Router]]:
        """What a start of another directory shows; the world continues where it is."""
        kept = self.process, self.files, self.clock_ms
        self.files = files
        try:
            self._recover()
            return self.found(), self.found_routers()
        finally:
            self.process, self.files, self.clock_ms = kept

    def found(self) -> dict[str, Found]:
        """All that the process shows, and the floors and holes after it; nothing moves for it."""
        self.process.pays = False
        try:
            return self._found()
        finally:
            self.process.pays = True

    def _found(self) -> dict[str, Found]:
        out = {}
        engine = self.process.engine
        for name, topic in engine.state.topics.items():
            state = self._ask(GetTopic(name))
            texts = {}
            for text in self._walk(name):
                texts[orjson.loads(text)["$seq"]] = text
            out[name] = Found(
                topic.epoch,
                topic.config,
                state["head_seq"],
                topic.floors.evict_floor,
                tuple((hole.first_seq, hole.last_seq) for hole in topic.holes),
                texts,
                state["count"],
                state["bytes"],
                *self._jobs(topic.topic_id, state),
            )
        return out

    def _jobs(self, topic_id: int, state: dict[str, Any]) -> tuple[Any, int]:
        queue = self.process.engine.state.queues.get(topic_id)
        if queue is None:
            return None, 0
        told = state["queue"]
        counted = told["ready"] + told["in_flight"] + told.get("delayed", 0)
        check(counted == state["count"], "I19", state)
        return shown_jobs(queue, self.process.engine.state.now_ms), told["dead_lettered"]

    def found_routers(self) -> dict[str, Router]:
        """All routers, their cursors and counters."""
        routers = self.process.engine.state.routers.by_name.items()
        return {
            name: Router(name, r.config, r.cursor, r.forwarded_total, r.lost_total)
            for name, r in routers
        }

    def _walk(self, name: str) -> list[bytes]:
        texts, at = [], 0
        while True:
            page = self.page(diff_of(name, Ask(at, limit=1000, include_tags=True)))
            texts += split(page)
            if page.fields["caught_up"]:
                return texts
            check(page.next_seq > at, "I11", f"{name} stands still at {at}")
            at = page.next_seq

    def _ask(self, command: Command) -> dict[str, Any]:
        outcome = self.process.submit(command, lambda _: None)
        assert not isinstance(outcome, Parked)
        return orjson.loads(payload(outcome)[0])  # type: ignore[no-any-return]

    def page(self, command: Diff) -> Page:
        outcome = self.process.submit(command, lambda _: None)
        assert not isinstance(outcome, Parked)
        whole, records = payload(outcome)
        return Page(orjson.loads(whole), records)

    # -- steps ---------------------------------------------------------------------------------

    def live(self, steps: int) -> None:
        """Continue, whatever happens to the disk."""
        for _ in range(steps):
            try:
                self.step()
                if self.process.failed and self.rng.random() < 0.2:
                    raise Cut
            except Cut as cut:
                self.files.cut_at = None
                self.is_unseen = FAILED_NAME in str(cut)
                self.crash(self.rng.choice(("kill", "cut")))

    def rest(self) -> None:
        """Nothing disturbs the world any more: an exporter comes to the head.  Behind a log that is
        read-only it cannot: what was written last was never synced."""
        self.files.cut_at = None
        self.files.faults.clear()
        if self.exporting is not None and not self.process.failed:
            self.settle()
            self.exporting.check_whole()

    def step(self) -> None:
        self.steps += 1
        kind = self.rng.random()
        process = self.process
        if self.rng.random() < self.style.faults:
            self._fail_soon()
        if self.style.queues:
            self.files.cold = self.rng.random() < self.style.cold
        if kind < 0.62:
            self.turn()
        elif kind < 0.66:
            process.work_off()
        elif process.reading and kind < 0.80:
            process.hand_over(self.rng.randrange(len(process.reading)))
        elif process.is_writing and kind < 0.68:
            process.step_log()
            self.end_turn()
        elif kind < 0.70:
            process.begin_sync()
        elif kind < 0.78:
            self.settle()
        elif kind < 0.93:
            process.step_maintenance(checkpoint=self.rng.random() < 0.15)
        elif kind < 0.95:
            process.give_up_maintenance()
        elif kind < 0.97:
            process.finish_maintenance()
            check_rest(self)
        elif kind < 0.985:
            self._settle_idle()
        elif kind < 0.99:
            self.stop()
        else:
            self._jump()
        self._aside()
        self._learn_synced()

    def _aside(self) -> None:
        """What other clients do beside the one of this step."""
        kind = self.asides.random()
        if kind < 0.3 and not self.process.failed:
            self.operations += 1
            self.watching.step()
        elif kind < 0.45 and self.style.queues:
            self.operations += 1
            self.pushing.step()
        elif kind < 0.47 and self.waiting.claimers and not self.process.engine.unit.wakes:
            self.waiting.leave(self.asides.choice(self.waiting.claimers))
        elif kind < 0.52 and self.style.full:
            self._fill_or_free()
        elif kind > 0.94 and self.exporting is not None and not self.process.failed:
            self.exporting.step()

    def _between(self) -> None:
        """Between two turns of one command others have theirs; what they ask for is answered at once."""
        name = getattr(self.process.command, "topic", "")
        while not self._is_between and self.style.looks and self.rng.random() < 0.5:
            self._is_between = True
            try:
                self.operations += 1
                self.traffic.aside(name)
            finally:
                self._is_between = False

    def go_on(self, steps: int) -> None:
        """What the server does between two reads of another process."""
        for _ in range(steps):
            kind = self.asides.random()
            if kind < 0.7:
                self.turn()
            elif kind < 0.8:
                self.process.work_off()
            elif kind < 0.9:
                self.process.step_maintenance(checkpoint=self.asides.random() < 0.4)
            else:
                self.settle()

    def _fill_or_free(self) -> None:
        """Others fill the disk up to a little room, or free it; then maintenance goes on."""
        if self.is_full:
            self.files.capacity_bytes = PLENTY
            come_to_rest(self)
            self.is_full = False
        else:
            used = sum(len(inode.cache) for inode in self.files.inodes.values())
            self.files.capacity_bytes = used + self.asides.choice((0, 20_000, 200_000))
            self.is_full = True

    def _fail_soon(self) -> None:
        """One of the next calls fails, or writes only a part; a failed sync may clean pages."""
        error = self.rng.choice((errno.EIO, errno.EIO, errno.ENOSPC, 0))
        at = self.files.calls + self.rng.randint(1, 8)
        cleans = self.rng.random() < 0.7
        kind = self.whims.choice((OSError, OSError, MemoryError, ValueError))
        for call in range(at, at + self._calls_that_fail()):
            cleans &= kind is OSError
            self.files.faults[call] = Fault(error, cleans=cleans, kind=kind)
        if self.rng.random() < 0.2:
            # It hung, an operator killed it, and the process was gone when the call returned.
            self.files.cut_at = at

    def _calls_that_fail(self) -> int:
        """Failures come in groups."""
        return self.rng.choice(self.style.in_a_row)

    def _settle_idle(self) -> None:
        self.settle()
        if not self.process.failed:
            self.process.idle()

    def settle(self) -> None:
        """Everything written is synced, and the waiting commands are answered."""
        if not self.process.failed:
            self.process.sync()
        self._learn_synced()

    def _learn_synced(self) -> None:
        self.durable_lsn = max(self.durable_lsn, self.process.store.synced_lsn)
        self.history = [
            (lsn, model)
            for i, (lsn, model) in enumerate(self.history)
            if lsn >= self.durable_lsn or i == len(self.history) - 1
        ]

    def _jump(self) -> None:
        self.clock_ms += self.rng.choice((-5000, -40, 700, 40_000))

    def pass_time(self, more_ms: int) -> None:
        self.clock_ms += more_ms
        self.highest_ms = max(self.highest_ms, self.clock_ms)
        self.process.now_ms = self.clock_ms
        self.model.pass_time(self.clock_ms)

    def turn(self) -> None:
        """Some commands, then one write."""
        for _ in range(self.rng.choice((1, 1, 1, 2, 3))):
            self.pass_time(self.rng.choice((0, 1, 7, 33)))
            self.operations += 1
            self.traffic.command()
        self.end_turn()

    def pay(self, command: Command) -> None:
        """Copies that a command needs are made, with a sync if they need one."""
        self.process.pay(command)
        self._learn_synced()

    def end_turn(self) -> None:
        before = self.history[-1][0]
        self.process.end_turn()
        if self.process.is_writing:
            return
        if not self.process.failed and self.history[-1][0] == before:
            # Nothing was logged: what has changed since is nothing that a restart may show.
            self.history[-1] = before, self.model.copy()
        if not self.process.failed:
            self.process.ring_engine()
        if not self.process.failed and not self.process.is_writing:
            self.waiting.check_rest()
            self.watching.check_rest()
        if not (self.process.failed or self.process.is_reading or self.is_full):
            overdue = self.model.overdue(self.style.limits.dead_letter_after_ms + SLACK_MS)
            check(not overdue, "I23", f"not dead yet: {overdue}")


def _without_texts(*found: Found | None) -> list[Any]:
    """For a message of one line: seqs in place of the texts."""
    return [f and (f.head_seq, f.evict_floor, f.holes, f.count, sorted(f.texts)) for f in found]


def _doubt_keys(model: Model, others: list[Model]) -> None:
    """Keys on which the states that a crash may have left do not agree."""
    for other in others:
        for name, topic in other.topics.items():
            mine = model.topics[name].keys
            for key, known in topic.keys.items():
                if key not in mine:
                    mine[key] = Key(known.first_seq, known.count, known.ts_ms, False, False)
        for name, topic in model.topics.items():
            for key, known in topic.keys.items():
                held = other.topics[name].keys.get(key)
                if held is None or held.first_seq != known.first_seq:
                    known.certain = False
                    if held is not None:
                        known.rivals += (dataclasses.replace(held, certain=True, rivals=()),)
