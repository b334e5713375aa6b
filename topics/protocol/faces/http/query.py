"""Query strings, and the cursor of lists (§0.7)."""

import binascii
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Mapping
from urllib.parse import parse_qsl

import msgspec
import orjson
from msgspec import UNSET

from topics.protocol.faces.http.decoding import (
    invalid,
)
from topics.protocol.model.limits import (
    PAGE_SIZE_DEFAULT,
    PAGE_SIZE_MAX,
)


def list_cursor(after: str) -> str:
    """The opaque cursor of a list: the name that the next page begins behind (§0.7)."""
    return urlsafe_b64encode(orjson.dumps({"after": after})).decode()


def next_cursor(after: str | None) -> str | msgspec.UnsetType:
    return UNSET if after is None else list_cursor(after)


def page_of_list(query: Mapping[str, str]) -> tuple[str, int, str]:
    """(prefix, page size, the name it begins behind) of a list (§0.7)."""
    size = query_natural(query, "page_size", PAGE_SIZE_DEFAULT) or PAGE_SIZE_DEFAULT
    after = parse_cursor(query["cursor"]) if "cursor" in query else ""
    return query.get("prefix", ""), min(size, PAGE_SIZE_MAX), after


def parse_query(raw: bytes) -> dict[str, str]:
    """A query as name -> value; the first of a repeated name counts."""
    if not raw:
        return {}
    try:
        pairs = parse_qsl(
            raw.decode("latin-1"), keep_blank_values=True, errors="replace", max_num_fields=1000
        )
    except ValueError:
        raise invalid("the query has too many parameters") from None
    return dict(reversed(pairs))


def query_bool(query: Mapping[str, str], name: str, default: bool) -> bool:
    value = query.get(name)
    if value is None:
        return default
    if value not in ("true", "false", "1", "0"):
        raise invalid(f"{name} is not true or false", f"?{name}")
    return value in ("true", "1")


def query_natural(query: Mapping[str, str], name: str, default: int) -> int:
    value = query.get(name)
    if value is None:
        return default
    if not (value.isascii() and value.isdigit()):
        raise invalid(f"{name} is not a natural number", f"?{name}")
    # What has more digits is above every bound, and `int` refuses thousands of them.
    return int((value.lstrip("0") or "0")[:20])


def parse_cursor(cursor: str) -> str:
    """The name after which a list goes on (§0.7); a tag may be empty."""
    try:
        value = orjson.loads(b64decode(cursor.encode("ascii"), b"-_", validate=True))
    except (ValueError, binascii.Error):
        value = None
    if not (isinstance(value, dict) and isinstance(after := value.get("after"), str)):
        raise invalid("the cursor is not one of ours", "?cursor")
    return after
