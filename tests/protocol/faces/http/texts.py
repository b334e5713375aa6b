"""JSON values of every kind, and the body of an append as the server parses it."""

from hypothesis import strategies as st

from topics.protocol.faces.http.append_body import parse_append
from topics.protocol.model.commands import Append
from topics.protocol.model.limits import Limits

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


LIMITS = Limits()


def append(body: bytes, limits: Limits = LIMITS, key: str | None = None) -> Append:
    return parse_append("t", body, limits, return_seqs=True, header_key=key)
