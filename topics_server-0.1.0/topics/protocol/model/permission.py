"""Which names a command holds, and the command as its caller may give it (§0.2).

Owns the table from a command's type to its names, wherever they stand: in the path, in the body, in
a config.  A command that is in no row cannot be given by a caller with prefixes: that is an error of
the program, not a name unchecked.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

import msgspec

from topics.protocol.model.access import Caller
from topics.protocol.model.commands import (
    Ack,
    Append,
    Claim,
    Command,
    CreateWatch,
    DeleteRecords,
    DeleteRouter,
    DeleteTopic,
    Diff,
    Extend,
    GetRouter,
    GetTopic,
    ListRouters,
    ListTopics,
    Nack,
    OnBehalf,
    Purge,
    PutRouter,
    PutTopic,
    ReadPage,
)

C = TypeVar("C", bound=Command)


def _topic(command: Any) -> Iterable[str]:
    return (command.topic,)


def _configured(command: Append | PutTopic) -> Iterable[str]:
    letters = command.config.dead_letter
    return (command.topic,) if letters is None else (command.topic, letters)


def _router(command: GetRouter | DeleteRouter) -> Iterable[str]:
    return (command.router,)


def _ends(command: PutRouter) -> Iterable[str]:
    return command.router, command.config.source, command.config.dest


def _watched(command: CreateWatch) -> Iterable[str]:
    return command.topics


def _none(command: ListTopics | ListRouters) -> Iterable[str]:
    """What a list leaves out is for its decision to say."""
    del command
    return ()


NAMES: Final[dict[type, Callable[[Any], Iterable[str]]]] = {
    PutTopic: _configured,
    GetTopic: _topic,
    ListTopics: _none,
    DeleteTopic: _topic,
    Append: _configured,
    Diff: _topic,
    ReadPage: _topic,
    DeleteRecords: _topic,
    Purge: _topic,
    CreateWatch: _watched,
    PutRouter: _ends,
    GetRouter: _router,
    ListRouters: _none,
    DeleteRouter: _router,
    Claim: _topic,
    Ack: _topic,
    Nack: _topic,
    Extend: _topic,
}


def names_of(command: Command) -> Iterable[str]:
    """Every name of a topic or router that a command holds."""
    return NAMES[type(command)](command)


def permitted(command: C, caller: Caller) -> C:
    """The command as a key may give it; a decision that needs to know the key finds it there.

    Raises:
        Rejection: 401 where the key was removed since, 403 for a name outside its prefixes.
    """
    caller.require_current()
    if caller.prefixes:
        for name in names_of(command):
            caller.require_name(name)
    if not isinstance(command, OnBehalf):
        return command
    given: Any = msgspec.structs.replace(command, caller=caller)
    return given  # type: ignore[no-any-return]
