"""`TopicsBackend`: results in a table, one record a task; a chord joins by a log of its own.

A reader that waits for results holds one request until the next record comes.  The log of a chord
has a record for each task of its header, appended under the task's own idempotency key: a task that
runs twice appends once, and just one task finds its record to be the last.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cached_property
from hashlib import sha256
from typing import Any, Final

import msgspec
from celery import states
from celery.backends.base import KeyValueStoreBackend
from celery.canvas import maybe_signature
from celery.exceptions import ChordError, TimeoutError
from celery.result import GroupResult, allow_join_result
from celery.utils.functional import _regen
from kombu.utils.encoding import bytes_to_str, str_to_bytes

from topics.client import (
    Client,
    Conflict,
    NotFound,
    NotReady,
    Record,
    Table,
    Throttled,
    TopicNotFound,
    Unreachable,
)
from topics.integrations.celery.options import Options, without_key
from topics.integrations.wire import from_data, to_data

WAIT_MS_MAX: Final = 10_000
TAG_BYTES_MAX: Final = 150
"""Of a key, so that a tag has room for what is behind it."""
CHORD_MS_MAX: Final = 86_400_000
"""How long the log of a chord keeps the keys of its tasks."""


class TopicsBackend(KeyValueStoreBackend):
    """Results at `topics://[KEY@]HOST[:PORT]`, for `result_expires`.

    Attributes:
        topics: The client.
    """

    key_t = staticmethod(bytes_to_str)
    supports_native_join = True
    persistent = True

    def __init__(self, app: Any, url: str | None = None, **kwargs: Any) -> None:
        super().__init__(app, **kwargs)
        self.url = url
        self.options = Options.of(app.conf.result_backend_transport_options or {})
        self.thread_safe = True  # one for all threads of an application
        self._is_configured = False

    def __reduce__(self, args: Any = (), kwargs: Any = None) -> Any:
        return super().__reduce__(
            args, {**(kwargs or {}), "expires": self.expires, "url": self.url}
        )

    def as_uri(self, include_password: bool = False) -> str:
        url = self.url or "topics://"
        return url if include_password else without_key(url)

    @cached_property
    def topics(self) -> Client:
        return self.options.client(self.url or "topics://")

    def exception_safe_to_retry(self, exc: BaseException) -> bool:
        return isinstance(exc, Unreachable | NotReady | Throttled)

    @cached_property
    def table(self) -> Table[msgspec.Raw]:
        """Results, and sizes of chords, by their keys."""
        return self.topics.table(self.options.results, decode=msgspec.Raw, ttl_ms=self._ttl_ms)

    @property
    def _ttl_ms(self) -> int:
        return int((self.expires or 0) * 1000)

    def get(self, key: str) -> bytes | None:
        """The value of a key; None where it has none."""
        found = self.table.get(_tag(key))
        return None if found is None else from_data(found.data)

    def mget(self, keys: Iterable[str]) -> list[bytes | None]:
        return [self.get(key) for key in keys]

    def set(self, key: str, value: str | bytes) -> None:
        self._expire()
        self.table.put(_tag(key), to_data(str_to_bytes(value)))

    def delete(self, key: str) -> None:
        self.table.delete(_tag(key))

    def _expire(self) -> None:
        """Have the table keep what it has for `result_expires` of this program."""
        if self._is_configured:
            return
        self.table.create()
        state = self.topics.topic(self.options.results, touch=False)
        if state.config.ttl_ms != self._ttl_ms:
            self.topics.configure_topic(self.options.results, ttl_ms=self._ttl_ms)
        self._is_configured = True

    def wait_for(
        self,
        task_id: str,
        timeout: float | None = None,
        interval: float = 0.5,
        no_ack: bool = True,
        on_interval: Callable[[], Any] | None = None,
    ) -> Any:
        """What became of a task, once it is done.

        Raises:
            celery.exceptions.TimeoutError: It was not within `timeout` seconds.
        """
        self._ensure_not_eager()
        found = self.get_many({task_id}, timeout, interval, on_interval=on_interval)
        return next(found)[1]

    def get_many(
        self,
        task_ids: Iterable[str],
        timeout: float | None = None,
        interval: float | None = 0.5,
        no_ack: bool = True,
        on_message: Callable[[Any], Any] | None = None,
        on_interval: Callable[[], Any] | None = None,
        max_iterations: int | None = None,
        READY_STATES: frozenset[str] = states.READY_STATES,
    ) -> Iterator[tuple[str, Any]]:
        """Tasks and what became of them, each as soon as it is done.

        Args:
            interval: Seconds between two calls of `on_interval`.

        Raises:
            celery.exceptions.TimeoutError: Some were not within `timeout` seconds.
        """
        pending = {_tag(self.get_key_for_task(one)): bytes_to_str(one) for one in task_ids}
        end_s = None if timeout is None else time.monotonic() + timeout
        changes, rounds = self.table.changes(pending), 0
        found = self._known(pending) + self._decoded(changes.next(0))
        while True:
            for tag, meta in found:
                if tag in pending and meta["status"] in READY_STATES:
                    changes.leave_out(tag)
                    task_id = pending.pop(tag)
                    self._cache[task_id] = meta
                    if on_message is not None:
                        on_message(meta)
                    yield task_id, meta
            if not pending or (max_iterations and rounds >= max_iterations):
                return
            left_s = WAIT_MS_MAX / 1000 if end_s is None else end_s - time.monotonic()
            if left_s <= 0:
                raise TimeoutError(f"Operation timed out ({timeout})")
            if on_interval is not None:
                left_s = min(left_s, 0.5 if interval is None else interval)
            found = self._decoded(changes.next(min(WAIT_MS_MAX, int(left_s * 1000))))
            rounds += 1
            if on_interval is not None:
                # Here, as with Redis: it raises what a parent raised, and a chord's error comes after.
                on_interval()

    def _known(self, pending: dict[str, str]) -> list[tuple[str, Any]]:
        """What this process has seen."""
        return [(tag, self._cache[one]) for tag, one in pending.items() if one in self._cache]

    def _decoded(self, found: dict[str, Record[msgspec.Raw]]) -> list[tuple[str, Any]]:
        return [(tag, self.decode_result(from_data(one.data))) for tag, one in found.items()]

    def apply_chord(self, header_result_args: Any, body: Any, **kwargs: Any) -> None:
        """Keep the structure of a header that has groups in it; a flat one needs nothing."""
        self.ensure_chords_allowed()
        if isinstance(header_result_args[1], _regen):
            return
        header = self.app.GroupResult(*header_result_args)
        if any(isinstance(one, GroupResult) for one in header.results):
            header.save(backend=self)

    def set_chord_size(self, group_id: str, chord_size: int) -> None:
        """Say how many tasks a header has; Celery does so before it sends the last of them."""
        self._expire()
        self.table.put(f"{self._chord_tag(group_id)}.size", chord_size)

    def add_to_chord(self, chord_id: str, result: Any) -> None:
        """Have the chord wait for one task more."""
        self._expire()
        part = sha256(result.id.encode()).hexdigest()
        self.table.put(f"{self._chord_tag(chord_id)}.more.{part}", 1)

    def on_chord_part_return(self, request: Any, state: str, result: Any, **kwargs: Any) -> None:
        """Note what a task of a header returned; the last one sends the body of the chord."""
        group_id = request.group
        if not group_id or not request.id:
            return
        log, index = self.options.chord(group_id), request.group_index
        part = self.encode([index, request.id, state, self.encode_result(result, state)])
        done = self.topics.append(
            log,
            to_data(str_to_bytes(part)),
            idempotency_key=sha256(f"{request.id}:{index}".encode()).hexdigest(),
            config=self._chord_config,
        )
        if done.last_seq != self._chord_size(group_id):
            return
        callback = maybe_signature(request.chord, app=self.app)
        try:
            returned = self._returned(group_id)
        except Exception as error:
            self.chord_error_from_stack(callback, _chord_error("Join error", error))
        else:
            try:
                callback.delay(returned)
            except Exception as error:
                self.chord_error_from_stack(callback, _chord_error("Callback error", error))
        self.topics.delete_topic(log)
        sizes = ("tag", "Glob", f"{self._chord_tag(group_id)}.*")
        with suppress(TopicNotFound):
            self.topics.delete(self.options.results, match=sizes)

    @property
    def _chord_config(self) -> Any:
        # Celery 5.7 brings `result_chord_expires`.
        expires_ms = int((getattr(self, "chord_expires", self.expires) or 0) * 1000)
        window_ms = min(expires_ms or CHORD_MS_MAX, CHORD_MS_MAX)
        return {"ttl_ms": expires_ms, "idempotency_window_ms": window_ms}

    def _chord_tag(self, group_id: str) -> str:
        return _tag(self.get_key_for_chord(group_id))

    def _chord_size(self, group_id: str) -> int | None:
        """Tasks that the chord waits for in all; None where this is not known yet."""
        prefix = f"{self._chord_tag(group_id)}."
        sizes = {one.tag: one.data for one in self.topics.latest_all(self.options.results, prefix)}
        size = sizes.pop(f"{prefix}size", None)
        return None if size is None else size + len(sizes)

    def _returned(self, group_id: str) -> list[Any]:
        saved = GroupResult.restore(group_id, backend=self, app=self.app)
        if saved is not None:
            saved.on_ready()
            with allow_join_result():
                joined: list[Any] = saved.join_native(
                    timeout=self.app.conf.result_chord_join_timeout, propagate=True
                )
            return joined
        parts = []
        for item in self.topics.read(self.options.chord(group_id), record_type=Record[msgspec.Raw]):
            if not isinstance(item, Record):
                raise ChordError("results of the header have expired")
            parts.append(self.decode(from_data(item.data)))
        parts.sort(key=lambda part: (part[0] is None, part[0] or 0))
        return [self._unpacked(*part) for part in parts]

    def _unpacked(self, index: int | None, task_id: str, state: str, result: Any) -> Any:
        if state in states.EXCEPTION_STATES:
            result = self.exception_to_python(result)
        if state in states.PROPAGATE_STATES:
            raise ChordError(f"Dependency {task_id} raised {result!r}") from result
        return result

    def cleanup(self) -> None:
        """Delete the logs of chords that were given up, once their records have expired.

        Celery's beat has `celery.backend_cleanup` call it every night.
        """
        for topic in self.topics.topics(prefix=self.options.chord("")):
            if not topic.count:
                with suppress(NotFound, Conflict):
                    self.topics.delete_topic(topic.topic, if_empty=True)


def _chord_error(what: str, error: Exception) -> ChordError:
    if isinstance(error, ChordError):
        return error
    found = ChordError(f"{what}: {error!r}")
    found.__cause__ = error
    return found


def _tag(key: str) -> str:
    """A key as a tag; a long one as its digest."""
    if len(key.encode()) <= TAG_BYTES_MAX:
        return key
    return f"sha256-{sha256(key.encode()).hexdigest()}"
