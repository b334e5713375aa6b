"""One server for all blocks; each begins without topics."""

from collections.abc import Iterator

import pytest

from bench.flights import Server


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("docs"))
    server.start()
    yield server
    server.end()


@pytest.fixture
def server(running: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.setenv("TOPICS_URL", running.url)
    with running.client() as client:
        for topic in client.topics():
            client.delete_topic(topic.topic)
    return running
