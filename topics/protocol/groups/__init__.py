"""The classic protocol of consumer groups, sans-IO.

A group has generations.  In each, every member joins and says by which protocols it can be assigned partitions; once all
have joined, or their time is over, one protocol is chosen and one member, the leader, assigns.  The server passes the
assignment on and knows nothing of what is in it.

`Coordinator` is told what members ask and that time passed, and says by two calls what comes of it: an event, which is true
once the call returns, and an answer for the token of a request that waited.  It has no clock and no randomness.  What
outlives the process is in `state/groups.py`: the members of the last generation and what they were assigned.  What does
not is here: who waits, whose session ends when, who has an id and has not joined yet.

A generation is used once, over any crash: its event stands before any answer that names it, and an answer is told once the
event is durable.
"""
