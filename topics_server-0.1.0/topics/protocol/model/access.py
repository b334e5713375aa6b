"""Who sends a request, and what it may do: scopes, and the beginnings of names (§0.2).

Owns the rule for one scope and the rule for one name.  Refuses to know keys, digests and headers:
where a `Caller` comes from is the shell's affair.

Invariant: a name outside a caller's prefixes is refused whether anything has that name or not, and
with the same words.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.names import quote

Scope = Literal["read", "write", "delete", "admin"]
SCOPES: Final[frozenset[Scope]] = frozenset(("read", "write", "delete", "admin"))
GONE: Final = "the key of this connection is not valid any more"


@dataclass(slots=True, eq=False)
class Caller:
    """A key, or `ANYONE` where a server has none.  Each is one object, compared by identity.

    Attributes:
        name: For logs, limits and shares; empty where there are no keys, and a client is known by
            its address only.
        prefixes: Beginnings of the names it may touch; empty: any name.
        is_revoked: The key was removed, or given other rights, while the server ran.
        streams: Event streams and WebSockets that it has open.
    """

    name: str
    scopes: frozenset[Scope] = SCOPES
    prefixes: tuple[str, ...] = ()
    is_key: bool = field(init=False)
    is_revoked: bool = field(default=False, init=False)
    streams: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.is_key = self.name != ""

    def covers(self, name: str) -> bool:
        """Whether a topic or router of this name is its affair."""
        return not self.prefixes or name.startswith(self.prefixes)

    def covers_all(self, *names: str) -> bool:
        return not self.prefixes or all(name.startswith(self.prefixes) for name in names)

    def require_scopes(self, needed: frozenset[Scope]) -> None:
        """403 for a scope that it has not."""
        if not needed <= self.scopes:
            lacking = sorted(needed - self.scopes)
            raise Rejection(
                ErrorCode.FORBIDDEN,
                f"the key lacks the scope {' and '.join(lacking)}",
                {"scopes": lacking},
            )

    def require_name(self, name: str) -> None:
        """403 for a name outside its prefixes."""
        if not self.covers(name):
            raise outside(name)

    def require_current(self) -> None:
        """401 once the key was removed."""
        if self.is_revoked:
            raise gone()

    def prefixes_within(self, prefix: str) -> Sequence[str]:
        """The beginnings of all names that begin with `prefix` and are its affair: ascending, and
        none the beginning of another, so that each name is under one of them at most."""
        if not self.prefixes:
            return (prefix,)
        found: list[str] = []
        for own in sorted(self.prefixes):
            longer = own if len(own) > len(prefix) else prefix
            is_covered = bool(found) and longer.startswith(found[-1])
            if longer.startswith(own) and longer.startswith(prefix) and not is_covered:
                found.append(longer)
        return found


ANYONE: Final = Caller("")
"""Every client of a server without keys."""


def outside(name: str) -> Rejection:
    return Rejection(ErrorCode.FORBIDDEN, f"the key may not touch {quote(name)}")


def unknown_key() -> Rejection:
    """401, and the same words for whatever is wrong with a key."""
    return Rejection(ErrorCode.UNAUTHORIZED, "expected a valid key: Authorization: Bearer KEY")


def gone() -> Rejection:
    return Rejection(ErrorCode.UNAUTHORIZED, GONE)
