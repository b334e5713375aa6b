"""The driver: commands that wait, commands that see copies, and the order of a stop (§3, §6, §0.5)."""

from collections.abc import Callable
from typing import Any

import msgspec
import orjson
import pytest
from store.followers import Followers

from protocol.disk import Disk, nobody
from protocol.harness import text_of
from topics.protocol.decide import partial_scans, reads
from topics.protocol.driver import driver as module
from topics.protocol.driver.delayed_writes import RETRY_MS
from topics.protocol.driver.driver import Step
from topics.protocol.driver.group_commit import Mark, Rotate, Sync, Write
from topics.protocol.driver.inline_host import InlineHost
from topics.protocol.driver.reply import Reply, Ticket
from topics.protocol.faces.http.append_body import parse_append
from topics.protocol.faces.http.queues import parse_claim
from topics.protocol.faces.http.records import parse_diff
from topics.protocol.faces.http.routers import parse_put_router
from topics.protocol.faces.http.statuses import STATUSES
from topics.protocol.faces.http.topics import parse_put
from topics.protocol.model.codec import Frames
from topics.protocol.model.commands import Append, Command, JoinGroup
from topics.protocol.model.errors import Corrupt, DamagedRun, ErrorCode, Rejection
from topics.protocol.model.groups import GroupRefusal
from topics.protocol.model.limits import Limits
from topics.protocol.model.outcomes import Outcome
from topics.protocol.model.ports import LogFollowers
from topics.protocol.state import selection
from topics.protocol.state.topic import Topic
from topics.store.memory import MemoryStore

from .test_group_commit import append as parsed

START_MS = 1_750_000_000_000
LIMITS = Limits()


class Host(InlineHost):
    """Does steps at once, but for those of the kinds that a test holds back."""

    def __init__(
        self, store: MemoryStore | None = None, followers: LogFollowers | None = None
    ) -> None:
        self.holds: set[type] = set()
        self.held: list[Step] = []
        self.answers: dict[str, Any] = {}
        super().__init__(LIMITS, store or MemoryStore(), START_MS, followers=followers)
        self.driver.recover()
        self.driver.start()
        self.driver.maintenance.calm()
        self.settle()

    def perform(self, step: Step, /) -> None:
        if type(step) in self.holds:
            self.held.append(step)
        else:
            super().perform(step)

    def go_on(self) -> None:
        """Do what was held back, and all that follows."""
        self.holds.clear()
        while self.held:
            super().perform(self.held.pop(0))
        self.settle()

    def ask(self, command: Command, name: str = "") -> Reply | Ticket:
        """Submit; `answers` has what came of it under the name."""
        answer = self.driver.submit(command, self._taker(name))
        if isinstance(answer, Reply):
            self.answers[name] = answer.result
        return answer

    def _taker(self, name: str) -> Callable[[Reply], None]:
        def take(reply: Reply) -> None:
            assert name not in self.answers, "answered twice"
            self.answers[name] = reply.result

        return take


@pytest.fixture
def host() -> Host:
    """A topic `t` with one record."""
    made = Host()
    made.ask(append("t"))
    made.settle()
    made.answers.clear()
    return made


def append(name: str, **fields: object) -> Append:
    body = orjson.dumps({"records": [{"data": 1}], **fields})
    return parse_append(name, body, LIMITS, return_seqs=True, header_key=None)


def diff(name: str, **fields: object) -> Command:
    return parse_diff(name, orjson.dumps({"from_seq": 1, **fields}), LIMITS)


# ---------------------------------------------------------------------- commands that park


def test_a_read_is_answered_at_once_and_a_poll_when_something_comes(host: Host) -> None:
    """By the write that shows the record, not by its decision. (§3)"""
    host.ask(diff("t"), "read")
    ticket = host.ask(diff("t", wait_ms=1000), "poll")
    assert isinstance(ticket, Ticket)
    assert ticket.waits_for_news
    host.holds = {Write}
    host.ask(append("t"), "append")
    host.settle()
    assert set(host.answers) == {"read"}
    assert host.driver.parked == 1

    host.go_on()

    assert set(host.answers) == {"read", "poll", "append"}
    assert host.driver.parked == 0


@pytest.mark.parametrize("beside", [None, "failed", Rotate, Mark, Write])
def test_a_read_that_takes_several_turns_is_answered(
    host: Host, beside: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the log has failed, or is busy with a step of its own, and no turn ends: reads go on, and
    wait for no disk. (§3.2, §11)"""
    whole = selection.select
    looks = iter((1, 2, 3))

    def short(topic: Topic, query: selection.ReadQuery) -> selection.Selection:
        through = next(looks, None)
        page = whole(topic, msgspec.structs.replace(query, through=through))
        page.is_partial = through is not None
        return page

    tagged = [{"data": n, "tag": "x"} for n in range(5)]
    host.ask(append("t", records=tagged), "append")
    host.settle()
    if isinstance(beside, type):
        host.holds = {beside}
    if beside is Rotate:
        host.driver.commit.rotate(lambda boundary, error: None)
    elif beside is Mark:
        host.advance(200)
        host.advance(200)
    elif beside is Write:
        host.ask(append("t"), "more")
        host.driver.end_turn()
    elif beside == "failed":
        host.driver.commit.failed(OSError("of a test"))
    assert [type(step) for step in host.held] == ([beside] if host.holds else [])
    for read in (reads, partial_scans):
        monkeypatch.setattr(read, "select", short)

    host.ask(diff("t", from_seq=0, match="x"), "read")
    assert "read" not in host.answers
    host.settle()

    assert text_of(host.answers["read"]).count(b'"data"') == 5
    assert next(looks, None) is None


def test_work_that_waits_for_the_log_goes_on_once_that_is_free(host: Host) -> None:
    """What a step of the log kept from being done is done at its end, though nobody asks for anything."""
    begun: list[str] = []
    host.holds = {Rotate}
    host.driver.commit.rotate(lambda boundary, error: None)
    host.driver.work_soon = lambda: begun.append("work")  # type: ignore[method-assign]
    host.go_on()
    assert begun == ["work"]


def joining(member_id: str = "") -> JoinGroup:
    """A join of `m`, which is a new member without an id."""
    return JoinGroup(
        group="g",
        member_id=member_id,
        new_member_id="m",
        instance_id=None,
        client_id="c",
        client_host="/h",
        session_ms=10_000,
        rebalance_ms=10_000,
        protocol_type="consumer",
        protocols=(("range", b""),),
    )


@pytest.mark.parametrize("beside", [None, Rotate])
def test_a_command_that_writes_nothing_may_answer_others(host: Host, beside: type | None) -> None:
    """At once: a member whose join or sync is refused waits for no write, and for no clock. (§5)"""
    if beside is not None:
        host.holds = {beside}
        host.driver.commit.rotate(lambda boundary, error: None)
    host.ask(joining(), "first")
    host.ask(joining("m"), "again")

    host.settle()

    assert host.answers.keys() == {"first"}
    assert isinstance(host.answers["first"], GroupRefusal)


def test_a_poll_that_is_cancelled_is_answered_no_more(host: Host) -> None:
    """Neither by a record nor by its deadline; cancelled again, nothing happens. (§3)"""
    ticket = host.ask(diff("t", wait_ms=1000), "poll")
    assert isinstance(ticket, Ticket)

    ticket.cancel()
    ticket.cancel()
    host.ask(append("t"), "append")
    host.advance(2000)

    assert set(host.answers) == {"append"}
    assert host.driver.parked == 0


def test_deadlines_of_polls_that_were_answered_are_let_go(host: Host) -> None:
    """Or an idle minute of short polls would fill memory: at most a thousand are left over. (F28)"""
    for _ in range(3000):
        ticket = host.ask(diff("t", wait_ms=30_000), "poll")
        assert isinstance(ticket, Ticket)
        ticket.cancel()

    assert len(host.driver._deadlines) <= 1001


def test_the_alarm_is_the_first_deadline(host: Host) -> None:
    """In whatever order they came. (§3)"""
    for wait_ms in (3000, 1000, 2000):
        host.ask(diff("t", wait_ms=wait_ms), str(wait_ms))

    for ended in ({"1000"}, {"1000", "2000"}, {"1000", "2000", "3000"}):
        host.advance(999)
        alarm_ms = host.driver.alarm_ms()
        assert alarm_ms is not None
        assert alarm_ms <= host.steady_ms + 1
        host.advance(1)
        assert set(host.answers) == ended


# ---------------------------------------------------------------------- copies that a command sees


@pytest.fixture
def routed(host: Host) -> Host:
    """A router from `t` to `copies`."""
    host.ask(parse_put_router("r", b'{"source":"t","dest":"copies"}'))
    host.settle()
    host.answers.clear()
    return host


def written(host: Host) -> None:
    """A record of `t` that was acknowledged, and of which no copy was made yet."""
    host.ask(append("t"), "append")
    host.driver.end_turn()
    assert set(host.answers) == {"append"}


def test_a_read_sees_what_was_written_upstream_before_it(routed: Host) -> None:
    """However it stands with the write: it waits for the copies, or makes them itself. (§6.2)"""
    written(routed)
    routed.ask(diff("copies", from_seq=0), "read")
    routed.settle()

    assert routed.answers["read"].records.extents


def test_a_read_of_copies_that_is_cancelled_is_not_decided(
    routed: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it waits for them. (§6.2)"""
    monkeypatch.setattr(module, "COPY_SLICES", 0)
    written(routed)
    ticket = routed.ask(diff("copies", from_seq=0), "read")
    assert isinstance(ticket, Ticket)

    ticket.cancel()
    routed.settle()

    assert set(routed.answers) == {"append"}


def test_a_poll_of_copies_is_cancelled_where_it_waits_now(
    routed: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First for the copies and then for records: one ticket ends either. (§6.2)"""
    monkeypatch.setattr(module, "COPY_SLICES", 0)
    written(routed)
    ticket = routed.ask(diff("copies", from_seq=1, wait_ms=1000), "poll")
    assert isinstance(ticket, Ticket)
    routed.settle()
    assert routed.driver.parked == 1

    ticket.cancel()
    routed.advance(2000)

    assert routed.driver.parked == 0
    assert set(routed.answers) == {"append"}


# ---------------------------------------------------------------------- refusals


def test_writes_that_find_no_room_are_counted(host: Host) -> None:
    """For the metric, and for the operator's line; other refusals are not. (§11)"""
    store = host.store
    assert isinstance(store, MemoryStore)
    host.driver._delayed.is_open = False
    store.room = lambda *, reserve: 0  # type: ignore[method-assign]

    for _ in range(3):
        with pytest.raises(Rejection) as refusal:
            host.driver.submit(parse_put("u", b"{}"), lambda reply: None)
        assert refusal.value.code is ErrorCode.THROTTLED
    with pytest.raises(Rejection) as missing:
        host.driver.submit(diff("missing"), lambda reply: None)

    assert STATUSES[missing.value.code] == 404
    assert host.driver.refused_for_room == 3


LARGE = ["x" * 10_000] * 3
SMALL = ["y"]


def in_order(host: Disk) -> list[int]:
    """Sizes of the topic's records, as a reader finds them."""
    host.round()
    for _ in range(10):
        host.advance(ms=RETRY_MS)
    return [
        size
        for run in host.driver.engine.state.topics["t"].runs
        for size in run.columns.data_size.tolist()
    ]


def test_a_write_that_finds_no_room_again_keeps_its_place() -> None:
    """Writes that came behind it may be small enough for the room that there is, and are written
    behind it. (§0.6)"""
    host = Disk()
    host.write("t", 1)
    store, room = host.store, host.store.room
    store.room = lambda *, reserve: 8000  # type: ignore[method-assign]
    store.ask_room = lambda need_bytes: True  # type: ignore[method-assign]
    for datas in (LARGE, SMALL):
        host.driver.submit(parsed("t", *datas), nobody)
    for _ in range(3):
        host.advance(ms=RETRY_MS)
    del store.ask_room  # type: ignore[method-assign]
    store.room = room  # type: ignore[method-assign]

    assert in_order(host) == [902, 10_002, 10_002, 10_002, 3]


def test_a_write_that_finds_no_memory_again_keeps_its_place() -> None:
    """The same until sealing has made some. (§0.6, §11)"""
    host = Disk(max_hot_bytes=48_000)
    host.write("t", 20)
    for datas in (LARGE, SMALL):
        host.driver.submit(parsed("t", *datas), nobody)
    assert host.driver._delayed.waiting == 2
    for _ in range(3):
        host.advance(ms=RETRY_MS)

    assert in_order(host) == [902] * 20 + [10_002, 10_002, 10_002, 3]


# ---------------------------------------------------------------------- life


def test_a_drain_answers_all_that_only_wait(host: Host) -> None:
    """At once, with what they have found. (§0.5)"""
    host.ask(diff("t", wait_ms=30_000), "poll")

    host.driver.drain()

    assert isinstance(host.answers["poll"], Outcome)
    assert host.driver.parked == 0


def test_a_stop_waits_for_the_write_that_is_on_its_way(host: Host) -> None:
    """It ends when the last sync has; nothing that was acknowledged is left behind. (§0.5)"""
    host.holds = {Write, Sync}
    host.ask(append("t"), "append")
    host.settle()
    ended: list[Exception | None] = []
    host.driver.drain()
    host.driver.stop(ended.append)
    assert (ended, host.answers) == ([], {})

    host.go_on()

    assert ended == [None]
    assert isinstance(host.answers["append"], Outcome)


# ---------------------------------------------------------------------- answers that change others


def test_an_answer_may_cancel_the_next_one(host: Host) -> None:
    """Two polls see the same record; the client of both leaves when it has the first. (§3)"""
    tickets: list[Ticket] = []
    heard: list[str] = []

    def first(reply: Reply) -> None:
        heard.append("first")
        tickets[1].cancel()

    for take in (first, lambda reply: heard.append("second")):
        ticket = host.driver.submit(diff("t", wait_ms=1000), take)
        assert isinstance(ticket, Ticket)
        tickets.append(ticket)

    host.ask(append("t"), "append")
    host.settle()

    assert heard == ["first"]
    assert host.driver.parked == 0


def test_an_answer_may_cancel_another_read_of_copies(
    routed: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both wait for the same copies. (§6.2)"""
    monkeypatch.setattr(module, "COPY_SLICES", 0)
    written(routed)
    tickets: list[Ticket] = []
    heard: list[str] = []

    def first(reply: Reply) -> None:
        heard.append("first")
        tickets[1].cancel()

    for take in (first, lambda reply: heard.append("second")):
        ticket = routed.driver.submit(diff("copies", from_seq=0), take)
        assert isinstance(ticket, Ticket)
        tickets.append(ticket)

    routed.settle()

    assert heard == ["first"]


def test_a_read_behind_two_routers_sees_the_copies_of_both(routed: Host) -> None:
    """A slice copies from one topic to the next: as many are made as the way is long. (§6.2)"""
    routed.ask(parse_put("far", b"{}"), "put")
    routed.ask(parse_put_router("r2", b'{"source":"copies","dest":"far"}'), "route")
    routed.settle()
    routed.answers.clear()
    written(routed)

    routed.ask(diff("far", from_seq=0), "read")

    assert routed.answers["read"].records.extents


def test_an_answer_that_breaks_is_told_and_the_others_come(host: Host) -> None:
    """A client that is gone in an unforeseen way costs the others nothing. (§0.5)"""
    broken: list[Exception] = []
    host.on_broken_answer = broken.append  # type: ignore[method-assign]

    def fail(reply: Reply) -> None:
        raise ZeroDivisionError

    host.driver.submit(diff("t", wait_ms=1000), fail)
    host.ask(diff("t", wait_ms=1000), "poll")

    host.ask(append("t"), "append")
    host.settle()

    assert [type(error) for error in broken] == [ZeroDivisionError]
    assert set(host.answers) == {"append", "poll"}


def test_a_write_that_is_cancelled_is_written_all_the_same(host: Host) -> None:
    """It was decided: there is nothing to take back. (§2.2)"""
    host.holds = {Write}
    ticket = host.ask(append("t"), "append")
    assert isinstance(ticket, Ticket)

    ticket.cancel()
    host.go_on()

    assert isinstance(host.answers["append"], Outcome)


# ---------------------------------------------------------------------- jobs that somebody waits for


def claim(node: str = "w", **fields: object) -> Command:
    return parse_claim("q", orjson.dumps({"node": node, **fields}), LIMITS)


def queue(host: Host, **config: object) -> None:
    host.ask(parse_put("q", orjson.dumps({"type": "queue", **config})))
    host.settle()
    host.answers.clear()


def test_a_job_whose_lease_is_not_in_the_log_is_not_handed_out(host: Host) -> None:
    """The claim waited, a job came, and the log failed with the lease: its outcome is unknown. (§0.5)"""
    queue(host, leases_durable=True, durability="fsync")
    host.ask(claim(wait_ms=1000), "claim")
    host.ask(append("q"), "append")
    host.driver.end_turn()
    write = host.store.write

    def fail(frames: Frames) -> int:
        raise OSError("the disk is gone")

    host.store.write = fail  # type: ignore[method-assign]
    host.settle()
    host.store.write = write  # type: ignore[method-assign]

    assert isinstance(host.answers["append"], Outcome)
    refused = host.answers["claim"]
    assert isinstance(refused, Rejection)
    assert STATUSES[refused.code] == 500
    assert (refused.detail or {})["outcome"] == "unknown"


def waiting_for_a_lease(host: Host) -> None:
    """The one job of `q` is leased for 500 ms, `second` waits for it, and the log is synced."""
    queue(host)
    host.ask(append("q"), "append")
    host.settle()
    host.ask(claim("first", lease_ms=500), "first")
    host.settle()
    host.ask(claim("second", wait_ms=3000), "second")
    host.advance(200)
    assert "second" not in host.answers


def ring_once(host: Host, ms: int) -> None:
    """The timer rings once, as it does where nothing else happens."""
    host.now_ms += ms
    host.driver.ring()


def test_a_claim_is_answered_once_the_idle_mark_is_written(host: Host) -> None:
    """The lease before it ends while an idle log gets its mark, and no other command comes: the claim
    that waited is answered when the mark is there. (§10.3)"""
    waiting_for_a_lease(host)
    host.holds = {Mark}
    host.advance(200)
    assert [type(step) for step in host.held] == [Mark]

    ring_once(host, 101)
    host.go_on()

    assert host.answers["second"].jobs.grant.seqs == [1]
    assert host.driver.parked == 0


@pytest.mark.parametrize("is_refused", [False, True], ids=["rotated", "refused"])
def test_a_claim_is_answered_once_the_log_has_a_new_file(host: Host, is_refused: bool) -> None:
    """A lease that ends while the log begins a file, or finds no space for one, does not wait for
    another command either. (§10.3)"""
    waiting_for_a_lease(host)
    host.advance(200)
    host.holds = {Rotate}
    host.driver.commit.rotate(lambda boundary, error: None)

    ring_once(host, 101)
    if is_refused:
        host.driver.commit.refused(OSError("no space"))
    else:
        host.go_on()
    host.settle()

    assert host.answers["second"].jobs.grant.seqs == [1]
    assert host.driver.parked == 0


def test_time_moves_a_job_that_was_delivered_too_often(host: Host) -> None:
    """No command comes: the driver asks to be called when the lease ends, and moves the job. (§10.6)"""
    queue(host, max_deliveries=1, dead_letter="d", lease_ms=1000)
    host.ask(append("q"), "append")
    host.settle()
    host.ask(claim(), "claim")
    host.settle()
    host.advance(1000)
    assert "d" not in host.driver.engine.state.topics

    while (alarm := host.driver.alarm_ms()) is not None and alarm < START_MS + 10_000:
        host.advance(alarm - host.steady_ms)

    assert host.driver.engine.state.topics["d"].count == 1


# ---------------------------------------------------------------------- who else looks


def test_followers_of_the_log_hear_of_each_publication() -> None:
    """Other processes follow the log as far as it is shown. (§3)"""
    shown: list[int] = []
    host = Host(followers=Followers(shown=lambda: shown.append(host.store.written_lsn)))
    shown.clear()
    host.ask(append("t"))
    host.settle()

    assert shown
    assert shown[-1] == host.store.written_lsn


def test_a_change_without_a_command_is_not_looked_at_when_all_is_over(host: Host) -> None:
    """A client's stream closes after the server's last write. (§0.5)"""
    host.driver.drain()
    host.driver.stop(lambda error: None)
    written_lsn = host.store.written_lsn

    host.driver.nudge()
    host.settle()

    assert host.store.written_lsn == written_lsn


def test_a_job_whose_lease_is_in_the_log_is_handed_out_then(host: Host) -> None:
    """The claim waited; it is answered when the lease is as durable as it was asked for. (§10.3)"""
    queue(host, leases_durable=True, durability="fsync")
    host.ask(claim(wait_ms=1000), "claim")
    host.ask(append("q"), "append")
    host.settle()

    assert host.answers["claim"].jobs.grant.seqs == [1]
    assert host.driver.parked == 0


def test_damage_that_a_command_meets_is_told(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client gets 500, and an operator the place. (§0.5)"""

    def damaged(*_: object, **named: object) -> None:
        raise DamagedRun(Corrupt("a.seg", 7, "does not verify"), 1, 1).refusal() from Corrupt(
            "a.seg", 7, "does not verify"
        )

    with monkeypatch.context() as patch:
        patch.setattr(host.driver.engine, "submit", damaged)
        with pytest.raises(Rejection):
            host.ask(diff("t"), "read")

    assert host.lines == [("error", "a.seg: corrupt at byte 7: does not verify")]
