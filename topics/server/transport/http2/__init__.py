"""HTTP/2 by h2: `Http2` is a `connection.Speaker`.

speaker    a connection: frames to requests, answers to frames
stream     one request and its answer, and the table of its life
frames     bytes to frames, judged by their headers before h2 sees them
fields     which heads and trailers are sound
toll       what a client pays for frames that cost it nothing
library    h2 and how it is set up
"""

from topics.server.transport.http2.speaker import Http2

__all__ = ["Http2"]
