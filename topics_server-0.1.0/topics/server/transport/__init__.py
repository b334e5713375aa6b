"""The transport of `topics serve`: accepted sockets, the two versions of HTTP, WebSocket.

It knows bytes, frames, clocks and limits.  It knows nothing of what a request means: the exchange
(`exchange.interface.Exchange`) gets a head and a body, and returns pieces to write.

    listener    the listening socket
    shared      what all connections share
    connection  one accepted socket: reading in small turns, writing, deadlines, the end
    speaker     the interface between a connection and what is spoken on it
    http1       HTTP/1.1 by httptools        } each implements `speaker.Speaker`
    http2       HTTP/2 by h2                 }
    websocket   WebSocket by websockets      }
    limits      every bound and time-out, in one place
    budget      bytes in memory, CPU time, and frames that cost the server and not the client
    turns       which connection runs next on the event loop, and for how long
    deadline    one timer of a connection
"""
