"""What a place of backups holds, and what of it may go.

Owns the names in a place: backups by number, copies of segments, temporary files.  Invariant: a copy
is removed only when no backup that has a name needs it, and that is durable.
"""

from topics.backup.layout import (
    BACKUP_NAME,
    COPY_NAME,
    TEMP_NAME,
    Manifest,
    backup_name,
    read_manifest,
)
from topics.protocol.model.errors import Corrupt, InUse, Unusable
from topics.store.files import Files, discard
from topics.store.identity import IGNORED


class Catalog:
    """The backups of one place.

    Attributes:
        manifests: Those that verify, by number.
        damaged: Backup files whose manifest does not verify.
        copies: Names of the copies of segments.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self.manifests: dict[int, Manifest] = {}
        self.damaged: list[Corrupt] = []
        self.copies: set[str] = set()
        self._greatest = 0

    def enter(self, *, create: bool) -> None:
        """Open the place, lock it where it may be changed, and read what it holds.

        Raises:
            Unusable: It is no place of backups, or another process writes to it.
        """
        files = self._files
        try:
            files.prepare(create=create)
            names = files.names()
            self._refuse_foreign(names)
            if create and not files.lock():
                raise InUse(files.path)
            self.load()
        except OSError as error:
            raise Unusable(files.path, error.strerror or str(error)) from error
        if not create and not self.manifests and not self.damaged:
            raise Unusable(files.path, "there is no backup here")

    def _refuse_foreign(self, names: list[str]) -> None:
        known = (BACKUP_NAME, COPY_NAME, TEMP_NAME)
        for name in names:
            if name not in IGNORED and not any(each.fullmatch(name) for each in known):
                what = f'not a place of backups: it holds "{name}"'
                raise Unusable(self._files.path, what)

    def load(self) -> None:
        """Read every manifest."""
        names = self._files.names()
        self.copies = {name for name in names if COPY_NAME.fullmatch(name)}
        for name in names:
            found = BACKUP_NAME.fullmatch(name)
            if found is None:
                continue
            number = int(found[1])
            self._greatest = max(self._greatest, number)
            file = self._files.open(name)
            try:
                path = f"{self._files.path}/{name}"
                self.manifests[number] = read_manifest(file, path, number)
            except Corrupt as damage:
                self.damaged.append(damage)
            finally:
                file.close()

    @property
    def next_number(self) -> int:
        return max([self._greatest, *self.manifests]) + 1

    def require(self, instance: str, path: str) -> None:
        """Raises Unusable: The place holds backups of another data directory."""
        for manifest in self.manifests.values():
            if manifest.instance != instance:
                what = f"it holds backups of another data directory than {path}: {manifest.source}"
                raise Unusable(self._files.path, what)

    def pick(self, number: int | None) -> Manifest:
        """A backup by number; None: the newest.

        Raises:
            Unusable: There is none with this number.
            Corrupt: It does not verify.
        """
        if number is None and self.damaged:
            newest = max(self.manifests, default=0)
            for damage in self.damaged:
                if damage.path > f"{self._files.path}/{backup_name(newest)}":
                    raise damage
        wanted = max(self.manifests, default=0) if number is None else number
        if wanted in self.manifests:
            return self.manifests[wanted]
        for damage in self.damaged:
            if damage.path.endswith(f"/{backup_name(wanted)}"):
                raise damage
        raise Unusable(self._files.path, f"there is no backup {wanted}")

    def keep(self, count: int) -> list[int]:
        """*Blocking.* Remove all but the newest `count` backups, and what none needs; returns the
        numbers of those removed."""
        gone = sorted(self.manifests)[:-count]
        for number in gone:
            self._files.unlink(backup_name(number))
            del self.manifests[number]
        if gone:
            self._files.sync_dir()
        return gone

    def sweep(self) -> None:
        """*Blocking.* Remove what interrupted backups left, and the copies that no backup needs.

        Nothing is removed beside a manifest that does not verify: what it needs is unknown.
        """
        for name in self._files.names():
            if TEMP_NAME.fullmatch(name):
                discard(self._files, name)
        if self.damaged:
            return
        needed = {part.copy for each in self.manifests.values() for part in each.segments}
        for name in sorted(self.copies - needed):
            discard(self._files, name)
            self.copies.discard(name)
        self._files.sync_dir()
