"""The descriptions of Kafka's messages are Kafka's own."""

import zipfile
from pathlib import Path

import pytest
from brokers import NoBrokers

from topics.protocol.faces.kafka.messages import DESCRIPTIONS

from . import generate


@pytest.mark.kafka
@pytest.mark.timeout(600)
def test_the_descriptions_are_those_of_kafka() -> None:
    try:
        jar = generate.clients()
    except NoBrokers as missing:
        pytest.skip(str(missing))

    assert generate.module(jar) == generate.MESSAGES.read_text()


def test_a_message_is_a_line_and_says_nothing_of_its_meaning() -> None:
    """What decides about bytes is kept, comments and descriptions are not."""
    lines = DESCRIPTIONS.strip().splitlines()

    assert len(lines) == 2 * len(generate.NAMES)
    assert b"//" not in DESCRIPTIONS
    assert b'"about"' not in DESCRIPTIONS


def test_a_jars_schemas_are_kept_without_comments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jar = tmp_path / "kafka-clients.jar"
    described = """// Licensed to somebody
    {"apiKey": 9, "type": "%s", "name": "Odd%s", "listeners": ["broker"], "validVersions": "0-2",
     // since then
     "flexibleVersions": "none",
     "fields": [{"name": "Parts", "type": "[]Part", "versions": "1+", "about": "…", "fields": [
       {"name": "Id", "type": "int8", "versions": "1+", "tag": 3, "taggedVersions": "2+"}]}]}"""
    with zipfile.ZipFile(jar, "w") as archive:
        for side in ("Request", "Response"):
            archive.writestr(f"common/message/Odd{side}.json", described % (side.lower(), side))
    monkeypatch.setattr(generate, "NAMES", ("Odd",))

    kept: dict[str, bytes] = {}
    exec(generate.module(jar), kept)

    request, response = kept["DESCRIPTIONS"].split()
    assert request == (
        b'{"apiKey":9,"type":"request","name":"OddRequest","validVersions":"0-2","flexibleVersions":"none",'
        b'"fields":[{"name":"Parts","type":"[]Part","versions":"1+","fields":[{"name":"Id","type":"int8",'
        b'"versions":"1+","taggedVersions":"2+","tag":3}]}]}'
    )
    assert b"OddResponse" in response
