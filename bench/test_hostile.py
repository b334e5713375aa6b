"""Short versions of the attacks: each program starts one and prints its row."""

import click
import pytest
from click.testing import CliRunner

from bench import hostile_h2, hostile_http1, hostile_kafka, hostile_requests, pressure

PROGRAMS = [
    (hostile_http1.main, "pipelined requests"),
    (hostile_http1.main, "pings"),
    (hostile_http1.main, "clients that do not read"),
    (hostile_h2.main, "rapid reset"),
    (hostile_h2.main, "window of 0"),
    (hostile_requests.main, "deep JSON"),
    (hostile_requests.main, "gzip bombs"),
    (hostile_kafka.main, "lengths that lie"),
    (hostile_kafka.main, "logins that are wrong"),
    (hostile_kafka.main, "Kafka where it is not served"),
]


@pytest.mark.parametrize(("program", "attack"), PROGRAMS, ids=[name for _, name in PROGRAMS])
def test_hostile(program: click.Command, attack: str) -> None:
    """The neighbour is answered throughout, and the server's log has no traceback."""
    asked = [attack, "--clients", "2", "--seconds", "0.3"]
    done = CliRunner().invoke(program, asked, catch_exceptions=False)

    [_, row] = done.output.splitlines()
    assert row.startswith(attack)
    assert " MiB " in row
    assert "TRACEBACK" not in row


@pytest.mark.parametrize("module", [hostile_http1, hostile_h2, hostile_kafka, hostile_requests])
def test_attacks_are_told_apart(module: object) -> None:
    """An attack that no program knows is refused by name."""
    done = CliRunner().invoke(module.main, ["nonsense"])  # type: ignore[attr-defined]
    assert done.exit_code == 2
    assert "nonsense" in done.output


def test_pressure() -> None:
    """A slow disk is offered more than it writes: every figure has its line."""
    asked = ["--seconds", "0.5", "--disk", "20000000"]
    done = CliRunner().invoke(pressure.main, asked, catch_exceptions=False)

    rows = [line.partition(" | ")[0] for line in done.stdout.splitlines()]
    assert rows[0] == "capacity"
    assert rows[-1] == "normal again"
    assert "0 without Retry-After" in done.stdout or "0 of" in done.stdout
