"""A reader is made of the server's settings, and of a directory that is there."""

from pathlib import Path

import pytest

from topics.protocol.driver.inline_host import InlineHost
from topics.protocol.model.errors import Unusable
from topics.protocol.model.limits import Limits
from topics.server.access.keys import source_of
from topics.server.readers.assembly import parts_of
from topics.server.transport.limits import MESSAGE_BYTES_MAX
from topics.settings import Settings, load
from topics.store.files import OsFiles
from topics.store.store import DiskStore


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A data directory."""
    store = DiskStore(OsFiles(tmp_path / "data"))
    InlineHost(Limits(), store, 1_750_000_000_000).driver.recover()
    store.close(None)
    return tmp_path / "data"


def settings(home: Path, **values: object) -> Settings:
    given = {f"TOPICS_{name.upper()}": str(value) for name, value in values.items()}
    return load({"TOPICS_DATA_DIR": str(home), **given}, {})


def test_a_reader_takes_what_bounds_the_server(home: Path) -> None:
    """Its connections, bodies and waits have the server's bounds, each process by itself."""
    parts = parts_of(settings(home, max_connections_per_ip=7, max_body_bytes=1000))
    limits = parts.transport_limits(50)

    assert (limits.connections, limits.connections_per_ip) == (50, 7)
    assert limits.message_bytes == 1000 < MESSAGE_BYTES_MAX
    assert parts.timeouts.idle_s == parts.settings.keep_alive_ms / 1000
    assert parts.guard is None
    parts.store.close()


def test_a_server_without_a_bound_for_an_address_has_that_of_all(home: Path) -> None:
    """0 is no bound of its own."""
    parts = parts_of(settings(home, max_connections_per_ip=0))

    assert parts.transport_limits(50).connections_per_ip == 50
    parts.store.close()


def test_a_reader_asks_for_keys_where_the_server_does(home: Path) -> None:
    """By the keys in force, wherever they came from; also where there is none left. (§0.2)"""
    source = source_of("k" * 24, None)
    assert source is not None
    parts = parts_of(settings(home, api_keys_file=home / "missing"), source.read())
    assert parts.guard is not None
    assert parts.guard.keys.find(b"k" * 24) is not None
    parts.store.close()

    parts = parts_of(settings(home), [])
    assert parts.guard is not None
    parts.store.close()


def test_a_directory_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    """A reader changes nothing."""
    with pytest.raises(Unusable):
        parts_of(settings(tmp_path / "missing"))

    assert not (tmp_path / "missing").exists()
