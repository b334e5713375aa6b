"""The core of topics: what is true, decided without a clock, a file, a socket or a thread.

The core is sans-IO.  It takes commands and answers them, and it asks its host for everything that
waits: writes, syncs, reads of cold files, the alarm.  The server on its event loop, the engine in
memory of `topics.testing`, the crash simulation and the benchmarks are hosts of one and the same
core.  This text says what a host owes it, in which order, and what it may rely on.

# The parts

    model        events, commands, records, limits: values that nothing changes
    batches      Kafka's record batches: read, verified, made of text, and text made of them
    state        what is true now; `State.apply(event)` is the one way by which events change it
    commit       the unit of work: events encoded, applied, and what may be shown once they are written
    groups       members of consumer groups: generations, sessions, who assigns
    decide       commands to events; refuses, or returns what to answer and when
    engine       one engine: each command to its decision
    maintenance  what is done when no command asks: compaction, sealing, erasure, checkpoints
    driver       when things are written, synced, answered and maintained
    cluster      an engine and its driver as a node; `cluster.rule`, by which nodes agree, knows the model alone
    faces        a protocol of clients each: bytes to commands, and outcomes to bytes; no socket

An `Engine` alone knows neither when its events are written nor who waits for them.  `driver.Driver`
does: it owns one engine over one store, and what remains for a host is threads and clocks.  Another
host drives the `Driver`; only a test drives the `Engine` itself.

# What a host does

1. It makes a `Driver` over a store that is not recovered, and calls `recover()`.  That blocks for as
   long as the log is long, so a server makes the call on a worker and serves nothing until then.  It
   raises where the data directory cannot be trusted; the host then ends, and has changed nothing.
2. It calls `start()`, and from then on uses the driver from one thread only, the engine's.
3. For each command it calls `submit(command, deliver)`.  The result is a `Reply`, a `Rejection` that
   is raised, or a `Ticket`: then `deliver` is called later, exactly once, unless the ticket is
   cancelled because the client is gone.
4. `turn_soon()` asks it to call `end_turn()` once the commands that are here now were submitted.
   All they decided is then one write, and they share it: the host decides how much comes together
   by when it calls.  `work_soon()` asks for `work_off()` in the same way, after the commands.
5. Each step that `perform(step)` asks for it carries out, and reports exactly once, on the engine's
   thread, before `perform` returns or later:

       step         what to do                              report
       Write        store.write, inline unless `may_wait`   commit.wrote, or failed
       Sync         store.sync, on a thread, or             commit.synced, or failed
                    store.begin_sync to end_sync
       Rotate       store.rotate, on a thread               commit.rotated, refused, or failed
       Mark         store.idle                              commit.marked, or failed
       LeaveMark    store.leave_failure_mark, on a thread   none: the disk may hang
       Call         the call, on a worker                   step.done(value, error)
       Read         fetch.read, on a thread                 driver.fetched(fetch, result)

   At most one of Write, Rotate and Mark is asked for at a time, since their order is the order of
   the log; at most one Sync; at most one Call.  Reads may overlap with anything.
6. It calls `ring()` not long after `alarm_ms()` on its monotonic clock.  The alarm may have changed
   after any of these calls.
7. To end, it calls `drain()`, which answers what only waits, and then `stop(ended)`, which writes,
   syncs and seals, and leaves a checkpoint and the mark of a clean end.  A host that is killed instead
   loses nothing that its clients were promised (`model.durability`).

# What it may rely on

- **An event is encoded before it is applied.**  Encoding may fail for want of memory, and then the
  command failed and nothing has changed.  Applying may not fail; where it does, the state is no state
  that any log leads to, `on_broken` is called, and the process has to end.  Its log does not hold the
  event, so the next process is sound.
- **One write per turn.**  All events of a turn are one batch in the log, there as a whole or not at
  all.  While it is on its way, commands are decided for the next one.
- **An answer waits for its gate.**  `NOW` changes nothing, or repeats what is durable; `WRITTEN` waits
  for the write of its events; `SYNCED` for a sync that covers it.  Readers see a record no earlier
  than its writer may be answered (`commit.publication`).
- **Room is asked for before a decision.**  A full disk is a refusal, and a write that was promised
  space finds it.  Deletes and acks may use a reserve, so that a full disk can be emptied.
- **A failure ends writing, not reading.**  Whatever fails between applying an event and knowing that
  it is written makes the log read-only: every waiting command is answered `outcome: unknown` (§0.5),
  nothing is written or synced again, published heads stay where they are, and reads go on.  Nothing is
  retried, because after a failed fsync the page cache may show bytes that the disk does not have.
- **A checkpoint is of one position of the log.**  In this order: everything is written; the image
  begins and the log rotates, in one piece; commands go on while images are taken, before the next
  change of each topic at the latest; what is unsealed is sealed; everything is written and synced;
  delete flags are flipped in their files; the checkpoint is written; then the log before it may go.
- **A file is unlinked once the event that lets it go is durable**, never before.

# A host in twenty lines

This one has no threads and a clock that stands still.  The engine in memory (`driver.inline_host`)
is the same with error handling; `server.runtime` is the same with threads.

>>> from topics.protocol.driver.driver import Driver, Read
>>> from topics.protocol.driver.group_commit import LeaveMark, Mark, Rotate, Sync, Write
>>> from topics.protocol.driver.maintenance import Call
>>> from topics.protocol.faces.http.append_body import parse_append
>>> from topics.protocol.model.limits import Limits
>>> from topics.store.memory import MemoryStore

>>> class Host:
...     now_ms = steady_ms = 1_750_000_000_000
...     soon = []
...     def perform(self, step):
...         commit = driver.commit
...         match step:
...             case Write(): commit.wrote(store.write(step.frames), took_ms=0.0)
...             case Sync(): commit.synced(store.sync(), took_ms=0.0)
...             case Rotate(): commit.rotated(store.rotate(fresh=step.fresh, stay=step.stay))
...             case Mark(): store.idle(); commit.marked()
...             case LeaveMark(): store.leave_failure_mark()
...             case Call(): step.done(step.call(), None)
...             case Read(): driver.fetched(step.fetch, step.fetch.read())
...     def turn_soon(self): self.soon.append(lambda: driver.end_turn())
...     def work_soon(self): self.soon.append(lambda: driver.work_off())
...     def not_before(self, seen_ms): self.now_ms = max(self.now_ms, seen_ms)
...     def log(self, level, what): print(level, what)
...     on_damage = on_broken_answer = on_failed = on_broken = lambda self, what: print(what)

>>> store, host = MemoryStore(), Host()
>>> driver = Driver(Limits(), store, host)
>>> recovery = driver.recover()
>>> driver.start()

A command that changes something is decided at once and answered after its write:

>>> body = b'{"records": [{"data": {"do": "resize"}}, {"data": 2}]}'
>>> command = parse_append("jobs", body, driver.limits, return_seqs=True, header_key=None)
>>> replies = []
>>> ticket = driver.submit(command, replies.append)
>>> jobs = driver.engine.state.topics["jobs"]
>>> jobs.head_seq, jobs.published_seq, len(replies)
(2, 0, 0)
>>> while host.soon: host.soon.pop(0)()
>>> jobs.head_seq, jobs.published_seq, len(replies)
(2, 2, 1)

And the end:

>>> driver.drain()
>>> driver.stop(lambda error: print("stopped cleanly" if error is None else error))
stopped cleanly
"""
