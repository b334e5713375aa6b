"""Repair of a damaged data directory that no server uses: what can be mended, and what is given up.

`plan` finds out what would be done and lost, without a change; `perform` does it.  What is taken out
is copied first, and what is lost becomes a gap that readers are told of.  Everything is written by
the store and the engine themselves, as events, so that a repaired directory is one like any other.
"""
