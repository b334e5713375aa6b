"""One engine on several machines: the rule by which nodes agree over a log that they share.

The log is another system's: a partition of Kafka, or anything that keeps the promises of `ports`.
Nodes read it in one order, and each applies what it accepts to an engine and a store of its own.  One
of them leads: it decides commands and writes what it decided.  This package says which records are
true, who may lead, and when a client may be answered.  It decides that and nothing else: it is sans-IO,
without a clock, a thread or a random source, and imports nothing but the model.

    unit      what is written: `TermBegan`, and units of events, in one record or in parts
    replica   the rule: a place and a record, to the next place and a verdict
    leading   one node: a table of states and inputs; when to let go
    in_flight what a leader has sent and does not yet know to be true
    steps     its inputs, and the effects that a host performs
    trimming  how much of the log may go
    ports     what the log has to promise

# The rule

A replica keeps its place: `(term, seen, index, chain, offset)`.  `chain` is the digest of everything
that it has accepted, in order.  Reading the log, it accepts

- `TermBegan(term, nonce, node)`, where `term` is above every term in any record so far, also in
  records that were skipped; the chain goes on over it;
- a unit, where its term is that of the place, its index the next one, and its `prev` the chain; the
  chain goes on over it.  A unit in parts is accepted with its last part, if all come in their order
  and nothing was accepted between.

It skips everything else.  That is a function of the records and of nothing else (`replica.accept`), so
all replicas accept the same.  What a deposed leader still writes, however late, has no effect, and
safety asks nothing of clocks, of leases, or of whoever decides who is to lead.

# Why each clause is there

Each of these is a bug in `tests/cluster/bugs.py`, and the simulation finds what it breaks.

**The chain, and not the index alone.**  Two histories have a unit 7.  A log that lost its newest
records may have two processes in one term, each of which saw no other: their indexes are the same, and
the unit of one, applied to the state of the other, gives a sequence number twice.

**The nonce, and not the name.**  Two processes may have one node's name: a container that was believed
dead, a copied configuration.  Both take the next term; the first `TermBegan` has it.  The other one
must not take that for its own.  Units are recognised by their chain, for the same reason.

**Terms of skipped records count.**  A leader whose `TermBegan` the log has lost goes on writing units
of its term.  Whoever took that term again would give out the same lease numbers (`term << 40`).  A term
far above all seen does not count (`TERM_STEP_MAX`): one such record would use up the terms for good.

**Parts end with the term.**  The clients of a deposed leader are told that a unit which was not
accepted never will be.  A last part that comes late must not make it one.

**What cannot be read is not skipped.**  Bytes that are no whole record of this cluster and shard are
skipped by every version alike.  A whole record that only a newer version can read stops a node: if it
skipped what others accept it would go on from another state, and might lead from it.

# Leading

A candidate reads to the log's end, writes `TermBegan` with the next term, and reads on until it has
read that back as accepted.  Reading to the end makes it likely that its term is the next one; reading
back is what makes it safe, because everything before that record has been applied by then.  Then it
asks the log to show again what led from its mark (below) to its term, and only then decides.

The engine decides a turn and applies it; the node sends it as a unit.  Several may be in flight, each
going on from the one before it, so the engine runs ahead of what is accepted.  Hence:

- An answer waits until its unit is accepted: where the log's offset is the next after all that was
  read, nobody wrote between, and the rule accepts it; any other is read back.  Both go through
  `replica.accept_record`.
- So does every answer that rests on what is in flight: reads, and commands that repeat what a unit in
  flight has done.  A command that found nothing to do because of what is *not* there is a unit without
  events: a deposed leader finds nothing of what its successor has done, and must not say so.
- The events of a unit go to the node's own log once it is accepted, in one batch with the place.
- While anything is in flight the engine is no state that the log has.  It is not sealed, not
  checkpointed and not copied (`Node.is_settled`).

A leader that reads a higher term, or a unit of its own that was skipped, drops its engine and opens it
anew from its store.  Behind a higher term nothing of the old one is ever accepted, so what was in flight
is `NOT_APPLIED` for good.  Otherwise it is `UNKNOWN`: what was missing before a unit may still come, and
a repetition of the unit behind it.  The node may not decide again before it has begun another term.

# A log that lost

Logs lose acknowledged records: an unclean election, a topic made anew.  Then the nodes that had read
them are on a history that is no more, and everything that such a node acknowledges is lost as well.
The rule alone does not notice, because a node's own records are always right in its own eyes.  It is
noticed in four ways.

- The log's readers fail when what they have read is gone (`ports`).
- A record of ours that was accepted by its offset has to be read back at that offset.
- A unit of a term that never began here shows that a `TermBegan` is gone.
- At its start, with each new term, and before it leads, a node has the log show again what its state
  rests on, and applies the rule to that anew (`replica.is_history`).  A candidate has to do it after its
  `TermBegan` is in the log: between a look before and that record the log may be cut, and the term of a
  node on a lost history is as good as any.

One record at the node's own offset would not do.  A leader under which the log was cut writes on; what
it writes then stands just where it will look after a restart, and its chain is the one that the node
expects.  What it goes on from is gone.  So a node looks from its **mark**: the last unit that it has
*read* in the log and not only sent, with the log's epoch, which names everything before it.  The mark is
in the store with the place, and the log is trimmed by marks (`trimming`).

A node that finds itself on a lost history says so (`HistoryLost`), shows nothing more, and takes another node's
snapshot.  Its store stays as it is until a snapshot has passed the same look, for it may be the only
copy.  Three things remain, and an operator has to know them:

- What a leader acknowledges between the loss and the moment in which it notices is lost with the rest.
  A refusal that was final may turn out otherwise, if what made it final is lost.
- Where every node had read what was lost, none can lead.  All have told it, and every store is there:
  which of them begins a new history is for people to decide.
- A node whose mark was trimmed while it was away cannot look.  It takes a snapshot and cannot say
  whether what it had is in the log.

# What the log need not keep

A leader lets go of what every live node has on its disk, and two of them at least (`trimming`).  Nothing
makes sure that it still leads when the log does so.  It need not: what a node has on its disk it keeps,
so a bound that held once holds for ever, for the nodes that it was made of.  A node that came later and has
less takes a snapshot.

# What a host owes

It performs effects in their order and reports as `steps` says; the place and the mark go into the store
in one batch with a unit's events.  A nonce is never used twice.  Beyond that it may be slow, and may
stop anywhere.

>>> from topics.protocol.cluster.rule.leading import Node
>>> from topics.protocol.cluster.rule.replica import Mark, Place
>>> from topics.protocol.cluster.rule.steps import Decided, EndIs, Found, Lead, Sent, Shown
>>> from topics.protocol.cluster.rule.unit import Shard

>>> shard = Shard(cluster=bytes(16))
>>> zero = Place.before_all(shard)
>>> node = Node(shard, "n1", zero, Mark(zero), message_bytes_max=1 << 20)
>>> node.start()
[Prove(proof=1, first_offset=0, last_offset=-1, epoch=-1)]
>>> node.step(Shown(1, []))
[ReadOn(from_offset=0)]

An empty log.  The node is to lead, and writes at its end:

>>> node.step(Lead(nonce=b"sixteen of these"))
[AskEnd()]
>>> [began] = node.step(EndIs(0))
>>> node.step(Found(0, began.raw, epoch=0))
[Prove(proof=2, first_offset=0, last_offset=0, epoch=-1)]
>>> node.step(Shown(2, [(0, began.raw)]))
[Leads(term=1)]

A turn without an event is answered once the log has it at the next offset:

>>> [send] = node.step(Decided(("a client",), 0, b""))
>>> [apply, answer] = node.step(Sent(send.ticket, send.part, 1))
>>> apply.place.index, answer.tokens, answer.reply.value
(1, ('a client',), 'accepted')
"""
