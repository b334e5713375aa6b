"""Memory: what is held follows what lives, and who gives way when it is full. (§0.6, §0.10, §11)

The limit is a megabyte and a record mostly ten kilobytes, so that a hundred of them fill it.
"""

import random

import pytest

from protocol.harness import Harness
from topics.protocol.commit import memory_eviction
from topics.protocol.model.errors import Rejection
from topics.protocol.model.events import FloorsRaised, Hole
from topics.protocol.state.state import State

LIMIT = 1 << 20
BIG = "x" * 10_000


def engine_of(limit: int = LIMIT) -> Harness:
    return Harness(max_hot_bytes=limit)


def held(engine: Harness) -> int:
    return engine.engine.state.memory.total_bytes


def live(engine: Harness) -> int:
    return engine.engine.state.total_bytes


def fill(engine: Harness, name: str, count: int, data: object = BIG) -> None:
    for _ in range(count):
        engine.append(data, name=name)


def refused(engine: Harness, data: object, name: str) -> bool:
    try:
        engine.append(data, name=name)
    except Rejection as refusal:
        return refusal.detail == {"limit": "max_hot_bytes", "max": LIMIT}
    return False


# What is gone is not held.


def test_runs_of_a_topic_in_memory_are_one_loss() -> None:
    """A restart after the last checkpoint: what lived in memory is one tombstone, however many
    runs there were, and what was deleted between them is no loss of its own. (§0.10, §3.3)"""
    engine = engine_of()
    engine.put(durability="disk")
    engine.append("stays")
    engine.seal_all()
    engine.put(durability="ephemeral")
    for n in range(60):
        engine.append({"data": BIG, "tag": f"t{n // 20}"})
    engine.delete(match="t1")

    image = engine.engine.state.image()
    assert len(image.topics[0].runs) == 1
    found = State(engine.limits, engine.store)
    found.restore(image)
    assert found.topics["t"].holes == [Hole(2, 61, "crash")]
    assert found.records_total == 1


@pytest.mark.parametrize("way", ["cap_records", "cap_bytes", "ttl_ms", "delete", "purge"])
def test_what_left_a_topic_leaves_memory(way: str) -> None:
    """However it left; and what is written to a log is not refused for it. (§1.1, §5)"""
    engine = engine_of()
    config = {"cap_records": {way: 1}, "cap_bytes": {way: 15_000}, "ttl_ms": {way: 1000}}.get(way)
    for topic in "uvwxyz":
        engine.put(topic, durability="ephemeral", **(config or {}))
        for n in range(55):
            engine.now_ms += 100
            engine.append(BIG, name=topic)
            if n % 10 == 0 and way == "delete":
                engine.delete(topic, before_seq=engine.state(topic)["head_seq"])
            if n % 10 == 0 and way == "purge":
                engine.purge(topic, keep=1)

        assert held(engine) < 2 * live(engine) + 150_000

    engine.put("d", durability="disk")
    fill(engine, "d", 40)
    assert engine.state("d")["count"] == 40
    assert all(engine.state(topic)["count"] >= (way != "ttl_ms") for topic in "uvwxyz")


def test_small_topics_hold_little() -> None:
    """Ten thousand writes to two hundred topics that keep one record each. (§1.1)"""
    engine = engine_of()
    for n in range(10_000):
        if n < 200:
            engine.put(f"t{n}", durability="ephemeral", cap_records=1)
        engine.append(n, name=f"t{n % 200}")

        assert held(engine) <= LIMIT
    assert [engine.datas(f"t{n}")[-1] for n in range(200)] == list(range(9800, 10_000))


def test_what_lives_among_the_dead_stays_as_it_was() -> None:
    """Every seventh record survives: data, tags, nodes and seqs are theirs, and the rest is free.
    (§5)"""
    engine = engine_of()
    engine.put(durability="ephemeral")
    for n in range(70):
        record = {"data": f"{n}{BIG}", "tag": f"t{n % 7}", "node": f"n{n % 3}", "meta": {"n": n}}
        engine.append(record)
    before = {r["$seq"]: r for r in engine.diff(include_tags=True)["records"]}
    for tag in range(1, 7):
        engine.delete(match=f"t{tag}")

    after = {r["$seq"]: r for r in engine.diff(include_tags=True)["records"]}
    assert after == {seq: record for seq, record in before.items() if seq % 7 == 1}
    assert engine.diff(nodes=["n0"])["next_from_seq"] == 70
    assert held(engine) < 3 * live(engine)
    engine.append({"data": 1, "tag": "t0"})
    assert engine.delete(match="t0")["deleted"] == 11
    assert engine.state()["earliest_seq"] == 72


def test_what_a_large_delete_leaves_is_let_go_of_a_part_at_a_time() -> None:
    """Each slice of maintenance copies about as much as one run has, until what is held follows what lives;
    what is read meanwhile is what lives. (§0.6, §0.10)"""
    engine = engine_of(64 << 20)
    engine.put(durability="ephemeral")
    for _ in range(16):
        engine.append(*[{"data": "x" * 1000, "tag": "abc"[i % 3]} for i in range(900)])
    before = held(engine)
    assert engine.delete(match="a")["deleted"] == 16 * 300
    assert engine.delete(match="b")["deleted"] == 16 * 300
    assert engine.state()["count"] == 16 * 300

    gos, held_before = 0, held(engine)
    assert held_before > 0.7 * before
    while engine.engine.state.memory.wasteful:
        engine.compaction.drop_runs(engine.now_ms)
        assert held_before - held(engine) <= (1 << 20)
        held_before, gos = held(engine), gos + 1
        assert len(engine.seqs(limit=1000)) == 1000
    assert gos >= 8
    assert held(engine) < 0.4 * before
    assert engine.seqs(limit=1000) == list(range(3, 3001, 3))


def test_what_a_large_delete_left_makes_room_when_it_is_needed() -> None:
    """Nothing that lives is evicted while as much is wasted. (§0.10)"""
    engine = engine_of(8 << 20)
    engine.put(durability="ephemeral")
    for _ in range(8):
        engine.append(*[{"data": "x" * 1000, "tag": "ab"[i % 10 == 0]} for i in range(900)])
    lived = engine.delete(match="a")["count"]
    assert engine.engine.state.memory.wasteful
    for _ in range(5):
        engine.append(*["y" * 1000] * 900)
    assert engine.state()["count"] == lived + 5 * 900
    assert held(engine) <= 8 << 20


def test_long_stretches_of_the_dead_take_no_rows() -> None:
    """Of five thousand records three live, far apart. (§5)"""
    engine = Harness(max_hot_bytes=4 << 20)
    engine.put(durability="ephemeral")
    for first in range(1, 5001, 500):
        engine.append(*({"data": n, "tag": f"k{n}"} for n in range(first, first + 500)))
    engine.delete(before_seq=2)
    full = held(engine)
    for lo, hi in ((1, 1000), (1001, 3000), (3001, 5000)):
        seqs = engine.purge(seq=hi) if lo == 1 else None
        assert seqs is None or seqs["purged"] == 998
    for n in [*range(1001, 3000), *range(3001, 5000)]:
        engine.delete(match=f"k{n}")

    assert engine.seqs() == [1000, 3000, 5000]
    assert held(engine) < full // 8
    assert engine.state()["earliest_seq"] == 1000


def test_one_job_that_stays_holds_no_others() -> None:
    """A queue whose first job nobody takes, behind it a thousand that are done. (§10)"""
    engine = engine_of()
    engine.put("q", type="queue", durability="ephemeral")
    engine.append({"data": "later"}, name="q")
    assert engine.claimed(lease_ms=3_600_000) == [1]
    for _ in range(300):
        engine.append(BIG, name="q")
        engine.ack(*engine.claimed())

    assert held(engine) < 100_000
    assert engine.state("q")["queue"]["in_flight"] == 1


def test_random_writes_and_deletes_are_read_as_they_should() -> None:
    """Against a dictionary, over compacting, splitting and dropping. (§3, §5)"""
    rng = random.Random(7)
    engine = Harness(max_hot_bytes=64 << 20)
    engine.put(durability="ephemeral", cap_bytes=400_000)
    model: dict[int, int] = {}
    for step in range(400):
        entries = [rng.choice([10, 200, 5000]) for _ in range(rng.choice([1, 1, 30]))]
        first = engine.append(
            *({"data": "y" * n, "tag": f"g{rng.randrange(40)}"} for n in entries)
        )["first_seq"]
        model.update(enumerate(entries, first))
        if step % 3 == 0:
            engine.delete(match=f"g{rng.randrange(40)}", before_seq=first)
        if step % 50 == 49:
            kept = engine.state()["count"] // 2
            engine.purge(keep=kept)
        page = engine.diff(limit=1000, max_batch_bytes=8 << 20)["records"]
        found = {record["$seq"]: len(record["data"]) for record in page}
        assert found.items() <= model.items()
        assert len(found) == min(engine.state()["count"], 1000)
        assert held(engine) < 2 * live(engine) + 200_000


# Who gives way.


def test_the_largest_gives_way() -> None:
    """A topic that has no cap fills memory; one that is small loses nothing to it, and what is
    lost is told. (§0.10)"""
    engine = engine_of()
    for name in ("large", "small"):
        engine.put(name, durability="ephemeral")
    fill(engine, "small", 10)
    fill(engine, "large", 300)

    assert held(engine) <= LIMIT
    assert engine.state("small")["count"] == 10
    assert 75 < engine.state("large")["count"] < 100
    (lost, *kept) = engine.datas("large")
    assert lost == (1, 300 - len(kept), "cap")


def test_large_topics_become_alike() -> None:
    """The first one holds most of memory; then two others write as much. (§0.10)"""
    engine = engine_of()
    for name in "abc":
        engine.put(name, durability="ephemeral")
    fill(engine, "a", 100)
    for _ in range(300):
        for name in "bc":
            engine.append(BIG, name=name)

    counts = [engine.state(name)["count"] for name in "abc"]
    assert held(engine) <= LIMIT
    assert min(counts) * 3 > max(counts)


def test_a_batch_larger_than_memory_keeps_its_last_records() -> None:
    """The newest record of a write is never evicted by it. (§0.10)"""
    engine = engine_of()
    engine.put(durability="ephemeral")
    engine.append(*[BIG] * 150)

    count = engine.state()["count"]
    assert 40 < count < 105
    assert engine.seqs(limit=1000) == list(range(151 - count, 151))
    assert held(engine) <= LIMIT


def test_logged_records_push_back_to_half() -> None:
    """Ephemeral records fill memory; what is logged comes in all the same, and they keep half of
    it. (§0.6)"""
    engine = engine_of()
    engine.put("e", durability="ephemeral")
    fill(engine, "e", 200)
    engine.put("d", durability="disk")
    accepted = 0
    while not refused(engine, BIG, "d"):
        accepted += 1

    assert 45 <= accepted <= 56
    assert 40 <= engine.state("e")["count"] <= 52
    assert held(engine) <= LIMIT
    before = engine.state("e")["count"]
    fill(engine, "e", 20)
    assert engine.state("e")["count"] >= before - 4
    engine.seal()
    assert not refused(engine, BIG, "d")


def test_a_small_write_takes_little() -> None:
    """What waits for its segment has filled memory: a topic in memory turns over and is not wiped.
    (§0.10)"""
    engine = engine_of()
    engine.put("e", durability="ephemeral")
    fill(engine, "e", 40)
    engine.put("d", durability="disk")
    while not refused(engine, BIG, "d"):
        pass
    before = engine.state("e")["count"]
    for _ in range(20):
        engine.append("small", name="e")

    assert engine.state("e")["count"] >= before


def test_what_may_not_be_evicted_pushes_back_and_lets_the_log_be() -> None:
    """A topic that rejects has filled memory.  Others in memory wait; what is logged is sealed at
    once and goes on. (§0.10, §11)"""
    engine = engine_of()
    engine.put("e", durability="ephemeral", discard="reject")
    while not refused(engine, BIG, "e"):
        pass
    count = engine.state("e")["count"]
    assert refused(engine, BIG, "e")
    engine.put("d", durability="disk")
    for _ in range(20):
        while refused(engine, BIG, "d"):
            engine.sealing.press()
            engine.seal()
        assert held(engine) < LIMIT + 11_000
    assert (engine.state("e")["count"], engine.state("d")["count"]) == (count, 20)
    engine.put("e", durability="ephemeral")
    engine.append(BIG, name="d")
    engine.append(BIG, name="d")
    assert engine.state("e")["count"] < count
    engine.drop("e")
    assert engine.engine.state.memory.volatile_bytes == 0
    assert engine.engine.state.memory.firm_bytes == 0


def test_newest_records_that_fill_memory_refuse_topics_more() -> None:
    """One record each is not evicted; but its own topic may replace it. (§0.10)"""
    engine = engine_of()
    for n in range(200):
        engine.put(f"t{n}", durability="ephemeral")
        if refused(engine, BIG, f"t{n}"):
            break
    assert n < 110
    assert held(engine) < LIMIT + 11_000
    engine.append("small", name="t0")
    assert engine.datas("t0")[-1] == "small"


def test_what_expired_goes_first() -> None:
    """Nobody has looked at a topic whose records have expired. (§0.10)"""
    engine = engine_of()
    engine.put("old", durability="ephemeral", ttl_ms=1000)
    engine.put("new", durability="ephemeral", discard="reject")
    fill(engine, "old", 80)
    engine.now_ms += 2000
    fill(engine, "new", 90)

    assert engine.datas("old") == [(1, 80, "ttl")]


def test_copies_make_room_for_themselves() -> None:
    """A router into a topic in memory copies more than that holds. (§6)"""
    engine = engine_of()
    engine.put("s", durability="disk")
    engine.put("d", durability="ephemeral")
    engine.route()
    for _ in range(200):
        while refused(engine, BIG, "s"):
            engine.seal()
        engine.work_off()
        assert held(engine) <= LIMIT
    assert engine.datas("d")[-1] == BIG
    assert engine.router()["blocked"] is None


def test_jobs_that_are_leased_stay() -> None:
    """Eviction stops at the first of them. (§10.7)"""
    engine = engine_of()
    engine.put("q", type="queue", durability="ephemeral")
    fill(engine, "q", 30)
    assert engine.claimed(max=20) == list(range(1, 21))
    engine.ack(*range(1, 11))
    engine.put("e", durability="ephemeral")
    fill(engine, "e", 200)
    fill(engine, "q", 60)

    assert engine.ack(*range(11, 21))["acked"] == 10


def test_durable_records_are_last_to_go() -> None:
    """A topic that was on the disk and is in memory now: its old records would go with its new
    ones. (§0.6)"""
    engine = engine_of()
    engine.put(durability="disk")
    fill(engine, "t", 30)
    engine.seal_all()
    engine.put(durability="ephemeral")
    fill(engine, "t", 40)
    engine.put("e", durability="ephemeral")
    fill(engine, "e", 300)
    assert engine.state()["earliest_seq"] == 1

    engine.drop("e")
    fill(engine, "t", 100)
    assert engine.state()["earliest_seq"] > 30
    floors = [event for event in engine.events if isinstance(event, FloorsRaised)]
    assert floors[-1].floors.cap_through == engine.state()["earliest_seq"] - 1


def test_all_of_a_topic_in_memory_may_hold_less_than_is_asked_for() -> None:
    """Then all of it is what may go; sealed runs are passed over. (§11)"""
    engine = Harness()
    engine.put(durability="ephemeral")
    engine.append("x" * 100, "y" * 100)

    assert memory_eviction._through(engine.topic(), 1) == 1
    assert memory_eviction._through(engine.topic(), 1 << 30) == 2
    engine.append("z", name="logged")
    engine.seal_all()
    assert memory_eviction._through(engine.topic("logged"), 1 << 30) == 0
