"""Names of topics, routers, schedules and groups, as the contract allows them (§1).

No server of this API has others, and programs put names into paths, queries, and lines of a shell: what
a server calls otherwise is left out of what the client hands on.
"""

import re
from typing import Final

_TOPIC: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,254}")
_ROUTER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:>-]{0,254}")

GROUP_BYTES_MAX: Final = 255


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
