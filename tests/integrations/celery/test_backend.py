"""Results over a real server, without a worker: kept, waited for, joined."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery, group, states
from celery.app.task import Context
from celery.exceptions import ChordError, TimeoutError
from celery.result import AsyncResult, GroupResult
from contract.server import Server, until
from kombu import pools

from topics.client import Client
from topics.integrations.celery.backend import TopicsBackend


@pytest.fixture
def app(server: Server, prefix: str) -> Iterator[Celery]:
    url = f"topics://127.0.0.1:{server.port}"
    with Celery("tests", broker=url, backend=url, set_as_current=False) as app:
        options = {"prefix": prefix, "wait_ms": 300}
        app.conf.broker_transport_options = options
        app.conf.result_backend_transport_options = options
        app.conf.result_expires = 3600
        yield app
        app.backend.topics.close()
        pools.reset()  # else the next app, whose broker has the same URL, gets connections of this one


@pytest.fixture
def backend(app: Celery) -> TopicsBackend:
    assert isinstance(app.backend, TopicsBackend)
    return app.backend


def test_a_result_is_a_record_that_can_be_read(
    backend: TopicsBackend, client: Client, prefix: str
) -> None:
    """Its tag is the key that Celery gives it, and its data is what Celery has of it. (§3.5)"""
    backend.store_result("t1", {"sum": 4}, states.SUCCESS)

    record = client.latest(f"{prefix}celery.results", "celery-task-meta-t1")

    assert (record.data["status"], record.data["result"]) == ("SUCCESS", {"sum": 4})
    assert backend.get_result("t1") == {"sum": 4}
    config = client.topic(f"{prefix}celery.results").config
    assert (config.compact, config.ttl_ms) == (True, 3_600_000)


@pytest.mark.parametrize("serializer", ["json", "pickle"])
def test_any_result_comes_back(app: Celery, serializer: str) -> None:
    """What is no JSON is kept as text."""
    app.conf.result_serializer, app.conf.accept_content = serializer, ["json", "pickle"]
    value = [1, "é", None, {"a": [1.5]}]

    app.backend.store_result("t1", value, states.SUCCESS)

    assert app.backend.get_result("t1") == value


def test_a_failure_is_raised(app: Celery) -> None:
    """As it was in the worker."""
    app.backend.store_result("t1", ValueError("no"), states.FAILURE)

    with pytest.raises(ValueError, match="no"):
        AsyncResult("t1", app=app).get(timeout=60)


def test_a_success_stays(backend: TopicsBackend) -> None:
    """A task that ran twice does not undo it."""
    backend.store_result("t1", 1, states.SUCCESS)
    backend.store_result("t1", ValueError("late"), states.FAILURE)

    assert backend.get_state("t1") == states.SUCCESS


def test_a_result_is_forgotten(app: Celery, backend: TopicsBackend) -> None:
    """And so is one with an id that is too long for a tag. (§0.10)"""
    for task_id in ("t1", "x" * 500):
        backend.store_result(task_id, 1, states.SUCCESS)
        assert backend.get_state(task_id) == states.SUCCESS

        AsyncResult(task_id, app=app).forget()

        assert backend.get(backend.get_key_for_task(task_id)) is None


def test_another_expiry_is_taken_over(
    app: Celery, backend: TopicsBackend, client: Client, prefix: str
) -> None:
    """A program that is started anew with another `result_expires` says so to the table."""
    backend.store_result("t1", 1, states.SUCCESS)

    other = TopicsBackend(app, backend.url, expires=60)
    with other.topics:
        other.store_result("t2", 1, states.SUCCESS)

    assert client.topic(f"{prefix}celery.results").config.ttl_ms == 60_000


def test_a_table_that_was_deleted_is_made_again(
    backend: TopicsBackend, client: Client, prefix: str
) -> None:
    """With its config."""
    backend.store_result("t1", 1, states.SUCCESS)
    client.delete_topic(f"{prefix}celery.results")

    backend.store_result("t2", 1, states.SUCCESS)

    assert client.topic(f"{prefix}celery.results").config.compact
    assert backend.get_state("t1") == states.PENDING


def test_a_waiting_reader_is_told(app: Celery, backend: TopicsBackend) -> None:
    """It asks once, and the answer comes with the result."""
    result = AsyncResult("t1", app=app)
    found: list[Any] = []
    reader = threading.Thread(target=lambda: found.append(result.get(timeout=60)))
    reader.start()
    backend.store_result("t2", 1, states.SUCCESS)
    backend.store_result("t1", None, states.STARTED)

    backend.store_result("t1", 7, states.SUCCESS)

    reader.join()
    assert found == [7]


def test_who_waits_looks_around_before_a_result_is_returned(backend: TopicsBackend) -> None:
    """So a parent's error is raised, and not the error of the chord that failed by it."""
    seen: list[str] = []

    def read() -> None:
        backend.wait_for("t1", timeout=60, interval=0.05, on_interval=look)

    def look() -> None:
        seen.append(backend.get_state("parent"))

    reader = threading.Thread(target=read)
    reader.start()
    until("waits", lambda: seen)
    backend.store_result("parent", ValueError("no"), states.FAILURE)
    backend.store_result("t1", ChordError("for that"), states.FAILURE)

    reader.join()
    assert seen[-1] == states.FAILURE


@pytest.mark.parametrize("timeout", [0, 0.05])
def test_a_reader_that_waits_in_vain_is_told_in_time(app: Celery, timeout: float) -> None:
    """A timeout of 0 asks once."""
    with pytest.raises(TimeoutError):
        AsyncResult("t1", app=app).get(timeout=timeout)


def test_results_of_a_group_come_as_they_are_done(app: Celery, backend: TopicsBackend) -> None:
    """Results that are there come first, each once."""
    results = GroupResult("g", [AsyncResult(f"t{n}", app=app) for n in range(4)], app=app)
    backend.store_result("t2", 2, states.SUCCESS)
    native = results.iter_native(timeout=60)

    order = [next(native)[0]]
    for n in (3, 0, 1):
        backend.store_result(f"t{n}", n, states.SUCCESS)
        order.append(next(native)[0])

    assert order == ["t2", "t3", "t0", "t1"]
    assert results.join_native(timeout=60) == [0, 1, 2, 3]
    assert not list(native)


def test_a_group_is_saved_and_restored(app: Celery, backend: TopicsBackend) -> None:
    """By its id, in any process."""
    GroupResult("g", [AsyncResult("t1", app=app)], app=app).save(backend=backend)

    restored = GroupResult.restore("g", backend=backend, app=app)

    assert [one.id for one in restored.results] == ["t1"]
    restored.delete(backend=backend)
    assert GroupResult.restore("g", backend=backend, app=app) is None


class Chord:
    """A chord of two tasks whose parts a test returns itself."""

    def __init__(self, app: Celery) -> None:
        self.app, self.sent = app, []
        self.body = app.signature("tests.body", task_id="body")
        app.backend.set_chord_size("g", 2)

        @app.task(name="tests.body", shared=False)
        def body(parts: Any) -> None:
            """Never run: what is sent to it is seen in its queue."""

    def part(self, task_id: str, result: Any, state: str = states.SUCCESS) -> None:
        index = int(task_id[1:])
        request = Context(id=task_id, group="g", group_index=index, chord=self.body)
        self.app.backend.on_chord_part_return(request, state, result)


@pytest.fixture
def bodies(client: Client, prefix: str) -> Any:
    """What was sent to the body of a chord, each time that it was sent."""

    def bodies() -> list[Any]:
        if f"{prefix}celery" not in [one.topic for one in client.topics(prefix=prefix)]:
            return []
        return [record.data["body"][0][0] for record in client.read(f"{prefix}celery")]

    return bodies


def test_the_last_part_of_a_chord_sends_its_body(app: Celery, bodies: Any) -> None:
    """With what the parts returned, in the order of the header."""
    chord = Chord(app)
    chord.part("t1", "second")
    assert bodies() == []

    chord.part("t0", "first")

    assert bodies() == [["first", "second"]]


def test_a_part_that_runs_twice_counts_once(app: Celery, bodies: Any) -> None:
    """Before the chord is complete, and after it."""
    chord = Chord(app)
    for task_id in ("t0", "t0", "t1", "t1", "t0"):
        chord.part(task_id, task_id)

    assert bodies() == [["t0", "t1"]]


def test_parts_that_return_at_once_send_one_body(app: Celery, bodies: Any) -> None:
    """Each appends to one log; just one is the last of it. (§2)"""
    chord = Chord(app)
    app.backend.set_chord_size("g", 8)
    barrier = threading.Barrier(8)

    def part(n: int) -> None:
        barrier.wait()
        chord.part(f"t{n}", n)

    threads = [threading.Thread(target=part, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert bodies() == [list(range(8))]


def test_a_task_that_was_added_is_waited_for(app: Celery, bodies: Any) -> None:
    """`add_to_chord` makes the header longer while it runs."""
    chord = Chord(app)
    chord.part("t0", 0)
    app.backend.add_to_chord("g", AsyncResult("t2", app=app))
    chord.part("t1", 1)
    assert bodies() == []

    chord.part("t2", 2)

    assert bodies() == [[0, 1, 2]]


def test_a_part_that_failed_fails_the_chord(app: Celery, bodies: Any) -> None:
    """The body is not sent; its result says which task failed."""
    chord = Chord(app)
    chord.part("t0", 0)
    chord.part("t1", ValueError("no"), states.FAILURE)

    assert bodies() == []
    with pytest.raises(ChordError, match=r"t1 raised ValueError\('no'\)"):
        AsyncResult("body", app=app).get(timeout=60)


def test_a_chord_leaves_nothing(app: Celery, client: Client, prefix: str) -> None:
    """Neither its log nor its size."""
    chord = Chord(app)
    for task_id in ("t0", "t1"):
        chord.part(task_id, 0)

    assert not list(client.topics(prefix=f"{prefix}celery.chord"))
    assert not list(client.latest_all(f"{prefix}celery.results", "chord-unlock-"))


def test_a_chord_that_was_given_up_is_cleaned_up(
    app: Celery, backend: TopicsBackend, client: Client, prefix: str
) -> None:
    """Once its records have expired: `celery.backend_cleanup` deletes its log."""
    backend.expires = backend._chord_expires = 1
    Chord(app).part("t0", 0)
    log = f"{prefix}celery.chord.g"
    backend.cleanup()
    assert client.topic(log).count == 1

    until("expired", lambda: client.topic(log).count == 0)
    backend.cleanup()

    assert not list(client.topics(prefix=log))


def test_nested_groups_keep_their_form(app: Celery, backend: TopicsBackend) -> None:
    """The header is saved where a part of it is a group."""
    inner = GroupResult("inner", [AsyncResult("t1", app=app)], app=app)

    backend.apply_chord(("g", [AsyncResult("t0", app=app), inner]), group())
    backend.apply_chord(("flat", [AsyncResult("t0", app=app)]), group())

    assert GroupResult.restore("g", backend=backend, app=app).results[1].id == "inner"
    assert GroupResult.restore("flat", backend=backend, app=app) is None
