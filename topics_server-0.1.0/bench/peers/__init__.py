"""The same jobs against several servers, in turns: `python -m bench.peers`.

This server, others of the same contract by their address or their checkout, and, where they are
installed, Redis Streams, NATS JetStream and beanstalkd.  Requests are encoded beforehand and replies
are only measured, so that the client costs as little as Python can: one process, bare sockets.
Client and servers share the machine.  Rounds alternate between the servers, and a cell is the median
of them: the rate, and the CPU time of the server per unit.  Ratios carry from machine to machine, the
rates do not.

    wording   how each server is asked: `topics`, `redis`, `nats`, `beanstalkd`
    load      clients: one after the other, many at once, watchers
    jobs      what is asked, how often, and what must lie there before
    life      memory and disk of a million records, and starts on them
"""
