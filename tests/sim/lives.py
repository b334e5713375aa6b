"""One directory through lives that a kill or a power loss ends at any file call: what worlds of one kind of client share.

A world has a `Harness` over a `DiskStore` on a simulated disk, and a model of its own beside it.  What it does in a life,
and what has to hold, is its own to say.
"""

import copy
import random
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Final, NamedTuple, TypeVar

from protocol.harness import START_MS, Harness

from topics.backup.restore import restore
from topics.backup.take import take
from topics.protocol.model.errors import Corrupt, Rejection, Unusable, WriteFailed
from topics.store.store import DiskStore

from .files import Cut, SimFiles

FILE_BYTES = 64 << 10

SECONDS: Final = (0, 0, 3000, -5000)
"""Jumps of a clock that is set right."""

Patch = Any


class Broken(AssertionError):
    """An invariant does not hold."""


def require(holds: bool, what: str) -> None:
    if not holds:
        raise Broken(what)


class Backup(NamedTuple):
    """Where it is, and what was known when it was taken."""

    place: SimFiles
    known: Any


class Lives(ABC):
    """One directory through its lives.

    Args:
        seed: Decides everything.
        harsh: Each life ends with a power loss, and topics are of class `fsync`; else with a kill.
    """

    LIMITS: ClassVar[dict[str, int]] = {"segment_max_records": 32}
    jumps: ClassVar[tuple[int, ...]] = ()
    """By how many milliseconds the clock may be another at a start."""
    steps = 40
    """Of a life."""

    def __init__(self, seed: int, *, harsh: bool) -> None:
        self.dice = random.Random(seed)
        self.harsh = harsh
        self.files = SimFiles(seed)
        self.opened: Harness | None = None
        self.backup: Backup | None = None
        self.lives = 0
        self.now_ms = self.highest_ms = START_MS
        """The clock when the last life ended, and the most that it ever was."""

    @property
    def engine(self) -> Harness:
        assert self.opened is not None
        return self.opened

    @property
    def durability(self) -> str:
        return "fsync" if self.harsh else "disk"

    # ------------------------------------------------------------------ what a world says

    @abstractmethod
    def begin(self) -> None:
        """A life has begun: compare what is there, and go on."""

    @abstractmethod
    def step(self) -> None:
        """Whatever may happen next."""

    @abstractmethod
    def judge(self) -> None:
        """Start once more, and read everything.  Raises Broken."""

    def known(self) -> Any:
        """What a backup of this moment has to have, as a copy; nothing, where a world makes none."""

    def revert(self, known: Any) -> None:
        """A backup was restored: what came since is gone."""

    # ------------------------------------------------------------------ lives

    def live(self, cut_at: int | None, steps: int) -> int:
        """One life, until the disk is cut; returns how many file calls it made."""
        self.files.cut_at = cut_at
        begun = self.files.calls
        try:
            self.start()
            self.begin()
            for _ in range(steps):
                self.step()
            self.engine.sync()
        except (Cut, WriteFailed):
            pass
        made = self.files.calls - begun
        self.files = self.files.cut(self.dice) if self.harsh else self.files.kill()
        if self.opened is not None:
            self.note_time()
            self.now_ms = self.opened.now_ms
        self.opened = None
        return made

    def start(self) -> None:
        """Recover."""
        self.lives += 1
        now_ms = self.now_ms
        if self.jumps:
            now_ms += self.dice.choice(self.jumps)
        store = DiskStore(self.files, wal_file_bytes=FILE_BYTES, reserve_bytes=FILE_BYTES)
        self.opened = Harness(store=store, auto=False, now_ms=now_ms, **self.LIMITS)
        self.note_time()
        self.opened.sync()

    def note_time(self) -> None:
        self.highest_ms = max(self.highest_ms, self.engine.now_ms)

    def back_up(self) -> None:
        """Between two lives, if there is something."""
        place = SimFiles(self.dice.getrandbits(32))
        try:
            take(self.files, place)
        except Unusable:
            return  # the first life was cut before the directory was made
        self.files = self.files.kill()
        self.backup = Backup(place, self.known())

    def restore(self) -> None:
        """Clients live on; what was acknowledged since the backup is gone."""
        assert self.backup is not None
        target = SimFiles(self.dice.getrandbits(32))
        restore(self.backup.place, None, target)
        self.files = target.kill()
        backup, self.backup = self.backup, None
        self.revert(copy.deepcopy(backup.known))


World = TypeVar("World", bound="Lives")
CALLS = 400
"""Of a life, within which it is cut."""


def lived(world: World, *, lives: int = 4) -> World:
    """Live a world in which each life is cut at a call that chance names.  Raises Broken."""
    begins, ends = sorted(world.dice.sample(range(2 * lives), 2))
    for nth in range(lives):
        if nth == begins + 1:
            world.back_up()
        if nth == ends + 1 and world.backup is not None:
            world.restore()
        world.live(world.files.calls + world.dice.randrange(1, CALLS), world.steps)
    world.files.cut_at = None
    world.judge()
    return world


def cut_everywhere(make: Callable[[], Lives], *, stride: int, steps: int = 30) -> None:
    """One life, cut at each of its calls in turn, or at one in so many; the next one makes up for it.  Raises Broken."""
    total = make().live(None, steps)
    for cut_at in range(1, total, stride):
        world = make()
        world.live(cut_at, steps)
        world.live(None, 5)
        world.judge()


SEARCHED = 200
"""Worlds that are tried where the first one does not meet a bug any more."""


class Bug(NamedTuple):
    """A slip that is sown on purpose.

    Attributes:
        sow: Puts it in.
        found_by: What the invariant says that finds it: a regular expression.
        seed: The first world that meets it.
    """

    sow: Callable[[Patch], None]
    found_by: str
    seed: int = 0


def found_by(bug: Bug, make: Callable[..., Lives]) -> None:
    """Look for a bug that was sown, from its first world on.

    Args:
        make: A world by its seed, `harsh` or not.

    Raises:
        AssertionError: No world broke the invariant that is about it.
    """
    others = set[str]()
    for seed in range(bug.seed, bug.seed + SEARCHED):
        try:
            lived(make(seed, harsh=bool(seed % 2)))
        except (Broken, Rejection, Corrupt) as error:
            if re.search(bug.found_by, str(error)):
                return
            others.add(str(error)[:80])
    raise AssertionError(f"not found in {SEARCHED} worlds; {sorted(others)[:3]}")
