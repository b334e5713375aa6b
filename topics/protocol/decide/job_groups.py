"""Tags and groups of jobs by their seqs: a job has the group that was given to it, else its tag (§10.2).

Reads columns and string tables of runs, so a caller with many jobs in sealed runs has them warmed first.
"""

from collections.abc import Sequence

import numpy as np

from topics.protocol.model.ended_jobs import Known
from topics.protocol.model.ports import Run
from topics.protocol.state.queue import Queue
from topics.protocol.state.run_list import seq_spans
from topics.protocol.state.topic import WARMED_MAX, Topic


def cold_runs(topic: Topic, seqs: Sequence[int]) -> list[Run]:
    """Runs that hold some of these records, ascending, and whose columns a disk has to give first: the first few."""
    spans = seq_spans(np.array(seqs, np.uint64))
    cold = [run for run, _ in topic.runs.rows_of(spans) if not run.is_warm] if seqs else []
    return cold[:WARMED_MAX]


def tags_of(topic: Topic, seqs: Sequence[int]) -> dict[int, str]:
    """The tags of those of some records, ascending, that have one.  Raises DamagedRun."""
    found: dict[int, str] = {}
    spans = seq_spans(np.array(seqs, np.uint64))
    for run, rows in topic.runs.rows_of(spans) if seqs else ():
        ids = run.columns.tag_id[rows]
        used = [each for each in np.unique(ids).tolist() if each]
        names = dict(zip(used, run.tags_of(used), strict=True)) if used else {}
        for row, tag_id in zip(rows.tolist(), ids.tolist(), strict=True):
            if tag_id:
                found[run.first_seq + row] = names[tag_id]
    return found


def groups_of(topic: Topic, queue: Queue, seqs: Sequence[int]) -> dict[int, str]:
    """The groups of those of some jobs, ascending, that have one.  Raises DamagedRun."""
    found = tags_of(topic, seqs)
    if seqs and queue.backlog is not None and queue.backlog.table.live:
        given = zip(seqs, queue.backlog.options_of(seqs), strict=True)
        found |= {seq: group for seq, (_, group) in given if group is not None}
    return found


def known_of(topic: Topic, queue: Queue, seqs: Sequence[int]) -> dict[int, Known]:
    """What is kept of each of some jobs, ascending, when it ends.  Raises DamagedRun."""
    tags, backlog = tags_of(topic, seqs), queue.backlog
    if not seqs or backlog is None or not backlog.table.live:
        return {seq: Known(tags.get(seq)) for seq in seqs}
    found: dict[int, Known] = {}
    for seq, (priority, group) in zip(seqs, backlog.options_of(seqs), strict=True):
        found[seq] = Known(tags.get(seq), group, priority)
    return found
