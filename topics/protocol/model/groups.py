"""Groups of consumers: who is in one, what it does now, and why it refuses something.

Values that commands, events and outcomes of groups share.  The state of a group is in `state/groups.py`, the protocol of
its members in `protocol/groups`.
"""

from enum import Enum
from typing import Any, Final

import msgspec

from topics.protocol.model.errors import ErrorCode, Rejection

NO_GENERATION: Final = -1
"""The generation of a client that is no member."""
CLASSIC: Final = "classic"
"""The kind of a group whose members assign partitions among themselves."""
GROUP_NAME_BYTES_MAX: Final = 255
COMMIT_METADATA_BYTES_MAX: Final = 4096


class GroupPhase(Enum):
    """What a group does."""

    EMPTY = "empty"
    """It has no members."""
    PREPARING = "preparing_rebalance"
    """Its members join the next generation."""
    COMPLETING = "completing_rebalance"
    """They have joined it, and wait for what its leader assigns."""
    STABLE = "stable"
    DEAD = "dead"
    """There is no such group."""


class GroupFault(Enum):
    """Why something is refused to a member of a group, or for a partition."""

    INVALID_GROUP = "invalid_group"
    INVALID_SESSION = "invalid_session"
    INVALID_FIELD = "invalid_field"
    UNKNOWN_MEMBER = "unknown_member"
    MEMBER_ID_REQUIRED = "member_id_required"
    ILLEGAL_GENERATION = "illegal_generation"
    REBALANCING = "rebalancing"
    FENCED_INSTANCE = "fenced_instance"
    INCONSISTENT_PROTOCOL = "inconsistent_protocol"
    FULL = "full"
    NO_GROUP = "no_group"
    NOT_EMPTY = "not_empty"
    NO_TOPIC = "no_topic"
    SUBSCRIBED = "subscribed"
    METADATA_TOO_LARGE = "metadata_too_large"
    TOO_MANY_OFFSETS = "too_many_offsets"


_CODES: Final = {
    GroupFault.NO_GROUP: ErrorCode.GROUP_NOT_FOUND,
    GroupFault.NOT_EMPTY: ErrorCode.GROUP_NOT_EMPTY,
}


class GroupRefusal(Rejection):
    """A refusal of a group.

    Attributes:
        fault: Why.
        member_id: The id that a new member is to join with, where that is why.
    """

    def __init__(
        self,
        fault: GroupFault,
        message: str,
        *,
        code: ErrorCode | None = None,
        detail: dict[str, Any] | None = None,
        member_id: str = "",
    ) -> None:
        super().__init__(code or _CODES.get(fault, ErrorCode.INVALID_REQUEST), message, detail)
        self.fault = fault
        self.member_id = member_id


class Membership(msgspec.Struct, frozen=True):
    """Who a client says that it is: a member, in a generation; a static one by its instance as well."""

    generation: int = NO_GENERATION
    member_id: str = ""
    instance_id: str | None = None


NO_MEMBER: Final = Membership()


class OffsetCommit(msgspec.Struct, frozen=True):
    """Records of a topic through `seq` are done with.

    Attributes:
        topic: The engine's name of a partition.
        metadata: The client's words for it.
    """

    topic: str
    seq: int
    leader_epoch: int = -1
    metadata: str = ""


class CommittedOffset(msgspec.Struct, frozen=True, array_like=True):
    """What a group has committed of a topic, by the topic's id, and when."""

    topic_id: int
    seq: int
    leader_epoch: int
    metadata: str
    ts_ms: int


class GroupMember(msgspec.Struct, frozen=True, array_like=True):
    """A member of a group, as it joined; `assignment` is what the leader gave it.

    Attributes:
        protocols: The ways of assigning that it knows, the one that it likes best first, each with its metadata.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_ms: int
    rebalance_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes = b""

    @property
    def size_bytes(self) -> int:
        """About what it takes in memory and in the log."""
        size = MEMBER_BYTES + len(self.member_id) + len(self.client_id) + len(self.assignment)
        return size + sum(len(name) + len(metadata) for name, metadata in self.protocols)

    def metadata_of(self, protocol: str) -> bytes:
        return dict(self.protocols).get(protocol, b"")


MEMBER_BYTES: Final = 400
"""What a member takes beside its texts."""


def is_group_name(name: str) -> bool:
    return 0 < len(name) <= GROUP_NAME_BYTES_MAX and len(name.encode()) <= GROUP_NAME_BYTES_MAX


def require_group_name(name: str) -> str:
    """The name, where it is one of a group.  Raises GroupRefusal."""
    if is_group_name(name):
        return name
    raise GroupRefusal(
        GroupFault.INVALID_GROUP,
        f"a group's name has 1 to {GROUP_NAME_BYTES_MAX} bytes of UTF-8",
    )
