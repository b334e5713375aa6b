"""Places: which of a path and a URL is read."""

from pathlib import Path

import pytest
from arrow.writer import writer
from protocol.durable import Durable

from topics.arrow.local import LocalSource
from topics.arrow.source import NotDurable, TopicSource
from topics.client import Unreachable
from topics.spark import places
from topics.spark.errors import BadOption
from topics.spark.options import Place
from topics.spark.places import settle

URL = "http://127.0.0.1:9"


@pytest.fixture
def engine(tmp_path: Path) -> Durable:
    engine = writer(tmp_path / "data")
    engine.append(1)
    engine.store.idle()
    return engine


@pytest.fixture
def server(engine: Durable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What answers at the URL: another reader of a directory, which a test may change."""
    served = {"path": str(engine.files.path)}

    def opened(place: Place) -> TopicSource:
        if place.url is not None and place.consistency == "durable":
            raise NotDurable("no server says what is durable")
        return LocalSource(place.path or served["path"])

    monkeypatch.setattr(places, "open_place", opened)
    return served


def test_one_place_is_that_place(engine: Durable) -> None:
    """And of two, the one that is asked for; nothing is opened for that."""
    path = str(engine.files.path)
    assert settle(Place(path=path), ("t",)).url is None
    assert settle(Place(url=URL), ("t",)).path is None
    assert settle(Place(path=path, url=URL, access="remote"), ("t",)).path is None
    assert settle(Place(path=path, url=URL, access="local"), ("t",)).url is None


def test_the_directory_of_the_server_is_read(
    engine: Durable, server: dict[str, str], tmp_path: Path
) -> None:
    """Where it is the server's own, which epochs tell; another one, or none, is not."""
    path = str(engine.files.path)
    assert settle(Place(path=path, url=URL), ("t",)).path == path
    assert settle(Place(path=path, url=URL), None, "t|u").path == path
    assert settle(Place(path=str(tmp_path / "none"), url=URL), ("t",)).path is None
    other = writer(tmp_path / "other")
    other.append(1)
    other.store.idle()
    server["path"] = str(other.files.path)
    assert settle(Place(path=path, url=URL), ("t",)).path is None
    assert settle(Place(path=path, url=URL), ("nowhere",)).path is None


def test_the_directory_has_what_is_durable(engine: Durable, server: dict[str, str]) -> None:
    """Its server need not say that of its topics to say whose directory it is."""
    path = str(engine.files.path)
    found = settle(Place(path=path, url=URL, consistency="durable"), ("t",))
    assert (found.path, found.consistency) == (path, "durable")


def test_a_server_that_is_away(engine: Durable) -> None:
    """Without it nobody knows whose directory that is."""
    with pytest.raises(Unreachable):
        settle(Place(path=str(engine.files.path), url=URL, retry_for_s=0), None, ".*")


@pytest.mark.parametrize("url", ["http://", "http://h:99999"])
def test_a_url_that_is_none(url: str) -> None:
    """The line names the option."""
    with pytest.raises(BadOption, match="option url: "):
        places.open_place(Place(url=url))


def test_what_is_only_in_memory_comes_from_the_server(
    engine: Durable, server: dict[str, str]
) -> None:
    """A pattern that matches an ephemeral topic, too, is the server's to answer."""
    engine.put(name="e", durability="ephemeral")
    engine.append(1, name="e")
    engine.store.idle()
    both = Place(path=str(engine.files.path), url=URL)
    assert settle(both, None, ".*").path is None
    assert settle(both, None, "t").url is None
