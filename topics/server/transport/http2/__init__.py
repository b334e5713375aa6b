"""HTTP/2 by h2: `speaker.Http2` is a `speaker.Speaker`.

speaker    a connection: the order of work, and what each frame means
receiving  requests on their way in
sending    answers on their way out
tunnel     a WebSocket on a stream
stream     one request and its answer, and the table of its life
link       h2, the socket, the streams and the timer that all of these rest on
frames     bytes to frames, judged by their headers before h2 sees them
fields     which heads and trailers are sound
charges       what a client pays for frames that cost it nothing
library    h2 and how it is set up
"""

from topics.server.transport.http2.speaker import Http2

__all__ = ["Http2"]
