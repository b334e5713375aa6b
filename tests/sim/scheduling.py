"""Schedules over kills and power losses at any file call, restores of backups, and clocks that jump.

A world is one directory with some schedules, each of its own times and its own answer to missed ticks, into a topic whose
records are in the log and into an `ephemeral` one.  A naive scheduler stands beside it: a list of all ticks, second by second.
In every life, and in the end, each tick that is over is in the topic once, or counted as missed; what a reader
saw is there; and no tick is one that the list does not have.
"""

import copy
from collections import Counter
from typing import Any, NamedTuple

import msgspec
from protocol.harness import START_MS, shown

from topics.protocol.maintenance.steps import Blocking
from topics.protocol.model.commands import GetSchedule
from topics.protocol.model.events import Fired, RecordsAppended
from topics.protocol.model.schedules import LATE_MS

from .lives import SECONDS, Bug, Lives, Patch, require

TOPIC, VOLATILE = "t", "e"


class Asked(NamedTuple):
    """A schedule, and in which steps of seconds its ticks come: of the clock, or from when it was made."""

    name: str
    topic: str
    missed: str
    step_s: int
    is_cron: bool

    @property
    def times(self) -> dict[str, Any]:
        if self.is_cron:
            return {"cron": f"*/{self.step_s} * * * * *"}
        return {"every_ms": self.step_s * 1000}

    def ticks(self, made_ms: int, before_ms: int) -> list[int]:
        """All ticks between two times, by a look at each second or by counting."""
        if self.is_cron:
            first = made_ms // 1000 + 1
            seconds = range(first, -(-before_ms // 1000))
            return [second * 1000 for second in seconds if second % 60 % self.step_s == 0]
        return list(range(made_ms + self.step_s * 1000, before_ms, self.step_s * 1000))


SCHEDULES = (
    Asked("all", TOPIC, "all", 7, is_cron=False),
    Asked("last", TOPIC, "one", 5, is_cron=True),
    Asked("none", TOPIC, "none", 150, is_cron=False),
    Asked("brief", VOLATILE, "one", 11, is_cron=False),
)


class World(Lives):
    """Schedules, their topics, and a reader."""

    jumps = (*SECONDS, 3_600_000, -3_600_000)

    def __init__(self, seed: int, *, harsh: bool) -> None:
        super().__init__(seed, harsh=harsh)
        self.made: set[str] = set()
        """Schedules that are known to be on the disk."""
        self.seen: set[tuple[str, int]] = set()
        """Ticks of which a reader saw the record."""

    def known(self) -> Any:
        return set(self.made), set(self.seen)

    def revert(self, known: Any) -> None:
        self.made, self.seen = copy.deepcopy(known)

    # ------------------------------------------------------------------ one life

    def begin(self) -> None:
        engine = self.engine
        for name, durability in ((TOPIC, self.durability), (VOLATILE, "ephemeral")):
            engine.put(name, durability=durability)
        engine.sync()
        for asked in SCHEDULES:
            is_there = asked.name in engine.engine.state.schedules.by_name
            require(is_there or asked.name not in self.made, "a schedule is gone")
            if not is_there:
                engine.at_times(asked.name, asked.topic, missed=asked.missed, **asked.times)
                engine.sync()
            self.made.add(asked.name)
        self.compare()

    def step(self) -> None:
        engine, dice = self.engine, self.dice
        choice = dice.random()
        if choice < 0.6:
            self.pass_time(dice.choice((500, 1000, 3000, 9000, 30_000)))
        elif choice < 0.65:
            self.pass_time(dice.choice((LATE_MS * 2, 900_000)))
        elif choice < 0.75:
            engine.sync()
        elif choice < 0.82:
            self.look()
        elif choice < 0.86:
            engine.seal()
        elif choice < 0.92:
            engine.drive(engine.schedule._checkpoint())
        elif choice < 0.96:
            self.checkpoint_between_ticks()
        else:
            self.compare()

    def pass_time(self, ms: int) -> None:
        """Let time go on; what is due happens, a turn at a time, synced or not."""
        engine = self.engine
        engine.now_ms += ms
        engine.engine.advance(engine.now_ms)
        while engine.engine.has_work():
            engine.engine.work_off(engine.moment)
            engine.write()
            if self.dice.random() < 0.2:
                engine.sync()

    def checkpoint_between_ticks(self) -> None:
        """Ticks come while a thread writes what a checkpoint asks for; nothing is written while its place in the log is made."""
        task = self.engine.schedule._checkpoint()
        wait = next(task, None)
        while wait is not None:
            if isinstance(wait, Blocking):
                self.pass_time(1000)
            try:
                wait = task.send(self.engine.done(wait))
            except StopIteration:
                return

    # ------------------------------------------------------------------ what has to hold

    def records(self, topic: str) -> list[tuple[str, int, int]]:
        """Of each record that is shown: its schedule, its tick, and when it was appended."""
        found: list[tuple[str, int, int]] = []
        from_seq = 0
        while True:
            page = self.engine.diff(from_seq, name=topic, limit=1000)
            for record in page["records"]:
                meta = record["meta"]
                found.append((meta["$schedule"], meta["$schedule_at"], record["$ts"]))
            from_seq = page["next_from_seq"]
            if page["caught_up"]:
                return found

    def look(self) -> None:
        """A reader comes."""
        self.seen |= {(name, at_ms) for name, at_ms, _ in self.records(TOPIC)}

    def compare(self) -> None:
        """Every tick that is over happened once, or is counted; where all is synced."""
        self.engine.sync()
        records = self.records(TOPIC)
        times = Counter((name, at_ms) for name, at_ms, _ in records)
        require(max(times.values(), default=1) == 1, "a tick happened twice")
        require(self.seen <= times.keys(), "a record that was seen is gone")
        for asked in SCHEDULES:
            self._compare(asked, [each for each in records if each[0] == asked.name])

    def _compare(self, asked: Asked, records: list[tuple[str, int, int]]) -> None:
        state = shown(self.engine.ask(GetSchedule(asked.name)))
        over = asked.ticks(state["created_at"], state["next_at"])
        fired, missed = state["fired_total"], state["missed_total"]
        happened = [at_ms for _, at_ms, _ in records]
        require(set(happened) <= set(over), "a tick is none of the list")
        require(happened == sorted(happened), "ticks are in another order")
        if asked.topic == TOPIC:
            require(len(happened) == fired, "a record is not counted, or counted twice")
        if asked.missed == "all":
            require(happened == over, "a tick is lost")
        require(missed >= len(over) - fired, "missed ticks are not counted")
        require(missed == len(over) - fired, "ticks are counted that were not missed")
        if asked.missed == "none":
            late = [ts_ms - at_ms for _, at_ms, ts_ms in records if ts_ms - at_ms > LATE_MS]
            require(not late, "a tick happened late")

    def judge(self) -> None:
        self.start()
        self.begin()
        self.engine.now_ms = max(self.engine.now_ms, self.highest_ms)  # the clock is right again
        self.pass_time(60_000)
        self.compare()
        require(self.engine.engine.state.now_ms > START_MS, "no time went by")


# ---------------------------------------------------------------------- bugs


def tick_is_not_in_the_entry_of_its_record(patch: Patch) -> None:
    """A crash forgets that the tick is over."""
    from topics.protocol.commit import unit_of_work

    own = unit_of_work.encode

    def encode(event: Any) -> Any:
        if isinstance(event, RecordsAppended) and isinstance(event.cause, Fired):
            event = msgspec.structs.replace(event, cause=None)
        return own(event)

    patch.setattr(unit_of_work, "encode", encode)


def tick_is_over_before_its_record(patch: Patch) -> None:
    """A checkpoint says that the tick which comes next is over."""
    from topics.protocol.state.schedules import Schedule

    own = Schedule.image

    def image(self: Any) -> Any:
        found = own(self)
        step_ms = found.config.every_ms
        return msgspec.structs.replace(found, next_ms=found.next_ms + (step_ms or 0))

    patch.setattr(Schedule, "image", image)


def missed_are_not_counted(patch: Patch) -> None:
    from topics.protocol.state.schedules import Schedules

    patch.setattr(Schedules, "_missed", lambda self, schedule, ticks: None)


def image_of_a_later_moment(patch: Patch) -> None:
    """A tick behind a checkpoint's boundary is in its image, and in the log behind it."""
    from topics.protocol.state import checkpoint
    from topics.protocol.state.checkpoint import Images

    patch.setattr(checkpoint, "SLICE_WEIGHT", 1)  # so that there is a moment between two of them

    def keep(self: Any, schedule_id: int) -> None:
        self.changed_schedules[schedule_id] = None

    patch.setattr(Images, "keep_schedule", keep)


def left_out_of_a_checkpoint(patch: Patch) -> None:
    from topics.protocol.state.schedules import Schedules

    patch.setattr(Schedules, "restore", lambda self, image: None)


def late_tick_happens(patch: Patch) -> None:
    from topics.protocol.decide import schedules

    patch.setattr(schedules, "LATE_MS", 10**12)


BUGS: dict[str, Bug] = {
    bug.sow.__name__: bug
    for bug in (
        Bug(
            tick_is_not_in_the_entry_of_its_record,
            "a tick is none of the list|a tick happened twice",
        ),
        Bug(tick_is_over_before_its_record, "a tick is lost", 1),
        Bug(missed_are_not_counted, "missed ticks are not counted"),
        Bug(image_of_a_later_moment, "counted twice|counted that were not|twice", 5),
        Bug(left_out_of_a_checkpoint, "a schedule is gone", 10),
        Bug(late_tick_happens, "a tick happened late"),
    )
}
