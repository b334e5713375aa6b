"""A step of maintenance that cannot finish keeps no other from being done, and every delete is answered
(§5, §8.2)."""

import errno
from collections.abc import Callable
from typing import Any, NamedTuple

import orjson
import pytest

from protocol.disk import LOG_BYTES, Disk, nobody
from topics.protocol.commit.unit_of_work import UNREAD_MS
from topics.protocol.driver import maintenance
from topics.protocol.driver.reply import Reply
from topics.protocol.faces.http.append_body import parse_append
from topics.protocol.faces.http.records import parse_delete
from topics.protocol.maintenance import schedule
from topics.protocol.model.commands import DeleteTopic, GetTopic
from topics.protocol.model.errors import Corrupt, ErrorCode, ReadFailed, Rejection, WriteFailed
from topics.protocol.model.events import RunsDropped
from topics.protocol.model.limits import Limits
from topics.protocol.model.outcomes import Outcome
from topics.store.runs import SealedRun

NO_SPACE = OSError(errno.ENOSPC, "no space left")
ROUNDS = 40


def refusal(answers: list[Reply]) -> Rejection:
    """The one answer, which is a refusal."""
    (answer,) = answers
    assert isinstance(answer.result, Rejection)
    return answer.result


def is_erased(answers: list[Reply]) -> bool:
    return [isinstance(answer.result, Outcome) for answer in answers] == [True]


def shared() -> Disk:
    """Topics `a` and `b` in one segment, each with five records."""
    host = Disk()
    for name in "ab":
        host.write(name, 5)
    host.round(checkpoint=True)
    assert len(host.driver.engine.state.segments) == 1
    return host


def run_rounds(host: Disk, rounds: int = ROUNDS) -> list[Exception]:
    """Rounds as they follow each other in trouble, a second apart; why they broke off."""
    why = []
    for _ in range(rounds):
        host.now_ms += maintenance.RETRY_MS
        try:
            host.round()
        except Exception as error:
            why.append(error)
    return why


# ---------------------------------------------------------------------- what a start finds again


def by_time(host: Disk) -> None:
    host.put("a", b'{"ttl_ms": 1000}')
    host.now_ms += 2000
    host.driver.submit(GetTopic("a"), nobody)


def by_a_shorter_time(host: Disk) -> None:
    host.now_ms += 2000
    host.put("a", b'{"ttl_ms": 1}')


def by_a_cap(host: Disk) -> None:
    host.put("a", b'{"cap_records": 1}')
    host.write("a", 1)


def by_a_delete(host: Disk) -> None:
    host.delete("a")


FALLS = (by_time, by_a_shorter_time, by_a_cap, by_a_delete)


def stopped(host: Disk) -> Disk:
    return host.stop()


def killed(host: Disk) -> Disk:
    return host.kill()


def killed_behind_a_checkpoint(host: Disk) -> Disk:
    """Of a moment between the event and the one that drops the run."""
    host.driver.maintenance.run(host.driver.maintenance.schedule._checkpoint(), lambda error: None)
    return host.kill()


@pytest.mark.parametrize("ends", [stopped, killed, killed_behind_a_checkpoint])
@pytest.mark.parametrize("falls", FALLS)
def test_a_run_that_was_dead_at_the_start_is_dropped(
    falls: Callable[[Disk], None], ends: Callable[[Disk], Disk]
) -> None:
    """A checkpoint may hold it: a start looks at every topic once, and an erasure of another topic
    in its segment is answered. (§5)"""
    host = shared()
    falls(host)
    host = ends(host)

    answers = host.erase("b")
    host.round()

    assert is_erased(answers)
    runs = host.driver.engine.state.topics["a"].runs
    assert [run.first_seq for run in runs if run.first_seq < 6] == []


def test_a_floor_that_rises_while_a_segment_is_rewritten_holds_up_no_erasure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing of the run is to be moved then: it is dropped, though nothing else had it looked at.
    (§5)"""
    host = shared()
    state = host.driver.engine.state
    found = host.driver.maintenance.schedule
    rewrite = found._rewrite

    def after_a_while(wanted: Any, *, whole: bool) -> Any:
        by_a_shorter_time(host)
        host.driver.engine.let_pass(host.now_ms)
        state.attention.clear()
        return rewrite(wanted, whole=whole)

    monkeypatch.setattr(found, "_rewrite", after_a_while)
    answers = host.erase("b")
    host.round()

    assert is_erased(answers)
    assert len(state.topics["a"].runs) == 0


def test_a_dead_run_that_is_not_published_yet_is_dropped_later() -> None:
    """Nothing else has to happen to its topic for that. (§5)"""
    host = Disk()
    host.write("t", 3)
    topic = host.driver.engine.state.topics["t"]
    host.delete("t")
    topic.published_seq = 2
    host.round()
    assert len(topic.runs) == 1

    topic.published_seq = 3
    host.round()

    assert len(topic.runs) == 0


# ---------------------------------------------------------------------- every step goes on without another


STEPS = {
    "find_room": NO_SPACE,
    "clear": OSError(errno.EPERM, "not permitted"),
    "flip": ReadFailed(errno.EIO, "input/output error"),
    "seal": NO_SPACE,
    "checkpoint": OSError(errno.EIO, "input/output error"),
    "rotate": NO_SPACE,
    "contents": OSError(errno.EMFILE, "too many open files"),
}
BEFORE_A_CHECKPOINT = ("seal", "rotate")
"""Without these no checkpoint can be written: it would lack what the log holds.  Deletes that no segment's
flags say are in it."""


class Lived(NamedTuple):
    """What rounds had done, the answers to erasures, and how many writes were refused."""

    done: set[str]
    asked: list[list[Reply]]
    refused: int


def lasting() -> Disk:
    """A server with topics that have a segment each, and one that has two segments of which little
    will live."""
    host = shared()
    for n in range(ROUNDS // 4):
        host.write(f"t{n}", 5)
        host.round(checkpoint=True)
    for _ in range(2):
        host.write("sparse", 50)
        host.round(checkpoint=True)
    return host


def live(host: Disk) -> Lived:
    """Writes, deletes and erasures, and a round of maintenance after each."""
    done, asked, refused = set[str](), [], 0
    for n in range(ROUNDS):
        try:
            host.write("t", 20)
        except Rejection:
            refused += 1
        raw = b'{"before_seq": %d}' % (host.driver.engine.state.topics["t"].head_seq - 3)
        host.driver.submit(parse_delete("t", raw), nobody)
        host.settle()
        if n % 8 == 0 and n < ROUNDS - 16:
            asked.append(host.erase("t"))
        if n % 4 == 0:
            host.driver.maintenance.disk_is_full(0)
            host.delete(f"t{n // 4}")
            raw = b'{"before_seq": %d}' % min(2 * n, 48)
            host.driver.submit(parse_delete("sparse", raw), nobody)
            host.settle()
        run_rounds(host, 1)
        host.ring()
        done |= {call.split()[0] for call in host.calls} - host.fails.keys()
    return Lived(done, asked, refused)


@pytest.mark.parametrize("broken", STEPS)
def test_a_step_that_keeps_failing_keeps_no_other_from_being_done(broken: str) -> None:
    """All others go on, and every erasure is answered; once the step can be done, all is as ever.
    (§5, §8.2)"""
    host = lasting()
    host.fails[broken] = STEPS[broken]

    found = live(host)

    after_it = {"checkpoint"} if broken in BEFORE_A_CHECKPOINT else set()
    assert STEPS.keys() - {broken} - after_it <= found.done
    assert [len(answers) for answers in found.asked] == [1] * len(found.asked)
    if not after_it and broken != "checkpoint":
        assert found.refused == 0
        assert host.store.log_bytes < 2 * LOG_BYTES
    host.fails.clear()
    host.now_ms += schedule.RETRY_MS_MAX
    answers = host.erase("t")
    host.round()
    assert is_erased(answers)


def test_each_trouble_of_a_round_is_told_once() -> None:
    """Not only the first, and not once a second; a bug with its traceback. (§8.3)"""
    host = shared()
    host.fails |= {"flip": NO_SPACE, "checkpoint": AssertionError("a bug")}
    for _ in range(3):
        host.now_ms += schedule.RETRY_MS_MAX
        with pytest.raises(OSError, match="no space") as found:
            host.round(checkpoint=True)
        assert found.value is NO_SPACE
    assert host.lines == [("error", "maintenance goes on trying: [Errno 28] no space left")]

    del host.fails["flip"]
    host.now_ms += schedule.RETRY_MS_MAX
    with pytest.raises(AssertionError):
        host.round(checkpoint=True)
    assert host.lines[1:] == [("exception", "maintenance goes on trying: a bug")]
    host.fails.clear()


# ---------------------------------------------------------------------- an erasure is answered


def test_an_erasure_without_space_is_refused_after_some_tries() -> None:
    """The records are deleted, and the answer says so: the client may ask again. (§5, §0.6)"""
    host = shared()
    host.fails["seal"] = NO_SPACE
    answers = host.erase("b")
    rounds = 0
    while not answers:
        rounds += 1
        run_rounds(host, 1)

    assert rounds == 1 + 1 + 2 + 4 - 1 + 1
    refused = refusal(answers)
    assert refused.code is ErrorCode.THROTTLED
    assert refused.detail == {"limit": "disk"}
    assert refused.message.startswith("deleted, but not erased: ")
    assert host.driver.engine.state.topics["b"].count == 4
    host.fails.clear()
    again = host.erase("b")
    host.now_ms += schedule.RETRY_MS_MAX
    host.round()
    assert is_erased(again)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ReadFailed(errno.EIO, "input/output error"), "read_error"),
        (ReadFailed(errno.EUCLEAN, "structure needs cleaning"), "read_error"),
        (Corrupt("0000000001.seg", 512, "does not verify"), "corrupt"),
    ],
)
def test_an_erasure_that_meets_damage_is_answered_at_once(error: Exception, reason: str) -> None:
    """To read it again would fail again. (§5)"""
    host = shared()
    host.fails["seal"] = error
    answers = host.erase("b")
    host.round()

    refused = refusal(answers)
    assert (refused.code, refused.detail) == (ErrorCode.INTERNAL, {"reason": reason})


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ReadFailed(errno.EACCES, "permission denied"), "read_error"),
        (OSError(errno.EIO, "input/output error"), "not_erased"),
        (MemoryError("no memory"), "not_erased"),
    ],
)
def test_an_erasure_that_may_succeed_later_is_tried_again(error: Exception, reason: str) -> None:
    """A bounded number of times. (§5)"""
    host = shared()
    host.fails["seal"] = error
    answers = host.erase("b")
    assert len(run_rounds(host, 3)) == 2
    assert answers == []
    run_rounds(host, 5)

    refused = refusal(answers)
    assert (refused.code, refused.detail) == (ErrorCode.INTERNAL, {"reason": reason})


def test_an_erasure_is_tried_again_when_it_is_time() -> None:
    """Whether anything else is due or not. (§5)"""
    host = shared()
    host.fails["seal"] = NO_SPACE
    host.driver.maintenance.start()
    answers = host.erase("b")
    host.ring()
    tries = [call for call in host.calls if call == "seal"]
    assert tries

    for _ in range(9):
        host.advance(ms=maintenance.RETRY_MS)

    assert refusal(answers).code is ErrorCode.THROTTLED


def test_an_erasure_ends_with_the_log() -> None:
    """Whether it will be found erased is unknown then. (§0.5)"""
    host = shared()
    host.fails["seal"] = WriteFailed("log", "input/output error")
    answers = host.erase("b")
    with pytest.raises(WriteFailed):
        host.round()

    detail = refusal(answers).detail
    assert detail is not None
    assert detail["reason"] == "write_failed"


@pytest.mark.parametrize("calls", range(9))
def test_an_erasure_that_a_stop_breaks_off_is_refused(calls: int) -> None:
    """Wherever its round is by then. (§8.2)"""

    class Slow(Disk):
        left = 1 << 30

        def call(self, step: maintenance.Call) -> None:
            self.left -= 1
            if self.left >= 0:
                super().call(step)

    host = Slow()
    host.write("b", 5)
    host.round(checkpoint=True)
    answers = host.erase("b")
    host.left = calls
    host.driver.maintenance.round(lambda error: None)

    host.driver.maintenance.end()
    host.driver.maintenance.refuse_erasures()

    assert refusal(answers).code is ErrorCode.SHUTTING_DOWN


def test_text_of_a_segment_that_cannot_be_read_is_no_failed_write(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The answer tells them apart. (§5)"""
    host = shared()

    def unreadable(run: SealedRun, spans: object) -> Any:
        raise OSError(errno.EIO, "input/output error")

    monkeypatch.setattr(SealedRun, "read_blocking", unreadable)
    answers = host.erase("b")
    host.round()

    assert refusal(answers).detail == {"reason": "read_error"}


def test_rewrites_that_find_no_space_are_put_off() -> None:
    """Another file would find none either. (§11)"""
    host = Disk(segment_max_bytes=48_000)
    for n in range(4):
        host.write(f"t{n}", 50)
        host.round(checkpoint=True)
    for n in range(4):
        raw = b'{"before_seq": 46}'
        host.driver.submit(parse_delete(f"t{n}", raw), nobody)
        host.settle()
    host.fails["seal"] = NO_SPACE
    with pytest.raises(OSError, match="no space"):
        host.round()
    assert host.calls.count("seal") == 1

    host.fails["seal"] = OSError(errno.EMFILE, "too many open files")
    with pytest.raises(OSError, match="too many"):
        host.round()
    host.fails.clear()
    assert host.round().count("seal") >= 1


def test_an_erasure_that_fails_takes_no_other_with_it() -> None:
    """Where several topics are to be erased at once, those of which nothing is damaged are. (§5)"""
    host = Disk()
    for name in "abcd":
        host.write(name, 5)
        host.round(checkpoint=True)
    contents = host.store.contents
    damaged = host.driver.engine.state.topics["c"].runs[0].ref
    assert damaged is not None

    def meets(segment: int) -> Any:
        if segment == damaged.segment:
            raise Corrupt(f"{segment:010}.seg", 512, "does not verify")
        return contents(segment)

    host.store.contents = meets  # type: ignore[method-assign]
    for segment in host.driver.engine.state.segments:
        host.driver.maintenance.schedule.compaction.measure(segment, contents(segment))
    asked = {name: host.erase(name) for name in "abcd"}
    host.round()

    assert [name for name, answers in asked.items() if is_erased(answers)] == ["a", "b", "d"]
    assert refusal(asked["c"]).detail == {"reason": "corrupt"}


def test_a_long_erasure_lets_a_checkpoint_and_seals_come_between_its_files() -> None:
    """Else writers would wait for all of it. (§8.2)"""
    host = Disk(segment_max_bytes=4096)
    records = [{"data": "x" * 900, "tag": "gone" if n % 2 else None} for n in range(10)]
    body = orjson.dumps({"records": records})
    for _ in range(20):
        command = parse_append("t", body, Limits(), return_seqs=False, header_key=None)
        host.driver.submit(command, nobody)
        host.settle()
        host.round(checkpoint=True)
    assert len(host.driver.engine.state.segments) == 20
    seal, bytes_in_log = host.store.seal, list[int]()

    def busy(entries: Any) -> Any:
        if all(piece.run.ref is not None for entry in entries for piece in entry.pieces):
            host.write("u", 20)
            bytes_in_log.append(host.store.log_bytes)
        return seal(entries)

    host.store.seal = busy  # type: ignore[method-assign]
    answers: list[Reply] = []
    raw = b'{"match": "gone", "erase": true}'
    host.driver.submit(parse_delete("t", raw), answers.append)
    host.settle()
    host.round()

    assert is_erased(answers)
    assert sum(bytes_in_log) > 4 * LOG_BYTES
    assert max(bytes_in_log) < 2 * LOG_BYTES
    assert host.driver.engine.state.memory.logged_bytes < 2 * LOG_BYTES


def test_damage_that_is_in_no_segment_is_an_error() -> None:
    """Nothing that is sealed is part of the job: there is nothing to leave out. (§0.5)"""
    host = Disk()
    host.write("t", 5)
    host.fails["seal"] = Corrupt("0000000001.seg", 512, "does not verify")
    with pytest.raises(Corrupt):
        host.round(checkpoint=True)

    host.fails.clear()
    assert "checkpoint" in host.round(checkpoint=True)


def test_topics_expire_although_one_cannot_be_read() -> None:
    """It is looked at again later. (§0.10)"""
    host = shared()
    for name in "ab":
        host.put(name, b'{"ttl_ms": 1000}')
    topic = host.driver.engine.state.topics["a"]
    expired, host.now_ms = topic.expired, host.now_ms + 5000

    def unreadable(now_ms: int) -> Any:
        raise Corrupt("0000000001.seg", 512, "cannot be read")

    topic.expired = unreadable  # type: ignore[method-assign]
    host.round()
    assert (topic.count, host.driver.engine.state.topics["b"].count) == (5, 0)

    topic.expired = expired  # type: ignore[method-assign]
    host.now_ms += UNREAD_MS + 1
    host.round()
    assert topic.count == 0


def test_a_run_of_which_flags_cannot_be_read_keeps_no_other_from_being_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It stays as it is. (§0.5)"""
    host = shared()
    topics = host.driver.engine.state.topics

    def unreadable(run: SealedRun) -> int:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(SealedRun, "known_dead", property(unreadable))
    host.driver.submit(parse_delete("a", b'{"before_seq": 2}'), nobody)
    host.delete("b")
    host.round()

    assert [len(topics[name].runs) for name in "ab"] == [1, 0]


def test_a_topic_of_which_the_runs_cannot_be_dropped_now_has_its_turn_again() -> None:
    """And the others theirs. (§5)"""
    host = Disk()
    for name in "ab":
        host.write(name, 3)
        host.delete(name)
    unit = host.driver.engine.unit
    emit, tries = unit.emit, list[int]()

    def short_of_memory(event: Any, **more: Any) -> None:
        if isinstance(event, RunsDropped) and event.topic_id == 2 and len(tries) < 3:
            tries.append(event.topic_id)
            raise MemoryError
        emit(event, **more)

    unit.emit = short_of_memory  # type: ignore[method-assign]
    with pytest.raises(MemoryError):
        host.round()
    topics = host.driver.engine.state.topics
    assert not topics["a"].runs[:]

    run_rounds(host, 4)
    assert not topics["b"].runs[:]


def test_a_topic_that_was_deleted_and_made_again_is_erased() -> None:
    """While the erasure of the one before waits. (§5, §1.4)"""
    host = shared()
    host.fails["seal"] = NO_SPACE
    first = host.erase("b")
    run_rounds(host, 1)
    host.driver.submit(DeleteTopic("b", if_empty=False), nobody)
    host.settle()
    host.write("b", 5)
    second = host.erase("b")
    host.fails.clear()
    run_rounds(host, 10)

    assert is_erased(first)
    assert is_erased(second)
