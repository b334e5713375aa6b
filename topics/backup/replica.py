"""A node's store, made of the store of another one that goes on running.

Owns the order: a backup of the other store, in a place that is used for nothing else, and a directory of
it in the same history.  What the log of that store says is all accepted, because a leader's own log gets
nothing that is not; so the directory is a replica at the last unit that its log has, with the place of
that unit.

Invariants: the directory has no identity before all of it is verified and durable.  What was copied before
an interruption is used by the next attempt.
"""

import errno
from collections.abc import Callable

from topics.backup.layout import BACKUP_NAME
from topics.backup.proof import Living
from topics.backup.restore import Link, restore
from topics.backup.take import take
from topics.protocol.model.errors import Corrupt, Unusable
from topics.store.files import Files


def replicate(
    source: Files,
    place: Files,
    target: Files,
    history: bytes,
    *,
    link: Link,
    progress: Callable[[int], None],
) -> Living:
    """*Blocking.* Make a store of a running node's.

    Args:
        source: The other node's store.
        place: For the copies; nothing else is kept there, and its bytes are the target's afterwards.
        target: A directory that is empty or does not exist.
        history: That of the cluster.
        link: As `restore.Link` says.
        progress: Called with the number of bytes copied since the last call; may raise OSError.

    Returns:
        What lives in it, and its place; None where the other node has not applied a unit.

    Raises:
        OSError: The other node or the disk failed, or what came is not as it should be.
    """
    place.prepare(create=True)
    for name in place.names():
        # Of an interrupted attempt; it may be another node's.
        if BACKUP_NAME.fullmatch(name):
            place.unlink(name)
    try:
        manifest, _ = take(source, place, keep=1, progress=progress)
        if manifest.history != history.hex():
            what = f"its history is {manifest.history}, the cluster's {history.hex()}"
            raise Unusable(source.path, what)
        _, living = restore(place, manifest.number, target, goes_on=True, link=link)
    except (Corrupt, Unusable) as error:
        raise OSError(errno.EIO, str(error)) from error
    return living
