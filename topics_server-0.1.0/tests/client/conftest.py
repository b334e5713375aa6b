"""Each test of the client runs over both of its faces."""

from typing import Any

import pytest

from .script import AsyncFace, SyncFace


@pytest.fixture(params=[SyncFace, AsyncFace], ids=["sync", "async"])
def face(request: pytest.FixtureRequest) -> Any:
    return request.param
