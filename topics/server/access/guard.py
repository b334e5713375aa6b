"""Who may come in: 401, then 403 (§0.2, §0.6).

Owns these refusals, where a token may stand, and the count of wrong ones.  It knows routes, and not
what a request means: names in bodies are checked where commands are (`protocol/model/permission.py`).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

from topics.protocol.faces.http.query import parse_query
from topics.protocol.faces.http.route import Route
from topics.protocol.model.access import ANYONE, Caller, unknown_key
from topics.protocol.model.errors import Rejection
from topics.server.access.failures import Failures
from topics.server.access.key_ring import Change, KeyRing
from topics.server.access.keys import BadKeys, Entry, KeySource

log = logging.getLogger("topics.access")

InThread = Callable[[Callable[[], list[Entry]]], Awaitable[list[Entry]]]

SCHEME: Final = b"bearer"


class Credentials(Protocol):
    """What of a request's head tells who sent it."""

    @property
    def client(self) -> str:
        """The address it came from."""

    @property
    def query(self) -> bytes: ...

    @property
    def headers(self) -> Sequence[tuple[bytes, bytes]]: ...


class Guard:
    """Keys of one server.  Reads its file; raises BadKeys.

    Args:
        asks_at_probes: Whether health and readiness want a key too (`TOPICS_PROBE_AUTH`).
    """

    def __init__(self, source: KeySource, *, asks_at_probes: bool = False) -> None:
        self._source = source
        self._asks_at_probes = asks_at_probes
        self.keys = KeyRing(source.read())
        self.failures = Failures()
        self._reading = asyncio.Lock()

    # ------------------------------------------------------------------ requests

    def admit(self, route: Route, name: str, head: Credentials) -> Caller:
        """Who sent a request, which is asked for every one: keys may have changed since the last.

        Raises:
            Rejection: 401 without a valid key; 403 for a scope that the key lacks, then for a name in
                the path that it may not touch.
        """
        if route.guard == "open" or (route.guard == "probe" and not self._asks_at_probes):
            return ANYONE
        caller = self.require_key(head, takes_token=route.takes_token)
        caller.require_scopes(route.scopes)
        if route.has_name:
            caller.require_name(name)
        return caller

    def require_key(self, head: Credentials, *, takes_token: bool = False) -> Caller:
        """The caller of a request's key.  For a path that is no route nothing else is asked, and
        nothing is said about it without one.

        Raises:
            Rejection: 401, in the same words for whatever is no key.
        """
        token = _token(head, takes_token=takes_token)
        if token is not None:
            caller = self.keys.find(token)
            if caller is not None:
                return caller
            self.failures.note(head.client)
        raise unknown_key()

    # ------------------------------------------------------------------ other keys

    def replace(self, entries: list[Entry], revoke: Callable[[Caller], None]) -> Change:
        """Put other keys in force; `revoke` is as `reload` has it, and where it fails for one key, the
        others lose what they have open all the same."""
        change = self.keys.replace(entries)
        for caller in change.revoked:
            try:
                revoke(caller)
            except Exception:
                log.exception("what a key that is gone has open could not be ended")
        return change

    @property
    def has_file(self) -> bool:
        """Whether there is anything that `reload` may find changed."""
        return self._source.path is not None

    async def reload(self, in_thread: InThread, revoke: Callable[[Caller], None]) -> None:
        """Read the keys file again; the keys in force stay where that cannot be used.

        Args:
            revoke: Called for each caller whose key is not in force any more.
        """
        if not self.has_file:
            log.info("SIGHUP: there is no keys file to read again; settings stay")
            return
        # One after the other, so that what was read last is what holds.
        async with self._reading:
            try:
                entries = await in_thread(self._source.read)
            except BadKeys as refusal:
                log.error("SIGHUP: %s; the keys in force stay", refusal)
                return
            change = self.replace(entries, revoke)
        log.info(
            "SIGHUP: %d API keys, of which %d are new; %d are gone",
            len(self.keys),
            change.added,
            len(change.revoked),
        )


def credentials(headers: Sequence[tuple[bytes, bytes]]) -> bytes | None:
    """What a request has as `Authorization`; several lines of that are one list (RFC 9110 §5.3)."""
    found: bytes | None = None
    for name, value in headers:
        if name == b"authorization":
            found = value if found is None else found + b", " + value
    return found


def _token(head: Credentials, *, takes_token: bool) -> bytes | None:
    """What a request gives as its key; None where it gives none.  The header counts where both are
    there, and two headers are one with a comma, which no key has."""
    value = credentials(head.headers)
    if value is not None:
        scheme, _, token = value.strip().partition(b" ")
        return token.strip() if scheme.lower() == SCHEME else b""
    if not takes_token:
        return None
    try:
        given = parse_query(head.query).get("token")
    except Rejection:
        return None
    return None if given is None else given.encode("utf-8", "surrogateescape")
