"""An exporter beside the server (docs/export.md): it follows the topics of a world into JSON lines, is
stopped at any call, and goes on.

The source, the run, the commits and `verify --deep` are the real ones; the directory that it reads is that
of the world, and the one that it writes a lake in memory which forgets what was not synced.  Owns both
ends of the exporter, and what an export must have in it.  Refuses to know how a commit is made.
"""

import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import orjson
import pytest

from tests.export.lakes import Cut as LakeCut
from tests.export.lakes import MemoryLake
from topics.arrow import local
from topics.arrow.loss import Gap
from topics.arrow.source import NoSuchTopic
from topics.export import run, verify
from topics.export.engines import FileExport
from topics.export.loading import Unusable, load
from topics.export.manifest import Catalogue, Commit, Lineage, Settings
from topics.export.planning import Sizer
from topics.export.target import Target, codec_of, open_target
from topics.protocol.model.events import Hole
from topics.store.files import Files

from .busy import Busy
from .invariants import check

if TYPE_CHECKING:
    from .model import Topic
    from .world import World

TARGET_BYTES = 2000
"""Of a file, so small that a topic has many, and that they are merged."""
PIECES = 10
"""Commits of a topic in one run, about, at most."""
ACTS = 3
"""Times that the server goes on within one run, at most."""


class Stopped(BaseException):
    """The exporter is killed while it reads."""


class SimSource(local.LocalSource):
    """The topics of a simulated directory."""

    def __init__(self, files: Files) -> None:
        self._sim = files
        super().__init__("sim")

    def _files(self) -> Files:
        return self._sim


class Quiet:
    """Implements `run.Progress`."""

    def begin(self, topic: str, first: int, last: int) -> None: ...

    def read(self, topic: str, seq: int, size_bytes: int) -> None: ...

    def committed(self, commit: Commit) -> None: ...

    def lost(self, gap: Gap) -> None: ...

    def note(self, text: str) -> None: ...


class Exporting:
    """The exporter of one world, and its lake.

    Attributes:
        runs, kills: Runs that were begun, and those that were stopped.
    """

    def __init__(self, world: "World") -> None:
        self._world = world
        self._rng = random.Random(f"exporting {world.seed}")
        self._lake = MemoryLake()
        self._settings = Settings("jsonl", self._rng.choice(("none", "none", "tag")))
        self._acts = self._reads = 0
        self.runs = self.kills = 0

    # -- its life ------------------------------------------------------------------------------

    def step(self) -> None:
        """One run, which may be stopped at a call that changes the lake, or at a read of the directory.
        The server goes on meanwhile."""
        rng = self._rng
        self.runs += 1
        self._acts = rng.choice((0, 0, 1, ACTS))
        self._reads = rng.choice((1 << 30, 1 << 30, rng.randint(1, 60)))
        if rng.random() < 0.6:
            self._lake.cut_at = self._lake.calls + rng.randint(1, 60)
        try:
            self._run(tidies=True)
        except (LakeCut, Stopped):
            self.kills += 1
            self._lake = self._lake.killed()
        self._lake.cut_at = None

    def stop(self, how: str) -> None:
        """The machine stops, or only this process, in the middle of whatever it did."""
        if how == "cut":
            self._lake = self._lake.power_cut(tear=self._rng.random() < 0.5, chance=self._rng)
        else:
            self._lake = self._lake.killed()

    def check_stop(self) -> None:
        """After the next start: what a crash took was not exported."""
        try:
            catalogue = load(self._lake)
        except Unusable:
            return  # nothing was ever exported
        for name, topic in self._world.process.engine.state.topics.items():
            lineage = catalogue.current(name)
            if lineage is not None and lineage.epoch == topic.epoch:
                there = [path for path in lineage.files if path in self._lake.names]
                e1_no_crash_takes_what_was_exported(name, self._lines(there), topic.holes)

    def check_whole(self) -> None:
        """One run that nothing stops; then the export is what its manifest says and what the topics say."""
        self._acts, self._reads = 0, 1 << 30
        self._run(tidies=False)
        catalogue = load(self._lake)
        with self._clock(), SimSource(self._world.files.other()) as source:
            e1_files_are_what_the_manifest_says(self._lake, catalogue)
            for name in source.topics():
                compared = verify.compare(self._lake, catalogue, source, name)
                head_seq = source.bounds(name).head_seq
                lineage = catalogue.current(name)
                check(lineage is not None or not head_seq, "E1", f"{name} is not exported")
                if lineage is None or compared is None:
                    check(not head_seq, "E1", f"{name}: another instance is exported: {lineage}")
                    continue
                check(compared.is_whole, "E1", f"{name}: {compared}")
                check(lineage.last == head_seq, "E1", f"{name}: {lineage.last} of {head_seq}")
                topic = self._world.model.topics[name]
                e1_every_record_is_there_once(topic, lineage, self._lines(lineage.files))

    # -- runs ----------------------------------------------------------------------------------

    def _run(self, *, tidies: bool) -> None:
        world = self._world
        with (
            self._clock(),
            SimSource(Busy(world.files, self._act)) as source,
            open_target(self._lake, self._settings, now_ms=lambda: world.clock_ms) as target,
        ):
            check(self._lake.is_locked, "E1", "an export that is written is locked")
            names = tuple(source.topics())
            made = run.ExportRun(
                source,
                self._export(target, tidies=tidies),
                run.ExportJob(names, loss="record", target_bytes=TARGET_BYTES),
                Quiet(),
                stop=lambda: False,
            )
            for name in names:
                seqs = source.bounds(name).head_seq // PIECES  # a restart leaves seqs out
                made._sizers[name] = Sizer(TARGET_BYTES, max(self._rng.choice((3, 10, 1000)), seqs))
            try:
                made.once()
            except NoSuchTopic as gone:
                # Deleted since the run began: an exporter says so, and its next run goes without.
                check(gone.args[0] in names, "E1", gone)
            if tidies and self._rng.random() < 0.3:
                for name in names:
                    if target.lineage(name) is not None:
                        self._export(target, tidies=False).reconcile(source, name)

    @staticmethod
    def _export(target: Target, *, tidies: bool) -> FileExport:
        return FileExport(target, target_bytes=TARGET_BYTES, tidies=tidies)

    @contextmanager
    def _clock(self) -> Iterator[None]:
        """Records expire by the world's clock."""
        with pytest.MonkeyPatch.context() as patch:
            for module in (run, verify):
                patch.setattr(module, "now_ms", lambda: self._world.process.now_ms)
            yield

    def _act(self) -> None:
        """Before a read: often nothing, sometimes the server goes on, or the exporter is killed."""
        self._reads -= 1
        if self._reads <= 0:
            raise Stopped
        if self._acts > 0 and self._rng.random() < 0.05:
            self._acts -= 1
            self._world.go_on(self._rng.choice((1, 3, 9)))

    def _lines(self, paths: Iterable[str]) -> list[bytes]:
        codec = codec_of(self._settings)
        return [
            row["line"].encode()
            for path in paths
            for batch in codec.batches(self._lake, path)
            for row in batch.to_pylist()
        ]


def e1_files_are_what_the_manifest_says(lake: MemoryLake, catalogue: Catalogue) -> None:
    """Each file that counts has its size and its digest, no other file is in its place, and the seqs of
    each instance's commits add up: rows, deleted and lost are its span."""
    problems = verify.verify(lake, catalogue).problems
    check(not problems, "E1", problems)
    for lineages in catalogue.lineages.values():
        for each in lineages:
            told = each.rows + each.deleted + each.missed
            check(told == each.last - each.first + 1, "E1", f"{told} of {each}")


def e1_every_record_is_there_once(topic: "Topic", lineage: Lineage, lines: list[bytes]) -> None:
    """Of the live records, an export that has come to the head has each once, byte for byte."""
    seqs = [orjson.loads(line)["$seq"] for line in lines]
    check(len(seqs) == len(set(seqs)), "E1", f"{topic.name}: rows twice: {sorted(seqs)}")
    known = dict(zip(seqs, lines, strict=True))
    for seq, record in topic.records.items():
        if seq >= lineage.first:
            expected = record.text(tags=True) + b"\n"
            check(known.get(seq) == expected, "E1", f"{topic.name} {seq}: {known.get(seq)!r}")


def e1_no_crash_takes_what_was_exported(
    name: str, lines: list[bytes], holes: Iterable[Hole]
) -> None:
    """An export has durable records only: none of its seqs is in a hole that a crash left."""
    seqs = [orjson.loads(line)["$seq"] for line in lines]
    for hole in holes:
        taken = [seq for seq in seqs if hole.first_seq <= seq <= hole.last_seq]
        check(hole.reason != "crash" or not taken, "E1", f"{name}: {taken} are exported, and lost")
