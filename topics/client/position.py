"""`LastPosition`: what a client has written, as a cluster counts it; so that it reads its own writes.

A node of a cluster says with the answer to a write how far the cluster's log had come.  Each later
request of the client says so in turn, and a node that is behind waits.  A server that is in no cluster
says nothing, and is told nothing.
"""

import threading
from typing import Final

from topics.client.answer import Answer

HEADER: Final = "x-topics-position"


class LastPosition:
    """The greatest position that any answer had; shared by the threads of a client.

    Attributes:
        text: As requests carry it; empty before the first.
    """

    def __init__(self) -> None:
        self.text = ""
        self._place = (-1, -1)
        self._lock = threading.Lock()

    def note(self, answer: Answer) -> None:
        given = answer.headers.get(HEADER)
        if given is None:
            return
        shard, _, index = given.partition(".")
        if not (shard.isdecimal() and index.isdecimal()):
            return  # a later version's, which this client cannot compare
        place = int(shard), int(index)
        with self._lock:
            if place > self._place:
                self._place, self.text = place, given
