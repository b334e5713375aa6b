"""The envelope of what is not 2xx (§0.5), and the block that ends each answer (§0.9)."""

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
import orjson
from msgspec import UNSET, Meta, UnsetType

from topics.protocol.faces.http.fields import Ms, Natural
from topics.protocol.model.errors import ErrorCode, Rejection


class Performance(msgspec.Struct, kw_only=True):
    """How long it took, in milliseconds (§0.9)."""

    server_total_ms: Annotated[Ms, Meta(description="From the request's head to the answer.")]
    wal_append_ms: Annotated[Ms | UnsetType, Meta(description="The write to the log.")] = UNSET
    fsync_ms: Annotated[Ms | UnsetType, Meta(description="The wait for the disk.")] = UNSET
    records_scanned: Annotated[Natural | UnsetType, Meta(description="Records looked at.")] = UNSET
    throttle_wait_ms: Annotated[
        Ms, Meta(description="How long a write waited for room before it was decided.")
    ]


Code = Annotated[
    str,
    Meta(
        description="What to branch on.",
        extra_json_schema={"enum": [code.code for code in ErrorCode]},
    ),
]


class ErrorDetail(msgspec.Struct, kw_only=True):
    code: Code
    message: Annotated[str, Meta(description="For people; may change.")]
    detail: Annotated[
        dict[str, Any] | UnsetType, Meta(description="More about it, where there is more to say.")
    ] = UNSET


class ErrorEnvelope(msgspec.Struct, kw_only=True):
    """Whatever is not 2xx (§0.5)."""

    error: Annotated[ErrorDetail, Meta(description="What went wrong.")]
    performance: Annotated[
        Performance | UnsetType, Meta(description="Absent where no request was understood.")
    ] = UNSET


def error_body(refusal: Rejection) -> bytes:
    """The envelope of §0.5, its last brace left out."""
    error: dict[str, object] = {"code": refusal.code.code, "message": refusal.message}
    if refusal.detail is not None:
        error["detail"] = refusal.detail
    return b'{"error":' + orjson.dumps(error)


def error_headers(refusal: Rejection) -> Sequence[tuple[bytes, bytes]]:
    headers = []
    if refusal.retry_after_s is not None:
        headers.append((b"retry-after", b"%d" % refusal.retry_after_s))
    if refusal.code is ErrorCode.UNAUTHORIZED:
        headers.append((b"www-authenticate", b"Bearer"))
    if refusal.allow:
        headers.append((b"allow", ", ".join(refusal.allow).encode()))
    return headers
