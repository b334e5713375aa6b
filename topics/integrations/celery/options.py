"""Where the server is, the options of a transport or a backend, and the names of its topics."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from hashlib import sha256
from typing import Any, Final, Self
from urllib.parse import unquote, urlsplit

from topics.client import Client, Retry
from topics.integrations.wire import QUEUE, escaped

PORT: Final = 4000
NAME_CHARS_MAX: Final = 255
_SCHEMES: Final = {"topics": "http", "http": "http", "https": "https"}
_USERINFO: Final = re.compile(r"//[^/@]*@")


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of `broker_transport_options` and `result_backend_transport_options`.

    Attributes:
        prefix: Of the names of all topics.
        lease_ms: How soon another worker may have the messages of one that died.
        wait_ms: How long a claim or a read waits at the server; a worker stops within it.
        retry_s: How long a call that fails is repeated before kombu is told, and connects anew.
        timeout_s: For a connection, and for an answer.
        queue_config: Config of queues that are created here, beside the defaults of `queue`.
    """

    prefix: str = ""
    lease_ms: int = 60_000
    wait_ms: int = 1_000
    retry_s: float = 15.0
    timeout_s: float = 30.0
    queue_config: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Options out of those of Celery; it has others, of its own, among them."""
        return cls(**{one.name: given[one.name] for one in fields(cls) if one.name in given})

    def queue(self, more: Mapping[str, Any]) -> Any:
        """Config of a queue."""
        return {**QUEUE, "lease_ms": self.lease_ms, **self.queue_config, **more}

    def client(self, url: str, *, api_key: str | None = None, **changes: Any) -> Client:
        """A client of the server at `topics://[KEY@]HOST[:PORT]`, or at an HTTP URL with a key.

        Without a host it is the server that `TOPICS_URL` names.  The key may be in the place of the
        user or in that of the password.
        """
        parts = urlsplit(url)
        key = api_key or unquote(parts.password or parts.username or "") or None
        place = None
        if parts.netloc:
            host = parts.netloc.rpartition("@")[2]
            port = f":{PORT}" if parts.scheme == "topics" and parts.port is None else ""
            place = f"{_SCHEMES[parts.scheme]}://{host.rstrip(':')}{port}{parts.path.rstrip('/')}"
        settings = {"retry": Retry(for_s=self.retry_s), "timeout_s": self.timeout_s, **changes}
        return Client(place, api_key=key, **settings)

    def topic(self, name: str) -> str:
        """The topic of a queue or an exchange: its name, with `:40` for `@`, and so on."""
        text = escaped(name)
        if not self.prefix and not text[:1].isalnum():
            text = f"q:{text}"
        text = f"{self.prefix}{text}"
        if len(text) > NAME_CHARS_MAX:
            text = f"{text[:180]}:{sha256(name.encode()).hexdigest()}"
        return text

    def log(self, exchange: str) -> str:
        """The topic that carries what consumers without a queue hear of an exchange."""
        return self.topic(f"kombu.log.{exchange}" if exchange else "kombu.log")

    @property
    def bindings(self) -> str:
        """The topic with the bindings of all exchanges."""
        return self.topic("kombu.bindings")

    @property
    def results(self) -> str:
        """The topic with results, a table by task."""
        return self.topic("celery.results")

    def chord(self, group: str) -> str:
        """The topic with what the tasks of a chord returned."""
        return self.topic(f"celery.chord.{group}")


def without_key(url: str, mask: str = "**") -> str:
    """A URL as logs may show it."""
    return _USERINFO.sub(f"//{mask}@", url)
