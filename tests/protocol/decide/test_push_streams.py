"""Push streams: jobs that come over a connection, and go back with it (§10.8)."""

from protocol.harness import START_MS, Harness, refusal, tagged
from protocol.workers import Puller, alarm, given, parked, queue
from topics.protocol.decide.push_streams import PushStream
from topics.protocol.faces.http.statuses import STATUSES
from topics.protocol.model.access import Caller
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.events import JobsReleased


def test_a_stream_that_is_full_gets_its_own_job_again() -> None:
    """A job whose lease runs out is pushed again, also to the only worker, who held no more than
    that: the time alone says so. (§10.3, §10.8)"""
    engine = queue(lease_ms=1000)
    engine.append("x", name="q")
    worker = Puller(engine, limit=1)
    assert worker.pull() == [1]
    engine.now_ms = alarm(engine)

    engine.work_off()

    assert worker.pull() == [1]
    assert [deliveries for _, _, deliveries in worker.jobs] == [1, 2]
    assert engine.now_ms == START_MS + 1001


def test_a_disconnect_without_room_gives_jobs_back_all_the_same() -> None:
    """That a lease was given up need not be in the log: after a crash it would run out. (§10.8)"""
    engine = queue(leases_durable=True)
    engine.append("x", name="q")
    worker = Puller(engine)
    assert worker.pull() == [1]
    engine.room_bytes = 100

    worker.close()

    assert engine.counters() == (1, 0, 0)
    assert not any(isinstance(event, JobsReleased) for event in engine.events)


def test_a_lease_extended_past_its_end_is_the_streams_own_again() -> None:
    """It counts against the stream's limit, and goes back when the connection does; a lease that
    somebody else took meanwhile does neither. (§10.6, §10.8)"""
    engine = queue(lease_ms=1000)
    engine.append("a", "b", "c", name="q")
    worker = Puller(engine, limit=2, node="s")
    assert worker.pull(stalls=True) == [1, 2]
    engine.now_ms += 1001
    assert engine.claimed(node="other", max=1) == [1]
    assert engine.extend(1, 2, node="s", lease_ms=60_000)["skipped"] == [1]
    engine.work_off()
    assert worker.pull() == [3]

    assert worker.held == [2, 3]
    worker.close()
    assert engine.counters() == (2, 1, 0)
    assert engine.ack(1, node="other")["acked"] == 1
    assert engine.nack(2, 3, node="s")["skipped"] == [2, 3]


def test_a_full_stream_whose_worker_extends_a_lapsed_lease_is_given_nothing_more() -> None:
    """It holds one more than it asked for, by what its worker did; two acks make room for one. (§10.6,
    §10.8)"""
    engine = queue(lease_ms=1000)
    engine.append("a", "b", "c", "d", name="q")
    worker = Puller(engine, limit=2, node="s")
    assert worker.pull() == [1, 2]
    engine.now_ms += 1001
    assert engine.claimed(node="other", max=1) == [1]
    engine.work_off()
    assert worker.pull() == [2, 3]
    engine.now_ms += 1001
    engine.nack(1, node="other")
    engine.work_off()
    assert worker.pull() == [1, 2]

    assert engine.extend(3, node="s", lease_ms=60_000)["extended"] == 1
    engine.work_off()

    assert (worker.pull(), worker.held) == ([], [1, 2, 3])
    engine.ack(1, node="s")
    engine.work_off()
    assert worker.pull() == []
    engine.ack(2, node="s")
    engine.work_off()
    assert (worker.pull(), worker.held) == ([4], [3, 4])


def test_streams_share_a_window_with_claims() -> None:
    """In the same line, by the same turns. (§10.8)"""
    engine = queue(claim_jitter_ms=100)
    worker = Puller(engine, limit=3)
    assert worker.pull() == []
    engine.append(*range(4), name="q")
    engine.work_off()
    assert engine.claim(node="w", max=3) is None
    engine.now_ms += 100
    engine.work_off()

    assert (worker.pull(), given(engine)) == ([1, 3], [[2, 4]])


def test_a_stream_holds_no_more_than_it_asked_for() -> None:
    """Each ack, nack or delete makes room for one; an extend makes none. (§10.8)"""
    engine = queue()
    engine.append(*[tagged(f"t{i}") for i in range(1, 8)], name="q")
    worker = Puller(engine, limit=2)
    assert worker.pull() == [1, 2]
    engine.extend(1, node="s")
    engine.work_off()
    assert worker.pull() == []

    engine.ack(1, node="s")
    engine.work_off()
    assert worker.pull() == [3]
    engine.nack(2, node="s", delay_ms=1000)
    engine.work_off()
    assert worker.pull() == [4]
    engine.delete("q", match="t3")
    engine.work_off()
    assert worker.pull() == [5]
    engine.now_ms += 1000
    engine.work_off()
    assert worker.pull() == []
    engine.ack(4, 5, node="s")
    engine.work_off()
    assert worker.pull() == [2, 6]
    assert worker.held == [2, 6]


def test_a_worker_who_does_not_read_starves_nobody() -> None:
    """Jobs are leased to a stream when it can send them. (§10.8)"""
    engine = queue()
    slow, quick = Puller(engine, limit=100, node="slow"), Puller(engine, limit=2, node="quick")
    engine.append("a", name="q")
    assert slow.pull(stalls=True) == [1]
    engine.append("b", "c", name="q")
    engine.work_off()

    assert quick.pull() == [2, 3]
    assert engine.counters() == (0, 3, 0)


def test_a_disconnect_gives_back_its_own_and_nothing_else() -> None:
    """Not what its node holds by a claim or through another connection, nor what it acked; at once
    and to who waits. (§10.8)"""
    engine = queue()
    engine.append(*range(6), name="q")
    assert engine.claimed(node="n", max=1) == [1]
    one, two = Puller(engine, limit=2, node="n"), Puller(engine, limit=2, node="n")
    assert (one.pull(), two.pull()) == ([2, 3], [4, 5])
    engine.ack(2, node="n")

    one.close()

    assert engine.counters() == (2, 3, 0)
    found = engine.claim(node="m", max=9)["claimed"]
    assert [(job["$seq"], job["deliveries"]) for job in found] == [(3, 2), (6, 1)]
    assert two.held == [4, 5]
    parked(engine)
    two.close()
    engine.work_off()
    assert given(engine) == [[4]]


def test_what_was_leased_and_never_sent_goes_back_too() -> None:
    """The connection broke between the two. (§10.8)"""
    engine = queue()
    worker = Puller(engine, limit=2)
    assert worker.pull() == []
    engine.append("a", "b", name="q")
    engine.work_off()
    assert engine.counters() == (0, 2, 0)

    worker.close()

    assert engine.counters() == (2, 0, 0)
    assert engine.engine.alarm_ms() is None


def test_what_is_deleted_before_it_is_sent_is_not_sent() -> None:
    """A job that was leased to a stream which cannot send, and is deleted meanwhile, is no job any
    more; the others come under their own leases, also where a part of the memory went with it.
    (§5, §10.8)"""
    engine = queue()
    worker = Puller(engine, limit=3, node="s")
    assert worker.pull() == []
    engine.append("a", "b", "c", name="q")
    engine.work_off()
    assert worker.held == [1, 2, 3]

    engine.delete(before_seq=3, name="q")

    assert worker.pull() == [3]
    assert worker.jobs[-1][1] == worker.stream.held[3]
    assert engine.ack(3, node="s")["acked"] == 1


def test_a_stream_all_of_whose_jobs_were_deleted_before_it_sent_waits_for_others() -> None:
    """It was woken for jobs that are none any more, and it is woken for the next. (§10.8)"""
    engine = queue()
    worker = Puller(engine, limit=3)
    assert worker.pull() == []
    engine.append("a", "b", name="q")
    engine.work_off()
    engine.delete(before_seq=3, name="q")

    assert worker.pull() == []
    engine.append("c", name="q")
    engine.work_off()

    assert worker.pull() == [3]


def test_what_has_expired_before_it_is_sent_is_not_sent() -> None:
    """A job whose record expires while its stream cannot send is no job any more, though nothing else
    has looked at the queue since; and the stream has room for another. (§0.10, §10.8)"""
    engine = queue(ttl_ms=1000, lease_ms=60_000)
    worker = Puller(engine, limit=2)
    assert worker.pull() == []
    engine.append("a", name="q")
    engine.now_ms += 600
    engine.append("b", "c", name="q")
    engine.work_off()
    assert worker.held == [1, 2]

    engine.now_ms += 500

    assert worker.pull() == [2, 3]
    assert worker.held == [2, 3]


def test_an_ack_of_an_expired_job_makes_room_for_another() -> None:
    """It is skipped, since the record is gone; the worker is done with it all the same, and need not
    wait for the end of its lease. (§10.4, §10.8)"""
    engine = queue(ttl_ms=1000, lease_ms=60_000)
    engine.append("a", name="q")
    worker = Puller(engine, limit=1)
    assert worker.pull() == [1]
    engine.now_ms += 600
    engine.append("b", name="q")
    engine.work_off()
    assert worker.pull() == []

    engine.now_ms += 500
    assert engine.ack(1, node="s")["skipped"] == [1]
    engine.work_off()

    assert worker.pull() == [2]


def test_a_stream_of_a_queue_that_went_ends() -> None:
    """404; and it holds nothing of a queue that is made anew under the name. (§10.8)"""
    engine = queue()
    engine.append("a", name="q")
    worker = Puller(engine)
    assert worker.pull() == [1]
    engine.drop("q")
    queue(engine)
    engine.append("b", name="q")

    assert worker.stream.ended_by is not None
    assert STATUSES[worker.stream.ended_by.code] == 404
    assert worker.pull() == []
    worker.close()
    assert engine.counters() == (1, 0, 0)
    assert engine.engine.push_streams.open_count == 0


def test_streams_are_connections() -> None:
    """They count against the limit of those, and it is free again when they close. (§11)"""
    engine = queue(Harness(max_sse_connections=1))
    worker = Puller(engine)
    assert refusal(Puller, engine).detail == {"limit": "max_sse_connections", "max": 1}
    worker.close()
    Puller(engine)

    assert STATUSES[refusal(Puller, engine, name="none").code] == 404
    engine.put("log")
    assert STATUSES[refusal(Puller, engine, name="log").code] == 409


def test_a_stream_that_is_ended_is_told_at_once() -> None:
    """Its connection would wait for the next heartbeat otherwise; it gets no job any more, and what
    it held is free. (§10.8)"""
    engine = queue()
    engine.append("x", name="q")
    woken: list[PushStream] = []
    worker = Puller(engine)
    assert worker.pull() == [1]
    worker.stream.wake = lambda: woken.append(worker.stream)
    why = Rejection(ErrorCode.SHUTTING_DOWN, "it stops")

    engine.engine.queue_commands.streams.end(worker.stream, why)

    assert woken == [worker.stream]
    assert worker.stream.ended_by is why
    assert (worker.stream.held, worker.stream.given) == ({}, [])


def test_all_streams_of_an_engine_that_is_given_up_are_ended() -> None:
    """What they held is free: whoever serves the queue next hands it out. (§10.8)"""
    engine = queue()
    engine.append("x", "y", name="q")
    workers = [Puller(engine), Puller(engine)]
    assert [worker.pull() for worker in workers] == [[1], [2]]
    why = Rejection(ErrorCode.SHUTTING_DOWN, "it is given up")

    engine.engine.queue_commands.end_streams(why)

    assert [worker.stream.ended_by for worker in workers] == [why, why]
    assert [worker.stream.held for worker in workers] == [{}, {}]


def test_a_removed_keys_stream_takes_nothing_more_and_gives_back_what_it_holds() -> None:
    """It is woken to say so; its jobs go back when its connection closes, as those of any other. (§0.2,
    §10.8)"""
    engine = queue()
    engine.append("x", "y", name="q")
    mine, other = Puller(engine, node="m"), Puller(engine, node="o")
    mine.stream.owner = caller = Caller("mine")
    caller.streams = 1
    assert (mine.pull(), other.pull()) == ([1], [2])
    engine.append("z", name="q")

    engine.engine.revoke(caller)

    assert mine.news
    assert mine.pull() == []
    ended = mine.stream.ended_by
    assert ended is not None
    assert STATUSES[ended.code] == 401
    assert other.stream.ended_by is None
    mine.close()
    assert caller.streams == 0
    assert engine.counters() == (2, 1, 0)
