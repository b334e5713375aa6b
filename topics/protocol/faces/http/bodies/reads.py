"""Bodies of reads: a page, a watch session, and what a watch's `subscribe` shares with it."""

from collections.abc import Mapping
from typing import Final

import msgspec

from topics.protocol.faces.http.bodies.checks import TS_MAX, clamp, given, tag_match, u64
from topics.protocol.faces.http.bodies.types import BeginBody, DiffBody, ViewBody, WatchBody
from topics.protocol.faces.http.decoding import decode, invalid
from topics.protocol.model.commands import Begin, CreateWatch, Diff, View
from topics.protocol.model.cursor import Remembered, parse_composite
from topics.protocol.model.limits import (
    BATCH_BYTES_DEFAULT,
    BATCH_BYTES_MAX,
    FRAME_BYTES_DEFAULT,
    HEARTBEAT_MS_DEFAULT,
    HEARTBEAT_MS_MAX,
    HEARTBEAT_MS_MIN,
    LIMIT_DEFAULT,
    NODES_MAX,
    WAIT_MS_MAX,
    Limits,
)
from topics.protocol.model.records import Buffer

_DIFF: Final = msgspec.json.Decoder(DiffBody)
_WATCH: Final = msgspec.json.Decoder(WatchBody)
_LOOK: Final = 4 * NODES_MAX


def parse_diff(topic: str, body: Buffer, limits: Limits) -> Diff:
    asked = decode(_DIFF, body)
    if asked.from_seq is not None and asked.from_ts is not None:
        raise invalid("from_seq and from_ts exclude each other", "$.from_ts")
    return Diff(
        topic=topic,
        from_seq=u64(asked.from_seq, "$.from_seq"),
        from_ts=None if asked.from_ts is None else min(u64(asked.from_ts, "$.from_ts"), TS_MAX),
        limit=page_limit(asked.limit, limits),
        budget_bytes=page_budget(asked.max_batch_bytes),
        nodes=() if asked.node is None else _skipped(asked.node, limits) or (),
        match=None if asked.match is None else tag_match(asked.match, limits),
        include_tags=bool(asked.include_tags),
        include_meta=asked.include_meta is not False,
        wait_ms=min(asked.wait_ms, WAIT_MS_MAX) if asked.wait_ms else 0,
        epoch=asked.epoch,
    )


def page_limit(asked: int | None, limits: Limits) -> int:
    """Records of a page; 0 is the default."""
    most = limits.max_limit
    wanted = asked or LIMIT_DEFAULT
    return wanted if wanted < most else most


def page_budget(asked: int | None) -> int:
    """Bytes of text of a page; 0 is the default."""
    return min(asked, BATCH_BYTES_MAX) if asked else BATCH_BYTES_DEFAULT


def parse_watch(body: Buffer, limits: Limits, *, wid: str, lenient: bool) -> CreateWatch:
    asked = decode(_WATCH, body)
    if not asked.topics:
        raise invalid("expected at least one topic", "$.topics")
    topics = parse_begins(asked.topics, limits)
    beat = HEARTBEAT_MS_DEFAULT if asked.heartbeat_ms is None else asked.heartbeat_ms
    known: Remembered | None = Remembered()
    if asked.cursor is not None:
        known = parse_composite(asked.cursor, list(topics), strict=True)
    if known is None:
        # To begin elsewhere than the client believes would be a silent gap.
        raise invalid("not the id of a frame, nor a session's cursor, of these topics", "$.cursor")
    return CreateWatch(
        wid=wid,
        topics=topics,
        view=parse_view(asked, limits),
        heartbeat_ms=clamp(beat, HEARTBEAT_MS_MIN, HEARTBEAT_MS_MAX),
        lenient=lenient,
        cursors=known.positions,
    )


_NOTHING_SAID: Final = BeginBody()
_FIRST: Final = Begin()
"""What a topic that says nothing asks for: most do, and a session has hundreds."""


def parse_begins(topics: Mapping[str, BeginBody | None], limits: Limits) -> dict[str, Begin]:
    """Where to begin in each topic; a name that cannot exist is not found when the watch
    is decided."""
    if len(topics) > limits.max_watch_topics:
        raise invalid(f"{len(topics)} topics exceed {limits.max_watch_topics}", "$.topics")
    return {
        name: _FIRST
        if begin is None or begin == _NOTHING_SAID
        else parse_begin(begin, limits, f"$.topics.{name[:64]}")
        for name, begin in topics.items()
    }


def parse_begin(asked: BeginBody, limits: Limits, path: str) -> Begin:
    if asked.from_seq is not None and asked.from_ts is not None:
        raise invalid("from_seq and from_ts exclude each other", f"{path}.from_ts")
    from_ts = None if asked.from_ts is None else min(u64(asked.from_ts, path), TS_MAX)
    return Begin(
        from_seq=u64(asked.from_seq, f"{path}.from_seq"),
        from_ts=from_ts,
        tail=bool(asked.tail),
        match=tag_match(asked.match, limits, f"{path}.match"),
        nodes=_skipped(asked.node, limits, f"{path}.node"),
    )


def parse_view(asked: ViewBody, limits: Limits) -> View:
    budget = FRAME_BYTES_DEFAULT if asked.max_batch_bytes is None else asked.max_batch_bytes
    return View(
        limit=page_limit(asked.limit, limits),
        budget_bytes=min(budget or BATCH_BYTES_DEFAULT, BATCH_BYTES_MAX),
        nodes=_skipped(asked.node, limits) or (),
        match=tag_match(asked.match, limits),
        tags=bool(asked.include_tags),
        meta=given(asked.include_meta, True),
        data=given(asked.include_data, True),
        strong=asked.consistency == "strong",
    )


def _skipped(
    node: str | list[str] | None, limits: Limits, path: str = "$.node"
) -> tuple[str, ...] | None:
    """The nodes whose records a reader leaves out, each once; None where it says nothing."""
    if node is None:
        return None
    given = [node] if isinstance(node, str) else node
    # Of a long list that exceeds the bound, the first show it: a body holds tens of thousands.
    for some in (given[:_LOOK], given):
        nodes = tuple(dict.fromkeys(some))
        if len(nodes) > NODES_MAX:
            raise invalid(f"{len(given)} nodes exceed {NODES_MAX}", path)
    # A longer one wrote no record: it is left out here, as it may be as long as the body.
    return tuple(node for node in nodes if len(node) <= limits.max_node_bytes)
