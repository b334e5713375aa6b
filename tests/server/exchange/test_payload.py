"""The bytes of a response: records in memory, records on a disk, records that are damaged."""

from collections.abc import Sequence
from typing import Any

import pytest
from store.ledger import HotRun, Ledger, entry_of

from topics.protocol.http.statuses import STATUSES
from topics.protocol.model.errors import Corrupt, DamagedRun, Rejection
from topics.protocol.model.outcomes import Records
from topics.protocol.model.ports import Extent, Span
from topics.server.exchange.payload import of_jobs, one_by_one, payload, read, refusal_of
from topics.store.memory import MemoryStore
from topics.store.runs import SealedRun

TEXTS = [b'{"$seq":%d,"data":%d}' % (seq, seq) for seq in range(11, 16)]
INSERTS = [b',"lease_id":"lease_%d"' % seq for seq in range(11, 16)]


class Run:
    """A run of TEXTS, seqs 11 to 15; a test chooses which rows are cold or damaged."""

    def __init__(self) -> None:
        store = MemoryStore()
        store.recover(Ledger(store))
        [ref] = store.seal([entry_of(HotRun(11, TEXTS, tags=["t", None, "u", None, "v"]))])
        self._run: SealedRun = store.open_run(ref, 1)
        self.is_cold = False
        self.damaged: dict[int, Exception] = {}
        self.reads = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._run, name)

    def read(self, spans: Sequence[Span]) -> Any:
        return None if self.is_cold else self._read(spans)

    def read_blocking(self, spans: Sequence[Span]) -> Any:
        return self._read(spans)

    def _read(self, spans: Sequence[Span]) -> Any:
        self.reads += 1
        for lo, hi in spans:
            for row in range(lo, hi):
                if row in self.damaged:
                    raise self.damaged[row]
        return self._run.read_blocking(spans)


def of(run: Run, *spans: Span, **asked: Any) -> Records:
    return Records([Extent(run, list(spans))], **asked)  # type: ignore[arg-type]


def joined(texts: Any) -> bytes:
    assert isinstance(texts, list)
    return b"".join(bytes(text) for text in texts)


def test_spans_are_joined_by_commas() -> None:
    """Stored text is joined without change, gaps included."""
    found = read(of(Run(), (0, 2), (3, 4)), blocking=False)

    assert joined(found) == b",".join([TEXTS[0], TEXTS[1], TEXTS[3]])


def test_extents_are_joined_likewise() -> None:
    """Extents of several runs become one list."""
    one, other = Run(), Run()
    records = Records([Extent(one, [(0, 1)]), Extent(other, [(4, 5)])])  # type: ignore[arg-type]

    assert joined(read(records, blocking=False)) == TEXTS[0] + b"," + TEXTS[4]


def test_pieces_of_an_answer_stay_in_their_places() -> None:
    """Bytes before and after the records keep their places."""
    pieces = [b'{"records":[', of(Run(), (0, 1)), b"]"]

    assert joined(payload(pieces, blocking=False)) == b'{"records":[' + TEXTS[0] + b"]"


def test_what_a_disk_has_is_not_waited_for_on_the_loop() -> None:
    """None means that a thread has to read the records. (§3)"""
    run = Run()
    run.is_cold = True
    records = of(run, (0, 1))

    assert read(records, blocking=False) is None
    assert of_jobs(records, blocking=False) is None
    assert payload([b"[", records, b"]"], blocking=False) is None
    assert joined(read(records, blocking=True)) == TEXTS[0]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (Corrupt("a.seg", 512, "a block does not verify"), "corrupt"),
        (OSError(5, "EIO"), "read_error"),
    ],
)
def test_what_cannot_be_read_is_named_by_its_seqs(error: Exception, reason: str) -> None:
    """The client gets the range of seqs and no file name. (§3)"""
    run = Run()
    run.damaged[2] = error

    refusal = read(of(run, (1, 4)), blocking=False)

    assert isinstance(refusal, Rejection)
    assert STATUSES[refusal.code] == 500
    assert refusal.detail == {"reason": reason, "first_seq": 12, "last_seq": 14}
    assert "seg" not in refusal.message
    assert isinstance(payload([of(run, (1, 4))], blocking=True), Rejection)


def test_damage_found_before_there_was_anything_to_read_is_told_alike() -> None:
    """A run whose columns do not verify gets the same refusal."""
    refusal = refusal_of(DamagedRun(Corrupt("a.seg", 0, "damaged"), 11, 15))

    assert refusal.detail == {"reason": "corrupt", "first_seq": 11, "last_seq": 15}


def test_records_are_cut_anew_where_more_or_less_is_asked_for() -> None:
    """Tags are added on request; inserted fields precede them. (§3, §10.2)"""
    tagged = joined(read(of(Run(), (0, 2), tags=True), blocking=False))
    leased = joined(of_jobs(of(Run(), (0, 2), tags=True, inserts=INSERTS), blocking=False))

    assert tagged.count(b'"$tag":"t"') == tagged.count(b'"$tag"') == 1
    assert leased.index(b'"lease_id":"lease_11"') < leased.index(b'"$tag":"t"')
    assert b'"lease_id":"lease_12"' in leased


def test_a_job_that_cannot_be_read_is_no_harm_to_those_beside_it() -> None:
    """Each job is read on its own, in order, with its own lease. (§10.2)"""
    run = Run()
    run.damaged[1] = Corrupt("a.seg", 512, "a block does not verify")

    found = list(one_by_one(of(run, (0, 3), inserts=INSERTS[:3])))

    assert [isinstance(each, Exception) for each in found] == [False, True, False]
    assert b"lease_11" in bytes(found[0])  # type: ignore[arg-type]
    assert b"lease_13" in bytes(found[2])  # type: ignore[arg-type]


def test_a_run_that_is_damaged_is_not_looked_at_for_each_job() -> None:
    """A long range of damaged jobs is read once."""
    run = Run()
    whole = DamagedRun(Corrupt("a.seg", 0, "damaged"), 11, 15)
    run.damaged = dict.fromkeys(range(5), whole)

    found = list(one_by_one(of(run, (0, 5), inserts=INSERTS)))

    assert found == [whole] * 5
    assert run.reads == 1
