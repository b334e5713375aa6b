"""The state as a whole: topics by name."""

from protocol.harness import Harness


def test_topics_are_listed_in_order_however_they_came() -> None:
    """One by one, or very many since somebody looked. (§1.3)"""
    engine = Harness()
    many = [f"t{i * 7919 % 1000}" for i in range(1000)]
    for name in ("u", "s"):
        engine.put(name)
    assert engine.engine.state.names == ["s", "u"]
    for name in many:
        engine.put(name)
    assert engine.engine.state.names == sorted([*many, "s", "u"])
    engine.put("sz")
    engine.drop("t500")

    assert engine.engine.state.names == sorted({*many, "s", "sz", "u"} - {"t500"})
