"""From a token to its caller, and other keys while the server runs (§0.2)."""

import hashlib

import pytest

from topics.protocol.model.access import SCOPES
from topics.server.access.key_ring import KeyRing
from topics.server.access.keys import Entry


def entry(secret: str, *scopes: str, prefixes: tuple[str, ...] = ()) -> Entry:
    digest = hashlib.sha256(secret.encode()).digest()
    return Entry(digest, frozenset(scopes) or SCOPES, prefixes)  # type: ignore[arg-type]


def test_a_token_is_found_by_its_digest() -> None:
    """With the rights of its entry, and a name that tells keys apart and is not the secret. (§0.2)"""
    ring = KeyRing([entry("a", "read", prefixes=("in.",)), entry("b")])
    caller, other = ring.find(b"a"), ring.find(b"b")

    assert caller is not None
    assert other is not None
    assert (caller.scopes, caller.prefixes) == ({"read"}, ("in.",))
    assert caller.name == "key-" + hashlib.sha256(b"a").hexdigest()[:8]
    assert caller.name != other.name
    assert ring.find(b"a") is caller


@pytest.mark.parametrize(
    "token",
    [b"", b"A", b"aa", b"a ", b"\xff" * 40_000, hashlib.sha256(b"a").digest(),
     hashlib.sha256(b"a").hexdigest().encode(), b"sha256=" + hashlib.sha256(b"a").hexdigest().encode()],
)  # fmt: skip
def test_anything_else_is_no_key(token: bytes) -> None:
    """Neither a near miss nor the digest itself. (§0.2)"""
    assert KeyRing([entry("a")]).find(token) is None


def test_an_unchanged_key_keeps_its_caller() -> None:
    """And with it its sessions and streams. (§7.1)"""
    ring = KeyRing([entry("a"), entry("b")])
    before = ring.find(b"a")

    change = ring.replace([entry("c"), entry("a")])

    assert ring.find(b"a") is before
    assert before is not None
    assert not before.is_revoked
    assert change.added == 1
    assert [caller.is_revoked for caller in change.revoked] == [True]
    assert ring.find(b"b") is None
    assert len(ring) == 2


@pytest.mark.parametrize("other", [entry("a", "read"), entry("a", prefixes=("in.",))])
def test_a_secret_with_other_rights_is_another_key(other: Entry) -> None:
    """What the old one has open may exceed them. (§7.1)"""
    ring = KeyRing([entry("a")])
    before = ring.find(b"a")

    change = ring.replace([other])

    assert change.revoked == (before,)
    assert change.added == 1
    after = ring.find(b"a")
    assert after is not None
    assert after is not before
    assert not after.is_revoked


def test_names_of_keys_are_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two digests that begin alike have longer names. (§0.2)"""
    alike = [Entry(b"\1\2\3\4" + bytes([last]) * 28, SCOPES, ()) for last in (0, 1)]
    ring = KeyRing(alike)

    names = {caller.name for caller in ring.replace([]).revoked}

    assert len(names) == 2


def test_a_caller_is_found_by_its_key_in_another_ring() -> None:
    """Each process has callers of its own for the same keys, with the same rights. (§0.2)"""
    ours, theirs = KeyRing([entry("a", "read"), entry("b")]), KeyRing([entry("a", "read")])
    caller, other = ours.find(b"a"), ours.find(b"b")
    assert caller is not None
    assert other is not None
    known, gone = ours.entry_of(caller), ours.entry_of(other)
    assert known is not None
    assert gone is not None

    assert theirs.caller_of(known) is theirs.find(b"a")
    assert theirs.caller_of(gone) is None
    assert KeyRing([entry("a", "write")]).caller_of(known) is None
    ours.replace([])
    assert ours.entry_of(caller) is None
