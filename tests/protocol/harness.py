"""An engine over a store in memory, turned by hand: what is written and synced is the test's to say.

Group commit and maintenance are the real ones; commands go to the engine directly, so that a test
sees what it decides.  The clock is a number that only moves when a test moves it.
"""

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import orjson

from topics.protocol.commit.admission import FRAME_BYTES
from topics.protocol.driver.group_commit import GroupCommit, Rotate, Sync, Write
from topics.protocol.driver.maintenance import Call, MaintenanceDriver
from topics.protocol.driver.reply import Deliver, PendingAnswer, Reply, Ticket
from topics.protocol.driver.throttle import Throttle
from topics.protocol.engine import Engine
from topics.protocol.faces.http import answers as http_answers
from topics.protocol.faces.http.append_body import parse_append
from topics.protocol.faces.http.jobs import parse_change, parse_changes, parse_get, parse_list
from topics.protocol.faces.http.queues import (
    parse_ack,
    parse_claim,
    parse_extend,
    parse_nack,
    parse_redrive,
)
from topics.protocol.faces.http.records import parse_delete, parse_diff, parse_purge
from topics.protocol.faces.http.routers import parse_put_router
from topics.protocol.faces.http.schedules import parse_put_schedule
from topics.protocol.faces.http.statuses import STATUSES
from topics.protocol.faces.http.topics import parse_put
from topics.protocol.maintenance import steps
from topics.protocol.maintenance.checkpointing import CheckpointPlan
from topics.protocol.maintenance.sealing import SealJob
from topics.protocol.maintenance.steps import Task
from topics.protocol.model.commands import (
    Append,
    Command,
    DeleteRouter,
    DeleteTopic,
    GetRouter,
    GetSchedule,
    GetTopic,
    ListRouters,
    ListTopics,
)
from topics.protocol.model.errors import Rejection
from topics.protocol.model.events import Checkpoint, Event, Image
from topics.protocol.model.limits import Limits
from topics.protocol.model.moment import Moment
from topics.protocol.model.outcomes import Outcome, Parked, Records
from topics.protocol.model.ports import Store
from topics.protocol.model.render import project
from topics.protocol.model.shown_records import records_of
from topics.protocol.state.topic import Topic
from topics.store.memory import MemoryStore

START_MS = 1_750_000_000_000


class Harness:
    """One engine; `auto` ends the turn, write and sync included, after each command."""

    def __init__(
        self,
        *,
        auto: bool = True,
        store: Store | None = None,
        now_ms: int = START_MS,
        **limits: int,
    ) -> None:
        self.limits = Limits(**limits)
        self.store: Any = store or MemoryStore()
        self.reports: list[str] = []
        """Sentences about damage that an operator hears of."""
        self.engine = Engine(self.limits, self.store, report=self.reports.append)
        self.now_ms = now_ms
        self.commit = GroupCommit(self.engine, self.store, self, self, flush_ms=200)
        self.maintenance = MaintenanceDriver(
            self.limits, self.engine, self.store, self.commit, Throttle(), self, submit=self._submit
        )
        self.schedule = self.maintenance.schedule
        self.sealing, self.compaction = self.schedule.sealing, self.schedule.compaction
        self.checkpointing = self.schedule.checkpointing
        self.warnings: list[str] = []
        self.events: list[Any] = []
        """What the log was given."""
        self._hear_of_events()
        self.recovery = self.store.recover(self.engine.state)
        self.engine.finish_recovery(self.recovery, now_ms)
        self.auto = auto
        self.room_bytes = 1 << 40
        self._tokens = 0

    def _hear_of_events(self) -> None:
        emit = self.engine.unit.emit

        def heard(event: Event, *, logged: bool = True, log_bytes: int = FRAME_BYTES) -> None:
            emit(event, logged=logged, log_bytes=log_bytes)
            if logged:
                self.events.append(event)

        self.engine.unit.emit = heard  # type: ignore[method-assign]

    def _submit(self, command: Command, deliver: Deliver) -> Reply | Ticket:
        """What maintenance decides."""
        outcome = self.ask(command)
        self.sync()
        assert isinstance(outcome, Outcome)
        return Reply(outcome)

    # CommitListener.

    def ask(self, command: Command) -> Outcome | Parked:
        self._tokens += 1
        if self.auto:
            self.pay(command)
        result = self.engine.submit(command, token=self._tokens, moment=self.moment)
        if self.auto:
            self.sync()
        return result

    @property
    def moment(self) -> Moment:
        return Moment(self.now_ms, lambda _: self.room_bytes)

    @property
    def last_token(self) -> int:
        return self._tokens

    def pay(self, command: Command) -> None:
        """Work off what is owed to a command, as a shell does before it submits one."""
        debt = self.engine.barrier_for(command)
        while debt is not None and not debt.is_passed:
            debt.advance(self.moment)
            self.read_fetches()
            self.sync()

    def work_off(self) -> None:
        """Do what is owed (copies, jobs for who waits) until nothing is, a turn each."""
        self.engine.work_off(self.moment)
        self.read_fetches()
        self.sync()
        while self.engine.has_work():
            self.engine.work_off(self.moment)
            self.read_fetches()
            self.sync()

    def read_fetches(self) -> None:
        for fetch in self.engine.take_fetches():
            fetch.done(fetch.read())

    def write(self) -> int:
        """End the turn: what was decided is in the log."""
        self.commit.end_turn()
        return self.store.written_lsn

    def sync(self) -> None:
        self.write()
        self.commit.want_sync()

    def woken(self) -> list[Any]:
        """Answers of those who waited, as objects or refusals."""
        return [
            wake.result if isinstance(wake.result, Exception) else shown(wake.result)
            for wake in self.engine.take_wakes()
        ]

    # Commands in short.

    def put(self, name: str = "t", **config: object) -> Any:
        return shown(self.ask(parse_put(name, orjson.dumps(config))))

    def append(self, *datas: object, name: str = "t", **fields: object) -> Any:
        return shown(self.ask(self.appending(*datas, name=name, **fields)))

    def appending(self, *datas: object, name: str = "t", **fields: object) -> Append:
        """The command that `append` asks for."""
        records = [d if isinstance(d, dict) and "data" in d else {"data": d} for d in datas]
        body = orjson.dumps({"records": records, **fields})
        return parse_append(name, body, self.limits, return_seqs=True, header_key=None)

    def append_raw(self, body: bytes, name: str = "t") -> Any:
        command = parse_append(name, body, self.limits, return_seqs=True, header_key=None)
        return shown(self.ask(command))

    def diff(self, from_seq: int | None = 0, name: str = "t", **fields: object) -> Any:
        body = orjson.dumps({"from_seq": from_seq, **fields})
        found = self.ask(parse_diff(name, body, self.limits))
        if isinstance(found, Parked):  # while a thread opens batches
            self.work_off()
            [page] = self.woken()
            return page
        return shown(found)

    def seqs(self, from_seq: int | None = 0, **fields: Any) -> list[int]:
        return [r["$seq"] for r in self.diff(from_seq, **fields)["records"]]

    def wait(self, from_seq: int = 0, name: str = "t", **fields: object) -> Any:
        """A long poll: the page, or None where it parked."""
        fields = {"from_seq": from_seq, "wait_ms": 1000, **fields}
        found = self.ask(parse_diff(name, orjson.dumps(fields), self.limits))
        return None if isinstance(found, Parked) else shown(found)

    def delete(self, name: str = "t", **fields: object) -> Any:
        return shown(self.ask(parse_delete(name, orjson.dumps(fields))))

    def purge(self, name: str = "t", **fields: object) -> Any:
        return shown(self.ask(parse_purge(name, orjson.dumps(fields))))

    def drop(self, name: str = "t", *, if_empty: bool = False) -> Any:
        return shown(self.ask(DeleteTopic(name, if_empty)))

    def state(self, name: str = "t") -> Any:
        return shown(self.ask(GetTopic(name, touch=False)))

    def listing(self, prefix: str = "", page_size: int = 100, after: str = "") -> Any:
        return shown(self.ask(ListTopics(prefix, page_size, after)))

    def topic(self, name: str = "t") -> Topic:
        return self.engine.state.topics[name]

    # Routers.

    def route(self, name: str = "r", source: str = "s", dest: str = "d", **fields: object) -> Any:
        body = orjson.dumps({"source": source, "dest": dest, **fields})
        return shown(self.ask(parse_put_router(name, body)))

    def router(self, name: str = "r") -> Any:
        return shown(self.ask(GetRouter(name)))

    def routers(self, prefix: str = "", page_size: int = 100, **fields: Any) -> Any:
        wanted = {"after": "", "source": None, "dest": None, **fields}
        return shown(self.ask(ListRouters(prefix, page_size, **wanted)))

    def unroute(self, name: str = "r") -> Any:
        return shown(self.ask(DeleteRouter(name)))

    # Schedules.

    def at_times(self, name: str = "s", topic: str = "t", **fields: object) -> Any:
        body = {"topic": topic, "record": {"data": name}, **fields}
        return shown(self.ask(parse_put_schedule(name, orjson.dumps(body), self.limits)))

    def scheduled(self, name: str = "s") -> Any:
        return shown(self.ask(GetSchedule(name)))

    def pass_time(self, to_ms: int) -> None:
        """Let time go on, and do what is due then."""
        self.now_ms = to_ms
        self.engine.advance(to_ms)
        self.work_off()

    def ticks(self, name: str = "t", **fields: object) -> list[int]:
        """The ticks of which a topic has records, in their order."""
        page = self.diff(0, name=name, limit=1000, **fields)
        return [record["meta"]["$schedule_at"] for record in page["records"]]

    def datas(self, name: str = "d", from_seq: int = 0, **fields: object) -> list[Any]:
        """What a reader of all finds, losses among the records as (from, to, reason)."""
        found: list[Any] = []
        while True:
            page = self.diff(from_seq, name=name, **fields)
            if (stone := page["tombstone"]) is not None:
                found.append((stone["gap_from"], stone["gap_to"], stone["reason"]))
            found += [record["data"] for record in page["records"]]
            from_seq = page["next_from_seq"]
            if page["caught_up"]:
                return found

    # Work.

    def claim(self, name: str = "q", node: str = "w", **fields: object) -> Any:
        """The answer, or None where the claim parked."""
        body = orjson.dumps({"node": node, **fields})
        found = self.ask(parse_claim(name, body, self.limits))
        return None if isinstance(found, Parked) else shown(found)

    def claimed(self, name: str = "q", node: str = "w", **fields: object) -> list[int]:
        return [job["$seq"] for job in self.claim(name, node, **fields)["claimed"]]

    def ack(self, *seqs: int, name: str = "q", node: str = "w", **fields: object) -> Any:
        body = orjson.dumps({"node": node, "seqs": seqs, **fields})
        return shown(self.ask(parse_ack(name, body, self.limits)))

    def nack(self, *seqs: int, name: str = "q", node: str = "w", **fields: object) -> Any:
        body = orjson.dumps({"node": node, "seqs": seqs, **fields})
        return shown(self.ask(parse_nack(name, body, self.limits)))

    def extend(
        self, *seqs: int, name: str = "q", node: str = "w", lease_ms: int = 30_000, **fields: object
    ) -> Any:
        body = orjson.dumps({"node": node, "seqs": seqs, "lease_ms": lease_ms, **fields})
        return shown(self.ask(parse_extend(name, body, self.limits)))

    def redrive(self, name: str = "d", to: str = "q", **fields: object) -> Any:
        """The answer, or None where it waits for a disk."""
        found = self.ask(parse_redrive(name, orjson.dumps({"to": to, **fields})))
        return None if isinstance(found, Parked) else shown(found)

    # Jobs, as they may be seen.

    def jobs(self, name: str = "q", **query: object) -> Any:
        """A page of jobs, or None where it waits for a disk."""
        text = {key: str(value) for key, value in query.items()}
        found = self.ask(parse_list(name, text))
        return None if isinstance(found, Parked) else shown(found)

    def job(self, seq: int, name: str = "q", **query: object) -> Any:
        """One job, or None where the answer comes later."""
        text = {key: str(value) for key, value in query.items()}
        found = self.ask(parse_get(name, str(seq), text))
        return None if isinstance(found, Parked) else shown(found)

    def change(self, action: str, seq: int | None = None, name: str = "q", **fields: object) -> Any:
        """(matched, done), or None where the answer comes later."""
        body = orjson.dumps(fields)
        command = (
            parse_changes(name, action, body)
            if seq is None
            else parse_change(name, action, str(seq), body)
        )
        found = self.ask(command)
        if isinstance(found, Parked):
            return None
        answer = shown(found)
        return answer["matched"], answer["done"]

    def counters(self, name: str = "q") -> tuple[int, int, int]:
        """(ready, in flight, delayed), which make up the count."""
        state = self.state(name)
        queue = state["queue"]
        found = queue["ready"], queue["in_flight"], queue.get("delayed", 0)
        assert sum(found) == state["count"]
        return found

    # Maintenance.

    def seal(self) -> list[SealJob]:
        """Drop what is dead, give dead space back and seal what is due, as a shell would."""
        while self.compaction.drop_runs(self.now_ms):
            self.sync()
        self.sync()
        self.drive(self.schedule.reclaim())
        self.sync()
        jobs = []
        while (job := self.sealing.plan(self.now_ms)) is not None:
            self.sealing.install(job, self.store.seal(job.entries), self.now_ms)
            self.sync()
            jobs.append(job)
        return jobs

    def compact(self) -> None:
        """Compact by keys what is due, as rounds of maintenance do."""
        keys = self.schedule.key_compaction
        self.drive(keys.go_on())
        while keys.has_more(self.now_ms):
            self.drive(keys.go_on())

    def rewrite(self, name: str = "t") -> None:
        """Write anew what an erasure would."""
        self.drive(self.schedule.rewrite_for([self.topic(name).topic_id]))
        self.sync()

    def drive(self, task: Task) -> None:
        """Do at once what a task waits for; raises what it raises."""
        ended: list[Exception | None] = []
        self.maintenance.run(task, ended.append)
        if ended[0] is not None:
            raise ended[0]

    def done(self, step: steps.Wait) -> Any:
        """What one step of a task that a test drives by hand comes to."""
        match step:
            case steps.Blocking():
                return step.call()
            case steps.Rotation():
                return self.store.rotate(fresh=step.fresh, stay=step.stay)
            case steps.UntilWritten():
                self.write()
            case steps.UntilSynced():
                self.sync()
            case steps.Decision():
                return self.ask(step.command)

    # What group commit and maintenance ask of their host.

    @property
    def steady_ms(self) -> int:
        return self.now_ms

    def turn_soon(self) -> None:
        return

    def perform(self, step: Any) -> None:
        match step:
            case Write():
                self.commit.wrote(self.store.write(step.frames), 0.0)
            case Sync():
                self.commit.synced(self.store.sync(), 0.0)
            case Rotate():
                self.commit.rotated(self.store.rotate(fresh=step.fresh, stay=step.stay))
            case Call():
                try:
                    value = step.call()
                except Exception as error:
                    step.done(None, error)
                else:
                    step.done(value, None)

    def log(self, level: str, what: str) -> None:
        self.warnings.append(what)

    def on_published(self) -> None:
        return

    def on_answered(self) -> None:
        return

    def work_soon(self) -> None:
        return

    def erase(self, waiter: PendingAnswer) -> None:
        raise AssertionError("nobody asked")

    def on_failed(self, error: Exception) -> None:
        raise AssertionError(error)

    def on_broken_answer(self, error: Exception) -> None:
        raise AssertionError(error)

    def seal_all(self) -> None:
        """As a checkpoint does: every hot run goes to a segment."""
        self.finish_checkpoint(self.begin_checkpoint())
        self.sync()

    def begin_checkpoint(self) -> CheckpointPlan:
        """A checkpoint whose images are taken at once."""
        plan = self.checkpointing.begin(self.now_ms)
        self._make_images(plan)
        return plan

    def _make_images(self, plan: CheckpointPlan) -> None:
        while self.checkpointing.make_images(plan):
            pass

    def finish_checkpoint(self, plan: CheckpointPlan) -> Checkpoint:
        """Seal what is left to seal; the checkpoint as the next start reads it."""
        while (job := self.checkpointing.plan_seal(plan)) is not None:
            self.sealing.install(job, self.store.seal(job.entries), self.now_ms, plan.images)
        self._make_images(plan)
        return read_back(plan.image)


def driven(engine: Harness, task: Task) -> Iterator[Any]:
    """The waits of a task, each given before it is done."""
    wait = next(task, None)
    while wait is not None:
        yield wait
        try:
            try:
                result = engine.done(wait)
            except Rejection as refusal:
                wait = task.throw(refusal)
            else:
                wait = task.send(result)
        except StopIteration:
            return


def read_back(image: Image) -> Checkpoint:
    """A checkpoint as the next start reads it."""
    return msgspec.msgpack.decode(b"".join(image.pieces()), type=Checkpoint)


def stone(page: dict[str, Any]) -> tuple[int, int, str] | None:
    """The loss that a page reports: first seq, last seq, reason."""
    found = page["tombstone"]
    return None if found is None else (found["gap_from"], found["gap_to"], found["reason"])


def shown(outcome: Outcome | Parked) -> Any:
    """The object that an outcome says."""
    assert isinstance(outcome, Outcome)
    return json.loads(text_of(outcome))


def text_of(outcome: Outcome) -> bytes:
    records = records_of(outcome)
    texts = [] if records is None else [_records(records)]
    return b"".join(http_answers.text_of(outcome, texts)) + b"}"


def _records(records: Records) -> bytes:
    """The text, as the exchange has it: from who read it before, and left for who reads it next."""
    shared = records.text
    if shared is not None and shared.text is not None:
        return shared.text
    text = _read(records)
    if shared is not None and shared.keep is not None:
        shared.keep(text)
    return text


def _read(records: Records) -> bytes:
    texts: list[bytes] = []
    inserts = iter(records.inserts) if records.inserts else None
    for run, spans in records.extents:
        # Right behind a write a page may be on its way to the disk, and then a read has to wait.
        found = run.read(spans) or run.read_blocking(spans)
        if not records.is_verbatim(run, spans):
            found = project(
                run,
                spans,
                found,
                tags=records.tags,
                meta=records.meta,
                data=records.data,
                inserts=inserts,
            )
        texts += map(bytes, found)
    return b",".join(texts)


def tagged(tag: str | None, data: object = None) -> dict[str, object]:
    return {"data": data, "tag": tag}


def by(node: str | None, data: object = None) -> dict[str, object]:
    return {"data": data, "node": node}


def refusal(call: Any, *args: Any, **named: Any) -> Rejection:
    """What a call that must be refused was refused with."""
    try:
        call(*args, **named)
    except Rejection as rejection:
        return rejection
    raise AssertionError("it was not refused")


def status_of(call: Any, *args: Any) -> int:
    """200, or the status of what a call was refused with."""
    try:
        call(*args)
    except Rejection as rejection:
        return STATUSES[rejection.code]
    return 200
