"""The schema of a topic, from a sample over all of it."""

from topics.export.inferring import inferred
from topics.export.run import ExportJob
from topics.export.schema_file import written
from topics.testing import MemoryTopics

from .exporting import remote


def test_the_sample_reaches_from_end_to_end() -> None:
    """What only the last records have is found, and what only deleted ones had is not; topics that
    are exported together have one schema."""
    with MemoryTopics() as memory, remote(memory) as source:
        memory.client.append_many("t", [{"n": 1}] * 30_000, batch_records=10_000)
        memory.client.append("t", {"late": True})
        memory.client.append("gone", {"x": 1})
        memory.client.delete("gone", before_seq=2)
        memory.client.append("gone", {"y": 1})

        assert written(inferred(source, ExportJob(("t",)))) == {"n": "int64", "late": "bool"}
        assert written(inferred(source, ExportJob(("t", "gone")))) == {
            "n": "int64", "late": "bool", "y": "int64"
        }  # fmt: skip
