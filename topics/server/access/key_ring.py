"""The keys in force: from a token to its `Caller`.

Owns the digests of the keys, and which of them came and went when they are read again.  Refuses to
know where a token comes from, and never holds one.

A token is looked up by its digest.  The time that takes says nothing about a key: what is compared
is a digest, of which nobody can choose the first bytes, under a hash with a secret of its own for
each process (SipHash), and the last comparison takes as long whatever it finds.
"""

from collections.abc import Container, Iterable
from hashlib import sha256
from hmac import compare_digest
from typing import Final

import msgspec

from topics.protocol.model.access import Caller
from topics.server.access.keys import Entry

_NO_DIGEST: Final = bytes(32)
SHOWN_DIGITS: Final = 8
"""Of a digest, in a key's name: enough to tell keys apart, and of no use to guess one."""


class Change(msgspec.Struct, frozen=True):
    """What another set of keys changed.

    Attributes:
        revoked: Callers whose key was removed, or is another with the same secret.
    """

    added: int
    revoked: tuple[Caller, ...]


class KeyRing:
    """The callers of a server, by the digest of their secret."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._held: dict[bytes, tuple[Entry, Caller]] = {}
        self._digests: dict[Caller, bytes] = {}
        self.replace(entries)

    def __len__(self) -> int:
        return len(self._held)

    @property
    def entries(self) -> list[Entry]:
        """The keys in force."""
        return [entry for entry, _ in self._held.values()]

    def find(self, token: bytes) -> Caller | None:
        """The caller of a token; None where it is no key."""
        digest = sha256(token).digest()
        held = self._held.get(digest)
        known = _NO_DIGEST if held is None else held[0].digest
        return held[1] if compare_digest(known, digest) and held is not None else None

    def by_digest(self, digest: bytes) -> Caller | None:
        """The caller of a key that another process has found by its token; None where it is not in
        force here."""
        held = self._held.get(digest)
        return None if held is None else held[1]

    def digest_of(self, caller: Caller) -> bytes:
        """The digest of a caller's key, by which another process finds its own; empty where the key is
        gone."""
        return self._digests.get(caller, b"")

    def entry_of(self, caller: Caller) -> Entry | None:
        """The key of a caller, by which another process finds its own; None where it is gone."""
        return next((entry for entry, held in self._held.values() if held is caller), None)

    def caller_of(self, entry: Entry) -> Caller | None:
        """The caller of a key that is in force with just these rights."""
        held = self._held.get(entry.digest)
        return held[1] if held is not None and held[0] == entry else None

    def replace(self, entries: Iterable[Entry]) -> Change:
        """Put other keys in force.  One that is the same as before keeps its caller, and with it
        its streams and sessions; a secret with other rights is another key."""
        before, self._held = self._held, {}
        names = {caller.name for _, caller in before.values()}
        added = 0
        for entry in entries:
            held = before.get(entry.digest)
            if held is None or held[0] != entry:
                added += 1
                name = _name(entry.digest, names)
                names.add(name)
                held = entry, Caller(name, entry.scopes, entry.prefixes)
            self._held[entry.digest] = held
        self._digests = {caller: digest for digest, (_, caller) in self._held.items()}
        kept = {id(caller) for _, caller in self._held.values()}
        revoked = tuple(caller for _, caller in before.values() if id(caller) not in kept)
        for caller in revoked:
            caller.is_revoked = True
        return Change(added, revoked)


def _name(digest: bytes, taken: Container[str]) -> str:
    short = f"key-{digest.hex()[:SHOWN_DIGITS]}"
    return f"key-{digest.hex()}" if short in taken else short
