"""What can go wrong, by whose fault.

The client's fault is a `Rejection`: raised in `decide` or while a request is parsed, spelled in the
`ErrorCode` table, rendered in one place.  The disk's fault is `Corrupt`, `Unusable` or
`WriteFailed`: each says where.  Our own fault is an `AssertionError` and becomes `500 internal`.
"""

import errno
from collections.abc import Mapping
from enum import Enum
from typing import Any, Final


class ErrorCode(Enum):
    """Every `error.code` of §0.6.  What HTTP answers to each is `http.statuses`'s."""

    INVALID_REQUEST = "invalid_request"
    PARTITION_REQUIRED = "partition_required"
    BATCH_TOO_LARGE = "batch_too_large"
    RECORD_TOO_LARGE = "record_too_large"
    UNAUTHORIZED = "unauthorized"
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not_found"
    TOPIC_NOT_FOUND = "topic_not_found"
    PARTITION_NOT_FOUND = "partition_not_found"
    ROUTER_NOT_FOUND = "router_not_found"
    GROUP_NOT_FOUND = "group_not_found"
    SCHEDULE_NOT_FOUND = "schedule_not_found"
    RECORD_NOT_FOUND = "record_not_found"
    JOB_NOT_FOUND = "job_not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    NOT_ACCEPTABLE = "not_acceptable"
    ROUTER_CYCLE = "router_cycle"
    TOPIC_EXISTS_INCOMPATIBLE = "topic_exists_incompatible"
    TOPIC_NOT_EMPTY = "topic_not_empty"
    GROUP_NOT_EMPTY = "group_not_empty"
    NOT_A_QUEUE = "not_a_queue"
    NO_DEAD_LETTER = "no_dead_letter"
    LEASED = "leased"
    PARTITIONED = "partitioned"
    TRIM_REFUSED = "trim_refused"
    UPGRADE_PENDING = "upgrade_pending"
    PAYLOAD_TOO_LARGE = "payload_too_large"
    UNSUPPORTED_MEDIA_TYPE = "unsupported_media_type"
    TOPIC_FULL = "topic_full"
    KEY_REQUIRED = "key_required"
    THROTTLED = "throttled"
    INTERNAL = "internal"
    NOT_READY = "not_ready"
    SHUTTING_DOWN = "shutting_down"
    NOT_LEADER = "not_leader"
    REPLICA_BEHIND = "replica_behind"

    @property
    def code(self) -> str:
        return self.value


TRY_AGAIN: Final = frozenset(
    {
        ErrorCode.THROTTLED,
        ErrorCode.NOT_READY,
        ErrorCode.SHUTTING_DOWN,
        ErrorCode.NOT_LEADER,
        ErrorCode.REPLICA_BEHIND,
    }
)
"""Refusals that pass by themselves: each says after how many seconds to ask again (§0.6)."""


class Rejection(Exception):
    """A request refused before anything changed (§0.5).

    Args:
        code: Row of the `ErrorCode` table.
        message: For people; quotes the name and the bound.
        detail: Optional structured context, rendered as `error.detail`.
        retry_after_s: Seconds for `Retry-After`; 1 for `TRY_AGAIN`, which always carry one.
        need_bytes: Room in the log for want of which it is refused.
    """

    def __init__(
        self,
        code: ErrorCode,
        message: str,
        detail: Mapping[str, Any] | None = None,
        *,
        retry_after_s: int | None = None,
        allow: tuple[str, ...] = (),
        need_bytes: int = 0,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.detail = detail
        if retry_after_s is None and code in TRY_AGAIN:
            retry_after_s = 1
        self.retry_after_s = retry_after_s
        self.allow = allow
        self.need_bytes = need_bytes


class Untimely(Rejection):
    """Records have times that their topic does not take.

    Attributes:
        earliest_ms, latest_ms: Those that it takes.
    """

    def __init__(self, message: str, earliest_ms: int, latest_ms: int) -> None:
        super().__init__(ErrorCode.INVALID_REQUEST, message)
        self.earliest_ms = earliest_ms
        self.latest_ms = latest_ms


class StoreError(Exception):
    """A fault of the disk or of the data directory; the message is one line."""


class Corrupt(StoreError):
    """Stored bytes are proven not to be what was written: never served, never skipped.

    Exit code 3 when found at start-up; `500` with `detail.reason: "corrupt"` when found in a
    payload while serving.
    """

    reason = "corrupt"
    """`detail.reason` of a refusal that it causes."""

    def __init__(self, path: str, offset: int, what: str) -> None:
        super().__init__(f"{path}: {self._verdict} at byte {offset}: {what}")
        self.path = path
        self.offset = offset
        self.what = what

    @property
    def is_proven(self) -> bool:
        """Whether the bytes were seen; otherwise they could not be read."""
        return self.reason == Corrupt.reason

    @property
    def _verdict(self) -> str:
        return "corrupt"


class CannotRead(Corrupt):
    """Stored bytes that the system does not give: a disk that fails, a permission, a sandbox.  Treated as
    damage by what reads them, since they are not there; nothing is said of what they are.

    Exit code 2 when found at start-up; `500` with `detail.reason: "read_error"` while serving.
    """

    reason = "read_error"

    def __init__(self, path: str, offset: int, error: OSError, doing: str = "") -> None:
        super().__init__(path, offset, doing + (error.strerror or str(error)))

    @property
    def _verdict(self) -> str:
        return "cannot be read"


class DamagedRun(Corrupt):
    """A run cannot be read; the damage lies somewhere in seqs [first_seq, last_seq] of its topic."""

    def __init__(self, damage: Corrupt, first_seq: int, last_seq: int) -> None:
        self._damage = damage
        super().__init__(damage.path, damage.offset, damage.what)
        self.reason = damage.reason
        self.first_seq = first_seq
        self.last_seq = last_seq

    @property
    def _verdict(self) -> str:
        return self._damage._verdict

    def refusal(self) -> Rejection:
        """The refusal of a command that met it."""
        return unreadable(self.reason, self.first_seq, self.last_seq)


def unreadable(reason: str, first_seq: int, last_seq: int) -> Rejection:
    """500; `detail` says between which seqs the damage lies, so that a reader can go around it."""
    detail = {"reason": reason, "first_seq": first_seq, "last_seq": last_seq}
    return Rejection(ErrorCode.INTERNAL, "stored records could not be read", detail)


class Unusable(StoreError):
    """The data directory cannot be used: locked, foreign, newer format, no permission (exit 2)."""

    def __init__(self, path: str, what: str) -> None:
        super().__init__(f"{path}: {what}")
        self.path = path
        self.what = what


class InUse(Unusable):
    """Another process owns the data directory (exit 2)."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "another process is using this data directory")


class ReadFailed(OSError):
    """Stored bytes could not be read now; whether they are as they were written is not known."""

    @classmethod
    def of(cls, error: OSError) -> "ReadFailed":
        return cls(error.errno, error.strerror, error.filename)


class WriteFailed(StoreError):
    """A write or sync of the log failed: nothing is retried and the log is read-only from here on."""

    def __init__(self, path: str, what: str) -> None:
        super().__init__(f"{path}: {what}")
        self.path = path
        self.what = what


_NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT)


def lacks_space(error: BaseException | None) -> bool:
    """Whether an error comes of a disk, or a quota, that has no space: it passes when there is some."""
    seen: list[BaseException] = []
    while error is not None and error not in seen:
        if isinstance(error, OSError) and error.errno in _NO_SPACE:
            return True
        seen.append(error)
        error = error.__cause__
    return False


DAMAGE: Final = frozenset({errno.EIO, errno.EBADMSG, errno.EUCLEAN, errno.ENODATA})
"""What a read fails with where the device or the file system has lost the bytes: to read them again
fails again."""


def is_damage(error: BaseException) -> bool:
    """Whether stored bytes are lost, rather than not readable now, or new ones not written."""
    if isinstance(error, ReadFailed):
        return error.errno in DAMAGE
    return isinstance(error, Corrupt)


def is_unread(error: BaseException) -> bool:
    """Whether stored bytes could not be read, rather than were read and are wrong."""
    if isinstance(error, ReadFailed):
        return True
    cause: BaseException | None = error if isinstance(error, Corrupt) else None
    while isinstance(cause, Corrupt):
        cause = cause.__cause__ or cause.__context__
    return isinstance(cause, OSError) and not isinstance(cause, FileNotFoundError)
