"""Producers of Kafka's that send again what they have no answer to, over kills and power losses at any file call.

A world is one directory, one producer and lives that a cut ends: it appends numbered batches with their sequences, some of
them twice and some damaged on their way, beside records of HTTP, deletes, seals and checkpoints; the next life recovers,
and the producer goes on where its answers end.  In some worlds a backup is restored below the living producer, which is
refused where records of it are gone, and goes on under another id.  In the end each of its records that nobody deleted,
and no restore took, is in the topic once, in order, and a consumer never saw anything else.
"""

import copy
from typing import Any, NamedTuple

from protocol.batches.builder import Record, batch, records_of
from protocol.harness import Harness

from topics.protocol.batches import sound
from topics.protocol.batches.codecs import packed
from topics.protocol.batches.header import BatchError
from topics.protocol.model.commands import AppendBatch, ReserveProducerIds
from topics.protocol.model.outcomes import BatchAppended, Gate, ProducerIds
from topics.protocol.state.producers import OutOfOrder, TooOld

from . import consuming
from .consuming import Consumer
from .lives import Bug, Lives, Patch, require


class Known(NamedTuple):
    """What was known when a backup was taken."""

    acked: dict[int, int]
    consumer: Consumer


class World(Lives):
    """A topic, its producer and a consumer."""

    def __init__(self, seed: int, *, harsh: bool) -> None:
        super().__init__(seed, harsh=harsh)
        self.producer_id = -1
        self.blocks: list[tuple[int, int]] = []
        self.sent: list[tuple[int, list[bytes]]] = []
        """Batches of the producer: the number of the first record, and their values."""
        self.acked: dict[int, int] = {}
        """By that number, the seq that the answer named."""
        self.numbers = self.first_number = 0
        """The number of the next record, and of the first one under this id."""
        self.lost: set[bytes] = set()
        """Values that a restore took."""
        self.is_restored = False
        self.consumer = Consumer(self.dice)

    # ------------------------------------------------------------------ one life

    def begin(self) -> None:
        engine = self.engine
        if "t" not in engine.engine.state.topics:
            require(not self.acked, "a topic is gone")
            engine.put("t", durability=self.durability)
            engine.sync()
        if self.producer_id < 0:
            self.producer_id = self.reserve()
        self._go_on()

    def reserve(self) -> int:
        """An id out of a block of its own, once that is durable."""
        found = self.engine.ask(ReserveProducerIds(10))
        assert isinstance(found, ProducerIds)
        require(found.gate is Gate.SYNCED, "ids are given before their block is durable")
        self.engine.sync()
        for first, count in self.blocks:
            overlaps = found.first < first + count and first < found.first + found.count
            require(not overlaps, "an id is given twice")
        self.blocks.append((found.first, found.count))
        return found.first

    def known(self) -> Known:
        return Known(dict(self.acked), copy.deepcopy(self.consumer))

    def revert(self, known: Known) -> None:
        since = [each for each in self.sent if each[0] in self.acked.keys() - known.acked]
        self.lost |= {value for _, values in since for value in values}
        self.sent = [each for each in self.sent if each[0] not in self.acked]
        self.acked, self.consumer = known
        self.is_restored = True

    def _renew(self) -> None:
        """Go on under another id, from the first record that has no answer."""
        self.is_restored = False
        self.producer_id = self.reserve()
        self.sent = [each for each in self.sent if each[0] not in self.acked]
        self.first_number = self.sent[0][0]
        self._go_on()

    def _go_on(self) -> None:
        """A producer sends again what it has no answer to, in order."""
        for number, values in list(self.sent):
            if number not in self.acked:
                self._append(number, values)

    def _append(self, number: int, values: list[bytes], *, expects: type | None = None) -> None:
        engine = self.engine
        records: list[Record] = [
            (b"k%d" % (at % 3), value, [], 0) for at, value in enumerate(values, number)
        ]
        codec = number % 2 * 4
        data = batch(
            packed(codec, records_of(records)),
            len(records),
            attributes=codec,
            producer_id=self.producer_id,
            producer_epoch=0,
            sequence=number - self.first_number,
        )
        self._send_damaged(data)
        try:
            found = engine.ask(AppendBatch("t", self._accepted(data)))
        except (OutOfOrder, TooOld) as refusal:
            if expects is None and self.is_restored:
                return self._renew()
            require(expects is not None, f"the next batch is refused: {refusal.message}")
            return
        require(expects is None, "a batch behind a gap is taken")
        assert isinstance(found, BatchAppended)
        require(found.count == len(values), "an answer counts other records")
        if self.dice.random() < 0.15:
            shown = [each.offset + 1 for each in self.consumer.look(engine)]
            is_early = not found.deduped and any(seq >= found.first_seq for seq in shown)
            require(not is_early, "what is not written yet is shown")
        known = self.acked.get(number)
        require(known is None or known == found.first_seq, "a repeat gets another seq")
        if found.gate is Gate.SYNCED:
            engine.sync()
        elif found.gate is Gate.WRITTEN:
            engine.write()
        self.acked[number] = found.first_seq

    def _send_damaged(self, data: bytes) -> None:
        """Now and then a bit of a batch is another when it arrives: nothing of it is taken."""
        if self.dice.random() < 0.9:
            return
        at, bit = self.dice.randrange(16, len(data)), 1 << self.dice.randrange(8)
        damaged = data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :]
        try:
            accepted = self._accepted(damaged)
        except BatchError:
            return
        self.engine.ask(AppendBatch("t", accepted))

    @staticmethod
    def _accepted(data: bytes) -> bytes:
        """A batch as it goes on to the engine.  Raises BatchError."""
        sound.require_sound(data, 1 << 20)
        return data

    # ------------------------------------------------------------------ what happens in it

    def step(self) -> None:
        engine, dice = self.engine, self.dice
        choice = dice.random()
        if choice < 0.45:
            values = [b"%d" % (self.numbers + i) for i in range(dice.randint(1, 5))]
            number, self.numbers = self.numbers, self.numbers + len(values)
            self.sent.append((number, values))
            self._append(number, values)
        elif choice < 0.6 and self.sent:
            # What was answered comes again: one of the last five is known.
            self._append(*dice.choice(self.sent[-5:]))
        elif choice < 0.65 and self.sent:
            self._append(self.numbers + 7, [b"gap"], expects=OutOfOrder)
        elif choice < 0.7:
            engine.append(-self.lives)  # by HTTP, without a key
            if dice.random() < 0.5:
                engine.sync()
        elif choice < 0.72:
            self.consumer.delete(engine, b"k%d" % dice.randrange(3))
        elif choice < 0.8:
            self.consumer.look(engine)
        elif choice < 0.85:
            engine.seal()
        elif choice < 0.9:
            engine.drive(engine.schedule._checkpoint())
        elif choice < 0.95:
            self.reserve()
        else:
            engine.now_ms += 1000
            engine.sync()

    # ------------------------------------------------------------------ the end

    def judge(self) -> None:
        """Let the producer have its answers, and read everything."""
        self.start()
        self.begin()
        engine = self.engine
        engine.sync()
        consumer = self.consumer
        found = [each for each in consumer.look(engine, from_start=True) if each.key is not None]
        deleted = {consumer.seen[at].value for at in consumer.gone | consumer.dying}
        values = [each.value for each in found if each.value not in deleted]
        sent = [b"%d" % n for n in range(self.numbers)]
        known = [each for each in sent if each not in deleted]
        require(values == sorted(set(values), key=int), f"records in another order: {values}")
        required = [each for each in known if each not in self.lost]
        require([each for each in values if each not in self.lost] == required, f"records {values}")
        seqs = {each.value: each.offset + 1 for each in found}
        for number, seq in self.acked.items():
            value = b"%d" % number
            require(value in deleted or seqs[value] == seq, "an answer named another seq")
        self.reserve()


def duplicate_accepted_after_a_crash(patch: Patch) -> None:
    """What a producer wrote is not taken out of the log again."""
    from topics.protocol.state.state import State

    own = State.__init__

    def made(self: Any, *args: Any, **named: Any) -> None:
        own(self, *args, **named)
        note = self.producers.note
        live = {"is": False}
        self.producers.live = live
        self.producers.note = lambda *given: note(*given) if live["is"] else None

    patch.setattr(State, "__init__", made)
    recover = Harness.__init__

    def recovered(self: Any, *args: Any, **named: Any) -> None:
        recover(self, *args, **named)
        self.engine.state.producers.live["is"] = True

    patch.setattr(Harness, "__init__", recovered)


def out_of_order_accepted(patch: Patch) -> None:
    from topics.protocol.state import producers

    own = producers.Producers.repeated

    def repeated(self: Any, *given: Any) -> Any:
        try:
            return own(self, *given)
        except OutOfOrder:
            return None

    patch.setattr(producers.Producers, "repeated", repeated)


def producers_left_out_of_a_checkpoint(patch: Patch) -> None:
    from topics.protocol.state.producers import Producers

    patch.setattr(Producers, "rows", lambda self, topic_id: ())


def ids_given_before_they_are_durable(patch: Patch) -> None:
    from topics.protocol.decide.batches import BatchCommands

    own = BatchCommands.reserve

    def reserve(self: Any, *given: Any) -> Any:
        import msgspec

        return msgspec.structs.replace(own(self, *given), gate=Gate.WRITTEN)

    patch.setattr(BatchCommands, "reserve", reserve)


def ids_of_a_history_go_on_in_a_copy(patch: Patch) -> None:
    from topics.protocol.decide import batches

    patch.setattr(batches, "_first_id", lambda history: 0)


def ids_left_out_of_a_checkpoint(patch: Patch) -> None:
    from topics.protocol.state.state import State

    own = State.restore

    def restore(self: Any, checkpoint: Any) -> None:
        own(self, checkpoint)
        self.producer_ids = 0

    patch.setattr(State, "restore", restore)


def repeat_answered_with_another_seq(patch: Patch) -> None:
    """A repeat is answered with the seq after the one that it got."""
    from topics.protocol.decide.batches import BatchCommands

    own = BatchCommands._repeated

    def repeated(topic: Any, known: Any) -> Any:
        return own(topic, known._replace(first_seq=known.first_seq + 1))

    patch.setattr(BatchCommands, "_repeated", staticmethod(repeated))


BUGS: dict[str, Bug] = {
    bug.sow.__name__: bug
    for bug in (
        Bug(duplicate_accepted_after_a_crash, "the next batch is refused"),
        Bug(out_of_order_accepted, "a batch behind a gap is taken"),
        Bug(producers_left_out_of_a_checkpoint, "the next batch is refused"),
        Bug(ids_given_before_they_are_durable, "ids are given before"),
        Bug(ids_left_out_of_a_checkpoint, "an id is given twice"),
        Bug(ids_of_a_history_go_on_in_a_copy, "an id is given twice", 18),
        Bug(repeat_answered_with_another_seq, "a repeat gets another seq"),
        *consuming.BUGS,
    )
}
