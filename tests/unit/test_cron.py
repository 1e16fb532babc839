"""Cron entries: when they come next, and which are none."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.cron import Cron
from quire.errors import InvalidHeader


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def next_times(entry: str, after: str, count: int = 1, zone: str = "UTC") -> list[str]:
    """The next times of an entry, in UTC."""
    found, time = [], ms(after)
    for _ in range(count):
        time = Cron(entry).next_after(time, ZoneInfo(zone))
        found.append(datetime.fromtimestamp(time / 1000, UTC).strftime("%Y-%m-%d %H:%M"))
    return found


@pytest.mark.parametrize(
    ("entry", "after", "expected"),
    [
        ("* * * * *", "2026-03-01 10:20:30.999", ["2026-03-01 10:21", "2026-03-01 10:22"]),
        ("? ? ? ? ?", "2026-03-01 10:20", ["2026-03-01 10:21"]),
        ("0 * * * *", "2026-03-01 10:00", ["2026-03-01 11:00", "2026-03-01 12:00"]),
        ("*/20 * * * *", "2026-03-01 10:45", ["2026-03-01 11:00", "2026-03-01 11:20", "2026-03-01 11:40"]),
        ("30 8 10 6 ?", "2026-06-10 08:30", ["2027-06-10 08:30"]),
        ("5,1-2,4 10 * * *", "2026-03-01 10:01", ["2026-03-01 10:02", "2026-03-01 10:04", "2026-03-01 10:05"]),
        ("59 23 31 12 *", "2026-12-31 23:59", ["2027-12-31 23:59"]),
        ("0 0 31 * *", "2026-01-31 00:00", ["2026-03-31 00:00", "2026-05-31 00:00"]),
        ("0 0 29 2 *", "2096-03-01", ["2104-02-29 00:00"]),
        ("0 12 * * 1-5", "2026-11-20 12:00", ["2026-11-23 12:00"]),
        ("0 12 * * 0", "2026-11-20 12:00", ["2026-11-22 12:00"]),
        ("0 0 * 2,7 *", "2026-02-28 00:00", ["2026-07-01 00:00"]),
        ("*/10 0-4,8-12 * * 1-2,3-6/2", "2026-11-21 12:50", ["2026-11-24 00:00"]),
        ("  0\t0   1 1 * ", "2026-01-01 00:00", ["2027-01-01 00:00"]),
    ],
)
def test_next_times(entry: str, after: str, expected: list[str]) -> None:
    assert next_times(entry, after, len(expected)) == expected


def test_next_times_are_in_utc_unless_a_zone_is_given() -> None:
    after = ms("2026-03-01 00:00")
    assert Cron("0 12 * * *").next_after(after) == ms("2026-03-01 12:00")


def test_a_day_matches_one_of_two_restricted_day_fields() -> None:
    days = ["2026-11-02 00:00", "2026-11-09 00:00", "2026-11-13 00:00", "2026-11-16 00:00"]
    assert next_times("0 0 13 * 1", "2026-11-01", 4) == days


def test_a_day_field_with_a_star_leaves_the_choice_to_the_other() -> None:
    assert next_times("0 0 13 * *", "2026-11-01") == ["2026-11-13 00:00"]
    assert next_times("0 0 ? * 1", "2026-11-03") == ["2026-11-09 00:00"]


def test_a_step_keeps_multiples_also_where_the_range_does_not_begin_with_one() -> None:
    assert next_times("1-9/2 0 1 1 *", "2026-01-01", 4) == [f"2026-01-01 00:0{minute}" for minute in (2, 4, 6, 8)]
    assert next_times("0 0 */10 * *", "2026-01-01", 4) == [
        f"2026-{day} 00:00" for day in ["01-10", "01-20", "01-30", "02-10"]
    ]


def test_times_are_those_that_the_zone_shows() -> None:
    assert next_times("0 12 * * *", "2026-01-01", zone="Europe/Berlin") == ["2026-01-01 11:00"]
    assert next_times("0 12 * * *", "2026-07-01", zone="Europe/Berlin") == ["2026-07-01 10:00"]


def test_a_time_that_the_clocks_skip_does_not_come() -> None:
    expected = ["2026-03-28 01:30", "2026-03-30 00:30"]
    assert next_times("30 2 * * *", "2026-03-28", 2, "Europe/Berlin") == expected


def test_a_time_that_the_clocks_show_twice_comes_once() -> None:
    expected = ["2026-10-25 00:30", "2026-10-26 01:30"]
    assert next_times("30 2 * * *", "2026-10-25", 2, "Europe/Berlin") == expected


@pytest.mark.parametrize(
    ("entry", "field", "text"),
    [
        ("60 * * * *", "minute", "'60': from 0 to 59"),
        ("* 24 * * *", "hour", "'24': from 0 to 23"),
        ("* * 0 * *", "day of month", "'0': from 1 to 31"),
        ("* * 32 * *", "day of month", "'32': from 1 to 31"),
        ("* * * 13 *", "month", "'13': from 1 to 12"),
        ("* * * * 7", "day of week", "'7': from 0 to 6"),
        ("* * * * MON", "day of week", "'MON' is neither a number"),
        ("5-1 * * * *", "minute", "in ascending order"),
        ("1, * * * *", "minute", "'' is neither a number"),
        ("-5 * * * *", "minute", "'-5' is neither a number"),
        ("1-2-3 * * * *", "minute", "'1-2-3' is neither a number"),
        ("*/0 * * * *", "minute", "no value is a multiple of 0"),
        ("5/10 * * * *", "minute", "no value is a multiple of 10"),
        ("*/10,*/15 * * * *", "minute", "write numbers"),
        ("*/ * * * *", "minute", "write numbers"),
        ("\u0665 * * * *", "minute", "is neither a number"),
        ("0 0 31 2 *", "day of month", "'31': no such day in any of the months"),
        ("0 0 30,31 2 ?", "day of month", "no such day"),
        ("0 0 31 4,6,9,11 *", "day of month", "no such day"),
    ],
)
def test_a_field_that_is_none_is_named(entry: str, field: str, text: str) -> None:
    with pytest.raises(InvalidHeader) as refused:
        Cron(entry)
    assert text in str(refused.value)
    assert refused.value.data == {"header": "AMQ_SCHEDULED_CRON", "field": field}


@pytest.mark.parametrize("entry", ["", "* * * *", "* * * * * *", "every day", "* " * 5 + " " * 200])
def test_what_has_not_five_fields_is_no_entry(entry: str) -> None:
    with pytest.raises(InvalidHeader, match="five fields, minute hour day-of-month month day-of-week"):
        Cron(entry)


def test_a_date_that_never_comes_by_its_month_may_come_by_its_day_of_the_week() -> None:
    assert next_times("0 0 31 2 1", "2026-02-01") == ["2026-02-02 00:00"]


def test_the_end_of_the_calendar_is_an_error() -> None:
    with pytest.raises(InvalidHeader, match="does not occur again"):
        Cron("0 0 1 1 *").next_after(ms("9999-06-01"))


def test_its_text_has_single_blanks() -> None:
    assert Cron(" 0  12 * *\t1-5 ").text == "0 12 * * 1-5"


NUMBERS = st.lists(st.integers(1, 6), min_size=1, max_size=2, unique=True).map(
    lambda chosen: ",".join(map(str, chosen))
)
TOKENS = st.sampled_from(["*", "?", "*/2", "1-4"]) | NUMBERS
MINUTES = st.integers(ms("2027-01-01") // 60_000, ms("2029-01-01") // 60_000)


@given(st.tuples(TOKENS, TOKENS, TOKENS, TOKENS, TOKENS), MINUTES)
def test_nothing_between_the_given_time_and_the_next_one_matches(tokens: tuple[str, ...], minute: int) -> None:
    entry = Cron(" ".join(tokens))
    found = entry.next_after(minute * 60_000)
    assert found % 60_000 == 0
    assert found > minute * 60_000
    steps = range(minute * 60_000, found, max(60_000, (found - minute * 60_000) // 10 // 60_000 * 60_000))
    assert all([entry.next_after(step) == found for step in steps])
    assert matches(tokens, found)


def matches(tokens: tuple[str, ...], time_ms: int) -> bool:
    """The rule in words, once more."""
    time = datetime(1970, 1, 1) + timedelta(milliseconds=time_ms)  # noqa: DTZ001
    values = (time.minute, time.hour, time.day, time.month, time.isoweekday() % 7)
    minute, hour, day, month, weekday = [_names(token, value) for token, value in zip(tokens, values, strict=True)]
    either = tokens[2] not in ("*", "?") and tokens[4] not in ("*", "?")
    return minute and hour and month and ((day or weekday) if either else (day and weekday))


def _names(token: str, value: int) -> bool:
    known = {"*": True, "?": True, "*/2": value % 2 == 0, "1-4": 1 <= value <= 4}
    return known[token] if token in known else str(value) in token.split(",")
