"""Backups of a data directory: taken beside a running server, kept in one place, restored.

A backup is the state at one point of the log: a checkpoint, the log behind it, the delete flags of
all segments as they were not before the checkpoint and not behind the point, and segments, whose
other bytes never change and which all backups of a place share.

`point` reads the point, `take` writes it, `catalog` says what a place holds, `view` shows a backup as
the data directory that it would be restored to, `proof` compares what lives in it with what its log
says, and `restore` makes a directory of it.  No module here writes to the source.
"""
