"""A simulated cluster over one log: one seed decides everything that happens, and in which order.

There is no clock.  At each step one thing happens: a client asks, a record lands, a report comes, a
process stops, the log is cut.  `Style` says how often which.
"""

import random
from collections.abc import Callable

from topics.protocol.cluster.rule.leading import NodeState
from topics.protocol.cluster.rule.ports import LogTrimmed, LogTruncated
from topics.protocol.cluster.rule.replica import Mark, Place
from topics.protocol.cluster.rule.steps import (
    Cease,
    ClientReply,
    EndIs,
    Found,
    GiveUp,
    Lead,
    NotShown,
    Offered,
    Passed,
    Prove,
    ReadFailed,
    SendFailed,
    Sent,
    Shown,
)
from topics.protocol.cluster.rule.trimming import NodeNeeds, bound_of
from topics.protocol.cluster.rule.unit import Shard

from .ending import check, finish
from .invariants import (
    Oracle,
    Violation,
    acknowledged_is_true,
    copies_exist,
    leader_has_the_log,
    loss_is_noticed,
    no_is_true,
    read_is_accepted,
    replicas_agree,
)
from .ledger import Ledger
from .memory_log import MemoryLog
from .process import Process, Store, Token
from .style import KINDS, Style

NODES = 5
STEPS = 1200


class World:
    """One life of a cluster."""

    def __init__(self, seed: int, style: Style | None = None) -> None:
        self.seed = seed
        self.kind = list(KINDS)[seed % len(KINDS)]
        self.style = style or KINDS[self.kind]
        self.rng = random.Random(seed)
        self.log = MemoryLog()
        self.shard = Shard(bytes(16))
        self.oracle = Oracle(self.shard)
        self.stores: dict[str, Store] = {f"n{at}": self.empty_store() for at in range(NODES)}
        self.processes: dict[str, Process] = {}
        self.ether: list[bytes] = []
        self.mark = 0
        self.acknowledged: set[int] = set()
        self.refused: set[int] = set()
        self.unknown: list[int] = []
        self.attempts: dict[int, int] = {}
        self.untold: dict[str, int] = {}
        self.lost: set[int] = set()
        self.notes: list[str] = []
        self.nonces = 0
        self.wiped: set[str] = set()
        self.trims: list[int] = []
        """What leaders have asked the log to let go, and it has not done yet: they may be deposed, or
        dead, by then."""
        for name in self.stores:
            self.start(name)
        self._acts: dict[str, Callable[[], None]] = {
            name: getattr(self, f"do_{name}")
            for name in self.style.__dataclass_fields__
            if name not in ("trouble", "counted")
        }
        self._weights = [getattr(self.style, name) for name in self._acts]

    def note(self, line: str) -> None:
        self.notes.append(line)

    def empty_store(self) -> Store:
        place = Place.before_all(self.shard)
        return Store((place, Mark(place), Ledger()))

    # ------------------------------------------------------------------ running

    def run(self, steps: int = STEPS) -> "World":
        acts, weights = list(self._acts), self._weights
        for name in self.rng.choices(acts, weights, k=steps):
            self._acts[name]()
        finish(self)
        return self

    def pick(self, fits: Callable[[Process], object]) -> Process | None:
        found = [process for process in self.processes.values() if fits(process)]
        return self.rng.choice(found) if found else None

    def start(self, directory: str) -> None:
        # A twin has a directory of its own, and the name of another.
        name = directory.removesuffix("'")
        self.note(f"start {directory}")
        self.processes[directory] = self.process(name, self.stores[directory])

    def process(self, name: str, store: Store) -> Process:
        return Process(self, name, store)

    def directory(self, process: Process) -> str:
        return next(name for name, other in self.processes.items() if other is process)

    # ------------------------------------------------------------------ what processes report

    def answered(self, process: Process, token: Token, reply: ClientReply) -> None:
        who = repr(process)
        if reply is ClientReply.ACCEPTED:
            if process.is_ghost:
                is_false = token.kind == "add" and token.mark not in self.oracle.marks
                loss_is_noticed(process.has_met_loss and is_false, who=who)
                self.lost.add(token.mark)
            elif token.kind == "read":
                read_is_accepted(set(token.shown), self.oracle, who=who)
            elif token.kind == "absent":
                known = token.known_before and token.mark in self.oracle.marks
                no_is_true(token.mark, known, who=who)
            else:
                acknowledged_is_true(token.mark, self.oracle, who=who)
                self.acknowledged.add(token.mark)
        elif token.kind == "add":
            if reply is ClientReply.UNKNOWN:
                self.unknown.append(token.mark)
            elif self.attempts[token.mark] == 1 and not process.is_ghost:
                self.refused.add(token.mark)

    def applied(self, process: Process, place: Place) -> None:
        if not process.is_ghost:
            replicas_agree(place.index, place.chain, self.oracle, who=repr(process))

    def leads(self, process: Process) -> None:
        place, raw = process.node.place, self.log.records.get(process.node.place.offset)
        # Where the log has lost that record since, it is the next thing that this leader notices.
        if raw == process.began:
            leader_has_the_log(place.offset, place.chain, self.oracle, who=repr(process))

    def told(self, process: Process) -> None:
        self.untold.pop(self.directory(process), None)

    def installed(self, process: Process) -> None:
        # Where its place was trimmed it cannot know whether what it had is in the log.
        self.untold.pop(self.directory(process), None)

    # ------------------------------------------------------------------ clients

    def do_ask(self) -> None:
        rng = self.rng
        process = self.pick(lambda p: not p.is_paused and (p.decides or rng.random() < 0.05))
        if process is None or process.node.state in (NodeState.JOINING, NodeState.ASIDE):
            return
        kind, topic = rng.random(), rng.randrange(3)
        if kind < 0.2:
            process.submit(Token("read"), topic)
        elif kind < 0.35 and self.mark:
            mark = rng.randint(max(1, self.mark - 8), self.mark)
            token = Token("check", mark, known_before=mark in self.acknowledged)
            process.submit(token, topic)
        elif kind < 0.45 and self.unknown:
            self.add(process, self.unknown.pop(rng.randrange(len(self.unknown))), topic)
        else:
            self.mark += 1
            self.add(process, self.mark, topic, is_lease=rng.random() < 0.3)

    def add(self, process: Process, mark: int, topic: int, *, is_lease: bool = False) -> None:
        self.attempts[mark] = self.attempts.get(mark, 0) + 1
        process.submit(Token("add", mark), topic, is_lease=is_lease)

    def do_end_turn(self) -> None:
        if process := self.pick(lambda p: not p.is_paused and p.turn):
            process.end_turn()

    # ------------------------------------------------------------------ the network

    def put(self, raw: bytes) -> int:
        offset = self.log.put(raw)
        self.oracle.landed(offset, raw)
        return offset

    def do_land(self) -> None:
        process = self.pick(lambda p: p.outbox and not p.is_cut_off)
        if process is None:
            return
        send, rng = process.outbox.popleft(), self.rng
        process.sent[send.ticket, send.part] = send.raw
        kind = rng.choice(("refused", "lost", "unanswered", "twice", "late", "slow"))
        if rng.random() >= self.style.trouble:
            kind = "lands"
        if kind in ("refused", "lost", "late"):
            process.reports.append(SendFailed(send.ticket, kind == "refused"))
            if kind == "late":
                self.ether.append(send.raw)
            return
        offset = self.put(send.raw)
        if kind == "twice":
            self.put(send.raw)
        elif kind == "slow":
            self.ether.append(send.raw)
        answer = Sent(send.ticket, send.part, offset)
        failed = SendFailed(send.ticket, is_known=False)
        process.reports.append(failed if kind == "unanswered" else answer)

    def do_report(self) -> None:
        if process := self.pick(lambda p: p.reports and not p.is_deaf):
            self.report(process)

    def report(self, process: Process) -> None:
        event = process.reports.popleft()
        is_news = isinstance(event, Sent) and event.offset > process.node.place.read
        if isinstance(event, Sent) and is_news and not self.is_there(process, event):
            self.haunt(process, event.offset)
        process.hear(event)

    def is_there(self, process: Process, sent: Sent) -> bool:
        """Whether the log has kept what it answered."""
        raw = process.sent[sent.ticket, sent.part]
        return sent.offset < self.log.start or self.log.records.get(sent.offset) == raw

    def do_read(self) -> None:
        if process := self.pick(lambda p: p.reader is not None and not p.is_deaf and not p.is_slow):
            self.read(process)

    def read(self, process: Process) -> bool:
        """One record; whether there was something to hear."""
        reader = process.reader
        assert reader is not None
        before = reader.offset
        try:
            found = reader.next()
        except LogTruncated:
            process.reader = None
            process.hear(ReadFailed(is_lost=True))
            return True
        except LogTrimmed:
            process.reader = None
            process.hear(ReadFailed(is_lost=False))
            return True
        if process.is_ghost and reader.offset > process.haunted_from:
            process.has_met_loss = True
        if found is not None:
            process.hear(Found(*found))
            return True
        if reader.offset > before:
            process.hear(Passed(reader.offset - 1))
            return True
        return False

    def do_look(self) -> None:
        if process := self.pick(lambda p: p.asked and not p.is_deaf):
            self.look(process)

    def look(self, process: Process) -> None:
        asked = process.asked.popleft()
        if not isinstance(asked, Prove):
            process.reports.append(EndIs(self.log.next_offset))
            return
        try:
            found = self.log.between(asked.first_offset, asked.last_offset, asked.epoch)
        except LogTrimmed:
            process.reports.append(NotShown(asked.proof, is_lost=False))
        except LogTruncated:
            process.reports.append(NotShown(asked.proof, is_lost=True))
        else:
            process.reports.append(Shown(asked.proof, found))

    def do_late(self) -> None:
        """A record of a process that may be long dead lands."""
        if self.ether:
            raw = self.ether.pop(self.rng.randrange(len(self.ether)))
            self.put(raw)
            if self.rng.random() < 0.3:
                self.ether.append(raw)

    def do_gap(self) -> None:
        self.log.leave_gap()

    def do_cut_off(self) -> None:
        if process := self.pick(lambda p: not p.is_cut_off):
            process.is_cut_off = True

    def do_slow(self) -> None:
        if process := self.pick(lambda p: not p.is_slow):
            process.is_slow = True

    def do_quick(self) -> None:
        if process := self.pick(lambda p: p.is_slow):
            process.is_slow = False

    def do_heal(self) -> None:
        if process := self.pick(lambda p: p.is_cut_off):
            process.is_cut_off = False

    # ------------------------------------------------------------------ processes

    def do_pause(self) -> None:
        if process := self.pick(lambda p: not p.is_paused):
            process.is_paused = True

    def do_resume(self) -> None:
        if process := self.pick(lambda p: p.is_paused):
            process.is_paused = False

    def do_kill(self) -> None:
        if len(self.processes) > 1 and (process := self.pick(lambda p: True)):
            self.kill(process)

    def kill(self, process: Process, *, power: bool | None = None) -> None:
        directory, rng = self.directory(process), self.rng
        self.note(f"kill {directory}")
        del self.processes[directory]
        self.ether += [send.raw for send in process.outbox if rng.random() < 0.5]
        if power or (power is None and rng.random() < 0.5):
            process.store.crash()
        cut = self.untold.get(directory)
        if cut is not None and process.store.open()[0].offset < cut:
            # It had accepted what is gone, and nothing that is left of it knows.
            del self.untold[directory]

    def do_restart(self) -> None:
        down = [name for name in self.stores if name not in self.processes]
        if down:
            self.start(self.rng.choice(down))

    def do_twin(self) -> None:
        name = f"{self.rng.choice(list(self.stores)).rstrip(chr(39))}'"
        if name not in self.stores and len(self.stores) < NODES + 2:
            self.stores[name] = self.empty_store()
            self.start(name)

    def do_lead(self) -> None:
        """Where nobody leads, or the leader is not heard."""
        if not any(p.decides and not p.is_deaf for p in self.processes.values()):
            self.do_duel()

    def do_duel(self) -> None:
        if process := self.pick(lambda p: not p.is_paused):
            self.lead(process)

    def lead(self, process: Process) -> None:
        self.nonces += 1
        process.hear(Lead(self.nonces.to_bytes(16, "little")))

    def do_cease(self) -> None:
        if process := self.pick(lambda p: not p.is_paused and p.decides):
            process.hear(Cease())

    def do_give_up(self) -> None:
        if process := self.pick(lambda p: not p.is_paused):
            process.hear(GiveUp())

    # ------------------------------------------------------------------ stores

    def do_sync(self) -> None:
        if process := self.pick(lambda p: not p.is_paused):
            process.store.sync()

    def do_checkpoint(self) -> None:
        if process := self.pick(lambda p: not p.is_paused):
            process.checkpoint()

    def do_snapshot(self) -> None:
        if process := self.pick(lambda p: p.wants_snapshot and not p.is_deaf and not p.asked):
            donor = self.pick(lambda p: p is not process and not p.is_deaf and p.is_whole)
            self.offer(process, donor)

    @staticmethod
    def offer(process: Process, donor: Process | None) -> None:
        if donor is not None:
            process.wants_snapshot = False
            process.offered = donor.node.anchor, donor.node.mark, donor.engine.copy()
            process.hear(Offered(donor.node.anchor, donor.node.mark))

    def do_trim(self) -> None:
        """Trim as a process does that takes itself for the leader.  The log trims some time."""
        leader = self.pick(lambda p: p.decides and not p.is_deaf)
        if leader is not None:
            before = self.trim_point(leader, self.positions(leader))
            self.trims.append(before)

    def do_trim_lands(self) -> None:
        if self.trims:
            before = self.trims.pop(self.rng.randrange(len(self.trims)))
            if before <= self.log.next_offset:
                self.log.trim_to(before)
                copies_exist(self.able())

    def positions(self, leader: Process) -> list[NodeNeeds]:
        """What a leader knows by heartbeats.  Nodes that are silent for long do not count, and come
        back all the same."""
        found = []
        for directory, store in self.stores.items():
            process = self.processes.get(directory)
            is_silent = process is None or process.is_deaf
            if is_silent and self.rng.random() >= self.style.counted:
                continue
            offset, epoch = store.durable.offset, -1
            if process is not None:
                node, (offset, epoch) = process.node, process.durable
                if node.state is NodeState.ASIDE or node.anchor.index == 0:
                    continue  # it takes a snapshot
            found.append(
                NodeNeeds(
                    node=directory.removesuffix("'"),
                    offset=offset,
                    is_copy=not is_silent and self.is_in_log(offset, epoch),
                    mark=(offset, epoch),
                )
            )
        return found

    def is_in_log(self, offset: int, epoch: int) -> bool:
        try:
            self.log.require(offset, epoch)
        except (LogTrimmed, LogTruncated):
            return False
        return offset >= 0 and epoch >= 0

    @staticmethod
    def trim_point(leader: Process, positions: list[NodeNeeds]) -> int:
        return bound_of(positions).before

    def able(self) -> int:
        """Stores that have what the log has not any more, and the record at its start: they have read
        so far, and what they have read so far is what the log had."""
        start, cuts = self.log.start, self.log.cuts
        marks = [store.durable_mark for store in self.stores.values()]
        return sum(
            start == 0
            or (
                mark.place.offset >= start
                and all(start < first for first in cuts[max(mark.epoch, 0) :])
            )
            for mark in marks
        )

    def do_wipe(self) -> None:
        """A machine is lost with its disk; no other one before it has all again, also of what is
        being let go."""
        start = max(self.log.start, *self.trims, 0)
        self.wiped = {name for name in self.wiped if self.stores[name].durable.offset < start}
        process = self.pick(lambda p: True)
        if process is None or self.wiped or not start:
            return
        directory = self.directory(process)
        self.kill(process, power=True)
        self.untold.pop(directory, None)
        self.stores[directory] = self.empty_store()
        self.wiped.add(directory)
        copies_exist(self.able())

    def do_cut(self) -> None:
        """The log loses its newest records, as after an unclean election: such as a node is left
        that has read none of them."""
        if len(self.log.cuts) >= 3:
            return
        lowest = 1 + min(p.node.place.read for p in self.processes.values())
        first = max(self.log.start, lowest, self.log.next_offset - self.rng.randint(1, 8))
        if first >= self.log.next_offset:
            return
        self.note(f"cut {first}")
        self.log.cut(first)
        self.oracle.cut(first)
        # What is being let go is older than the retention: no log loses so much while it is.
        self.trims = [before for before in self.trims if before <= first]
        gone = self.acknowledged - self.oracle.marks
        self.lost |= gone
        # What made a refusal final may be gone as well.
        self.refused.clear()
        self.acknowledged -= gone
        for directory, process in self.processes.items():
            if process.node.place.read >= first or process.was_promised(first):
                self.haunt(process, first)
            elif directory in self.untold:
                self.untold[directory] = min(first, self.untold[directory])
        for directory, store in self.stores.items():
            if directory not in self.processes and store.open()[0].offset >= first:
                self.untold[directory] = first

    def check(self, is_acknowledged: bool) -> None:
        """All agree, at the end."""
        check(self, is_acknowledged)

    def haunt(self, process: Process, first: int) -> None:
        """It has accepted, or is about to, what the log has lost."""
        if process.node.state is NodeState.ASIDE:
            return
        process.haunted_from = min(first, process.haunted_from) if process.is_ghost else first
        process.is_ghost = True
        directory = self.directory(process)
        if process.node.place.offset >= first:
            self.untold[directory] = min(first, self.untold.get(directory, first))


def told_world(seed: int, style: Style | None = None) -> World:
    """Live this world.  Raises Violation, with the seed that lives it again."""
    world = World(seed, style)
    try:
        return world.run()
    except Violation as violation:
        violation.args = (f"seed={seed} kind={world.kind} {violation}",)
        raise
    except AssertionError as why:
        raise Violation("asserted", f"seed={seed} kind={world.kind} {why!r}") from why
