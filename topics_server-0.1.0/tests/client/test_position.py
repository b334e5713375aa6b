"""A client of a cluster reads its own writes, whichever node it asks."""

from typing import Any

import httpx
import pytest

from topics.client.position import LastPosition

from .script import Script, appended, error, page


def placed(answer: httpx.Response, position: str) -> httpx.Response:
    answer.headers["x-topics-position"] = position
    return answer


def positions(script: Script) -> list[str | None]:
    return [request.headers.get("x-topics-position") for request in script.requests]


def test_what_was_written_is_read(face: Any) -> None:
    """Each request says the greatest position that any answer had; the first says none."""
    read = page(head_seq=2, cursor=2)
    script = Script(placed(appended(1, 1), "0.9"), placed(appended(2, 2), "0.10"), read, read)

    def use(client: Any) -> Any:
        return client.append("jobs", 1)

    def story(client: Any) -> Any:
        if hasattr(client, "aclose"):

            async def asked() -> None:
                await use(client)
                await use(client)
                await client.diff("jobs")
                await client.diff("jobs")

            return asked()
        use(client)
        use(client)
        client.diff("jobs")
        return client.diff("jobs")

    face(script).do(story)

    assert positions(script) == [None, "0.9", "0.10", "0.10"]


def test_a_node_that_is_behind_is_asked_again(face: Any) -> None:
    """503 `replica_behind` passes by itself, as every 503."""
    behind = error(503, "replica_behind", retry_after="1")
    script = Script(behind, page(head_seq=0, cursor=0))

    face(script).do(lambda client: client.diff("jobs"))

    assert script.pauses_s == [1.0]


def test_a_single_server_is_told_nothing(face: Any) -> None:
    script = Script(appended(1, 1), appended(2, 2))
    face(script).do(lambda client: client.append("jobs", 1))
    face(script).do(lambda client: client.append("jobs", 1))
    assert positions(script) == [None, None]


@pytest.mark.parametrize("given", ["", "7", "0.x", "x.0", "0.-1", "0.2"])
def test_only_a_greater_position_counts(given: str) -> None:
    """By number, not by text; what cannot be compared is left."""
    last = LastPosition()
    last.note(placed(appended(1, 1), "0.10"))
    last.note(placed(appended(1, 1), given))
    assert last.text == "0.10"
