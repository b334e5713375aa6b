"""From the outcome of an attempt to a value, or to an error that says why there is none."""

from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from topics.client import (
    BadAnswer,
    Record,
    Unreachable,
)

from .script import ONE_TRY, Script, ok, page, record


@dataclass
class Departure:
    carrier: str
    delay: int


def test_typed_data_that_does_not_fit(face: Any) -> None:
    """Data of another shape are an answer we cannot read; the record is named."""
    good, bad = record(7, {"carrier": "UA", "delay": 2}), record(9, {"carrier": "UA"})
    script = Script(page(good, bad, head_seq=9, cursor=9))

    with pytest.raises(BadAnswer, match=r"/diff: record 9: .*`delay`.*\$\.records\[1\]") as raised:
        face(script).do(lambda c: c.diff("f", record_type=Record[Departure]))
    assert raised.value.detail == {"seq": 9}

    script.answers = [ok({"records": "none"})]
    with pytest.raises(BadAnswer, match="/diff: Expected `array`") as raised:
        face(script).do(lambda c: c.diff("f", record_type=Record[Departure]))
    assert raised.value.detail == {}


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(200, text="<html>"),
        httpx.Response(200, json=[]),
        httpx.Response(404, text="nginx"),
        httpx.Response(404, json={"error": "text"}),
        httpx.Response(200, content=b'"\xff"'),
        httpx.Response(302, headers={"location": "/"}),
    ],
    ids=["html", "shape", "404", "envelope", "utf-8", "redirect"],
)
def test_another_kind_of_server(face: Any, answer: httpx.Response) -> None:
    """What answers outside the contract is told apart from a refusal."""
    with pytest.raises(BadAnswer):
        face(Script(answer), retry=ONE_TRY).do(lambda c: c.topic("jobs"))


def test_unreachable_names_the_server(face: Any) -> None:
    """No answer is an error of this package, with the address and the reason."""
    script = Script(
        lambda request: (_ for _ in ()).throw(httpx.ConnectError("refused", request=request))
    )

    with pytest.raises(Unreachable) as raised:
        face(script, retry=ONE_TRY).do(lambda c: c.topic("jobs"))

    assert str(raised.value) == "http://topics.test: refused (unreachable)"
