"""When scheduled messages are sent: what the AMQ_SCHEDULED_ headers mean."""

from datetime import UTC, datetime

import pytest

from quire.broker.schedule import MAX_REPEAT, MAX_WAIT, Timing
from quire.errors import InvalidHeader

NOON = int(datetime(2026, 11, 20, 12, tzinfo=UTC).timestamp() * 1000)
MINUTE = 60_000


def send_times(timing: Timing, count: int, start: int = 0) -> list[int]:
    """The first times of a message that is scheduled at a time, each send in time."""
    due, left = timing.first(start), timing.repeat
    times = [due]
    while len(times) < count and (following := timing.following(due, left, due)) is not None:
        due, left = following
        times.append(due)
    return times


def headers(**values: object) -> dict[str, str]:
    return {f"AMQ_SCHEDULED_{name.upper()}": str(value) for name, value in values.items()}


def test_a_delay_alone_is_one_send() -> None:
    assert send_times(Timing(delay=500), 9) == [500]


def test_a_period_alone_is_one_send_too() -> None:
    assert send_times(Timing(period=500), 9) == [500]


def test_repeats_follow_the_first_send_each_after_a_period() -> None:
    assert send_times(Timing(delay=1000, period=500, repeat=3), 9) == [1000, 1500, 2000, 2500]


def test_without_a_delay_the_first_send_waits_for_the_period() -> None:
    assert send_times(Timing(period=500, repeat=1), 9) == [500, 1000]


def test_repeats_may_have_no_end() -> None:
    assert send_times(Timing(period=1100, repeat=-1), 4) == [1100, 2200, 3300, 4400]


def test_what_an_older_broker_took_without_end_comes_once_a_second() -> None:
    assert send_times(Timing(period=10, repeat=-1), 4) == [10, 1010, 2010, 3010]


def test_a_cron_entry_has_no_end() -> None:
    assert send_times(Timing(cron="*/10 * * * *"), 3, NOON) == [
        NOON + 10 * MINUTE,
        NOON + 20 * MINUTE,
        NOON + 30 * MINUTE,
    ]


def test_the_delay_counts_from_each_time_of_the_entry() -> None:
    timing = Timing(delay=1500, cron="*/10 * * * *")
    assert send_times(timing, 2, NOON) == [NOON + 10 * MINUTE + 1500, NOON + 20 * MINUTE + 1500]


def test_each_time_of_the_entry_begins_a_run_of_repeats() -> None:
    timing = Timing(delay=1000, period=500, repeat=2, cron="0 * * * *")
    times = [time - NOON - 60 * MINUTE for time in send_times(timing, 5, NOON)]
    assert times == [1000, 1500, 2000, 60 * MINUTE + 1000, 60 * MINUTE + 1500]


def test_times_of_the_entry_that_come_while_a_run_lasts_are_passed_over() -> None:
    timing = Timing(period=40_000, repeat=2, cron="* * * * *")
    assert [time - NOON for time in send_times(timing, 5, NOON)] == [100_000, 140_000, 180_000, 220_000, 260_000]


@pytest.mark.parametrize(("now", "due", "left"), [(1000, 1500, 4), (1499, 1500, 4), (1500, 2000, 4), (9999, 10_000, 4)])
def test_what_was_missed_is_made_up_for_once_and_the_rhythm_stays(now: int, due: int, left: int) -> None:
    assert Timing(period=500, repeat=5).following(1000, 5, now) == (due, left)


def test_missed_times_of_an_entry_are_made_up_for_once() -> None:
    timing = Timing(cron="*/10 * * * *")
    assert timing.following(NOON, 0, NOON + 35 * MINUTE) == (NOON + 40 * MINUTE, 0)


def test_after_the_last_send_nothing_follows() -> None:
    assert Timing(period=500, repeat=5).following(1000, 0, 1000) is None


def test_headers_are_read() -> None:
    given = headers(delay=" 1000 ", period=2000, repeat=-1, cron=" 0 * * * * ")
    assert Timing.of(given) == Timing(1000, 2000, -1, "0 * * * *")


@pytest.mark.parametrize("given", [{}, headers(repeat=3), headers(cron="  ", delay="", period="")])
def test_without_delay_period_and_cron_nothing_is_scheduled(given: dict[str, str]) -> None:
    assert Timing.of(given) is None


def test_a_delay_of_nothing_is_a_schedule_all_the_same() -> None:
    assert Timing.of(headers(delay=0)) == Timing()


@pytest.mark.parametrize(
    ("given", "text", "header"),
    [
        (headers(delay="soon"), "AMQ_SCHEDULED_DELAY is 'soon': a whole number", "DELAY"),
        (headers(delay="1.5"), "a whole number", "DELAY"),
        (headers(delay="\u0665"), "a whole number", "DELAY"),
        (headers(delay="9" * 30), "a whole number", "DELAY"),
        (headers(delay=-1), f"AMQ_SCHEDULED_DELAY is -1: a whole number from 0 to {MAX_WAIT}", "DELAY"),
        (headers(delay=MAX_WAIT + 1), f"from 0 to {MAX_WAIT}", "DELAY"),
        (headers(period=-1), f"from 0 to {MAX_WAIT}", "PERIOD"),
        (headers(period=1, repeat=-2), f"from -1 to {MAX_REPEAT}", "REPEAT"),
        (headers(period=1, repeat=MAX_REPEAT + 1), f"from -1 to {MAX_REPEAT}", "REPEAT"),
        (headers(delay=1, repeat=1), "AMQ_SCHEDULED_REPEAT needs AMQ_SCHEDULED_PERIOD", "REPEAT"),
        (headers(cron="* * *"), "five fields", "CRON"),
    ],
)
def test_what_makes_no_sense_is_refused_by_its_header(given: dict[str, str], text: str, header: str) -> None:
    with pytest.raises(InvalidHeader) as refused:
        Timing.of(given)
    assert text in str(refused.value)
    assert refused.value.data["header"] == f"AMQ_SCHEDULED_{header}"


def test_a_message_recurs_if_it_has_repeats_or_an_entry() -> None:
    timings = [Timing(5), Timing(period=5), Timing(period=5, repeat=-1), Timing(cron="* * * * *")]
    assert [timing.recurs for timing in timings] == [False, False, True, True]
