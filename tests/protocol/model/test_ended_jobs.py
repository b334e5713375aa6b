"""What is kept of a job that ended: its form, and what of a queue's config says how long (§10.9)."""

import msgspec
import pytest

from topics.protocol.model.config import TopicConfig
from topics.protocol.model.ended_jobs import (
    EndedJob,
    Known,
    Letter,
    Reason,
    cut_text,
    encode_ended,
    ended_config,
    keeps_ended,
    reasons_of,
    stamps_of,
    text_of,
)
from topics.protocol.model.events import JobNotes, JobReason

NOTES = JobNotes((JobReason(5, "w", "no"), JobReason(6, "v", "net")), b'{"at":1}')


def test_what_has_nothing_to_say_is_left_out() -> None:
    assert encode_ended(7, "done", 1, None, Known()) == b'{"seq":7,"state":"done","deliveries":1}'
    data = encode_ended(7, "done", 1, JobNotes(), Known(), result=b"null")
    assert data.endswith(b'"result":null}')


def test_it_comes_back_as_it_went() -> None:
    known = Known("t", "g", -5)
    data = encode_ended(7, "dead", 3, NOTES, known, letter=Letter("d", 4))
    found = msgspec.json.decode(data, type=EndedJob)
    assert (found.seq, found.state, found.deliveries) == (7, "dead", 3)
    assert Known(found.tag, found.group, found.priority) == known
    assert found.reasons == (Reason(5, "w", "no"), Reason(6, "v", "net")) == reasons_of(NOTES)
    assert (text_of(found.progress), text_of(found.result)) == (b'{"at":1}', None)
    assert found.dead_letter == Letter("d", 4)


def test_a_letter_says_the_last_reason_and_those_that_fit() -> None:
    assert stamps_of(None) == stamps_of(JobNotes(progress=b"1")) == {}
    assert stamps_of(NOTES)["$dead_letter_reason"] == b'"net"'
    large = JobNotes(tuple(JobReason(n, "w", "\1" * 1000) for n in range(3)))
    assert stamps_of(large)["$dead_letter_errors"].count(b'"time"') == 1


@pytest.mark.parametrize(
    ("config", "keeps", "ttl_ms", "records"),
    [
        ({}, False, 3_600_000, 1000),
        ({"keep_done": 5}, True, 3_600_000, 5),
        ({"result_ttl_ms": 9}, True, 9, 1000),
        ({"keep_done": 0}, False, 3_600_000, 1),
    ],
)
def test_what_a_queue_keeps(config: dict[str, int], keeps: bool, ttl_ms: int, records: int) -> None:
    made = TopicConfig(type="queue", durability="fsync", durable=True, **config)  # type: ignore[arg-type]
    found = ended_config(made)
    assert keeps_ended(made) is keeps
    assert (found.ttl_ms, found.cap_records, found.type) == (ttl_ms, records, "log")
    assert (found.durability, found.durable) == ("fsync", True)


def test_a_text_is_cut_at_a_character() -> None:
    assert cut_text("é" * 3, 5) == "éé"
    assert cut_text("é" * 3, 6) == "ééé"
    assert cut_text("ab", 100) == "ab"
