"""With which jobs a job takes turns: the group that it was given, else that of its tag (§10, 131, 133).

Groups are numbers of names in the queue's table of options (`job_table`), from 1 on.
"""

import numpy as np
from numpy.typing import NDArray

from topics.protocol.model.config import TopicConfig
from topics.protocol.state.job_table import TAGGED, JobTable
from topics.protocol.state.topic import Topic


def group_max_of(config: TopicConfig) -> int:
    """How many jobs of one group may be in flight; 0: any number."""
    if config.order == "group":
        return 1
    return config.group_max_in_flight if isinstance(config.group_max_in_flight, int) else 0


def is_arranged(config: TopicConfig) -> bool:
    """Whether a queue of this config needs a backlog, whatever its jobs are."""
    return config.order == "group" or config.fair is True or group_max_of(config) > 0


def tag_group(topic: Topic, table: JobTable, seq: int) -> int:
    """The group of a job that was given none; 0: its record has no tag."""
    number = np.zeros(1, np.int64)
    name_groups(topic, table, np.array([seq], np.int64), number)
    return int(number[0])


def name_groups(
    topic: Topic, table: JobTable, seqs: NDArray[np.int64], group: NDArray[np.int64]
) -> None:
    """Set the groups of jobs that were given none, 0 in `group`, to those of their tags.

    Args:
        seqs: Of live records, ascending, shape (n,).
        group: Numbers of their groups, shape (n,).
    """
    bare = np.flatnonzero(group == 0)
    for run, lo in topic.runs.reaching(int(seqs[bare[0]])) if len(bare) else ():
        wanted = seqs[bare]
        first = run.first_seq
        begin, end = wanted.searchsorted([first + lo, first + run.count]).tolist()
        if begin < end:
            ids = run.columns.tag_id[wanted[begin:end] - first]
            used = [each for each in np.unique(ids).tolist() if each]
            names = np.zeros(max(used, default=0) + 1, np.int64)
            for each, tag in zip(used, run.tags_of(used), strict=True):
                names[each] = table.group_id(tag)
            group[bare[begin:end]] = names[ids]
        if end == len(wanted):
            break


def note_groups(table: JobTable, seqs: NDArray[np.int64], group: NDArray[np.int64]) -> None:
    """Note them in the table, so that the group of a job with options is known once its record is gone."""
    span = (int(seqs[0]), int(seqs[-1])) if len(seqs) else (0, -1)
    for rows, _ in table.pieces(*span, are_marked=False):
        own = rows["seq"].astype(np.int64)
        at = np.minimum(seqs.searchsorted(own), len(seqs) - 1)
        here = np.flatnonzero((seqs[at] == own) & (rows["group"] == 0))
        rows["group"][here] = group[at[here]]
        flags = rows["flags"]
        flags[here] |= TAGGED
