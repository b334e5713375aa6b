"""Celery on topics: a broker and a result backend, both at `topics://HOST:PORT`.

Celery finds the backend by its group of entry points, `celery.result_backends`.  Kombu has no such
group for transports.  It does load the group `kombu.serializers` whenever it can serialize, and
`SERIALIZER` is an entry of that group: loading the entry adds the transport to kombu's aliases.
The module imports neither the transport nor the client, so that a program that uses another broker
pays for nothing.

- `transport`: the channel and the transport, as kombu calls them.
- `qos`: jobs in hand of a channel: their leases, what is acked, how many more may be claimed.
- `intake`: threads that claim jobs and read logs, and the inbox that they fill.
- `routes`: exchanges, their bindings, and logs for consumers that have no queue of their own.
- `message`: a message of kombu's as a record.
- `options`: where the server is, what it is asked for, and the names of topics.
- `backend`: results, groups and chords.
"""

from typing import Final

from kombu.transport import TRANSPORT_ALIASES

TRANSPORT_ALIASES.setdefault("topics", "topics.integrations.celery.transport:Transport")

SERIALIZER: Final = (None, None, "application/x-topics", "utf-8")
"""Neither an encoder nor a decoder: kombu registers the name of a content type, and no more."""
