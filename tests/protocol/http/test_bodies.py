"""Bodies into commands: what survives the parse, and which 400 names what (§0.6, §2, §3)."""

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.harness import refusal, status_of
from topics.protocol.http import bodies
from topics.protocol.model.commands import Append, Begin
from topics.protocol.model.config import TopicConfig
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.limits import Limits

LIMITS = Limits()
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def append(body: bytes, limits: Limits = LIMITS, key: str | None = None) -> Append:
    return bodies.parse_append("t", body, limits, return_seqs=True, header_key=key)


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


@given(st.binary(max_size=60))
def test_no_body_raises_anything_but_a_refusal(body: bytes) -> None:
    """Nothing a client sends is our fault. (§0.6)"""
    for parse in (
        lambda: append(body),
        lambda: bodies.parse_put("t", body),
        lambda: bodies.parse_diff("t", body, LIMITS),
        lambda: bodies.parse_delete("t", body),
        lambda: bodies.parse_purge("t", body),
    ):
        assert status_of(parse) in (200, 400)


@given(JSON)
def test_no_json_raises_anything_but_a_refusal(value: Any) -> None:
    """In every field of every body. (§0.6)"""
    try:
        text = json.dumps(value).encode()
    except UnicodeEncodeError:
        return
    fields = ("records", "node", "config", "from_seq", "match", "before_seq", "filter", "ttl_ms")
    for field in fields:
        for parse in (
            lambda b: append(b),
            lambda b: bodies.parse_put("t", b),
            lambda b: bodies.parse_diff("t", b, LIMITS),
            lambda b: bodies.parse_delete("t", b),
            lambda b: bodies.parse_purge("t", b),
        ):
            assert status_of(parse, b'{"%b":%b}' % (field.encode(), text)) in (200, 400)


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


CLAMPS: list[tuple[str, int, int]] = [
    ("limit", 0, 256), ("limit", 1, 1), ("limit", 1000, 1000), ("limit", 1001, 1000),
    ("wait_ms", 30_000, 30_000), ("wait_ms", 30_001, 30_000), ("wait_ms", 10**30, 30_000),
    ("max_batch_bytes", 0, 1 << 20), ("max_batch_bytes", 1, 1),
    ("max_batch_bytes", 8 << 20, 8 << 20), ("max_batch_bytes", (8 << 20) + 1, 8 << 20),
]  # fmt: skip


@pytest.mark.parametrize(("field", "given", "kept"), CLAMPS)
def test_bounds_of_a_read_are_clamped(field: str, given: int, kept: int) -> None:
    """Over the maximum is the maximum; zero is the default. (§3)"""
    command = bodies.parse_diff("t", json.dumps({field: given}).encode(), LIMITS)
    found = {
        "limit": command.limit, "wait_ms": command.wait_ms, "max_batch_bytes": command.budget_bytes,
    }  # fmt: skip
    assert found[field] == kept


def test_the_default_limit_is_not_above_the_greatest() -> None:
    """A server that allows seven gives seven. (§3)"""
    assert bodies.parse_diff("t", b"{}", Limits(max_limit=7)).limit == 7


@pytest.mark.parametrize("value", [0, 2**53 - 1, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1])
def test_numbers_are_exact_up_to_the_last(value: int) -> None:
    """A u64, and no float on the way. (§0.3)"""
    text = b'{"from_seq":%d}' % value
    assert bodies.parse_diff("t", text, LIMITS).from_seq == value
    delete = bodies.parse_delete("t", b'{"before_seq":%d}' % value)
    assert delete.before_seq == value
    assert bodies.parse_put("t", b'{"ttl_ms":%d}' % value).config.ttl_ms == value


@pytest.mark.parametrize("value", ["18446744073709551616", "1e3", "1.0", "-0.0", "-1", '"1"'])
def test_other_numbers_are_refused(value: str) -> None:
    """Past the end, fractional, negative, text. (§0.6)"""
    for field, parse in (
        ("from_seq", lambda b: bodies.parse_diff("t", b, LIMITS)),
        ("before_seq", lambda b: bodies.parse_delete("t", b)),
        ("keep", lambda b: bodies.parse_purge("t", b)),
        ("cap_records", lambda b: bodies.parse_put("t", b)),
    ):
        rejection = refusal(parse, f'{{"{field}":{value}}}'.encode())
        assert field in rejection.message


def test_an_empty_config_is_the_default() -> None:
    """`type_given` tells a PUT that keeps the type from one that sets it. (§1.1)"""
    command = bodies.parse_put("t", b"{}")
    assert (command.config, command.type_given) == (TopicConfig(), False)
    assert bodies.parse_put("t", b'{"type":"log"}').type_given is True


@pytest.mark.parametrize("given", [2**64, 10**30])
def test_what_is_clamped_has_no_bound_of_its_own(given: int) -> None:
    """A lease and a window that no integer of ours holds are the longest there are. (§0.10)"""
    body = json.dumps({"lease_ms": given, "claim_jitter_ms": given}).encode()
    config = bodies.parse_put("t", body).config
    assert (config.lease_ms, config.claim_jitter_ms) == (86_400_000, 5000)


def test_a_topic_without_options_may_be_null() -> None:
    """Which is as good as leaving them out. (§0.3, §7.2)"""
    body = b'{"topics":{"a":null,"b":{}}}'
    topics = bodies.parse_watch(body, LIMITS, wid="w", lenient=False).topics
    assert topics == {"a": Begin(), "b": Begin()}


def test_a_message_is_bounded() -> None:
    """A long string or number of the client's does not come back at length. (§0.5)"""
    for body in (b'{"filter":"%b*"}' % (b"x" * 10_000), b'{"seq":%b}' % (b"9" * 10_000)):
        assert len(refusal(bodies.parse_purge, "t", body).message) < 500


def test_a_large_batch_is_counted_while_it_is_decoded() -> None:
    """Past the limit nothing more is looked at: what is wrong behind it is never reached. (§2)"""
    limits = Limits(max_batch_records=5000)
    record = b'{"data":"' + b"x" * 60 + b'"},'
    full = b'{"records":[' + record * 4999 + b'{"data":1}]}'
    over = b'{"records":[' + record * 5000 + b'{"data":1},not json'

    batch = bodies.parse_append("t", full, limits, return_seqs=True, header_key=None)
    with pytest.raises(Rejection) as refused:
        bodies.parse_append("t", over, limits, return_seqs=True, header_key=None)

    assert len(batch.datas) == 5000
    assert refused.value.code is ErrorCode.BATCH_TOO_LARGE


@pytest.mark.parametrize("path", ["$.node", "$.topics.t.node"])
def test_a_reader_leaves_out_a_bounded_number_of_nodes(path: str) -> None:
    """64, each counted once: they are compared at every publication.  Longer ones than a node can be
    are not kept. (§7.2)"""
    inner = path.startswith("$.topics")

    def watch(nodes: object) -> bodies.CreateWatch:
        one = {"node": nodes}
        body = {"topics": {"t": one}} if inner else {"topics": {"t": {}}, **one}
        return bodies.parse_watch(json.dumps(body).encode(), Limits(), wid="w", lenient=False)

    nodes = [f"n{i}" for i in range(64)]
    made = watch([*nodes, "n0", "n1"])
    kept = made.topics["t"].nodes if inner else made.view.nodes
    assert kept == tuple(nodes)
    made = watch(["x" * 129, "x" * 128])
    kept = made.topics["t"].nodes if inner else made.view.nodes
    assert kept == ("x" * 128,)
    with pytest.raises(Rejection, match="65 nodes exceed 64") as refused:
        watch([*nodes, "more"])
    assert path in refused.value.message


def test_a_diff_leaves_out_a_bounded_number_of_nodes() -> None:
    """As a watch. (§3)"""
    with pytest.raises(Rejection, match="exceed 64"):
        bodies.parse_diff("t", json.dumps({"node": [str(i) for i in range(65)]}).encode(), Limits())
