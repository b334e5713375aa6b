"""Refusals that a driver makes by itself, in the one shape of §0.5.

Owns the answer to a request that no exchange saw: bad framing, an exhausted budget of memory, what
the HTTP library would otherwise answer without a body.  Knows nothing of the reasons, and leaves
the spelling of errors to `topics.protocol.faces.http.routes`.
"""

from collections.abc import Mapping
from typing import Any

from topics.protocol.faces.http.errors import error_body, error_headers
from topics.protocol.faces.http.statuses import STATUSES
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.server.http.interface import Answer


def refusal(
    code: ErrorCode,
    message: str,
    detail: Mapping[str, Any] | None = None,
    *,
    status: int | None = None,
    close: bool = False,
) -> Answer:
    """An error in its envelope.

    Args:
        status: Another status than the table's, where HTTP itself has a closer one (431, 501).
        close: The connection cannot go on after it.
    """
    rejection = Rejection(code, message, detail)
    body = error_body(rejection) + b"}\n"
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        *error_headers(rejection),
    ]
    return Answer(STATUSES[code] if status is None else status, headers, [body], close)


def no_room_for_answer(most: int) -> Answer:
    """429: an answer finds no room in what may wait to be taken."""
    limit = {"limit": "max_answer_memory", "max": most}
    return refusal(ErrorCode.THROTTLED, "too many bytes of answers wait to be taken", limit)
