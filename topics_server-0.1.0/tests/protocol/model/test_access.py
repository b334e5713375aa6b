"""What a caller may do: scopes, and beginnings of names (§0.2)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.harness import refusal, status_of
from topics.protocol.model.access import ANYONE, SCOPES, Caller
from topics.protocol.model.errors import ErrorCode

NAMES = st.text("ab:.", max_size=4)


def test_without_keys_anyone_may_do_anything() -> None:
    """It is every client of an open server, and has no name. (§0.2)"""
    ANYONE.require_scopes(SCOPES)
    ANYONE.require_name("anything")
    ANYONE.require_current()

    assert not ANYONE.is_key
    assert ANYONE.prefixes_within("x") == ("x",)


def test_a_scope_that_is_lacking_is_named() -> None:
    """403 says which, of all that are needed. (§0.2)"""
    reader = Caller("k", frozenset({"read"}))

    lacking = refusal(reader.require_scopes, frozenset({"read", "write", "admin"}))

    assert lacking.code is ErrorCode.FORBIDDEN
    assert lacking.detail == {"scopes": ["admin", "write"]}
    assert status_of(reader.require_scopes, frozenset({"read"})) == 200


@pytest.mark.parametrize(
    ("name", "is_inside"),
    [
        ("tenant42:", True),
        ("tenant42:jobs", True),
        ("shared.x", True),
        ("tenant4", False),
        ("tenant42", False),
        ("Tenant42:jobs", False),
        ("xtenant42:jobs", False),
        ("", False),
    ],
)
def test_a_prefix_is_bytes_at_the_beginning(name: str, is_inside: bool) -> None:
    """A near miss is outside. (§0.2)"""
    caller = Caller("k", prefixes=("tenant42:", "shared."))

    assert caller.covers(name) is is_inside
    assert status_of(caller.require_name, name) == (200 if is_inside else 403)
    assert caller.covers_all("shared.x", name) is is_inside


def test_a_removed_key_is_401() -> None:
    """Whatever it may do. (§0.2)"""
    caller = Caller("k")
    caller.is_revoked = True

    assert refusal(caller.require_current).code is ErrorCode.UNAUTHORIZED


@given(st.lists(NAMES.filter(bool), min_size=1, max_size=5), NAMES, st.lists(NAMES))
def test_lists_are_cut_to_what_is_inside(prefixes: list[str], asked: str, names: list[str]) -> None:
    """A name is under one of the prefixes if it begins as asked and is inside, and under none else;
    they ascend, so that a list over them does. (§0.2)"""
    caller = Caller("k", prefixes=tuple(prefixes))
    within = caller.prefixes_within(asked)

    assert list(within) == sorted(within)
    for name in names:
        found = [prefix for prefix in within if name.startswith(prefix)]
        assert len(found) == (name.startswith(asked) and caller.covers(name))
