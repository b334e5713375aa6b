"""What becomes of jobs, over kills and power losses at any file call: reasons, progress, delays, results, letters.

Each request is answered when it is durable.  So a life finds all that was answered, and of the request that was cut off
all or nothing: no result without its ack, no ack without its result, no letter in two places or in none.  Leases may be
gone, with deliveries that no nack ended.
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec

from topics.protocol.commit.unit_of_work import UnitOfWork
from topics.protocol.decide import job_notes
from topics.protocol.decide.ended_erasure import EndedErasure
from topics.protocol.decide.leases import Leases
from topics.protocol.faces.http.records import parse_delete
from topics.protocol.model.events import RecordsAppended, RecordsDeleted, Redriven
from topics.protocol.model.names import DONE
from topics.protocol.state.job import Job

from .lives import Bug, Lives, Patch, require

REASONS_MAX = 5


@dataclass
class Waiting:
    """A job that is in the queue."""

    reasons: list[str] = field(default_factory=list)
    progress: Any = None
    ready_ms: int = 0


@dataclass
class Known:
    """What clients were told.

    Attributes:
        jobs, letters: By what they say; of letters, their reasons.
        results: By the job's seq.
        dead: Seqs of jobs that are dead letters.
    """

    jobs: dict[int, Waiting] = field(default_factory=dict)
    letters: dict[int, list[str]] = field(default_factory=dict)
    results: dict[int, Any] = field(default_factory=dict)
    dead: set[int] = field(default_factory=set)


class World(Lives):
    """One queue and its dead letters.

    Attributes:
        told: What is known to be durable.
        asked: What is durable besides, if the request that was cut off is.
    """

    LIMITS = {"segment_max_records": 8}  # noqa: RUF012 - as the base has it

    def __init__(self, seed: int, *, harsh: bool) -> None:
        super().__init__(seed, harsh=harsh)
        self.told = Known()
        self.asked: Known | None = None
        self.numbers = 0
        self.lasting = bool(self.dice.randrange(2))

    # ------------------------------------------------------------------ one life

    def begin(self) -> None:
        engine = self.engine
        if "q" not in engine.engine.state.topics:
            require(not self.told.jobs, "the queue is gone")
            engine.put("d", durability=self.durability)
            engine.put(
                "q",
                type="queue",
                durability=self.durability,
                dead_letter="d",
                keep_done=1000,
                leases_durable=self.lasting,
            )
            engine.sync()
        self.compare()

    def compare(self) -> None:
        """What is there is what was told; or, where a request was cut off, what that made of it."""
        seen = self.seen()
        what = _difference(seen, self.told, self.engine.now_ms)
        if what and self.asked is not None:
            self.told = (
                self.asked if not _difference(seen, self.asked, self.engine.now_ms) else self.told
            )
            what = _difference(seen, self.told, self.engine.now_ms)
        require(not what, what)
        self.asked = None

    def judge(self) -> None:
        self.start()
        self.begin()

    def back_up(self) -> None:
        """Not here: what was cut off is known at the next start only."""

    @contextmanager
    def asking(self) -> Iterator[Known]:
        """A request that makes of what is known what the caller makes of it."""
        asked = self.asked = copy.deepcopy(self.told)
        yield asked
        self.engine.sync()
        self.told, self.asked = asked, None

    def step(self) -> None:
        dice, engine = self.dice, self.engine
        engine.now_ms += dice.choice((0, 1, 100, 3000))
        choice = dice.random()
        if choice < 0.25:
            self.append()
        elif choice < 0.7:
            self.work()
        elif choice < 0.77:
            self.redrive()
        elif choice < 0.84:
            self.change()
        elif choice < 0.87:
            self.erase()
        elif choice < 0.92:
            engine.drive(engine.schedule.round(checkpoint=True))
        else:
            self.compare()

    def append(self) -> None:
        with self.asking() as asked:
            for _ in range(self.dice.randint(1, 3)):
                self.numbers += 1
                asked.jobs[self.numbers] = Waiting()
            first = self.numbers - (len(asked.jobs) - len(self.told.jobs)) + 1
            self.engine.append(*range(first, self.numbers + 1), name="q")

    def work(self) -> None:
        """A worker claims a job, and says something of it."""
        dice, engine = self.dice, self.engine
        claimed = engine.claim(node="w", lease_ms=1000)["claimed"]
        engine.sync()
        if not claimed:
            return
        [job] = claimed
        seq, number, choice = job["$seq"], job["data"], dice.random()
        with self.asking() as asked:
            mine = asked.jobs[number]
            if choice < 0.45:
                why, delay_ms = f"why {dice.randrange(100)}", dice.choice((0, 0, 500, 10_000))
                mine.reasons = [*mine.reasons, why][-REASONS_MAX:]
                mine.ready_ms = engine.now_ms + delay_ms if delay_ms else 0
                engine.nack(seq, reason=why, delay_ms=delay_ms)
            elif choice < 0.6:
                why = f"dead {dice.randrange(100)}"
                asked.letters[number] = [*mine.reasons, why][-REASONS_MAX:]
                del asked.jobs[number]
                asked.dead.add(seq)
                engine.nack(seq, reason=why, dead=True)
            elif choice < 0.75:
                mine.progress = {"at": dice.randrange(100)}
                mine.ready_ms = 0
                engine.extend(seq, lease_ms=1000, progress=mine.progress)
            else:
                del asked.jobs[number]
                asked.results[seq] = dice.choice((None, number, [number]))
                engine.ack(seq, result=asked.results[seq])

    def redrive(self) -> None:
        with self.asking() as asked:
            most = self.dice.randint(1, 3)
            for number in list(asked.letters)[:most]:
                del asked.letters[number]
                asked.jobs[number] = Waiting()
            self.engine.redrive(max=most)
            self.engine.work_off()

    def change(self) -> None:
        """An operator promotes, or takes away, what is delayed."""
        delayed = [job for job in self.items() if job["state"] == "delayed"]
        if not delayed:
            return
        job = self.dice.choice(delayed)
        with self.asking() as asked:
            if self.dice.random() < 0.5:
                asked.jobs[job["data"]].ready_ms = 0
                self.engine.change("promote", job["seq"])
            else:
                del asked.jobs[job["data"]]
                self.engine.change("cancel", job["seq"])

    def erase(self) -> None:
        """Everything below a number goes, and then what is kept of jobs that ended: an entry of the log each."""
        below = self.dice.randint(1, max(self.engine.topic("q").head_seq, 1))
        gone = [job["data"] for job in self.items() if job["seq"] < below]
        with self.asking() as asked:
            for number in gone:
                del asked.jobs[number]
            self.engine.ask(parse_delete("q", b'{"before_seq": %d, "erase": true}' % below))
        with self.asking() as asked:
            asked.results = {seq: each for seq, each in asked.results.items() if seq >= below}
            asked.dead = {seq for seq in asked.dead if seq >= below}
            self.engine.work_off()
            self.engine.woken()

    # ------------------------------------------------------------------ what is there

    def items(self, **query: object) -> list[Any]:
        """Items of jobs; those that are in the queue with what they say."""
        found, after = [], 0
        datas = {
            each["$seq"]: each["data"] for each in self.engine.diff(name="q", limit=1000)["records"]
        }
        while True:
            page = self.engine.jobs(limit=1000, after=after, **query)
            if page is None:
                self.engine.work_off()
                [page] = self.engine.woken()
            found += [{**job, "data": datas.get(job["seq"])} for job in page["jobs"]]
            if page["next_after"] is None:
                return found
            after = page["next_after"]

    def seen(self) -> Known:
        out = Known()
        self.engine.engine.advance(self.engine.now_ms)
        numbers = [job["data"] for job in self.items()]
        require(len(set(numbers)) == len(numbers), "a job is there twice")
        for job in self.items():
            reasons = [each["reason"] for each in job["reasons"]]
            out.jobs[job["data"]] = Waiting(reasons, job["progress"], job["ready_at"] or 0)
        for letter in self.engine.diff(name="d", limit=1000)["records"]:
            errors = letter["meta"].get("$dead_letter_errors", ())
            require(letter["data"] not in out.jobs, "a letter is in the queue too")
            out.letters[letter["data"]] = [each["reason"] for each in errors]
        out.results = {job["seq"]: job["result"] for job in self.items(state="done")}
        out.dead = {job["seq"] for job in self.items(state="dead")}
        return out


def _difference(seen: Known, told: Known, now_ms: int) -> str:
    """Where both differ; empty: nowhere."""
    if seen.jobs.keys() != told.jobs.keys():
        return f"jobs are {sorted(seen.jobs)}, and were {sorted(told.jobs)}"
    if seen.letters != told.letters:
        return f"letters are {seen.letters}, and were {told.letters}"
    if seen.results != told.results:
        return f"results are {seen.results}, and were {told.results}"
    if seen.dead != told.dead:
        return f"dead jobs are {seen.dead}, and were {told.dead}"
    for number, job in told.jobs.items():
        found = seen.jobs[number]
        if (found.reasons, found.progress) != (job.reasons, job.progress):
            return f"job {number} says {found}, and said {job}"
        if job.ready_ms > now_ms and found.ready_ms != job.ready_ms:
            return f"the delay of job {number} is {found}, and was {job}"
    return ""


# ---------------------------------------------------------------------- bugs


def results_lost_on_an_ack(patch: Patch) -> None:
    """They are shown, and in no log."""
    log_append = UnitOfWork.log_append

    def forgetful(self: UnitOfWork, topic: Any, event: Any, size: int, *, volatile: bool) -> None:
        if topic.partition == DONE:
            self.emit(event, logged=False)
        else:
            log_append(self, topic, event, size, volatile=volatile)

    patch.setattr(UnitOfWork, "log_append", forgetful)


def reasons_in_no_log(patch: Patch) -> None:
    patch.setattr(job_notes.JobNotes, "_is_logged", lambda self, topic: False)


def reasons_left_out_of_checkpoints(patch: Patch) -> None:
    for name in ("image", "image_of_log"):
        real = getattr(Job, name)

        def without(self: Job, real: Any = real) -> Any:
            return msgspec.structs.replace(real(self), notes=None)

        patch.setattr(Job, name, without)


def nacks_in_no_log(patch: Patch) -> None:
    """Where leases are not, as before."""
    release = Leases.release

    def old(self: Leases, *args: Any, lasting: bool = False, **more: Any) -> None:
        release(self, *args, **more)

    patch.setattr(Leases, "release", old)


def _redriven(patch: Patch, *, keeps_copy: bool) -> None:
    """One end of a redrive is in the log, and the other is not."""
    emit = UnitOfWork.emit

    def halved(self: UnitOfWork, event: Any, *, logged: bool = True, log_bytes: int = 4096) -> None:
        if not (isinstance(event, RecordsAppended) and isinstance(event.cause, Redriven)):
            emit(self, event, logged=logged, log_bytes=log_bytes)
            return
        cause = event.cause
        bare = msgspec.structs.replace(event, cause=None)
        gone = RecordsDeleted(
            event.now_ms, cause.source_id, cause.spans, cause.count, cause.size_bytes
        )
        emit(self, bare, logged=keeps_copy, log_bytes=log_bytes)
        emit(self, gone, logged=not keeps_copy)

    patch.setattr(UnitOfWork, "emit", halved)


def redriven_letters_doubled(patch: Patch) -> None:
    _redriven(patch, keeps_copy=True)


def redriven_letters_lost(patch: Patch) -> None:
    _redriven(patch, keeps_copy=False)


def ends_outlive_an_erasure(patch: Patch) -> None:
    patch.setattr(EndedErasure, "begin", lambda self, topic, command, answer, *_: answer)


def erased_ends_come_back(patch: Patch) -> None:
    """That they are gone is in no log."""
    emit = UnitOfWork.emit

    def forgetful(
        self: UnitOfWork, event: Any, *, logged: bool = True, log_bytes: int = 4096
    ) -> None:
        is_of_ends = (
            isinstance(event, RecordsDeleted) and self.state.by_id[event.topic_id].partition == DONE
        )
        emit(self, event, logged=logged and not is_of_ends, log_bytes=log_bytes)

    patch.setattr(UnitOfWork, "emit", forgetful)


BUGS: dict[str, Bug] = {
    each.__name__: Bug(each, found)
    for each, found in (
        (results_lost_on_an_ack, "^results are|^dead jobs are"),
        (reasons_in_no_log, "says|letters are"),
        (reasons_left_out_of_checkpoints, "says"),
        (nacks_in_no_log, "the delay of job"),
        (redriven_letters_doubled, "in the queue too"),
        (redriven_letters_lost, "^jobs are"),
        (ends_outlive_an_erasure, "^results are|^dead jobs are"),
        (erased_ends_come_back, "^results are|^dead jobs are"),
    )
}
