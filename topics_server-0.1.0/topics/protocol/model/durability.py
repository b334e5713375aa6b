"""What each durability class means (§0.10, §0.6): one row a class, one column a question.

A topic's config names its class; every rule that depends on the class asks this table, so that a
class is defined in one place.  Invariant: a stronger class promises all that a weaker one does.

| class | in the log | an answer waits for | read as `strong` | survives a kill | survives a power loss |
|---|---|---|---|---|---|
| `ephemeral` | no | the turn's write | at once | no | no |
| `memory` | yes | the write | at once | as it happens | no |
| `disk` | yes | the write | after a sync | yes | all but the unsynced tail |
| `fsync` | yes | a sync | after a sync | yes | yes |
"""

from collections.abc import Mapping
from typing import Final, Literal, get_args

import msgspec

Durability = Literal["ephemeral", "memory", "disk", "fsync"]
"""The classes as `durability` spells them, from the weakest to the strongest."""


class DurabilityClass(msgspec.Struct, frozen=True):
    """What one class promises about a record.

    Attributes:
        name: As the config spells it.
        is_logged: Appends and deletes are events in the log, and records are sealed.  Otherwise
            they exist in memory only, and a restart keeps no more of them than the head (§0.10).
        waits_for_sync: A write is answered, and its records are shown, once a sync covers it.
            Otherwise the write that carries it is enough.
        strong_waits_for_sync: A watcher that asked for `strong` is shown a record once a sync
            covers it.  Otherwise `strong` is `eventual` (§7.2).
        survives_kill: What was answered is found by the next process on the same boot, because the
            page cache outlives a process.  `memory` promises nothing (§0.10) but is written as
            `disk` is, so no record of it is given up where none can be missing.
        survives_power_loss: What was answered is found after the machine lost power.
    """

    name: Durability
    is_logged: bool
    waits_for_sync: bool
    strong_waits_for_sync: bool
    survives_kill: bool
    survives_power_loss: bool

    def survives(self, *, same_boot: bool) -> bool:
        """Whether all that was answered is found after a crash of the process, or of the machine."""
        return self.survives_kill if same_boot else self.survives_power_loss


_ROWS: Final = (
    #               name         logged  sync   strong  kill   power loss
    DurabilityClass("ephemeral", False,  False, False,  False, False),
    DurabilityClass("memory",    True,   False, False,  True,  False),
    DurabilityClass("disk",      True,   False, True,   True,  False),
    DurabilityClass("fsync",     True,   True,  True,   True,  True),
)  # fmt: skip

DURABILITIES: Final[Mapping[Durability, DurabilityClass]] = {row.name: row for row in _ROWS}
"""By name."""

assert tuple(DURABILITIES) == get_args(Durability)


def durability_of(*, durable: bool) -> Durability:
    """The class that the shorthand `durable` stands for where no class is named (§0.10)."""
    return "fsync" if durable else "disk"
