"""Error codes of a response: found in every place that its schema has for one."""

import pytest

from topics.protocol.faces.kafka import errors
from topics.protocol.faces.kafka.apis import SERVED
from topics.protocol.faces.kafka.error_codes import NAMES, error_codes
from topics.protocol.faces.kafka.schema import types


def test_a_code_is_found_where_partitions_have_one() -> None:
    T = types("FetchResponse")
    parts = [T.PartitionData(error_code=code) for code in (1, 0, 3)]
    topics = [T.FetchableTopicResponse(partitions=parts), T.FetchableTopicResponse()]
    assert error_codes("FetchResponse", T.FetchResponse(responses=topics)) == [1, 3]
    whole = T.FetchResponse(error_code=70)
    assert error_codes("FetchResponse", whole) == [70]


def test_a_list_that_is_absent_has_none() -> None:
    T = types("CreateTopicsResponse")
    topic = T.CreatableTopicResult(error_code=36, configs=None)
    assert error_codes("CreateTopicsResponse", T.CreateTopicsResponse(topics=[topic])) == [36]


@pytest.mark.parametrize("name", sorted(api.name for api in SERVED.values()))
def test_a_response_of_nothing_but_defaults_has_none(name: str) -> None:
    response = name + "Response"
    assert error_codes(response, getattr(types(response), response)()) == []


def test_codes_have_kafka_s_names() -> None:
    assert NAMES[errors.OFFSET_OUT_OF_RANGE] == "OFFSET_OUT_OF_RANGE"
    assert len(set(NAMES.values())) == len(NAMES) > 20
