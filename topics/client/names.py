"""Names of topics, routers, schedules and groups, and tags, as the contract allows them (§1, §2).

No server of this API has others, and programs put names into paths, queries, and lines of a shell: what
a server calls otherwise is left out of what the client hands on.
"""

import re
from typing import Final

_TOPIC: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,254}")
_ROUTER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:>-]{0,254}")

GROUP_BYTES_MAX: Final = 255
TAG_BYTES_MAX: Final = 256
"""The longest tag that a server takes by default (§2)."""


def is_topic(name: str) -> bool:
    """Whether a topic may have this name."""
    return _TOPIC.fullmatch(name) is not None


def is_router(name: str) -> bool:
    """Whether a router may have this name."""
    return _ROUTER.fullmatch(name) is not None


def is_schedule(name: str) -> bool:
    """Whether a schedule may have this name."""
    return is_topic(name)


def is_group(name: str) -> bool:
    """Whether a group may have this name: any text, but for its length."""
    return 0 < len(name.encode()) <= GROUP_BYTES_MAX


def tag_of(text: str) -> str | None:
    """The text as a tag; None where it is too long for one, or empty."""
    return text if 0 < len(text.encode()) <= TAG_BYTES_MAX else None


def tag_for(key: str) -> str:
    """The tag of a key: the key itself, or a digest where it is too long for a tag, or empty."""
    if (tag := tag_of(key)) is not None:
        return tag
    # Most commands make no tag of a key, and it takes a tenth of their start.
    from hashlib import sha256

    return sha256(key.encode()).hexdigest()
