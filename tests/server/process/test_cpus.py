"""The CPUs that a process may use, where its control group has fewer than the machine."""

import os
from pathlib import Path

import pytest

from topics.server.process import cpus
from topics.server.process.cpus import busy_poll_s, usable_cpus

MANY = 64


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has many."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(MANY)), raising=False)


def usable(home: Path, name: str | None, quotas: dict[str, str]) -> float:
    groups, own = home / "cgroup", home / "own"
    groups.mkdir()
    own.write_text("9:name=systemd:/x\n" + ("" if name is None else f"0::{name}\n"))
    for group, text in quotas.items():
        (groups / group).mkdir(parents=True, exist_ok=True)
        (groups / group / "cpu.max").write_text(text)
    return usable_cpus(groups, own)


def test_without_a_group_they_are_the_machines(tmp_path: Path) -> None:
    assert usable_cpus(tmp_path, tmp_path / "none") == MANY
    assert usable(tmp_path, None, {}) == MANY


def test_a_container_has_its_quota(tmp_path: Path) -> None:
    """It sees its own group as the root of all."""
    assert usable(tmp_path, "/", {"": "50000 100000\n"}) == 0.5


def test_a_group_has_no_more_than_those_above_it(tmp_path: Path) -> None:
    quotas = {"system.slice": "150000 100000\n", "system.slice/topics.service": "300000 100000\n"}
    assert usable(tmp_path, "/system.slice/topics.service", quotas) == 1.5


def test_a_group_without_a_quota_has_all(tmp_path: Path) -> None:
    assert usable(tmp_path, "/a/b", {"a": "max 100000\n", "a/b": "nonsense"}) == MANY


def test_fewer_cpus_may_be_asked_for_by_affinity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3})
    assert usable(tmp_path, "/", {"": "800000 100000\n"}) == 1


def test_another_system_says_what_it_has(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 10)
    assert usable_cpus(tmp_path, tmp_path) == 10


@pytest.mark.parametrize(("has", "window_s"), [(1.0, 0.0), (2.5, 0.0), (3.0, 0.0002)])
def test_a_process_polls_where_it_takes_no_cpu_that_its_client_needs(
    monkeypatch: pytest.MonkeyPatch, has: float, window_s: float
) -> None:
    """Of two processes each may poll, and a client has one more."""
    monkeypatch.setattr(cpus, "usable_cpus", lambda: has)
    assert busy_poll_s(200, processes=2) == pytest.approx(window_s)


@pytest.mark.parametrize("refusal", [AttributeError, PermissionError])
def test_a_system_that_does_not_tell_has_those_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: type[Exception]
) -> None:
    """Another system, or a sandbox that forbids the call."""

    def refuses(_: int) -> None:
        raise refusal

    monkeypatch.setattr(os, "sched_getaffinity", refuses)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)

    assert usable_cpus(tmp_path, tmp_path / "none") == 3
