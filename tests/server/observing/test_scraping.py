"""Scrapes: one document at a time, in slices, never older than the request (§8.3)."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from server.http.test_exchange import Desk
from topics.protocol.model.access import Caller
from topics.protocol.model.limits import Limits
from topics.server.observing import metrics
from topics.server.observing.scraping import Scraping
from topics.server.service.shell import Phase
from topics.testing import START_MS, _Shell

News = list[bytes]
TOPICS = 2 * metrics.TOPICS_A_SLICE


class Slow(_Shell):
    """A shell on which the test says when a later call is made."""

    def __init__(self) -> None:
        super().__init__(Limits(), START_MS)
        self.calls: list[Callable[[], object]] = []

    def later(self, delay_s: float, call: Callable[[], object]) -> None:
        assert delay_s > 0, "others have their turn"
        self.calls.append(call)

    def next(self) -> None:
        self.calls.pop(0)()

    def rest(self) -> None:
        while self.calls:
            self.next()


class Scraper:
    """The scrapes of one shell with many topics, and how often a document was begun."""

    def __init__(self, topics: int = TOPICS) -> None:
        self.shell = Slow()
        self.begun = 0
        self.desk = Desk(shell=self.shell)
        for i in range(topics):
            self.desk.ask("PUT", f"/v0/topics/t{i}", {})
        self.scraping = Scraping(self.shell, self._source)

    def _source(self, caller: Caller) -> metrics.Measured:
        self.begun += 1
        engine = self.shell.engine
        state = engine.state if self.shell.phase is Phase.READY else None
        return metrics.Measured(state, engine.watches, self.shell.store.stats, active=engine.active)

    def ask(self, told: News, *, as_json: bool = False) -> Any:
        def deliver(pieces: list[bytes]) -> None:
            told.append(b"".join(pieces))

        return self.scraping.ask(deliver, as_json=as_json)


def test_few_topics_are_told_at_once() -> None:
    """Without a wait."""
    scraper, told = Scraper(3), News()
    scraper.ask(told)
    assert b"topics_topics 3\n" in told[0]


def test_many_topics_are_told_in_slices() -> None:
    """Others have their turn between them."""
    scraper, told = Scraper(), News()
    scraper.ask(told)
    slices = 1
    while not told:
        scraper.shell.next()
        slices += 1
    assert slices > 4
    assert told[0].count(b"topics_topic_head_seq{") == TOPICS


def test_scrapes_that_come_meanwhile_share_the_next_document() -> None:
    """And not the one that is being made, which is older than their request."""
    scraper, first, others = Scraper(), News(), News()
    scraper.ask(first)
    scraper.desk.ask("PUT", "/v0/topics/new", {})
    for _ in range(5):
        scraper.ask(others)
    scraper.shell.rest()

    assert scraper.begun == 2
    assert len(first) == 1
    assert len(others) == 5
    assert b"topics_topics %d\n" % (TOPICS + 1) in others[0]
    assert len(set(others)) == 1


def test_a_scrape_that_is_cancelled_gets_nothing() -> None:
    """Its client is gone; the others get theirs."""
    scraper, told = Scraper(), News()
    for _ in range(3):
        scraper.ask(told)
    scraper.ask(told).cancel()
    scraper.shell.rest()
    assert len(told) == 3


def test_text_and_json_take_turns() -> None:
    """A flood of one kind does not keep the other out."""
    scraper, text, objects = Scraper(), News(), News()
    scraper.ask(text)
    scraper.ask(objects, as_json=True)
    scraper.ask(text)
    while not objects:
        scraper.shell.next()
    assert len(text) == 1
    assert json.loads(objects[0] + b"}")["topics_topics"] == TOPICS
    scraper.shell.rest()
    assert len(text) == 2


def test_a_stop_in_between_begins_again_without_the_state() -> None:
    """From then on another thread may change it."""
    scraper, told = Scraper(), News()
    scraper.ask(told)
    scraper.shell.phase = Phase.DRAINING
    scraper.shell.rest()
    assert b"topics_topics 0\n" in told[0]
    assert b"topics_topic_head_seq{" not in told[0]


def test_a_bug_is_told_and_the_next_scrape_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """No scrape waits for ever."""
    scraper, told = Scraper(), News()
    with monkeypatch.context() as patch:
        patch.setattr(metrics, "_row", lambda *given: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            scraper.ask(told)
    assert told == [b""]
    scraper.ask(told)
    scraper.shell.rest()
    assert told[1].endswith(b"\n")
