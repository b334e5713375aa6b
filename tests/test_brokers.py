"""Brokers for tests: had with Java and Maven, and one line about what is missing without."""

import socket
from pathlib import Path

import pytest

from tests import brokers
from tests.brokers import Brokers, NoBrokers
from tests.ports import unused_ports


def test_a_machine_without_java_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(NoBrokers, match="Kafka needs Java: apt-get install"):
        brokers.java()


def test_a_machine_without_maven_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Unless it has Kafka already."""
    monkeypatch.setattr(brokers, "CACHE", tmp_path / "cache")
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(NoBrokers, match="apt-get install maven"):
        brokers.jars()

    (tmp_path / "cache" / f"{brokers.VERSION}-tools").mkdir(parents=True)
    assert brokers.jars() == tmp_path / "cache" / f"{brokers.VERSION}-tools"


def test_a_download_that_fails_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its reason is told, and the next run begins anew."""
    monkeypatch.setattr(brokers, "CACHE", tmp_path / "cache")
    maven = tmp_path / "mvn"
    maven.write_text("#!/bin/sh\necho 'no way to Central'\nexit 1\n")
    maven.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    with pytest.raises(NoBrokers, match="Maven did not get Kafka: no way to Central"):
        brokers.jars()

    assert list((tmp_path / "cache").iterdir()) == []


def test_ports_are_free_and_different() -> None:
    ports = unused_ports(6)

    assert len(set(ports)) == 6
    for port in ports:
        with socket.socket() as one:
            one.bind(("127.0.0.1", port))


@pytest.mark.kafka
def test_a_broker_that_was_killed_starts_again(tmp_path: Path) -> None:
    """With its port and its data."""
    try:
        brokers.java()
        brokers.jars()
    except NoBrokers as error:
        pytest.skip(str(error))
    running = Brokers(tmp_path)
    [broker] = running.brokers
    try:
        running.start()
        assert broker.is_open()
        broker.kill()
        assert not broker.is_open()
        running.start()
        assert broker.is_open()
    finally:
        running.stop()
    assert not broker.is_open()


def test_a_broker_that_ends_by_itself_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With the last that it said, and not after the time that a start may take."""
    fake = tmp_path / "java"
    fake.write_text("#!/bin/sh\ncase $* in *StorageTool*) exit 0;; esac\necho no memory\nexit 3\n")
    fake.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", "/nonexistent")
    monkeypatch.setattr(brokers, "java", lambda: str(fake))
    monkeypatch.setattr(brokers, "jars", lambda: tmp_path)
    running = Brokers(tmp_path / "data")

    with pytest.raises(NoBrokers, match="broker 1 ended: no memory"):
        running.start()
