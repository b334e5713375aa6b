"""Hot runs of as many small records as a test asks for."""

from topics.protocol.model.records import LIVE
from topics.protocol.model.render import render_batch
from topics.protocol.state.hot_run import HotRun

TS = 1_748_450_001_000


def run_of(first_seq: int, count: int) -> HotRun:
    run = HotRun(first_seq)
    texts = [b"%d" % (first_seq + row) for row in range(count)]
    run.append(render_batch(texts, first_seq=first_seq, ts_ms=TS, nodes=None))
    return run


def live_seqs(run: HotRun) -> list[int]:
    return [run.first_seq + row for row in range(run.count) if run.flags[row] == LIVE]
