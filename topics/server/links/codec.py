"""Commands, outcomes and frames as bytes, on their way between two processes of one server or cluster.

Owns the forms: a head in msgpack, a map by the names of the fields, and beside it what is long, the text
of records.  So a kind of command that is new travels without a line here, a field that only one side
knows is left out or has its default, and text is neither escaped nor parsed.

Who asks travels apart from the command (`messages.Asker`); what is decoded here has no caller yet.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import accumulate, pairwise
from typing import Any, Final, NamedTuple, get_type_hints

import msgspec

from topics.protocol.driver.streams import (
    CaughtUpFrame,
    DeletedFrame,
    Frame,
    RecordFrame,
    Tombstone,
    TombstoneFrame,
)
from topics.protocol.model import outcomes
from topics.protocol.model.commands import FACTS, Append, Command
from topics.protocol.model.config import TopicConfig
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.job_options import JobRequest
from topics.protocol.model.marks import Mark
from topics.protocol.model.outcomes import (
    Grant,
    Granted,
    Jobs,
    Latest,
    Outcome,
    Page,
    Records,
    StablePage,
)
from topics.protocol.model.records import Buffer
from topics.server.service.frames import Found, FrameText, Unreadable

_encode: Final = msgspec.msgpack.Encoder().encode
_APART: Final = frozenset(("caller", "holder", "records", "jobs"))
"""Fields that travel apart from the head, or are made anew where it arrives."""
_DEFAULT: Final = TopicConfig()
NO_RECORDS: Final = Records(())


class _Form(NamedTuple):
    """How a kind of struct travels: as it is, where none of its fields travels apart, or as a kind without
    those.

    Attributes:
        wire: Makes that; None where the struct travels as it is.
    """

    names: tuple[str, ...]
    wire: Callable[..., msgspec.Struct] | None
    decode: Callable[[bytes], Any]


@cache
def _form_of(kind: Any) -> _Form:
    every = msgspec.structs.fields(kind)
    fields = [each for each in every if each.name not in _APART]
    if len(fields) == len(every):
        return _Form((), None, msgspec.msgpack.Decoder(kind).decode)
    hints = get_type_hints(kind)
    typed = [_field(each, hints[each.name]) for each in fields]
    wire = msgspec.defstruct(
        kind.__name__, typed, kw_only=True, frozen=True, omit_defaults=True, gc=False
    )
    names = tuple(each.name for each in fields)
    return _Form(names, wire, msgspec.msgpack.Decoder(wire).decode)


def _field(field: Any, hint: Any) -> Any:
    if field.default is not msgspec.NODEFAULT:
        return field.name, hint, field.default
    if field.default_factory is not msgspec.NODEFAULT:
        return field.name, hint, msgspec.field(default_factory=field.default_factory)
    return field.name, hint


def _packed(value: Any) -> bytes:
    kind: Any = type(value)
    form = _form_of(kind)
    if form.wire is None:
        return _encode(value)
    return _encode(form.wire(**{name: getattr(value, name) for name in form.names}))


def _unpacked(kind: type, head: bytes, **more: Any) -> Any:
    form = _form_of(kind)
    found = form.decode(head)
    if form.wire is None:
        return found
    return kind(**{name: getattr(found, name) for name in form.names}, **more)


# ---------------------------------------------------------------------- commands


class _AppendHead(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """An append without its text, of which `sizes` and `meta_sizes` are the parts, in bytes; -1: no
    meta.  `config` is left out where it is the default."""

    topic: str
    sizes: list[int]
    nodes: str | list[str | None] | None = None
    tags: list[str | None] | None = None
    meta_sizes: list[int] | None = None
    key: bytes = b""
    create: bool | None = None
    config: TopicConfig | None = None
    is_configuring: bool = False
    return_seqs: bool = True
    disable_backpressure: bool = False
    marks: list[Mark | None] | None = None
    partitions: list[int | None] | None = None
    hashes: list[int | None] | None = None
    jobs: list[JobRequest | None] | None = None


_decode_append: Final = msgspec.msgpack.Decoder(_AppendHead).decode
_KINDS: Final[Mapping[str, type[Command]]] = {kind.__name__: kind for kind in FACTS}


def encode_command(command: Command) -> tuple[str, bytes, Sequence[Buffer]]:
    """The name of its kind, its head, and its text in pieces."""
    if type(command) is Append:
        return "Append", *_encode_append(command)
    return type(command).__name__, _packed(command), ()


def decode_command(kind: str, head: bytes, text: Buffer = b"") -> Command:
    """The command, by nobody yet.

    Raises:
        ValueError: It is of no kind that is known here, or is none.
    """
    if kind == "Append":
        return _append(head, text)
    known = _KINDS.get(kind)
    if known is None:
        raise ValueError(f"no command {kind}")
    return _unpacked(known, head)  # type: ignore[no-any-return]


def _encode_append(append: Append) -> tuple[bytes, Sequence[Buffer]]:
    metas = append.metas
    config = append.config
    nodes = append.nodes
    head = _AppendHead(
        append.topic,
        [len(data) for data in append.datas],
        nodes if nodes is None or isinstance(nodes, str) else list(nodes),
        None if append.tags is None else list(append.tags),
        None if metas is None else [-1 if meta is None else len(meta) for meta in metas],
        append.key,
        append.create,
        None if config is _DEFAULT or config == _DEFAULT else config,
        append.is_configuring,
        append.return_seqs,
        append.disable_backpressure,
        None if append.marks is None else list(append.marks),
        None if append.partitions is None else list(append.partitions),
        None if append.hashes is None else list(append.hashes),
        None if append.jobs is None else list(append.jobs),
    )
    pieces = [*append.datas]
    if metas is not None:
        pieces += [meta for meta in metas if meta is not None]
    return _encode(head), pieces


def _append(head: bytes, text: Buffer) -> Append:
    found = _decode_append(head)
    sizes, meta_sizes = found.sizes, found.meta_sizes
    has_one = len(sizes) == 1 and meta_sizes is None
    if sum(sizes) + sum(size for size in meta_sizes or () if size > 0) != len(text):
        raise ValueError("an append whose text has another size")
    datas: Sequence[Any] = [text] if has_one else _cut(memoryview(text), sizes, 0)
    metas = None
    if meta_sizes is not None:
        parts = iter(_cut(memoryview(text), [size for size in meta_sizes if size >= 0], sum(sizes)))
        metas = [None if size < 0 else next(parts) for size in meta_sizes]
    return Append(
        topic=found.topic,
        datas=datas,
        nodes=found.nodes,
        tags=found.tags,
        metas=metas,
        key=found.key,
        create=found.create,
        config=found.config or _DEFAULT,
        is_configuring=found.is_configuring,
        return_seqs=found.return_seqs,
        disable_backpressure=found.disable_backpressure,
        marks=found.marks,
        partitions=found.partitions,
        hashes=found.hashes,
        jobs=found.jobs,
    )


def _cut(text: memoryview, sizes: Sequence[int], at: int) -> list[memoryview]:
    ends = [*accumulate(sizes, initial=at)]
    return [text[begin:end] for begin, end in pairwise(ends)]


# ---------------------------------------------------------------------- outcomes


_OUTCOMES: Final[Mapping[str, type[Outcome]]] = {
    kind.__name__: kind
    for kind in vars(outcomes).values()
    if isinstance(kind, type) and issubclass(kind, Outcome) and not kind.__name__.startswith("_")
}
_decode_grant: Final = msgspec.msgpack.Decoder(Grant).decode
_WITH_RECORDS: Final = (Page, StablePage, Latest)


def encode_outcome(outcome: Outcome) -> tuple[str, bytes]:
    """The name of its kind, and its head: all but the text of the records that it shows."""
    kind = type(outcome)
    if kind is Granted:
        jobs = outcome.jobs  # type: ignore[attr-defined]
        grant = b"" if jobs is None else _encode(jobs.grant)
        return "Granted", _encode((_packed(outcome), grant))
    return kind.__name__, _packed(outcome)


def decode_outcome(kind: str, head: bytes) -> Outcome:
    """The outcome; its records are elsewhere (`Reply.text`).

    Raises:
        ValueError: As `decode_command`.
    """
    known = _OUTCOMES.get(kind)
    if known is None:
        raise ValueError(f"no outcome {kind}")
    if known is Granted:
        fields, grant = msgspec.msgpack.decode(head, type=tuple[bytes, bytes])
        jobs = Jobs(_decode_grant(grant), ()) if grant else None
        return _unpacked(Granted, fields, jobs=jobs)  # type: ignore[no-any-return]
    more = {"records": NO_RECORDS} if known in _WITH_RECORDS else {}
    return _unpacked(known, head, **more)  # type: ignore[no-any-return]


class _Refused(msgspec.Struct, array_like=True, frozen=True):
    code: str
    message: str
    detail: dict[str, Any] | None
    retry_after_s: int | None


_decode_refused: Final = msgspec.msgpack.Decoder(_Refused).decode


def encode_rejection(refusal: Rejection) -> bytes:
    detail = None if refusal.detail is None else dict(refusal.detail)
    return _encode(_Refused(refusal.code.value, refusal.message, detail, refusal.retry_after_s))


def decode_rejection(data: bytes) -> Rejection:
    found = _decode_refused(data)
    return Rejection(
        ErrorCode(found.code), found.message, found.detail, retry_after_s=found.retry_after_s
    )


# ---------------------------------------------------------------------- frames


class _Records(msgspec.Struct, array_like=True, tag=0, frozen=True, gc=False):
    topic: str
    from_seq: int
    to_seq: int
    head_seq: int
    partition: int | None = None


class _Tombstone(msgspec.Struct, array_like=True, tag=1, frozen=True, gc=False):
    topic: str
    gap_from: int
    gap_to: int
    reason: str
    earliest_seq: int
    head_seq: int
    partition: int | None = None


class _CaughtUp(msgspec.Struct, array_like=True, tag=2, frozen=True, gc=False):
    topic: str
    head_seq: int
    partition: int | None = None


class _Deleted(msgspec.Struct, array_like=True, tag=3, frozen=True, gc=False):
    topic: str
    head_seq: int
    partition: int | None = None


class _Unreadable(msgspec.Struct, array_like=True, tag=4, frozen=True, gc=False):
    topic: str
    refusal: bytes
    partition: int | None = None


_decode_frame: Final = msgspec.msgpack.Decoder(
    _Records | _Tombstone | _CaughtUp | _Deleted | _Unreadable
).decode


def encode_frame(found: Found) -> tuple[bytes, Sequence[Buffer]]:
    """A frame's head, and the text of its records."""
    if isinstance(found, Unreadable):
        refusal = encode_rejection(found.refusal)
        return _encode(_Unreadable(found.topic, refusal, found.partition)), ()
    frame = found.frame
    partition = frame.partition
    match frame:
        case RecordFrame(topic, _, from_seq, to_seq, head_seq):
            return _encode(_Records(topic, from_seq, to_seq, head_seq, partition)), found.texts
        case TombstoneFrame(topic, stone, earliest_seq, head_seq):
            return _encode(_Tombstone(topic, *stone, earliest_seq, head_seq, partition)), ()
        case CaughtUpFrame(topic, head_seq):
            return _encode(_CaughtUp(topic, head_seq, partition)), ()
        case DeletedFrame(topic, head_seq):  # pragma: no branch - a frame is of no other kind
            return _encode(_Deleted(topic, head_seq, partition)), ()


def decode_frame(head: bytes, text: Buffer) -> Found:
    """Raises ValueError."""
    found = _decode_frame(head)
    frame: Frame
    match found:
        case _Records():
            frame = RecordFrame(
                found.topic,
                NO_RECORDS,
                found.from_seq,
                found.to_seq,
                found.head_seq,
                partition=found.partition,
            )
            return FrameText(frame, [text])
        case _Tombstone():
            stone = Tombstone(found.gap_from, found.gap_to, found.reason)
            frame = TombstoneFrame(
                found.topic, stone, found.earliest_seq, found.head_seq, found.partition
            )
        case _CaughtUp():
            frame = CaughtUpFrame(found.topic, found.head_seq, found.partition)
        case _Deleted():
            frame = DeletedFrame(found.topic, found.head_seq, found.partition)
        case _Unreadable():
            return Unreadable(found.topic, decode_rejection(found.refusal), found.partition)
    return FrameText(frame)
