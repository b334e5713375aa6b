"""What the process takes, in the names of Prometheus' own clients."""

import os
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from topics.server.observing import metrics, usage


def test_the_figures_are_those_of_this_process() -> None:
    """Memory and descriptors from /proc, CPU time from the kernel; one more file is one more."""
    before = {family.name: family.samples[0].value for family in usage.families()}
    descriptor = os.open(os.devnull, os.O_RDONLY)
    try:
        after = {family.name: family.samples[0].value for family in usage.families()}
    finally:
        os.close(descriptor)

    assert after["process_open_fds"] == before["process_open_fds"] + 1
    assert after["process_resident_memory_bytes"] > 1 << 20
    assert after["process_resident_memory_bytes"] < after["process_virtual_memory_bytes"]
    assert after["process_cpu_seconds_total"] >= before["process_cpu_seconds_total"] > 0
    assert after["process_max_fds"] >= after["process_open_fds"]


def test_what_the_system_does_not_tell_is_left_out(tmp_path: Path) -> None:
    """Without /proc: no memory and no descriptors, and no zeros in their place."""
    names = {family.name for family in usage.families(tmp_path / "no-proc")}

    assert "process_cpu_seconds_total" in names
    assert "process_resident_memory_bytes" not in names
    assert "process_open_fds" not in names


def test_prometheus_reads_them() -> None:
    """By the parser of its own client."""
    text = metrics.as_text(usage.families()).decode()

    found = {family.name: family.type for family in text_string_to_metric_families(text)}

    assert found["process_cpu_seconds"] == "counter"
    assert found["process_resident_memory_bytes"] == "gauge"


def test_resident_memory_alone_is_a_number(tmp_path: Path) -> None:
    """0 where the system does not tell. (§8.6)"""
    assert usage.resident_bytes() > 1 << 20
    assert usage.resident_bytes(tmp_path / "no-proc") == 0


def test_a_sandbox_that_forbids_to_ask_leaves_figures_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A scrape answers with the rest."""

    def refuses(_: int) -> None:
        raise PermissionError

    monkeypatch.setattr(usage.resource, "getrusage", refuses)
    monkeypatch.setattr(usage.resource, "getrlimit", refuses)

    assert [family.name for family in usage.families(tmp_path)] == ["process_start_time_seconds"]
    assert usage.cpu_s() is None
