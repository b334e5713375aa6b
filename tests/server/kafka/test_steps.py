"""Requests that take several steps, and wait between them."""

from topics.server.kafka.steps import Later, Running, Steps


def test_steps_that_wait_for_nothing_are_over_at_once() -> None:
    told: list[object] = []

    def steps() -> Steps[int]:
        there: Later[int] = Later()
        there.come(3)
        return (yield there) + 1

    running = Running(steps(), told.append)
    running.go_on()
    assert (running.result, running.is_over, running.holds, told) == (4, True, False, [running])


def test_steps_go_on_when_what_they_wait_for_comes() -> None:
    first: Later[int] = Later(holds=True)
    second: Later[int] = Later(holds=False)

    def steps() -> Steps[int]:
        return (yield first) + (yield second)

    running = Running(steps(), lambda _: None)
    running.go_on()
    assert running.holds
    first.come(1)
    assert (running.holds, running.is_over) == (False, False)
    second.come(2)
    assert running.result == 3


def test_what_a_step_raises_is_its_failure() -> None:
    later: Later[None] = Later()

    def waits() -> Steps[int]:
        yield later
        raise ValueError("a bug")

    running = Running(waits(), lambda _: None)
    running.go_on()
    later.come(None)
    assert isinstance(running.failure, ValueError)


def test_what_is_cancelled_takes_no_further_step() -> None:
    """It tidies up, and hears of nothing that comes later."""
    seen: list[str] = []
    later: Later[None] = Later()

    def steps() -> Steps[None]:
        try:
            yield later
            seen.append("went on")
        finally:
            seen.append("tidied up")

    running = Running(steps(), lambda _: seen.append("ended"))
    running.go_on()
    running.cancel()
    later.come(None)
    running.cancel()
    assert seen == ["tidied up"]
