"""The transport: what kombu, and so Celery, calls; each channel is one of kombu's virtual channels.

Messages wait in queues of topics, one for each queue, and are claimed under a lease.  What a
consumer without a queue of its own is to hear (remote control, events, replies) goes into one log
for each exchange (`routes`).
"""

import socket
from collections.abc import Iterable, Iterator
from queue import Empty
from time import monotonic
from typing import Any, Final

import msgspec
from amqp.exceptions import ChannelError
from amqp.protocol import queue_declare_ok_t
from kombu.log import get_logger
from kombu.transport import virtual
from kombu.transport.base import to_rabbitmq_queue_arguments
from kombu.utils.uuid import uuid

from topics.client import (
    PASSING,
    Client,
    Retry,
    TopicNotFound,
    TopicsError,
    Unauthorized,
)
from topics.integrations.celery.intake import Claims, Hearing, Inbox, Source
from topics.integrations.celery.message import decode_body, encode_body, record_of
from topics.integrations.celery.options import PORT, Options, without_key
from topics.integrations.celery.qos import QoS
from topics.integrations.celery.routes import TAG_CHARS_MAX, Routes
from topics.version import VERSION

CONFIG_OF_ARGUMENTS: Final = {
    "x-message-ttl": "ttl_ms",
    "x-max-length": "cap_records",
    "x-max-length-bytes": "cap_bytes",
}
"""Arguments of a queue in AMQP, and the config of a topic that says the same."""

logger = get_logger(__name__)


class Channel(virtual.Channel):
    """One channel: its consumers, and the messages that they have in hand."""

    QoS = QoS
    min_priority, max_priority = -128, 127
    from_transport_options = ("deadletter_queue",)

    def __init__(self, connection: Any, **kwargs: Any) -> None:
        super().__init__(connection, **kwargs)
        self._sources: dict[str, list[Source]] = {}
        self._stopped: list[Source] = []

    def basic_publish(self, message: Any, exchange: str, routing_key: str, **kwargs: Any) -> None:
        """Append a message to each queue that is to have it, and to the log of the exchange."""
        body, encoding = encode_body(message["body"], message.get("content-type"))
        message["body"] = body
        properties = message["properties"]
        properties.update(body_encoding=encoding, delivery_tag=uuid())
        properties["delivery_info"].update(exchange=exchange, routing_key=routing_key)
        for queue in self._route(exchange, routing_key):
            if queue:
                self._put(queue, message)
            else:
                self._tell(exchange, routing_key, message)

    def _route(self, exchange: str, routing_key: str) -> Iterable[str]:
        if not exchange:
            return [routing_key]
        kind = self.typeof(exchange).type
        found = self.connection.routes.find(exchange, routing_key, kind)
        return found or filter(None, [self.deadletter_queue])

    def _put(self, queue: str, message: Any, **kwargs: Any) -> None:
        """Append to a queue; where it is gone, and was declared here, it is made again.

        Any other is the queue of one consumer, which reads the log of the default exchange.
        """
        transport = self.connection
        topic = transport.options.topic(queue)
        record = record_of(message, priority=self._get_message_priority(message))
        try:
            transport.topics.append(topic, record, create=False)
        except TopicNotFound:
            if queue in transport.configs or queue == self.deadletter_queue:
                config = transport.config(queue)
                transport.topics.append(topic, record, create=True, config=config)
            else:
                self._tell("", queue, message)

    def _tell(self, exchange: str, routing_key: str, message: Any) -> None:
        log, tag = self.connection.options.log(exchange), routing_key[:TAG_CHARS_MAX] or None
        data = msgspec.Raw(msgspec.json.encode(message))
        try:
            self.connection.topics.append(log, data, tag=tag, create=False)
        except TopicNotFound:
            logger.debug("nobody has ever listened to the exchange %r", exchange)

    def decode_body(self, body: bytes, encoding: str | None = None) -> bytes:
        return decode_body(body, encoding)

    def prepare_queue_arguments(self, arguments: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Arguments of AMQP for those that kombu has of its own, say `message_ttl`."""
        found: dict[str, Any] = to_rabbitmq_queue_arguments(arguments, **kwargs)
        return found

    def queue_declare(
        self,
        queue: str | None = None,
        passive: bool = False,
        durable: bool = True,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Make a queue where there is none.

        The queue of one consumer (exclusive, or deleted with it and not durable) is no topic; one
        that is deleted with its consumers is made when it is first used.
        """
        queue, transport = queue or f"amq.gen-{uuid()}", self.connection
        size = self._size(queue)
        if passive and size is None:
            message = f"NOT_FOUND - no queue {queue!r}"
            raise ChannelError(message, (50, 10), "Channel.queue_declare", "404")
        if exclusive or (auto_delete and not durable):
            transport.heard.setdefault(queue, {})
        elif not passive:
            transport.configs[queue] = _config_of(arguments or {})
            if auto_delete:
                transport.passing.add(queue)
            elif size is None:
                transport.make_queue(queue)
        return queue_declare_ok_t(queue, size or 0, 0)

    def queue_bind(
        self,
        queue: str,
        exchange: str | None = None,
        routing_key: str = "",
        arguments: Any = None,
        **kwargs: Any,
    ) -> None:
        """Bind a queue, for all processes; the queue of one consumer listens from now on."""
        transport, exchange = self.connection, exchange or "amq.direct"
        kind = self.typeof(exchange).type
        if queue not in transport.heard and not (kind == "fanout" and queue in transport.passing):
            transport.routes.bind(exchange, queue, routing_key or "")
            return
        hearings = transport.heard.setdefault(queue, {})
        if exchange not in hearings:
            hearings[exchange] = Hearing(transport, queue, exchange=exchange, kind=kind)
        hearings[exchange].bind(routing_key or "")
        transport.routes.bind(exchange, "", "")

    def queue_unbind(
        self,
        queue: str,
        exchange: str | None = None,
        routing_key: str = "",
        arguments: Any = None,
        **kwargs: Any,
    ) -> None:
        """Remove a binding, for all processes."""
        self.connection.routes.unbind(exchange or "amq.direct", queue, routing_key or "")

    def queue_delete(
        self, queue: str, if_unused: bool = False, if_empty: bool = False, **kwargs: Any
    ) -> int:
        """Delete a queue with its messages and bindings; how many messages there were."""
        transport, size = self.connection, self._size(queue) or 0
        if queue in transport.heard:
            for hearing in transport.heard.pop(queue).values():
                hearing.stop()
        elif not (if_empty and size):
            transport.routes.unbind_queue(queue)
            transport.configs.pop(queue, None)
            transport.topics.delete_topic(transport.options.topic(queue))
        return size

    def exchange_delete(self, exchange: str, *args: Any, **kwargs: Any) -> None:
        """Remove the bindings of an exchange; its queues stay."""
        for queue, routing_key in self.connection.routes.bindings(exchange):
            self.connection.routes.unbind(exchange, queue, routing_key)
        self.state.exchanges.pop(exchange, None)

    def list_bindings(self) -> Iterator[tuple[str, str, str]]:
        routes = self.connection.routes
        for exchange in routes.exchanges:
            for queue, routing_key in routes.bindings(exchange):
                yield queue, exchange, routing_key

    def get_table(self, exchange: str) -> list[tuple[str, None, str]]:
        bindings = self.connection.routes.bindings(exchange)
        return [(routing_key, None, queue) for queue, routing_key in bindings if queue]

    def _size(self, queue: str) -> int | None:
        """Messages that wait, those with an `eta` too; None where there is no such queue."""
        if queue in self.connection.heard:
            return 0
        try:
            state = self.connection.topics.topic(self.connection.options.topic(queue), touch=False)
        except TopicNotFound:
            return None
        return int(state.count) - (state.queue.in_flight if state.queue else 0)

    def _purge(self, queue: str) -> int:
        """Delete the messages that wait; those in hand stay."""
        transport = self.connection
        if queue in transport.heard:
            for hearing in transport.heard[queue].values():
                hearing.skip()
            return 0
        topic, done = transport.options.topic(queue), 0
        for state in ("ready", "delayed"):
            try:
                while changed := transport.topics.cancel(topic, state=state).done:
                    done += changed
            except TopicNotFound:
                return 0
        return done

    def basic_consume(
        self, queue: str, no_ack: bool, callback: Any, consumer_tag: str, **kwargs: Any
    ) -> None:
        """Have the messages of a queue delivered to `callback`."""
        super().basic_consume(queue, no_ack, callback, consumer_tag, **kwargs)
        self._stop(queue)
        self._sources[queue] = self._sources_of(queue, no_ack=no_ack)
        for source in self._sources[queue]:
            source.start()

    def basic_cancel(self, consumer_tag: str) -> None:
        """Deliver no more."""
        queue = self._tag_to_queue.get(consumer_tag)
        super().basic_cancel(consumer_tag)
        if queue is not None:
            self._stop(queue)

    def _stop(self, queue: str) -> None:
        for source in self._sources.pop(queue, []):
            source.stop()
            self._stopped.append(source)

    def basic_get(self, queue: str, no_ack: bool = False, **kwargs: Any) -> Any:
        """One message, or None."""
        for source in self._sources_of(queue, no_ack=no_ack):
            for message in source.take_one():
                return self.Message(message, channel=self)
        return None

    def _sources_of(self, queue: str, *, no_ack: bool) -> list[Source]:
        if queue not in self.connection.heard:
            return [Claims(self, queue, no_ack=no_ack)]
        hearings = self.connection.heard[queue]
        if not hearings:
            hearings[""] = Hearing(self.connection, queue, exchange="", kind="direct")
            hearings[""].bind(queue)
        return list(hearings.values())

    def close(self) -> None:
        """Stop the consumers, send what was settled, and give all other messages back."""
        if not self.closed:
            for queue in list(self._sources):
                self._stop(queue)
            for source in self._stopped:
                source.join()
        super().close()


class Transport(virtual.Transport):
    """Connects kombu with a server, at `topics://[KEY@]HOST[:PORT]` or `topics+https://…`.

    Attributes:
        topics: The client of this connection.
        configs: Config of queues that were declared over it, by name.
        passing: Those of them that are deleted with their consumers.
        heard: Queues of one consumer each, with the logs that it reads.
    """

    Channel = Channel
    can_parse_url = True
    default_port = PORT
    driver_type = driver_name = "topics"
    implements = virtual.Transport.implements.extend(
        asynchronous=True, exchange_type=frozenset({"direct", "topic", "fanout"})
    )
    connection_errors = (
        *virtual.Transport.connection_errors,
        *(OSError, *PASSING, Unauthorized),
    )
    channel_errors = (*virtual.Transport.channel_errors, TopicsError)
    recoverable_connection_errors = connection_errors
    recoverable_channel_errors = virtual.Transport.channel_errors

    topics: Client
    inbox: Inbox
    routes: Routes

    def __init__(self, client: Any, **kwargs: Any) -> None:
        super().__init__(client, **kwargs)
        self.options = Options.of(client.transport_options)
        self.configs: dict[str, Any] = {}
        self.passing: set[str] = set()
        self.heard: dict[str, dict[str, Hearing]] = {}
        self._loop: Any = None

    def driver_version(self) -> str:
        return VERSION

    def as_uri(self, uri: str, include_password: bool = False, mask: str = "**") -> str:
        """The URL without its key."""
        url = uri if "://" in uri else f"topics://{uri}"
        url = url if url.startswith("topics") else f"topics+{url}"
        return url if include_password else without_key(url, mask)

    def establish_connection(self) -> Any:
        """Connect, in one attempt: kombu repeats it."""
        given = self.client
        url, key = given.hostname or "", given.password or given.userid
        if "://" not in url:
            # Kombu has taken the URL apart, for an alternative of a list of URLs.
            port = f":{given.port}" if given.port else ""
            url = f"{'https' if given.ssl else 'topics'}://{url}{port}" if url else ""
        once = {"retry": Retry(for_s=0), "timeout_s": given.connect_timeout or 5.0}
        with self.options.client(url, api_key=key, **once) as probe:
            probe.ready()
        self.topics = self.options.client(url, api_key=key)
        self.inbox, self.heard = Inbox(), {}
        self.routes = Routes(self.topics, self.options.bindings)
        return super().establish_connection()

    def close_connection(self, connection: Any) -> None:
        if self._loop is not None:
            self._loop.remove_reader(self.inbox.fileno())
            self._loop = None
        super().close_connection(connection)
        self.topics.close()
        self.inbox.close()

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        """Deliver from the loop, as soon as a message is there."""
        self._loop = loop
        loop.add_reader(self.inbox.fileno(), self._on_readable)

    def _on_readable(self) -> None:
        for item in self.inbox.drain():
            self._handle(item)

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:
        """Deliver one message; `socket.timeout` where none comes within `timeout` seconds."""
        end_s = None if timeout is None else monotonic() + timeout
        is_delivered = False
        while not is_delivered:
            try:
                item = self.inbox.get(None if end_s is None else end_s - monotonic())
            except Empty:
                raise socket.timeout from None  # noqa: UP041  (as kombu names it)
            is_delivered = self._handle(item)

    def _handle(self, item: Any) -> bool:
        """Deliver a message, if anybody consumes it still."""
        if isinstance(item, TopicsError):
            raise item
        source, message = item
        callback = self._callbacks.get(source.queue)
        is_wanted: bool = source.is_wanted and callback is not None
        if is_wanted:
            callback(message)
        else:
            source.give_back(message)
        return is_wanted

    def config(self, queue: str) -> Any:
        """Config of a queue as it was declared."""
        return self.options.queue(self.configs.get(queue, {}))

    def make_queue(self, queue: str) -> None:
        """Make a queue that is missing."""
        self.topics.create_topic(self.options.topic(queue), **self.config(queue))


def _config_of(arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments of a queue as config: those of AMQP that topics know, and any that is config."""
    known = {CONFIG_OF_ARGUMENTS.get(name, name): value for name, value in arguments.items()}
    return {name: value for name, value in known.items() if not name.startswith("x-")}
