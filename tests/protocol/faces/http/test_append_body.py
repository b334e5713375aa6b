"""The body of an append (§2)."""

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.protocol.faces.http.append_body import parse_append
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.limits import KEY_CHARS_MAX, Limits

from .texts import JSON, append

LIMITS = Limits()


@given(st.lists(JSON, min_size=1, max_size=5), st.booleans(), st.sampled_from([None, 0, 2]))
def test_data_and_meta_are_kept_as_they_came(
    values: list[Any], ascii_only: bool, indent: int | None
) -> None:
    """The bytes between the tokens of the envelope, whatever their layout. (§0.3)"""

    def dumps(value: Any) -> bytes:
        return json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode()

    try:
        texts = [dumps(value) for value in values]
    except UnicodeEncodeError:
        return
    items = [b'{"data":%b,"meta":{"m": %b}}' % (text, text) for text in texts]
    command = append(b' {"records" : [%b] }' % b", ".join(items))

    assert [bytes(d) for d in command.datas] == texts
    assert command.metas is not None
    assert [bytes(m) for m in command.metas if m is not None] == [b'{"m": %b}' % t for t in texts]


def test_nodes_of_a_batch() -> None:
    """One for all where no record has its own; else one each. (§2)"""
    one, own = {"data": 1}, {"data": 1, "node": "own"}
    for records, node, expected in (
        ([one, one], None, None),
        ([one, one], "all", "all"),
        ([one, own], "all", ["all", "own"]),
        ([one, own], None, [None, "own"]),
    ):
        command = append(orjson.dumps({"records": records, "node": node}))
        assert command.nodes == expected


def test_tags_and_metas_are_none_where_no_record_has_one() -> None:
    """So that a batch without them costs nothing for them. (§2)"""
    plain = append(b'{"records":[{"data":1},{"data":2,"meta":null,"tag":null}]}')
    assert (plain.tags, plain.metas) == (None, None)
    mixed = append(b'{"records":[{"data":1,"tag":"a"},{"data":2,"meta":{}}]}')
    assert mixed.tags == ["a", None]
    assert mixed.metas == [None, b"{}"]


def test_keys() -> None:
    """A digest of 16 bytes; the body's goes before the header's; none is none. (§0.8)"""
    plain, keyed = b'{"records":[{"data":1}]}', b'{"records":[{"data":1}],"idempotency_key":"b"}'

    assert append(plain).key == b""
    assert len(append(keyed).key) == 16
    assert append(keyed, key="h").key == append(keyed).key == append(plain, key="b").key
    assert append(plain, key="h").key != append(keyed).key


def test_a_large_batch_is_counted_while_it_is_decoded() -> None:
    """Past the limit nothing more is looked at: what is wrong behind it is never reached. (§2)"""
    limits = Limits(max_batch_records=5000)
    record = b'{"data":"' + b"x" * 60 + b'"},'
    full = b'{"records":[' + record * 4999 + b'{"data":1}]}'
    over = b'{"records":[' + record * 5000 + b'{"data":1},not json'

    batch = parse_append("t", full, limits, return_seqs=True, header_key=None)
    with pytest.raises(Rejection) as refused:
        parse_append("t", over, limits, return_seqs=True, header_key=None)

    assert len(batch.datas) == 5000
    assert refused.value.code is ErrorCode.BATCH_TOO_LARGE


MANY_KEYS = json.dumps([{"data": 1, "meta": dict.fromkeys(map(str, range(65)), 1)}])


@pytest.mark.parametrize(
    ("records", "limits", "code"),
    [
        (
            '[{"data":1},{"data":2},{"data":3}]',
            Limits(max_batch_records=2),
            ErrorCode.BATCH_TOO_LARGE,
        ),
        (
            '[{"data":1},{"data":"1234567890"}]',
            Limits(max_record_bytes=10),
            ErrorCode.RECORD_TOO_LARGE,
        ),
        ("[]", LIMITS, ErrorCode.INVALID_REQUEST),
        ('[{"data":1,"meta":[]}]', LIMITS, ErrorCode.INVALID_REQUEST),
        ('[{"data":1,"meta":{"k":"123"}}]', Limits(max_meta_bytes=10), ErrorCode.INVALID_REQUEST),
        (
            MANY_KEYS,
            LIMITS,
            ErrorCode.INVALID_REQUEST,
        ),
    ],
    ids=["records", "record", "none", "no object", "meta", "keys of meta"],
)
def test_what_is_over_a_limit_is_refused(records: str, limits: Limits, code: ErrorCode) -> None:
    """Records of a batch, bytes of a record and of its meta, keys of meta. (§2, §11)"""
    with pytest.raises(Rejection) as refused:
        append(b'{"records":%b}' % records.encode(), limits)
    assert refused.value.code is code


def test_keys_that_a_server_adds_count_in_no_limit() -> None:
    """What it wrote can be appended again: of its keys, sixteen and 2 KiB are free, in a record's limits
    too, and the reasons and the group of a dead letter as long as they may be. (§2, 140)"""
    small = Limits(max_meta_bytes=21, max_record_bytes=25)
    own, added = b'"k":"0123456789abc"', b'"$deliveries":3,"_topics_spark":{"a":1}'
    bodies = {
        b'{"data":1,"meta":{%b}}' % own: True,
        b'{"data":1,"meta":{%b,%b}}' % (added, own): True,
        b'{"data":1234,"meta":{%b,%b}}' % (own, added): True,
        b'{"data":123456,"meta":{%b,%b}}' % (own, added): False,
        b'{"data":1,"meta":{%b,"x":1}}' % own: False,
        b'{"data":1,"meta":{"$a":"%b"}}' % (b"x" * 2040): True,
        b'{"data":1,"meta":{"$a":"%b"}}' % (b"x" * 2080): False,
        b'{"data":1,"meta":{"$dead_letter_errors":"%b","$a":"%b"}}'
        % (b"x" * 15_330, b"x" * 2030): True,
        b'{"data":1,"meta":{"$dead_letter_errors":"%b"}}' % (b"x" * 15_400): False,
        b'{"data":1,"meta":{"a$":"%b"}}' % (b"x" * 40): False,
        b'{"data":"%b"}' % (b"x" * 30): False,
    }
    for record, is_taken in bodies.items():
        if is_taken:
            assert append(b'{"records":[{"data":1},%b]}' % record, small).metas is not None
        else:
            with pytest.raises(Rejection):
                append(b'{"records":[{"data":1},%b]}' % record, small)

    def keys(own: int, added: int) -> bytes:
        names = [*map(str, range(own)), *(f"${n}" for n in range(added))]
        return b'{"records":[{"data":1,"meta":%b}]}' % json.dumps(dict.fromkeys(names, 1)).encode()

    assert append(keys(64, 16)).metas is not None
    assert append(keys(0, 80)).metas is not None
    for body in (keys(65, 1), keys(64, 17)):
        with pytest.raises(Rejection, match="more than 64 keys"):
            append(body)


def test_meta_has_as_many_keys_as_it_may() -> None:
    """Colons in strings are no keys. (§2)"""
    meta = b'{"k":"%b"}' % (b":" * 100)
    assert append(b'{"records":[{"data":1,"meta":%b}]}' % meta).metas == [meta]


@pytest.mark.parametrize("where", ["body", "header"])
def test_a_key_is_no_longer_than_it_may_be(where: str) -> None:
    """Wherever it stands. (§0.8)"""
    key = "k" * (KEY_CHARS_MAX + 1)
    field = f',"idempotency_key":"{key}"' if where == "body" else ""
    body = b'{"records":[{"data":1}]%b}' % field.encode()
    with pytest.raises(Rejection, match=f"exceeds {KEY_CHARS_MAX}"):
        append(body, LIMITS, key if where == "header" else None)


@pytest.mark.parametrize("member", ["data", "meta"])
@pytest.mark.parametrize("count", [1, 2])
def test_a_value_has_at_most_a_thousand_levels(member: str, count: int) -> None:
    """One more is refused, and the message names the record; with whatever stack is left. (§0.3)"""

    def body(levels: int) -> bytes:
        deep = b'{"a":' * levels + b"1" + b"}" * levels
        first = b'{"data":1},' * (count - 1)
        return b'{"records":[%b{"data":2,"%b":%b}]}' % (first, member.encode(), deep)

    assert len(append(body(1000)).datas) == count
    with pytest.raises(Rejection) as refused:
        append(body(1001))
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    where = f"$.records[{count - 1}].{member}"
    assert refused.value.message == f"nested more than 1000 levels deep - at `{where}`"
