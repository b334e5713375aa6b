"""Outcomes as HTTP answers: a status, and the JSON of the one model that each outcome has.

`RENDERINGS` is the table from an outcome's type to its model and its renderer.  What a renderer makes
is the text of an object without its last brace, because the performance block follows (§0.9).  It
encodes the model, which is as fast as a `bytes` template of the same fields (0.4 µs for an append);
only a page and a claim are templates, around records that are served as they lie.
`tests/protocol/faces/http/test_answers.py` decodes both with the models.

Names of topics need no escaping: their charset has nothing that JSON would escape.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from topics.protocol.faces.http import (
    groups,
    jobs,
    queues,
    records,
    routers,
    schedules,
    topics,
    watch,
)
from topics.protocol.faces.http.rendering import Rendering
from topics.protocol.model.outcomes import Outcome
from topics.protocol.model.records import Buffer


def status_of(outcome: Outcome) -> int:
    row = RENDERINGS[type(outcome)]
    return 201 if row.may_create and outcome.created else 200  # type: ignore[attr-defined]


def text_of(outcome: Outcome, records: Sequence[Buffer] = ()) -> list[Buffer]:
    """The object's text, its last brace left out: the performance block follows.

    Args:
        records: The text of the records that it shows, with their commas.
    """
    text = RENDERINGS[type(outcome)].text(outcome)
    if type(text) is bytes:
        return [text]
    before, behind = text
    return [before, *records, behind]  # type: ignore[list-item]


RENDERINGS: Final[Mapping[type[Outcome], Rendering]] = {
    **topics.RENDERINGS,
    **records.RENDERINGS,
    **queues.RENDERINGS,
    **jobs.RENDERINGS,
    **routers.RENDERINGS,
    **schedules.RENDERINGS,
    **groups.RENDERINGS,
    **watch.RENDERINGS,
}
"""What each outcome is on the wire."""
