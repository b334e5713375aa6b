"""Fields of an append that only jobs have: when they may start, how urgent they are, with which they take turns (§10, 115, 130-133)."""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Final, Literal, Protocol

import msgspec

from topics.protocol.faces.http.decoding import invalid
from topics.protocol.faces.http.fields import Natural
from topics.protocol.model.job_options import (
    DELAY_MS_MAX,
    DIGEST_BYTES,
    KEY_BYTES_MAX,
    PRIORITY_LEAST,
    PRIORITY_MOST,
    JobRequest,
    Unique,
)
from topics.protocol.model.limits import Limits

_TIME_MAX: Final = 2**63 - 1 - DELAY_MS_MAX


class UniqueBody(msgspec.Struct):
    """A key, and what another append of it does."""

    key: str
    on_conflict: Literal["keep", "replace"] | None = None
    for_ms: Natural | None = None


UniqueField = UniqueBody | str | None


class JobBody(Protocol):
    """What of a record's body is looked at here."""

    @property
    def delay_ms(self) -> int | None: ...
    @property
    def not_before(self) -> int | None: ...
    @property
    def priority(self) -> int | None: ...
    @property
    def expires_ms(self) -> int | None: ...
    @property
    def group(self) -> str | None: ...
    @property
    def unique(self) -> UniqueField: ...


def requests_of(records: Sequence[JobBody], limits: Limits) -> list[JobRequest | None] | None:
    """The options of some records; None where no record has any.  Raises Rejection: 400."""
    found = [_request(record, limits, f"$.records[{at}]") for at, record in enumerate(records)]
    return None if found.count(None) == len(found) else found


def _request(record: JobBody, limits: Limits, path: str) -> JobRequest | None:
    delay_ms, not_before, priority = record.delay_ms, record.not_before, record.priority
    expires_ms, group, unique = record.expires_ms, record.group, record.unique
    given: tuple[Any, ...] = (delay_ms, not_before, priority, expires_ms, group, unique)
    if given.count(None) == len(given):
        return None
    if delay_ms is not None:
        if not_before is not None:
            raise invalid("`delay_ms` and `not_before` exclude each other", f"{path}.delay_ms")
        if not 0 <= delay_ms <= DELAY_MS_MAX:
            raise invalid(f"a delay is 0 to {DELAY_MS_MAX} ms", f"{path}.delay_ms")
    if not_before is not None and not 0 <= not_before <= _TIME_MAX:
        raise invalid("expected milliseconds since the epoch", f"{path}.not_before")
    if priority is not None and not PRIORITY_LEAST <= priority <= PRIORITY_MOST:
        what = f"a priority is {PRIORITY_LEAST} to {PRIORITY_MOST}"
        raise invalid(what, f"{path}.priority")
    if expires_ms is not None and not 1 <= expires_ms <= DELAY_MS_MAX:
        raise invalid(f"`expires_ms` is 1 to {DELAY_MS_MAX}", f"{path}.expires_ms")
    if group is not None:
        size = len(group.encode("utf-8", "surrogatepass"))
        if not 1 <= size <= limits.max_tag_bytes:
            what = f"a group has 1 to {limits.max_tag_bytes} bytes, and not {size}"
            raise invalid(what, f"{path}.group")
    return JobRequest(
        delay_ms or 0, not_before or 0, priority or 0, expires_ms or 0, group, _unique(unique, path)
    )


def _unique(body: UniqueField, path: str) -> Unique | None:
    if body is None:
        return None
    path += ".unique"
    key = body if isinstance(body, str) else body.key
    text = key.encode("utf-8", "surrogatepass")
    if not 1 <= len(text) <= KEY_BYTES_MAX:
        raise invalid(f"a unique key has 1 to {KEY_BYTES_MAX} bytes, and not {len(text)}", path)
    digest = blake2b(text, digest_size=DIGEST_BYTES).digest()
    if isinstance(body, str):
        return Unique(digest)
    for_ms = body.for_ms or 0
    if for_ms > DELAY_MS_MAX:
        raise invalid(f"`for_ms` is at most {DELAY_MS_MAX}", f"{path}.for_ms")
    return Unique(digest, body.on_conflict == "replace", for_ms)
