"""Backups taken while the server goes on between any two reads of its files, and restored elsewhere."""

import dataclasses
import random

import pytest

from topics.backup.restore import restore, verify
from topics.backup.take import take

from .busy import Busy
from .files import Cut, SimFiles
from .invariants import Violation
from .model import Model
from .traffic import Style
from .world import World


class Server:
    """A world that lives on, and the model after each of its writes."""

    def __init__(self, seed: int) -> None:
        style = dataclasses.replace(Style.drawn(random.Random(seed)), faults=0.0)
        self.world = World(seed, style)
        self.world.start()
        self.models: list[Model] = []
        self.rng = random.Random(~seed)
        self.most = self.calm = 0
        wrote = self.world._wrote

        def noted(lsn: int) -> None:
            wrote(lsn)
            self.models.append(self.world.history[-1][1].copy())

        self.world.process.wrote = noted

    def live(self, steps: int) -> None:
        for _ in range(steps):
            process = self.world.process
            kind = self.rng.random()
            if kind < 0.7:
                self.world.turn()
            elif kind < 0.8:
                process.work_off()
            elif kind < 0.9:
                process.step_maintenance(checkpoint=self.rng.random() < 0.4)
            else:
                self.world.settle()

    def act(self) -> None:
        """Between two reads: often nothing, sometimes much, up to a checkpoint."""
        self.calm -= 1
        if self.most > 0 and self.calm < 0 and self.rng.random() < 0.2:
            self.most -= 1
            self.live(self.rng.choice((1, 2, 6)))
            if self.rng.random() < 0.5:
                self.delete_some()
                self.world.settle()
                self.world.process.step_maintenance(checkpoint=True)
                self.world.process.finish_maintenance()

    def delete_some(self) -> None:
        """Any records, sealed ones among them."""
        for name, topic in self.world.process.engine.state.topics.items():
            if topic.head_seq and self.rng.random() < 0.7:
                seq = self.rng.randint(topic.earliest_seq, topic.head_seq + 1)
                self.world.traffic.delete_some(name, seq, None)
        self.world.end_turn()

    def rest(self) -> None:
        """Everything decided is written."""
        self.world.process.finish_log()
        self.world.end_turn()
        self.world.process.finish_log()

    def checked(self, found_in: SimFiles, since: int) -> Model:
        """What a restored directory shows is the model after some write since `since`."""
        kept = self.world.process, self.world.recovery
        found, routers = self.world.shown_by(found_in)
        clean, self.world.recovery = self.world.recovery.clean, kept[1]
        epochs = {name: topic.epoch for name, topic in found.items()}
        reasons = []
        for model in reversed(self.models[since:]):
            tried = model.copy()
            for name, topic in tried.topics.items():
                assert topic.epoch != epochs.get(name), (
                    "an epoch of the lost history was used again"
                )
                topic.epoch = epochs.get(name, "")
            try:
                tried.survive(found, how="cut", clean=clean, seen={}, now_ms=self.world.clock_ms)
            except Violation as why:
                reasons.append(f"{why}"[:150])
                continue
            if tried.routers == routers:
                return tried
            reasons.append(f"{tried.routers} {routers}")
        raise AssertionError(f"seed {self.world.seed}, newest first: {' | '.join(reasons[:4])}")


def backed_up(server: Server, place: SimFiles) -> int:
    """Take a backup of the running server; returns how many writes were done when it began."""
    server.rest()
    since = max(len(server.models) - 1, 0)
    server.most, server.calm = 12, server.rng.randint(0, 120)
    take(Busy(server.world.files, server.act), place)
    server.most = 0
    server.rest()
    return since


@pytest.mark.parametrize("seed", range(40))
def test_a_backup_of_a_running_server_is_one_point_of_its_log(seed: int) -> None:
    """Whatever the server does between two reads (appends, deletes, seals, rewrites, drops and
    checkpoints), the restored directory shows its state after one write, none of those before the
    backup began is missing, and no deleted record came back. (decision 104 of the log's format)"""
    server = Server(seed)
    place = SimFiles(seed)
    server.live(60)
    for _ in range(3):
        server.live(25)
        since = backed_up(server, place)
        target = SimFiles(seed + 1)

        restore(place, None, target)

        server.checked(target.kill(), since)
    assert verify(place)[1] == []


@pytest.mark.parametrize("seed", range(6))
def test_each_backup_of_a_place_can_be_restored(seed: int) -> None:
    """A later backup shares segments with the ones before and leaves them as they were."""
    server = Server(seed)
    place = SimFiles(seed)
    begun = []
    for _ in range(4):
        server.live(40)
        begun.append(backed_up(server, place))

    for number, since in enumerate(begun, 1):
        target = SimFiles(seed + number)
        restore(place, number, target)
        server.checked(target.kill(), since)


@pytest.mark.parametrize("seed", range(3))
def test_a_backup_may_be_cut_off_anywhere(seed: int, stride: int) -> None:
    """Killed or without power at any call to the place's disk: the backups before are whole, and
    the next one succeeds."""
    server = Server(seed)
    place = SimFiles(seed)
    server.live(60)
    first = backed_up(server, place)
    server.live(40)
    server.rest()
    models = len(server.models) - 1
    whole = place.kill()
    take(server.world.files.other(), whole)
    calls = whole.calls
    for cut_at in range(seed, calls, max(stride // 4, 1)):
        cut = place.kill()
        cut.cut_at = cut_at
        with pytest.raises(Cut):
            take(server.world.files.other(), cut)
        found = cut.cut(random.Random(cut_at)) if cut_at % 2 else cut.kill()

        manifests, damages = verify(found)

        assert damages == []
        assert 1 in {manifest.number for manifest in manifests}
        target = SimFiles(10_000 + cut_at)
        restore(found, 1, target)
        server.checked(target.kill(), first)
        again, _ = take(server.world.files.other(), found)
        target = SimFiles(10_000 + cut_at)
        restore(found, again.number, target)
        server.checked(target.kill(), models)
        assert not [name for name in found.names() if name.endswith(".tmp")]


def test_a_restore_may_be_cut_off_anywhere(stride: int) -> None:
    """A directory whose restore did not end is refused by a start, or it is complete."""
    server = Server(5)
    place = SimFiles(5)
    server.live(80)
    since = backed_up(server, place)
    whole = SimFiles(1)
    restore(place, None, whole)
    complete = set(whole.names())
    for cut_at in range(0, whole.calls, max(stride // 8, 1)):
        target = SimFiles(1)
        target.cut_at = cut_at
        with pytest.raises(Cut):
            restore(place, None, target)
        found = target.cut(random.Random(cut_at))

        if "topics.id" in found.names():
            assert set(found.names()) >= complete - {".lock"}
            server.checked(found.kill(), since)


def test_the_sources_of_this_package_write_nothing_to_the_source() -> None:
    """The directory is opened for reading only: a running server owns it."""
    server = Server(1)
    server.live(50)
    server.rest()
    before = server.world.files.calls, server.world.files.tree()

    take(server.world.files.other(), SimFiles(1))

    assert (server.world.files.calls, server.world.files.tree()) == before
