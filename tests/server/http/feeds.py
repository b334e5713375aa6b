"""Feeds over a runtime, as a face opens them for a client without a key."""

from topics.protocol.model.commands import Claim
from topics.server.http.socket_feed import SocketFeed
from topics.server.http.watch_feed import WatchFeed
from topics.server.http.work_feed import WorkFeed
from topics.server.service.service import LocalService
from topics.server.service.shell import Shell
from topics.server.service.slots import Slot, Slots


def slot_of(shell: Shell) -> Slot:
    return Slot(Slots(shell.limits), "192.0.2.1")


def watch_feed(shell: Shell, wid: str, rewind: str | None = None) -> WatchFeed:
    """Raises Rejection: there is no such session."""
    return WatchFeed(shell, LocalService(shell).session(wid, rewind, slot_of(shell)))


def socket_feed(shell: Shell) -> SocketFeed:
    service, slot = LocalService(shell), slot_of(shell)
    return SocketFeed(service, service.socket(slot), slot)


def work_feed(shell: Shell, asked: Claim) -> WorkFeed:
    """Raises Rejection: there is no such queue."""
    return WorkFeed(shell, LocalService(shell).jobs(asked, slot_of(shell)))
