"""The transport of `topics serve`: accepted sockets, the two versions of HTTP, WebSocket.

It knows bytes, frames, clocks and limits.  What a request means is the exchange's affair
(`exchange.interface.Exchange`), to which it hands a head and a body and from which it gets pieces to write.

    listener    the listening socket, and what all connections share
    connection  one accepted socket: reading in small turns, writing, deadlines, the end
    http1       HTTP/1.1 by httptools        } each implements `connection.Speaker`
    http2       HTTP/2 by h2                 }
    websocket   WebSocket by wsproto         }
    limits      every bound and time-out, in one place
    budget      bytes in memory, CPU time, and frames that cost us and not the client
    turns       who may run next on the event loop, and for how long
    deadline    one timer of a connection
"""
