"""The engine as a node of a cluster: what performs the rule of `topics.protocol.cluster` with it.

Sans-IO, as the driver is, and chosen once where a server is put together: one node without a cluster
uses none of this.

    place    a node's place in the shared log, as an event of its own log
    commit   group commit whose log is the one that nodes share, and then this node's own
    driver   a driver that leads or follows
    member   one node: performs the rule's effects, in their order, over the driver of the moment

# What is where

The shared log has units: the events of a turn, as frames, without those that say how one node keeps them
(seals, drops).  A node's own log has the same frames, its own events between them in the order in which
its engine applied them, and behind each unit the place of that unit (`PlaceReached`), in one batch.
A restart replays its own log and reads on from that place.  It says nothing is lost: what its log did
not keep, the shared log has.

# A leader

Its turn is one unit, and at most one is on its way.  While it is, commands that may change something
wait; they are the next turn.  So the engine runs ahead of what is accepted by one unit and no more, and
the order of its own log is the order in which it decided.  When the unit is accepted it is written here,
with its place, and then it is published and answered; acceptance is all the durability that any class
asks for.  What a read, or a command that changes nothing, found while something was undecided is
answered with the unit that it may rest on.  A command that found nothing to do asks the log all the same,
by a unit without events: a deposed leader must not answer from what it knew.

The engine of a leader never goes on as a replica's: it may hold what was not accepted, and what lives in
its memory only.  It is dropped, and opened anew from the store.

# A replica

It applies accepted units and publishes them once they are in its own log.  It decides nothing: no
copies, no leases, no expiry by a clock.

# Time

Engine time is that of accepted events, on every node.  A leader's moves when it decides, and its unit
carries it: where no event does, `TimePassed`.  While records or leases wait for time, it logs one at most
once a second.
"""
