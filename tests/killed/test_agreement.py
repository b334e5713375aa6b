"""The checks of a run find what a run may do wrong: each error is sown into a sound one. (§8.2)"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from unittest.mock import Mock

import pytest
from linearizability.history import Ack, Append, Claim, Delete, Grant, Read

from .agreement import Copy, verdict
from .load import CAPPED, CONFIG, COPIES, DELETED, KEPT, LOGS, QUEUE, Load
from .watchers import EventWatcher, Seen, Watcher

SOURCE, COPIED = next(iter(COPIES.items()))


@dataclass
class Run:
    """Three nodes, a watcher and a load of three records in each log, of which one was deleted in one."""

    load: Load
    copies: list[Copy]
    watcher: Watcher

    def wrong(self) -> list[str]:
        for copy in self.copies:
            for topic, records in copy.records.items():
                seen = tuple((record["$seq"], record["data"]) for record in records)
                copy.reads[topic] = [Read(100, 101, 0, seen, 3, 3)]
        return verdict(self.copies, [self.watcher], self.load)


def texts(topic: str) -> Sequence[str]:
    source = {copied: source for source, copied in COPIES.items()}
    while topic in source:
        topic = source[topic]
    return [f"{topic}/{n}" for n in (1, 2, 3)]


@pytest.fixture
def run() -> Run:
    load = Load(Mock(nodes=[Mock()]), 1000)
    load.ends = dict.fromkeys((*LOGS, COPIED, CAPPED), 3)
    for topic in LOGS:
        for seq, text in enumerate(texts(topic), start=1):
            load.logs[topic].appends.append(Append(seq, seq, (text,), seq))
    load.logs[DELETED].deletes.append(Delete(50, 51, frozenset({2}), 1))
    load.jobs.appends.append(Append(1, 2, ("a job",), 1))
    load.jobs.claims.append(Claim(3, 4, (Grant(1, 7, 1, 0, 9),)))
    load.jobs.acks.append(Ack(5, 6, 1, 7, True))
    copies = [Copy(number) for number in (1, 2, 3)]
    for copy in copies:
        for topic in CONFIG:
            rows = enumerate(texts(topic), start=1) if topic in (*LOGS, *COPIES.values()) else ()
            copy.records[topic] = [
                {"$seq": seq, "data": text} for seq, text in rows if (topic, seq) != (DELETED, 2)
            ]
            copy.state[topic] = {"head_seq": 3}
    watcher = EventWatcher(load, 1, (*LOGS, COPIED, CAPPED))
    for topic, seen in watcher.seen.items():
        if topic == CAPPED:
            seen.tombstone(1, 3, "cap")
            continue
        for seq, text in enumerate(texts(topic), start=1):
            if (topic, seq) != (DELETED, 2):
                seen.record(seq, text)
    return Run(load, copies, watcher)


def test_a_sound_run_is_sound(run: Run) -> None:
    """A deleted record is missed by nobody, and an evicted one is covered by its tombstone."""
    assert run.wrong() == []


def lose_everywhere(run: Run) -> None:
    for copy in run.copies:
        del copy.records["fsync"][1]


def lose_on_one(run: Run) -> None:
    del run.copies[2].records["fsync"][1]


def double(run: Run) -> None:
    for copy in run.copies:
        copy.records["fsync"].append({"$seq": 4, "data": texts("fsync")[0]})


def bring_back(run: Run) -> None:
    for copy in run.copies:
        copy.records[DELETED].insert(1, {"$seq": 2, "data": texts(DELETED)[1]})


def apply_what_was_refused(run: Run) -> None:
    run.load.not_applied.append(texts("fsync")[0])


def forget_a_copy(run: Run) -> None:
    for copy in run.copies:
        del copy.records[COPIED][1]


def disagree_on_a_state(run: Run) -> None:
    run.copies[1].state[QUEUE] = {"head_seq": 4}


def disagree_on_a_tag(run: Run) -> None:
    run.copies[1].records["fsync"][0]["$tag"] = "t"


def leave_a_job(run: Run) -> None:
    for copy in run.copies:
        copy.records[QUEUE] = [{"$seq": 1, "data": "a job"}, {"$seq": 2, "data": KEPT}]


def do_a_job_twice(run: Run) -> None:
    run.load.jobs.acks.append(Ack(7, 8, 1, 7, True))


def lose_a_job(run: Run) -> None:
    run.load.jobs.acks.clear()


def show_what_is_not_accepted(run: Run) -> None:
    run.load.seen.append(("fsync", 4, "fsync/4"))


def watch_twice(run: Run) -> None:
    run.watcher.seen["fsync"].record(3, texts("fsync")[2])


def watch_in_part(run: Run) -> None:
    seen = run.watcher.seen["fsync"] = Seen("fsync")
    for seq in (1, 3):
        seen.record(seq, texts("fsync")[seq - 1])


def watch_another_record(run: Run) -> None:
    run.watcher.seen["fsync"].records[1] = "fsync/9"


def watch_without_an_end(run: Run) -> None:
    run.load.ends["fsync"] = 4


def tell_of_a_loss_that_was_none(run: Run) -> None:
    run.watcher.seen["fsync"].tombstone(4, 5, "crash")


def tell_of_a_loss_by_another_cause(run: Run) -> None:
    run.watcher.seen[CAPPED].tombstone(4, 5, "recreated")


def tell_of_a_loss_of_what_was_seen(run: Run) -> None:
    run.watcher.seen[CAPPED].tombstone(3, 5, "cap")


ERRORS: list[Callable[[Run], None]] = [
    lose_everywhere,
    lose_on_one,
    double,
    bring_back,
    apply_what_was_refused,
    forget_a_copy,
    disagree_on_a_state,
    disagree_on_a_tag,
    leave_a_job,
    do_a_job_twice,
    lose_a_job,
    show_what_is_not_accepted,
    watch_twice,
    watch_in_part,
    watch_another_record,
    watch_without_an_end,
    tell_of_a_loss_that_was_none,
    tell_of_a_loss_by_another_cause,
    tell_of_a_loss_of_what_was_seen,
]


@pytest.mark.parametrize("sow", ERRORS)
def test_an_error_is_found(run: Run, sow: Callable[[Run], None]) -> None:
    """Each of them, in a run that is sound otherwise."""
    sow(run)

    assert run.wrong()
