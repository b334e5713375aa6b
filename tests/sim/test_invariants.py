"""The table of invariants: which function checks each, and the proof that a run evaluates it."""

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from . import exporting, invariants, pushing, reading, rot, routing, space
from .invariants import EVALUATED, Violation, check
from .model import Model, Topic
from .process import Process
from .stories import KINDS, story, told_story
from .traffic import ANSWERS, Clients, Telling, Traffic
from .waiting import Waiting
from .watching import Watching
from .world import World

TESTS = Path(__file__).parents[1]


@dataclass(frozen=True)
class Invariant:
    """One row.

    Attributes:
        words: What holds.
        source: § of the contract, or of the docs, that says so.
        by: The functions that check it; each names it.
        elsewhere: `file::test` of what the simulation has no part in.
    """

    words: str
    source: str
    by: tuple[Callable[..., Any], ...] = ()
    elsewhere: tuple[str, ...] = ()


TABLE: dict[str, Invariant] = {
    "I1": Invariant(
        "every acknowledged write that its class keeps is there, with the same bytes",
        "§0.10",
        (Topic.survive,),
    ),
    "I2": Invariant(
        "a power loss takes a suffix of a `disk` topic, a kill nothing",
        "§0.10",
        (
            invariants.i2_what_a_stop_takes_is_a_suffix,
            invariants.i2_two_files_of_the_log_are_unsynced_at_most,
        ),
    ),
    "I3": Invariant("a batch is whole", "§2", (invariants.i3_a_batch_is_whole,)),
    "I4": Invariant(
        "what is read was written, byte for byte",
        "§3",
        (reading._check_records, Watching._got, pushing.Pushing._check),
    ),
    "I5": Invariant(
        "a seq stands for one record; no head is below what a client knows",
        "§0.10",
        (Clients.saw_record, Topic._check_head),
    ),
    "I6": Invariant(
        "what is deleted stays deleted", "§5", (invariants.i6_what_is_deleted_stays_deleted,)
    ),
    "I7": Invariant(
        "a delete touches nothing later", "§5", (invariants.i7_a_delete_touches_nothing_later,)
    ),
    "I8": Invariant(
        "floor <= earliest <= head + 1, and neither falls",
        "§3.3",
        (reading.check_page, Clients.saw_floors, Topic._check_loss),
    ),
    "I9": Invariant(
        "a tombstone exactly where a cursor lost something, with its bounds",
        "§3.3",
        (reading._check_tombstone, reading._check_hole, Watching._lost),
    ),
    "I10": Invariant(
        "the floor moves by loss only", "§3.3", (Traffic._learn_floors, Topic._check_loss)
    ),
    "I11": Invariant(
        "a walk ascends, skips nothing, and ends at the head",
        "§3.2",
        (reading._check_records, World._walk, Watching._got, Watching._take),
    ),
    "I12": Invariant(
        "cursor, lag and `caught_up` agree", "§3.2", (reading.check_page, Watching._got)
    ),
    "I13": Invariant(
        "counts are a recount",
        "§1.2",
        (invariants.i13_the_count_is_of_what_is_read, Traffic._check_state, Model.survive),
    ),
    "I14": Invariant("times do not fall", "§0.3", (invariants.i14_times_do_not_fall,)),
    "I15": Invariant(
        "a delete by tag takes what matches and no more",
        "§5",
        (invariants.i15_nothing_that_matches_is_left, Traffic.delete_some, Traffic.purge_some),
    ),
    "I16": Invariant(
        "a key stands for one batch within its window",
        "§0.8",
        (
            invariants.i16_a_key_stands_for_a_batch_of_its_own,
            Traffic.call,
        ),
    ),
    "I17": Invariant(
        "a full topic that rejects takes nothing",
        "§0.10",
        (invariants.i17_what_is_refused_takes_nothing, Traffic.call, Traffic._check_refusal),
    ),
    "I18": Invariant(
        "one live lease a job, to a worker that waits, no more than it asked for",
        "§10.2",
        (Waiting.granted, Waiting.answered, pushing.Pushing._check),
    ),
    "I19": Invariant(
        "ready + in flight + delayed is the count", "§10.7", (World._jobs, Traffic._check_state)
    ),
    "I20": Invariant(
        "deliveries count up by one from one", "§10.3", (Waiting.granted, Traffic.check_job)
    ),
    "I21": Invariant(
        "who does not hold a job changes nothing; no lease number twice",
        "§10.4",
        (
            invariants.i21_what_is_skipped_stays,
            Waiting.granted,
        ),
    ),
    "I22": Invariant(
        "acked jobs and lasting leases survive, others go together", "§10.1", (Topic._check_jobs,)
    ),
    "I23": Invariant(
        "a job is in its queue or a dead letter, never both, never neither",
        "§10.6",
        (World.moved, Topic._check_jobs),
    ),
    "I24": Invariant(
        "a push stream that closes releases its own leases",
        "§10.8",
        (pushing.i24_exactly_its_leases_are_released,),
    ),
    "I25": Invariant(
        "a destination has all of its source, or the loss is told",
        "§6.1",
        (routing._forward, routing._skip, Traffic._check_paid),
    ),
    "I26": Invariant(
        "one copy of each with `exactly_once`",
        "§6.1",
        (routing._forward, invariants.i26_one_copy_of_each),
    ),
    "I27": Invariant("a full destination holds its router", "§6.1", (routing._forward,)),
    "I28": Invariant(
        "nobody reads its own records", "§3.4", (invariants.i28_nobody_reads_its_own,)
    ),
    "I29": Invariant(
        "an instance that was deleted is not another with its name",
        "§1.4",
        (reading._check_tombstone, Watching._lost, Topic.survive),
    ),
    "I30": Invariant(
        "the config is the last that was acknowledged",
        "§1.1",
        (
            invariants.i30_the_config_is_one_that_was_put,
            Topic.survive,
        ),
    ),
    "I31": Invariant("to recover again shows the same", "§0.10", (World._recover_again,)),
    "I32": Invariant(
        "after a failure nothing is written, and nothing unsynced is shown",
        "§0.6",
        (invariants.i32_nothing_is_decided_after_a_failure, Traffic._check_head),
    ),
    "I33": Invariant(
        "everybody is answered, once; a stream that has news is woken",
        "§7.6",
        (space.check_rest, Telling.__call__, Watching.check_rest),
    ),
    "I34": Invariant(
        "what is counted against a limit is there, and no more",
        "§11",
        (invariants.i34_counters_equal_a_recount,),
    ),
    "I35": Invariant(
        "no answer has a name outside its key's prefixes",
        "§0.2",
        elsewhere=("contract/test_keys.py::test_every_name_is_inside_the_keys_prefixes",),
    ),
    "I36": Invariant(
        "descriptors, connections and memory at the end are those of the start",
        "docs/operations.md",
        elsewhere=("test_soak.py::test_memory_and_descriptors_stay_flat",),
    ),
    "C1": Invariant(
        "an answer says what the contract says", "§1-§10", (Traffic.get, Waiting.answered)
    ),
    "C2": Invariant("a refusal has its reason, and its code", "§11", (Traffic._check_refusal,)),
    "E1": Invariant(
        "an export has each record once, and accounts for every seq",
        "docs/export.md",
        (
            exporting.e1_files_are_what_the_manifest_says,
            exporting.e1_every_record_is_there_once,
            exporting.e1_no_crash_takes_what_was_exported,
        ),
    ),
    "F1": Invariant("who only stopped starts again", "docs/durability.md", (World.crash,)),
    "F11": Invariant(
        "a read that fails is told, and no other is",
        "docs/durability.md",
        (invariants.f11_only_a_failed_read_fails,),
    ),
    "F12": Invariant(
        "damage to durable bytes is named", "docs/durability.md", (rot._check_refused,)
    ),
    "F14": Invariant(
        "a directory shows the same without its newest checkpoint",
        "docs/durability.md",
        (rot._check_checkpoint,),
    ),
}
BY_ANSWER = set(ANSWERS.values()) | {"I16"}
"""Invariants that `Traffic.call` names by the command."""


@pytest.fixture(scope="module")
def evaluated() -> dict[str, int]:
    """How often each is evaluated by a few worlds of each kind."""
    before = dict(EVALUATED)
    for kind in KINDS:
        for seed in range(5):
            story(f"{kind}:{seed}")
    return {name: count - before.get(name, 0) for name, count in EVALUATED.items()}


def test_the_table_is_whole() -> None:
    """All thirty-six are there, each with its words, its source, and somebody who checks it."""
    assert set(TABLE) == invariants.NAMED
    assert [f"I{i}" for i in range(1, 37)] == [name for name in TABLE if name[0] == "I"]
    for name, row in TABLE.items():
        assert row.words, name
        assert row.source, name
        assert row.by or row.elsewhere, name


@pytest.mark.parametrize("name", [name for name, row in TABLE.items() if row.by])
def test_each_function_names_its_invariant(name: str) -> None:
    """A function of the table says the number, or has the answers' numbers said for it."""
    for function in TABLE[name].by:
        source = inspect.getsource(function)
        assert f'"{name}"' in source or name in BY_ANSWER, f"{function.__qualname__}: {name}"


@pytest.mark.parametrize("name", [name for name, row in TABLE.items() if row.by])
def test_each_invariant_is_evaluated(name: str, evaluated: dict[str, int]) -> None:
    """A handful of worlds evaluates every one of them, often."""
    assert evaluated.get(name, 0) > 0


@pytest.mark.parametrize("where", [where for row in TABLE.values() for where in row.elsewhere])
def test_what_is_checked_elsewhere_is_there(where: str) -> None:
    """The test that a row names is in the file that it names."""
    path, test = where.split("::")
    assert re.search(rf"^def {test}\(", (TESTS / path).read_text(), re.MULTILINE)


def test_a_violation_says_how_to_live_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line: the seed, the commit, the invariant, the step, and the command."""
    monkeypatch.setattr(Process, "begin_sync", lambda self: check(False, "I6", "sown"))

    with pytest.raises(AssertionError) as failed:
        told_story(3, crashes=2)

    line = str(failed.value)
    assert re.match(r"TOPICS_SEED=life:3 git=\w+ invariant=I6 step=\d+ ", line)
    assert "TOPICS_SEED=life:3 .venv/bin/python -m tests.sim.run" in line
    assert isinstance(failed.value.__cause__, Violation)
