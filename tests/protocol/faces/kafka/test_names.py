"""Which names are shown, and which may be made; ids."""

import pytest

from topics.protocol.faces.kafka.names import epoch_of, id_of, is_legal, is_shown, why_not
from topics.protocol.state.topic import epoch_of as epoch_of_topic


@pytest.mark.parametrize(
    ("name", "shown"),
    [("orders", True), ("a.b_c-1", True), ("a:b", False), ("n" * 249, True), ("n" * 250, False)],
)
def test_a_topic_whose_name_kafka_knows_is_shown(name: str, shown: bool) -> None:
    assert is_shown(name) is shown
    assert (why_not(name) is None) is shown


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "1 to 249 characters, and this one 0"),
        ("n" * 250, "and this one 250"),
        ("_schemas", "first a letter or digit"),
        (".x", "first a letter or digit"),
        ("-x", "first a letter or digit"),
        ("a b", '"a b" is no topic\'s name'),
        ("a#1", "is no topic's name"),
        ("größe", "is no topic's name"),
    ],
)
def test_a_name_that_cannot_be_is_refused_in_words(name: str, why: str) -> None:
    said = why_not(name)

    assert said is not None
    assert why in said


@pytest.mark.parametrize("name", ["orders", "_schemas", ".x", "-x", "...", "n" * 249])
def test_kafka_has_topics_of_more_names(name: str) -> None:
    """Asked for such a topic it says that there is none, and not that the name is wrong."""
    assert is_legal(name)


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a:b", "größe", "a\n", "n" * 250])
def test_other_names_are_none_of_kafkas(name: str) -> None:
    assert not is_legal(name)


def test_an_id_stands_for_an_instance_of_a_topic() -> None:
    """Two topics of one name that followed each other have two."""
    epochs = [epoch_of_topic("0a1b2c3d4e5f6071", number) for number in (1, 2, 1 << 40)]

    ids = [id_of(epoch) for epoch in epochs]

    assert len(set(ids)) == 3
    assert {len(each) for each in ids} == {16}
    assert [epoch_of(each) for each in ids] == epochs
    with pytest.raises(AssertionError):
        id_of("other")
