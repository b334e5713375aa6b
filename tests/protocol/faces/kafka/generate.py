"""The schemas of Kafka's messages, out of its own jar: `python -m tests.protocol.faces.kafka.generate`.

A `kafka-clients` of Maven Central has every message as JSON with comments.  Kept is what decides about bytes, of the
messages that the face of Kafka knows: `topics/protocol/faces/kafka/messages.py`, a line for each.
"""

import re
import sys
import zipfile
from pathlib import Path
from typing import Any, Final

import orjson

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[3]))

from brokers import ROOT, jars

MESSAGES: Final = ROOT / "topics" / "protocol" / "faces" / "kafka" / "messages.py"
FOLDER: Final = "common/message/"
HEAD: Final = '''\
"""Kafka's messages as Kafka describes them, without its comments.  Made by `make generate`.

From Apache Kafka's `kafka-clients`, `common/message/*.json`: licensed to the Apache Software Foundation (ASF) under
one or more contributor license agreements; the ASF licenses these descriptions under the Apache License, Version 2.0.
"""

DESCRIPTIONS = b"""
'''
NAMES: Final = [
    "Produce",
    "Fetch",
    "ListOffsets",
    "Metadata",
    "OffsetCommit",
    "OffsetFetch",
    "FindCoordinator",
    "JoinGroup",
    "Heartbeat",
    "LeaveGroup",
    "SyncGroup",
    "DescribeGroups",
    "ListGroups",
    "SaslHandshake",
    "ApiVersions",
    "CreateTopics",
    "DeleteTopics",
    "DeleteRecords",
    "InitProducerId",
    "OffsetForLeaderEpoch",
    "DescribeAcls",
    "CreateAcls",
    "DeleteAcls",
    "DescribeConfigs",
    "AlterConfigs",
    "DescribeLogDirs",
    "SaslAuthenticate",
    "CreatePartitions",
    "DeleteGroups",
    "IncrementalAlterConfigs",
    "ListPartitionReassignments",
    "OffsetDelete",
    "DescribeCluster",
    "DescribeProducers",
    "ListConfigResources",
    "DescribeTopicPartitions",
]
"""In the order of their keys."""
OF_MESSAGE: Final = (
    "apiKey",
    "type",
    "name",
    "validVersions",
    "flexibleVersions",
    "latestVersionUnstable",
)
OF_FIELD: Final = (
    "name",
    "type",
    "versions",
    "nullableVersions",
    "taggedVersions",
    "tag",
    "default",
)


def module(jar: Path) -> str:
    """The text of `messages.py`."""
    lines: list[bytes] = []
    with zipfile.ZipFile(jar) as archive:
        for name in NAMES:
            for side in ("Request", "Response"):
                text = archive.read(f"{FOLDER}{name}{side}.json").decode()
                # Comments stand on lines of their own.
                found = orjson.loads(re.sub(r"^\s*//.*$", "", text, flags=re.M))
                lines.append(orjson.dumps(_message(found)))
    return HEAD + b"\n".join(lines).decode() + '\n"""\n'


def _message(found: dict[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {name: found[name] for name in OF_MESSAGE if name in found}
    kept["fields"] = [_field(each) for each in found["fields"]]
    return kept


def _field(found: dict[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {name: found[name] for name in OF_FIELD if name in found}
    if "fields" in found:
        kept["fields"] = [_field(each) for each in found["fields"]]
    return kept


def clients() -> Path:
    """The jar.  Raises NoBrokers."""
    [jar] = jars().glob("kafka-clients-*.jar")
    return jar


if __name__ == "__main__":
    MESSAGES.write_text(module(clients()))
