"""The invariants that no other rule of the model words: each a function, named after its number.

They judge by what clients were sent, and by nothing that the model or the engine computed since; so
they hold the model too.  `test_invariants.py` has the table of all thirty-six, which of them is checked
by which function, and the proof that a run evaluates each.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import orjson

from topics.protocol.decide.topics import figures_of

if TYPE_CHECKING:
    from .world import World

EVALUATED: Counter[str] = Counter()
"""How often each invariant was evaluated by this process."""


NAMED = {*(f"I{i}" for i in range(1, 37)), "C1", "C2", "E1", "F1", "F11", "F12", "F14"}


class Violation(AssertionError):
    """An answer or a recovered state that the contract does not allow."""

    def __init__(self, invariant: str, what: str) -> None:
        assert invariant in NAMED, invariant
        super().__init__(f"{invariant}: {what}")
        self.invariant = invariant


def check(fact: bool, invariant: str, what: object) -> None:
    EVALUATED[invariant] += 1
    if not fact:
        raise Violation(invariant, str(what))


def f11_only_a_failed_read_fails(failed_reads: int, why: Exception) -> None:
    """A read is refused for damage where a segment could not be read, and for nothing else; what is
    not refused has the right bytes (I4). (docs/durability.md)"""
    check(failed_reads > 0, "F11", f"no read failed: {why}")


def i2_what_a_stop_takes_is_a_suffix(
    name: str, before: Collection[int], found: Collection[int], *, how: str
) -> None:
    """Of the records that were written, a power loss takes those behind some seq; a kill, none.
    (§0.10)

    Args:
        before: Seqs that a restart may show, when the last write had returned.
        found: Those that it shows.
        how: `clean`, `kill` or `cut`.
    """
    missing = sorted(set(before) - set(found))
    kept = max((seq for seq in found if seq in before), default=0)
    check(not missing or kept < missing[0], "I2", f"{name}: {missing[:5]}, and {kept} is there")
    check(how == "cut" or not missing, "I2", f"{name}: a {how} took {missing[:5]}")


def i2_two_files_of_the_log_are_unsynced_at_most(dirty: Collection[str]) -> None:
    """However fast clients write and however slow syncs are, what a power loss may take of a log lies
    in its last two files. (§0.10)"""
    check(len(dirty) <= 2, "I2", f"{sorted(dirty)} are unsynced")


def i3_a_batch_is_whole(epoch: str, head_seq: int, inner: Collection[int]) -> None:
    """A head that is shown or found is the last seq of a batch, never one in its middle. (§2)

    Args:
        inner: Seqs of the topic's batches, without the last of each.
    """
    check(head_seq not in inner, "I3", f"{epoch}: the head {head_seq} is inside a batch")


def i6_what_is_deleted_stays_deleted(
    epoch: str, seqs: Iterable[int], gone: Mapping[int, int]
) -> None:
    """No seq whose delete, purge or ack was answered is in a page, a frame, a grant, or what a
    restart shows. (§5, §10.4)"""
    back = [seq for seq in seqs if seq in gone]
    check(not back, "I6", f"{epoch}: {back[:5]} are deleted, and here")


def i7_a_delete_touches_nothing_later(
    name: str, bound: int, expected: Collection[int], found: Collection[int]
) -> None:
    """A record that was appended after the last delete of its topic is there, also when a restart
    replays both. (§5)

    Args:
        bound: The head when the last delete was decided.
    """
    missing = sorted(seq for seq in expected if seq > bound and seq not in found)
    check(not missing, "I7", f"{name}: {missing[:5]} came after the delete at {bound}")


def i13_the_count_is_of_what_is_read(name: str, count: int, seqs: Collection[int]) -> None:
    """A topic counts the records that a walk through it finds. (§1.2)"""
    check(count == len(seqs), "I13", f"{name}: {count} are counted, {len(seqs)} are there")


def i14_times_do_not_fall(name: str, texts: Sequence[bytes]) -> None:
    """`$ts` ascends with `$seq`. (§0.3)"""
    times = [orjson.loads(text)["$ts"] for text in texts]
    check(times == sorted(times), "I14", f"{name}: {times}")


def i15_nothing_that_matches_is_left(name: str, match: str, left: Collection[int]) -> None:
    """After a delete by tag a read by the same tag finds nothing that was there. (§5)

    Args:
        left: Seqs that it finds, up to the delete's bound.
    """
    check(not left, "I15", f"{name}: {sorted(left)[:5]} match {match}, and are here")


def i16_a_key_stands_for_a_batch_of_its_own(
    key: str, first_seq: int, given: Collection[int]
) -> None:
    """A write that is answered as a repetition names a batch that was appended with its key. (§0.8)

    Args:
        given: First seqs of the batches that were appended with it.
    """
    check(first_seq in given, "I16", f"{key}: {first_seq} is none of {sorted(given)}")


def i17_what_is_refused_takes_nothing(name: str, before: int, after: int) -> None:
    """A full topic that rejects has the head that it had. (§0.10)"""
    check(before == after, "I17", f"{name}: refused, and the head is {after} after {before}")


def i21_what_is_skipped_stays(
    name: str, before: Mapping[int, Any], after: Mapping[int, Any]
) -> None:
    """A job that an ack, a nack or an extension skips has the lease that it had. (§10.4)"""
    check(before == after, "I21", f"{name}: {before} became {after}")


def i26_one_copy_of_each(name: str, texts: Iterable[bytes]) -> None:
    """Of a router with `exactly_once`, a destination has no two copies of one record. (§6.1)"""
    keys = [
        stamp["key"]
        for text in texts
        if (stamp := orjson.loads(text).get("meta", {}).get("_topics_router")) is not None
    ]
    twice = [key for key, count in Counter(keys).items() if count > 1]
    check(not twice, "I26", f"{name}: {twice[:3]} twice")


def i28_nobody_reads_its_own(nodes: Collection[str], records: Iterable[Mapping[str, Any]]) -> None:
    """A reader that leaves out its node gets none of that node's records. (§3.4)"""
    own = [record["$seq"] for record in records if record.get("$node") in nodes]
    check(not own, "I28", f"{own} of {nodes}")


def i30_the_config_is_one_that_was_put(name: str, found: object, put: Collection[object]) -> None:
    """A restart shows the last config that was acknowledged, or one that was put after it. (§1.1)

    Args:
        put: That one, and those after it.
    """
    check(found in put, "I30", f"{name}: {found} is none of {len(put)}")


def i32_nothing_is_decided_after_a_failure(failed: bool, event: object) -> None:
    """After a failed write or sync no event is made for the log until the next start. (§0.6)"""
    check(not failed, "I32", f"decided by a log that has failed: {event}")


def i34_counters_equal_a_recount(world: "World") -> None:
    """What is counted against a limit is there, and no more: streams, sessions, parked commands,
    jobs that were pushed, keys, live bytes; and what is kept for lists. (§1.3, §11)"""
    engine, driver = world.process.engine, world.process.driver
    watches, pushes = engine.watches, engine.push_streams
    told = {
        "streams": watches.connection_shares.used,
        "sessions": watches.session_shares.used,
        "watch bytes": watches.byte_shares.used,
        "push streams": pushes.open_count,
        "parked": driver.parked,
        "keys": engine.state.keys.count,
    }
    counted = {
        "streams": len(watches.streams) + len(world.pushing.open),
        "sessions": len(watches.sessions),
        "watch bytes": sum(session.memory_bytes for session in watches.sessions.values()),
        "push streams": len(world.pushing.open),
        "parked": len(world.waiting.claimers),
        "keys": sum(len(list(keys)) for keys in engine.state.keys.by_topic.values()),
    }
    check(told == counted, "I34", f"{told} counted {counted}")
    for topic in engine.state.topics.values():
        sums = topic.count, topic.size_bytes
        check(sums == topic.recount(), "I34", f"{topic.name}: {sums} {topic.recount()}")
        kept, figures = topic.figures, figures_of(topic)
        check(kept in (None, figures), "I34", f"{topic.name}: {kept} {figures}")
        topic.figures = figures  # whatever happens next has to change them
