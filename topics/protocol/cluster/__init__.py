"""The engine as a node of a cluster: what performs the rule of `topics.protocol.cluster.rule` with it.

Sans-IO, as the driver is, and chosen once where a server is put together: one node without a cluster
uses none of this.

    place       a node's place in the shared log, as an event of its own log
    footprint   what a turn changes for readers while it is not accepted
    turns       a leader's turns on their way to the log that nodes share, and then to this node's own
    acceptance  the part of a driver by which it leads or follows
    member      one node: performs the rule's effects, in their order, over the driver of the moment

# What is where

The shared log has units: the events of a turn, as frames, without those that say how one node keeps them
(seals, drops).  A node's own log has the same frames, its own events between them in the order in which
its engine applied them, and behind each unit the place of that unit (`PlaceReached`), in one batch.
A restart replays its own log and reads on from that place.  It says nothing is lost: what its log did
not keep, the shared log has.

# A leader

Its turn is one unit, and several may be on their way, each decided from the state that the one before it
leaves: `turns.TURNS_MAX`, and no more than `TURNS_BYTES_MAX` of them, one every `TURN_EVERY_MS`.  Commands
that come sooner wait, and are the next turn: where the brokers are near, one turn at a time is on its way
and units grow under load.  A unit that is not accepted takes all behind it with it.

When a unit is accepted it is written here, in the order in which it was decided, with its place; then it is
published and answered.  Acceptance is all the durability that any class asks for.  A read waits for the
newest turn on its way that touches its topic (`footprint`) and for no other; what time may change waits for
each, because each carries a time.  A stream waits for what hides a record from it, and nothing is decided
until it was shown what it waits for.  Nor is anything while a checkpoint, a seal or a snapshot waits for all
to be accepted and written: so neither waits longer than the brokers take.  A command that found nothing to do
asks the log all the same, by a unit without events: a deposed leader must not answer from what it knew.

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
