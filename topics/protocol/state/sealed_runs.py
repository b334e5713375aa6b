"""How sealed runs take the place of the hot runs that they were made of."""

from collections.abc import Sequence

import numpy as np

from topics.protocol.model.ports import Run
from topics.protocol.model.records import LIVE
from topics.protocol.state.run_list import RunList
from topics.protocol.state.unsealed_run import UnsealedRun


def cut_hot_runs(runs: RunList, first_seq: int, last_seq: int) -> None:
    """Let hot runs begin and end where the sealed range does.  Live ones do; those of a replay,
    which nothing froze and which other bounds may have shaped, may reach further."""
    for edge in (first_seq, last_seq + 1):
        for run in list(runs):
            end = run.first_seq + run.count
            if isinstance(run, UnsealedRun) and run.first_seq < edge < end:
                rest = run.cut(edge - run.first_seq)
                runs.replace(run.first_seq, run.first_seq, [run, rest])


def carry_deletes(old: Run, new: Sequence[Run]) -> None:
    """Rows that were deleted while their run was sealed are deleted in the sealed run too: the
    file has the flags of the time at which the seal was planned."""
    if isinstance(old, UnsealedRun) and not old.dead:
        return
    if isinstance(old, UnsealedRun):
        dead = old.flags != LIVE
        for run in new:
            first = max(old.first_seq, run.first_seq)
            shared = min(old.first_seq + old.count, run.first_seq + run.count) - first
            if shared > 0:
                at, lo = first - old.first_seq, first - run.first_seq
                marked = np.pad(dead[at : at + shared], (lo, run.count - lo - shared))
                run.delete_marked(marked)
        return
    seqs = old.deleted_rows() + old.first_seq
    for run in new:
        rows = seqs - run.first_seq
        rows = rows[(rows >= 0) & (rows < run.count)]
        if len(rows):
            run.delete(rows)
