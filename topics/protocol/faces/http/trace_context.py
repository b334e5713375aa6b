"""The trace of an append, kept in the meta of its records (W3C Trace Context; `TOPICS_TRACE_META`).

A consumer that reads a record finds there which request wrote it, and can go on with its trace.
"""

import re
from typing import Final

import msgspec

from topics.protocol.model.commands import Append
from topics.protocol.model.limits import META_KEYS_MAX, Limits
from topics.protocol.model.render import JsonText

TRACEPARENT: Final = re.compile(
    rb"[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
)
"""W3C Trace Context, §3.2, version 00."""


def meta_with(meta: bytes | None, traceparent: bytes) -> bytes:
    """A record's meta with the trace that its append was a part of.

    Args:
        meta: A JSON object, or None.
        traceparent: A value that matches `TRACEPARENT`.

    Returns:
        The object with a first member `traceparent`; as it came where it has one already.
    """
    member = b'"traceparent":"%b"' % traceparent
    if meta is None:
        return b"{%b}" % member
    inner = meta.strip()[1:-1].strip()
    if not inner:
        return b"{%b}" % member
    if b'"traceparent"' in inner:
        return meta
    return b"{%b,%b}" % (member, inner)


def traced(command: Append, traceparent: bytes | None, limits: Limits) -> Append:
    """An append whose records name the trace that they are a part of (`TOPICS_TRACE_META`).

    A header that is no `traceparent` is left out, and so is the trace of a record whose meta has no
    room for it: a record is never refused for what the server adds.
    """
    if traceparent is None or TRACEPARENT.fullmatch(traceparent) is None:
        return command
    metas: list[JsonText | None] = []
    for i, data in enumerate(command.datas):
        meta = None if command.metas is None else command.metas[i]
        longer = meta_with(None if meta is None else bytes(meta), traceparent)
        has_room = (
            len(longer) <= limits.max_meta_bytes
            and len(longer) + len(data) <= limits.max_record_bytes
            and longer.count(b":") <= META_KEYS_MAX
        )
        metas.append(longer if has_room else meta)
    return msgspec.structs.replace(command, metas=metas)
