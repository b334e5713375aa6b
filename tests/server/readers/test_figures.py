"""What metrics tell of reader processes."""

from topics.server.readers.figures import ROWS, Figures, families


def test_each_figure_is_a_family_with_a_sample_a_reader() -> None:
    """In the order of the readers, labelled with their numbers. (§8.3)"""
    one = Figures(
        up=True,
        behind=2,
        connections=3,
        hot_bytes=4,
        requests=5,
        relayed=6,
        cpu_s=0.5,
        restarts=0,
    )
    two = one._replace(up=False, restarts=7)

    told = {
        family.name: [(s.value, s.labels) for s in family.samples]
        for family in families([one, two])
    }

    assert told["topics_reader_up"] == [(1.0, {"reader": "0"}), (0.0, {"reader": "1"})]
    assert told["topics_reader_restarts_total"] == [(0.0, {"reader": "0"}), (7.0, {"reader": "1"})]
    assert {field for field, *_ in ROWS} == set(Figures._fields)
