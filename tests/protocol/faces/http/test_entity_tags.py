"""Entity tags in headers: how they are told, and when a client has the page (RFC 9110 §13.1.2)."""

import pytest

from topics.protocol.faces.http.entity_tags import entity_tag, known_tag


def test_each_coding_has_a_tag_of_its_own() -> None:
    """Other bytes, another strong tag. (§8.8.3)"""
    assert entity_tag("a1", is_gzipped=False) == b'"a1"'
    assert entity_tag("a1", is_gzipped=True) == b'"a1-gzip"'


@pytest.mark.parametrize(
    ("header", "known"),
    [
        (None, None),
        (b"", None),
        (b'"a1"', b'"a1"'),
        (b'W/"a1"', b'"a1"'),
        (b'"a1-gzip"', b'"a1-gzip"'),
        (b'"x", W/"y","a1"', b'"a1"'),
        (b'"a1-gzip", "a1"', b'"a1"'),
        (b" * ", b'"a1"'),
        (b'"*"', None),
        (b"a1", None),
        (b'"a1', None),
        (b'"A1"', None),
        (b'"a1-br"', None),
        (b'"x"' * 10_000, None),
    ],
)
def test_a_client_has_the_page_it_names(header: bytes | None, known: bytes | None) -> None:
    """By a weak comparison, in a list, in either coding; the tag that matched comes back."""
    assert known_tag(header, "a1") == known
