"""Rules between the fields of a body: the document says of each body what the server does (§8.5)."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from protocol.harness import status_of
from topics.protocol.faces.http import websocket
from topics.protocol.faces.http.openapi import document as openapi
from topics.protocol.faces.http.openapi.operations import FIELDS, WHOLE
from topics.protocol.faces.http.records import parse_delete, parse_diff, parse_purge
from topics.protocol.faces.http.watch import parse_watch
from topics.protocol.model.errors import Rejection
from topics.protocol.model.limits import Limits

LIMITS = Limits()
COMPONENTS: dict[str, Any] = json.loads(openapi.document())["components"]

SEQ = st.none() | st.integers(0, 3)
MATCH = st.none() | st.sampled_from(["a", "a*", ["tag", "Eq", "a*"], ["tag", "Glob", "a"], 1, []])
FILTER = st.none() | st.text(st.sampled_from("a.*>"), max_size=4)
TOPIC = st.none() | st.just("t")
TOPICS = st.none() | st.sampled_from([{"t": None}, {"t": {"from_seq": 1, "from_ts": 1}}, {}])


def parsed_socket(body: bytes) -> object:
    """A `subscribe` message of these fields."""
    message = json.dumps({"op": "subscribe", **json.loads(body)}).encode()
    order = websocket.parse(message, LIMITS).order
    if isinstance(order, Rejection):
        raise order
    return order


CASES: list[tuple[str, dict[str, st.SearchStrategy[Any]], Callable[[bytes], object]]] = [
    ("DiffBody", {"from_seq": SEQ, "from_ts": SEQ, "match": MATCH},
     lambda body: parse_diff("t", body, LIMITS)),
    ("DeleteBody", {"before_seq": SEQ, "match": MATCH, "erase": st.none() | st.booleans()},
     lambda body: parse_delete("t", body)),
    ("PurgeBody", {"seq": SEQ, "keep": SEQ, "filter": FILTER, "more": st.just(1)},
     lambda body: parse_purge("t", body)),
    ("WatchBody", {"topics": TOPICS, "match": MATCH, "limit": SEQ},
     lambda body: parse_watch(body, LIMITS, wid="w", lenient=False)),
    ("SubscribeBody", {"topic": TOPIC, "topics": TOPICS, "from_seq": SEQ, "from_ts": SEQ},
     parsed_socket),
]  # fmt: skip


@pytest.mark.parametrize(("name", "fields", "parse"), CASES, ids=[case[0] for case in CASES])
def test_a_body_that_is_taken_is_allowed(
    name: str, fields: dict[str, st.SearchStrategy[Any]], parse: Callable[[bytes], object]
) -> None:
    """Null is as good as absent, a name as good as a list of it: what the server takes, the document
    allows.  Which fields exclude each other, it says in words. (§2 to §5, §7)"""
    schema = {"$ref": f"#/components/schemas/{name}", "components": COMPONENTS}
    validator = Draft202012Validator(schema)

    @given(st.fixed_dictionaries({}, optional=fields))
    def holds(body: dict[str, Any]) -> None:
        is_taken = status_of(parse, json.dumps(body).encode()) == 200
        assert validator.is_valid(body) or not is_taken

    holds()


def test_words_are_of_fields_that_there_are() -> None:
    """None is left over from a field that went; and what is said of a body names its own fields."""
    for kind, words in FIELDS.items():
        assert words.keys() == set(kind.__struct_encode_fields__), kind.__name__
    for kind, whole in WHOLE.items():
        named = set(re.findall(r"`(\w+)`", whole))
        assert named <= set(kind.__struct_encode_fields__), kind.__name__
