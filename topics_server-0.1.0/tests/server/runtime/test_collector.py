"""The garbage collector of the server's process."""

import gc
from collections.abc import Iterator

import pytest

from topics.server.runtime.collector import GROWN_TOPICS, Collector


class Server:
    def __init__(self) -> None:
        self.topics = 5
        self.collector = Collector(lambda: self.topics)


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.collector.close()
    assert gc.isenabled()


def test_nothing_is_collected_while_the_data_is_read(server: Server) -> None:
    """And the objects that were read are not scanned afterwards."""
    server.collector.start()
    assert not gc.isenabled()
    held = [[] for _ in range(1000)]  # type: ignore[var-annotated]

    server.collector.settle()

    assert gc.isenabled()
    assert gc.get_freeze_count() > len(held)
    assert not any(each is held for each in gc.get_objects())


def test_more_topics_are_taken_out_of_sight_after_a_full_collection(server: Server) -> None:
    """When many topics were created they are frozen; a few are not worth it."""
    server.collector.start()
    server.collector.settle()
    known = gc.get_freeze_count()
    held = [[] for _ in range(1000)]  # type: ignore[var-annotated]

    server.topics += GROWN_TOPICS - 1
    gc.collect()
    assert gc.get_freeze_count() <= known

    server.topics += 1
    gc.collect(1)
    assert gc.get_freeze_count() <= known
    gc.collect()
    assert gc.get_freeze_count() > known
    assert not any(each is held for each in gc.get_objects())


def test_a_server_that_ended_leaves_the_collector_as_it_was(server: Server) -> None:
    """Also one that ended before it had read anything."""
    before = list(gc.callbacks)
    server.collector.start()
    server.collector.settle()
    server.collector.close()

    assert gc.callbacks == before
    assert gc.get_freeze_count() == 0
    other = Collector(lambda: 0)
    other.start()
    other.close()
    assert gc.isenabled()


def full_collections() -> int:
    return int(gc.get_stats()[2]["collections"])


def test_a_crowd_brings_no_full_collection(server: Server) -> None:
    """10,000 connections, forty objects each, cause no collection that stops the process for as
    long as a scan of all of them takes; garbage is collected in the end."""
    server.collector.start()
    server.collector.settle()
    gc.collect()
    before = full_collections()

    crowd = [[[] for _ in range(40)] for _ in range(10_000)]  # type: ignore[var-annotated]
    while_they_came = full_collections() - before
    while full_collections() == before:
        crowd.append([[] for _ in range(40)])

    assert while_they_came == 0
    assert len(crowd) < 30_000
