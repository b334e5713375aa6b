"""Whether a node may be the one that leads. (§3, §4)"""

import pytest

from topics.server.cluster.node.candidacy import Candidacy


def judge(
    candidacy: Candidacy, skew_ms: int = 0, *, is_read_only: bool = False, has_data: bool = True
) -> bool:
    return candidacy.judge(skew_ms=skew_ms, is_read_only=is_read_only, has_data=has_data)


def test_a_sound_node_may_lead() -> None:
    candidacy = Candidacy()
    assert not judge(candidacy, 1000)
    assert candidacy.refusal is None


@pytest.mark.parametrize("sign", [1, -1])
def test_a_node_whose_clock_is_off_may_not_until_it_is_well_again(sign: int) -> None:
    """A clock at the bound does not make it come and go. (§4)"""
    candidacy = Candidacy()
    assert judge(candidacy, sign * 1001)
    assert candidacy.refusal == f"its clock is {sign * 1001} ms off the broker's"
    assert not judge(candidacy, sign * 801)
    assert candidacy.refusal is not None

    assert judge(candidacy, sign * 800)
    assert candidacy.refusal is None
    assert not judge(candidacy, sign * 1000)


def test_a_node_that_cannot_write_or_has_lost_its_history_may_not() -> None:
    """Another one can. (§2)"""
    candidacy = Candidacy()
    assert judge(candidacy, is_read_only=True)
    assert candidacy.refusal == "its log is read-only"
    assert not judge(candidacy, has_data=False)
    assert candidacy.refusal == "its data are not what the cluster's log has"
    assert judge(candidacy)
    assert candidacy.refusal is None
