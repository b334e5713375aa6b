"""Values that commands, events and outcomes of schedules share. (§14)"""

import msgspec

from topics.protocol.model.marks import Mark
from topics.protocol.model.schedules import ScheduleConfig, ScheduledRecord


def test_what_a_record_takes_is_its_text() -> None:
    assert ScheduledRecord(b"123").size_bytes == 3
    marked = ScheduledRecord(b"123", "node", "tag", b"{}", Mark(b',"$time":5', 1), 7)
    assert marked.size_bytes == 3 + 2 + 10


def test_configs_have_the_same_times_whatever_they_append() -> None:
    config = ScheduleConfig(topic="t", record=ScheduledRecord(b"1"), cron="0 0 * * *", tz="UTC")
    for same in ({"topic": "u"}, {"missed": "all"}, {"record": ScheduledRecord(b"2")}):
        assert config.has_times_of(msgspec.structs.replace(config, **same))
    for other in ({"cron": "1 0 * * *"}, {"tz": "Europe/Berlin"}, {"until": 5}):
        assert not config.has_times_of(msgspec.structs.replace(config, **other))
