"""How long retries wait: the default ladder, a policy's own, and the levels that a consumer asks for."""

import pytest

from quire.broker.streams.groups.retries import LEVELS_MS, LONGEST_MS, RetryLadder, level_ms
from quire.errors import InvalidArgument
from quire.settings import Policy


def test_the_sixteen_waits_of_the_default_ladder() -> None:
    waits = [RetryLadder().delay_ms(attempt) for attempt in range(1, 17)]
    assert (waits[0], waits[1], waits[-1]) == (10_000, 30_000, 7_200_000)
    assert sum(waits) == 17_140_000  # 4 h 45 min 40 s: the time RocketMQ takes to a dead letter


def test_the_policy_has_the_default_ladder() -> None:
    ladder = RetryLadder.parse(Policy().retry_delays)
    assert ladder is not None
    for attempt in range(1, 20):
        assert ladder.delay_ms(attempt) == RetryLadder().delay_ms(attempt)


def test_the_last_delay_stays() -> None:
    assert RetryLadder((10, 20)).delay_ms(100) == 20


def test_a_policy_of_its_own() -> None:
    ladder = RetryLadder.parse("500ms 2s 1d")
    assert ladder is not None
    assert [ladder.delay_ms(attempt) for attempt in (1, 2, 3)] == [500, 2000, 86_400_000]


def test_no_delays_are_no_ladder() -> None:
    assert RetryLadder.parse("") is None


def test_a_delay_that_no_store_could_keep_is_cut() -> None:
    ladder = RetryLadder.parse("100000000d")
    assert ladder is not None
    assert ladder.delay_ms(1) == LONGEST_MS


def test_the_levels() -> None:
    assert len(LEVELS_MS) == 18
    assert [level_ms(level) for level in (1, 2, 3, 14, 18)] == [1000, 5000, 10_000, 600_000, 7_200_000]


@pytest.mark.parametrize("level", [-1, 0, 19])
def test_there_is_no_other_level(level: int) -> None:
    with pytest.raises(InvalidArgument, match="1 to 18"):
        level_ms(level)
