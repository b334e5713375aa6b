"""Pages of lists: names in order, of those that who asks may see (§1.3)."""

from bisect import bisect_left
from collections.abc import Callable, Sequence

from topics.protocol.model.access import Caller


def page_of(
    names: Sequence[str],
    caller: Caller,
    prefix: str,
    after: str,
    size: int,
    is_listed: Callable[[str], bool] | None = None,
) -> list[str]:
    """The first names that begin with a prefix and come after one, by name, so that a page goes on rightly whatever
    came and went between.

    Args:
        names: All, ascending.
    """
    page = list[str]()
    for begin in caller.prefixes_within(prefix):
        start = bisect_left(names, max(begin, after))
        if start < len(names) and names[start] == after:
            start += 1
        if is_listed is None:
            near: Sequence[str] = names[start : start + size - len(page)]
            page += [name for name in near if name.startswith(begin)]
            if len(page) == size:
                break
            continue
        for at in range(start, len(names)):
            if not names[at].startswith(begin) or len(page) == size:
                break
            if is_listed(names[at]):
                page.append(names[at])
    return page
