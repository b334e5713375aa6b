"""The directory of a world in the eyes of another process, between any two reads of which the server may
go on."""

from collections.abc import Callable

from topics.store.files import File

from .files import SimFiles


class Busy(SimFiles):
    """Reads the files of another `SimFiles`, and calls `act` before each read."""

    def __init__(self, files: SimFiles, act: Callable[[], None]) -> None:
        super().__init__(files.seed)
        self.__dict__.update(files.__dict__)
        self._act = act

    def names(self) -> list[str]:
        self._act()
        return super().names()

    def open(self, name: str, *, write: bool = False) -> File:
        assert not write, "a reader changes nothing"
        self._act()
        return super().open(name)

    def reads(self, name: str) -> None:
        self._act()
        super().reads(name)
