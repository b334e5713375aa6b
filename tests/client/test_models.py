"""The values of the client, held against the answers that the server describes (§0.1, §8.5)."""

import json
from typing import Any

import msgspec
import pytest

from topics.client import models
from topics.protocol.faces.http.openapi import document as openapi

SCHEMAS: dict[str, Any] = json.loads(openapi.document())["components"]["schemas"]

ANSWERS: dict[type[msgspec.Struct], str] = {
    models.Acked: "Acked",
    models.Appended: "Appended",
    models.Assigned: "Assigned",
    models.Blocked: "Blocked",
    models.Claimed: "Claimed",
    models.Configured: "TopicPut",
    models.Deleted: "RecordsDeleted",
    models.Diff: "Page",
    models.Extended: "Extended",
    models.Group: "GroupState",
    models.GroupDeleted: "GroupDeleted",
    models.GroupMember: "MemberState",
    models.GroupOffset: "GroupOffset",
    models.GroupSummary: "GroupSummary",
    models.GroupsPage: "GroupList",
    models.Health: "Health",
    models.Job: "Job",
    models.LostLately: "LostLately",
    models.Nacked: "Nacked",
    models.OffsetsCommitted: "OffsetsCommitted",
    models.Purged: "Purged",
    models.QueueCounts: "QueueCounters",
    models.Ready: "Ready",
    models.Record: "TopicRecord",
    models.Router: "RouterState",
    models.RouterConfig: "RouterPut",
    models.RouterDeleted: "RouterDeleted",
    models.RouterLoss: "RouterLoss",
    models.RouterSummary: "RouterSummary",
    models.RoutersPage: "RouterList",
    models.StablePage: "StablePage",
    models.Tombstone: "Tombstone",
    models.TopicConfig: "TopicConfig",
    models.TopicDeleted: "TopicDeleted",
    models.TopicState: "TopicState",
    models.TopicSummary: "TopicSummary",
    models.TopicsPage: "TopicList",
    models.WatchPosition: "Position",
    models.WatchSession: "Session",
}
"""Each value that the client makes of an answer, by the shape that the server's document gives it."""

OF_HEADERS = {models.StablePage: {"etag"}}
"""Fields that are made of a header of the answer."""


@pytest.mark.parametrize("kind", ANSWERS, ids=lambda kind: kind.__name__)
def test_a_value_has_the_fields_of_its_answer(kind: type[msgspec.Struct]) -> None:
    """Under the same names; what the client cannot do without is in every answer. (§0.1)"""
    shape = SCHEMAS[ANSWERS[kind]]
    fields = msgspec.structs.fields(kind)

    told = shape["properties"].keys() | OF_HEADERS.get(kind, set())
    assert {f.encode_name for f in fields} <= told
    assert {f.encode_name for f in fields if f.required} <= set(shape["required"])


@pytest.mark.parametrize("kind", ANSWERS, ids=lambda kind: kind.__name__)
def test_a_field_that_is_new_is_ignored(kind: type[msgspec.Struct]) -> None:
    """An older client reads a newer server. (§0.1)"""
    assert not kind.__struct_config__.forbid_unknown_fields


def test_the_default_config_is_the_server_s() -> None:
    """What `configure_topic` fills in for a server that does not know a field is its default. (§0.10)"""
    properties = SCHEMAS["ConfigBody"]["properties"]
    known = msgspec.structs.asdict(models.TopicConfig())

    said = {name: field["default"] for name, field in properties.items() if "default" in field}
    assert {name: known[name] for name in said} == said


def test_seqs_of_an_append_are_in_its_order() -> None:
    """They are contiguous, whoever else writes. (§2)"""
    appended = models.Appended(topic="t", first_seq=7, last_seq=9, head_seq=12)

    assert (appended.count, list(appended.seqs)) == (3, [7, 8, 9])


def test_a_raw_record_is_the_text_that_was_sent() -> None:
    """Encoded again it has the server's names, and no more than what was there. (§0.4)"""
    text = b'{"$seq":1,"$ts":5,"$tag":"a","data":{"a": 1.0e2}}'
    record = msgspec.json.decode(text, type=models.RawRecord)

    assert bytes(record.data) == b'{"a": 1.0e2}'
    assert msgspec.json.encode(record) == text
