"""A command as its caller may give it (§0.2).

Every name that a command holds is checked, wherever it stands (`commands.names_of`).  A kind of command
without a row there cannot be given by a caller with prefixes: that is an error of the program, not
a name unchecked.
"""

from typing import Any, TypeVar

import msgspec

from topics.protocol.model.access import Caller
from topics.protocol.model.commands import Command, OnBehalf, names_of

C = TypeVar("C", bound=Command)


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
