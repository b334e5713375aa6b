"""Every bound and time-out of the transport.

Owns numbers and the reason for each.  Knows nothing of the code that applies them.
"""

from typing import Final

import msgspec

HEAD_BYTES_MAX: Final = 32 << 10
"""Target, names and values of one head; its line ends do not count."""
HEADERS_MAX: Final = 100
MESSAGE_BYTES_MAX: Final = 8 << 20
"""Of one WebSocket message, even where a body may be larger."""


class Timeouts(msgspec.Struct, frozen=True):
    """How long a client may take.  All in seconds.

    Attributes:
        idle_s: Without a request in flight, until the connection is closed.
        head_s: From the first byte of a head to its last.
        first_s: From the head to the first byte of the body.
        window_s: In which the next `window_bytes` of a body must come: 1 KiB/s on average.
        body_s: For a body in total.
        take_s: Without a byte taken, after which an event stream or a WebSocket ends (§7.6).
        write_s: Without a byte taken, after which a connection is cut; counted anew from the last
            frame of a stream.
        linger_s: In which the last bytes of a closed connection may arrive.
        farewell_s: In which a client may take a WebSocket's Close frame, and answer it.
    """

    idle_s: float = 75
    head_s: float = 15
    first_s: float = 10
    window_s: float = 10
    body_s: float = 120
    take_s: float = 30
    write_s: float = 35
    linger_s: float = 2
    farewell_s: float = 5


class TransportLimits(msgspec.Struct, frozen=True):
    """What clients may make the server hold and do.

    Attributes:
        connections: Beyond it a connection is reset as soon as it is accepted.
        connections_per_ip: The same, of one address.
        bodies_bytes: Of all request bodies in memory; beyond it a body is refused with 429.
        body_free_bytes: A body up to this size is never refused for want of room.
        answers_bytes: Of all answers that wait to be taken; beyond it an answer of more than
            `answer_free_bytes` becomes a 429.
        connection_answers_bytes: The same of one connection.
        connection_threads: Answers of one HTTP/2 connection that threads make at a time.  There are
            one to four threads of each kind, for all: whoever comes next waits for so many.
        answer_free_bytes: An answer up to this size is never refused for want of room.
        answer_whole_bytes: An answer up to this size is joined and written at once; a larger one a slice
            at a time, as its client takes it.
        inbox_bytes: Read ahead on one connection, at which the socket is not read.
        pass_bytes: Received in one pass of the loop over its sockets, after which connections that are
            sent much read in turn.
        feed_bytes: Given to a parser at once, so that others have their turn.
        turn_s: CPU time after which a connection with more to do lets others have their turn.
        direct_turn_s: The same of a connection that is served as its bytes come: a small request takes
            less, and whoever sends more than that at once waits in line with the rest of it.
        slice_s: CPU time that all turns get before the loop looks at its sockets again.
        window_bytes: See `Timeouts.window_s`.
        drain_bytes: Of a refused body or of a closed connection that are read and thrown away.
        frames: HTTP/2 and WebSocket frames that cost the server work and the client nothing, in one
            `frames_s`: all but HEADERS, useful DATA, and messages of a useful size.  Clients in
            good faith send a handful.
        frames_s: See `frames`.
        message_bytes: Of one WebSocket message.
        streams: Of one HTTP/2 connection at a time, as announced.
    """

    connections: int = 1000
    connections_per_ip: int = 1000
    bodies_bytes: int = 256 << 20
    body_free_bytes: int = 64 << 10
    answers_bytes: int = 64 << 20
    connection_answers_bytes: int = 32 << 20
    connection_threads: int = 4
    answer_free_bytes: int = 64 << 10
    answer_whole_bytes: int = 256 << 10
    inbox_bytes: int = 64 << 10
    pass_bytes: int = 256 << 10
    feed_bytes: int = 4 << 10
    turn_s: float = 0.00015
    direct_turn_s: float = 0.0001
    slice_s: float = 0.0003
    window_bytes: int = 10 << 10
    drain_bytes: int = 256 << 10
    frames: int = 200
    frames_s: float = 10
    message_bytes: int = MESSAGE_BYTES_MAX
    streams: int = 100
