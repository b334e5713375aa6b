"""Names of topics, routers and schedules: which strings are names, and how a path segment becomes one (§1.1, §6.1)."""

import re
from typing import Final
from urllib.parse import unquote_to_bytes

from topics.protocol.model.errors import ErrorCode, Rejection

TOPIC_PATTERN: Final = r"[A-Za-z0-9][A-Za-z0-9._:-]{0,254}"
ROUTER_PATTERN: Final = r"[A-Za-z0-9][A-Za-z0-9._:>-]{0,254}"
_TOPIC_NAME: Final = re.compile(TOPIC_PATTERN)
_ROUTER_NAME: Final = re.compile(ROUTER_PATTERN)


def is_topic_name(name: str) -> bool:
    return _TOPIC_NAME.fullmatch(name) is not None


def is_router_name(name: str) -> bool:
    """The charset of topics and `>`, so that "a->b" is a name (§6.1)."""
    return _ROUTER_NAME.fullmatch(name) is not None


def decode_segment(raw: bytes) -> str:
    """One path segment, percent-escapes decoded once; bytes that are not UTF-8 become U+FFFD,
    which no name contains."""
    return (unquote_to_bytes(raw) if b"%" in raw else raw).decode("utf-8", "replace")


def require_utf8_segment(raw: bytes) -> None:
    """Raises Rejection: 400, where any character may stand in a name, and the bytes are not UTF-8."""
    try:
        unquote_to_bytes(raw).decode()
    except UnicodeDecodeError:
        raise Rejection(ErrorCode.INVALID_REQUEST, "the name in the path is not UTF-8") from None


def require_topic_name(name: str, *, path: str | None = None) -> str:
    """The name, if it is one (400 otherwise); `path` names the body field it stood in."""
    if _TOPIC_NAME.fullmatch(name):
        return name
    where = f" - at `{path}`" if path else ""
    raise Rejection(
        ErrorCode.INVALID_REQUEST,
        f"{quote(name)} is not a topic name: 1 to 255 of A-Z a-z 0-9 . _ : -, "
        f"first a letter or digit{where}",
    )


PARTITION_MARK: Final = "#"
"""Stands in the engine's own name of a partition behind the first; no public name has it."""


DONE: Final = -(1 << 40)
"""Stands for the number of the internal topic beside a queue that has what became of its jobs; no client can say it."""
_DONE_NAME: Final = "done"


def partition_name(topic: str, index: int) -> str:
    """The engine's name of a partition, the first of which is the topic itself; or of `DONE`."""
    if index == DONE:
        return f"{topic}{PARTITION_MARK}{_DONE_NAME}"
    return f"{topic}{PARTITION_MARK}{index}" if index else topic


def partition_of(name: str) -> tuple[str, int]:
    """The topic and the partition that the engine's name of a partition says."""
    topic, _, index = name.partition(PARTITION_MARK)
    return topic, DONE if index == _DONE_NAME else int(index or 0)


def public_name(name: str) -> str:
    """The topic's name that clients know, of the engine's name of a partition."""
    return name.partition(PARTITION_MARK)[0]


def require_router_name(name: str) -> str:
    """The name, if it is one (400 otherwise)."""
    if is_router_name(name):
        return name
    raise Rejection(
        ErrorCode.INVALID_REQUEST,
        f"{quote(name)} is not a router name: 1 to 255 of A-Z a-z 0-9 . _ : - >, "
        "first a letter or digit",
    )


def is_schedule_name(name: str) -> bool:
    """The charset of topics."""
    return is_topic_name(name)


def require_schedule_name(name: str) -> str:
    """The name, if it is one (400 otherwise)."""
    if is_schedule_name(name):
        return name
    raise Rejection(
        ErrorCode.INVALID_REQUEST,
        f"{quote(name)} is not a schedule name: 1 to 255 of A-Z a-z 0-9 . _ : -, "
        "first a letter or digit",
    )


def quote(text: str) -> str:
    """A client's string as an error message may carry it: bounded, and nothing invisible."""
    shown = text if len(text) <= 64 else text[:61] + "..."
    return '"' + "".join(c if c.isprintable() else "�" for c in shown) + '"'
