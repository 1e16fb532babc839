"""What people and programs see."""

import json
from collections.abc import Iterator

import pytest

from quire.cli import output as output_module
from quire.cli.output import FORMATS, Column, Output, columns, printable, printable_lines, readable
from quire.errors import ERRORS, UnknownDestination

ROWS = [
    {"name": "orders", "bytes": 2048, "blocked": None},
    {"name": 'a, "b"', "bytes": 0, "blocked": {"cause": "memory", "age_seconds": 12.0}},
]
COLUMNS = [Column("name", "Queue"), Column("bytes", "Bytes"), Column("blocked", "Blocked")]


def test_columns_have_their_keys_as_headings_unless_they_say_otherwise() -> None:
    assert columns("in_flight", "name:Queue", "body::60", "age_seconds:Age:4") == [
        Column("in_flight", "In flight"), Column("name", "Queue"), Column("body", "Body", 60),
        Column("age_seconds", "Age", 4),
    ]  # fmt: skip


def printed(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().out


def test_table_aligns_its_columns(capsys: pytest.CaptureFixture[str]) -> None:
    Output().rows(ROWS, COLUMNS)
    assert printed(capsys).splitlines() == [
        "Queue   Bytes    Blocked",
        "orders  2.0 KiB  -",
        'a, "b"  0 B      memory, 12.0 s',
    ]


def test_table_of_nothing_has_its_headings(capsys: pytest.CaptureFixture[str]) -> None:
    Output().rows([], COLUMNS)
    assert printed(capsys) == "Queue  Bytes  Blocked\n"


def test_table_cuts_a_wide_cell(capsys: pytest.CaptureFixture[str]) -> None:
    Output().rows([{"body": "abcdef"}, {"body": "abcd"}], [Column("body", "Body", 4)])
    assert printed(capsys) == "Body\nabc…\nabcd\n"


def test_table_on_a_terminal_takes_values_literally(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output_module, "on_terminal", lambda stream: True)
    Output().rows([{"name": "[red]orders[/red]"}], [Column("name", "Queue")])
    assert "[red]orders[/red]" in printed(capsys)


def test_table_on_a_narrow_terminal_cuts_only_what_may_be_cut(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output_module, "on_terminal", lambda stream: True)
    monkeypatch.setenv("COLUMNS", "40")
    columns = [Column("id", "Message id"), Column("body", "Body", 60)]
    Output().rows([{"id": "ID:1", "body": "x" * 60}], columns)
    assert printed(capsys).splitlines()[-1].split() == ["ID:1", "x" * 28 + "…"]
    Output().rows([{"id": "i" * 50, "body": "x" * 60}], columns)
    assert printed(capsys).splitlines()[-1].split() == ["i" * 50, "xxx…"]


def test_json_is_one_array(capsys: pytest.CaptureFixture[str]) -> None:
    Output("json").rows(ROWS, COLUMNS)
    assert json.loads(printed(capsys)) == ROWS
    Output("json").rows([], COLUMNS)
    assert json.loads(printed(capsys)) == []


def test_json_lines_are_one_object_each(capsys: pytest.CaptureFixture[str]) -> None:
    Output("ndjson").rows(ROWS, COLUMNS)
    assert [json.loads(line) for line in printed(capsys).splitlines()] == ROWS


def test_csv_has_a_heading_and_plain_values(capsys: pytest.CaptureFixture[str]) -> None:
    Output("csv").rows(ROWS, COLUMNS)
    assert printed(capsys).splitlines() == [
        "name,bytes,blocked",
        "orders,2048,",
        '"a, ""b""",0,"{""cause"": ""memory"", ""age_seconds"": 12.0}"',
    ]


@pytest.mark.parametrize("format", ["json", "ndjson", "csv"])
def test_programs_get_a_row_before_the_next_is_fetched(capsys: pytest.CaptureFixture[str], format: str) -> None:
    def rows() -> Iterator[dict[str, str]]:
        yield {"name": "first"}
        assert "first" in printed(capsys)
        yield {"name": "second"}

    Output(format).rows(rows(), COLUMNS)
    assert "second" in printed(capsys)


@pytest.mark.parametrize(("before", "text"), [(1, [{"name": "first"}]), (0, [])])
def test_json_is_closed_when_the_next_row_cannot_be_fetched(
    before: int, text: list[dict[str, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    def rows() -> Iterator[dict[str, str]]:
        for _ in range(before):
            yield {"name": "first"}
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011
        Output("json").texts(rows(), ["name"], str)
    assert json.loads(printed(capsys)) == text


def test_people_get_a_text_before_the_next_is_fetched(capsys: pytest.CaptureFixture[str]) -> None:
    def rows() -> Iterator[dict[str, str]]:
        yield {"name": "first"}
        assert printed(capsys) == "<first>\n"

    Output().texts(rows(), ["name"], lambda row: f"<{row['name']}>")


RECORD = {"name": "quire", "memory": {"used": 1024, "limit": 2048}, "producers_held": []}


def test_record_shows_nested_values_under_dotted_names(capsys: pytest.CaptureFixture[str]) -> None:
    Output().record(RECORD)
    assert printed(capsys).splitlines() == [
        "name            quire",
        "memory.used     1.0 KiB",
        "memory.limit    2.0 KiB",
        "producers_held  -",
    ]


def test_record_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    Output("json").record(RECORD)
    assert json.loads(printed(capsys)) == RECORD
    Output("csv").record(RECORD)
    assert printed(capsys) == "name,memory.used,memory.limit,producers_held\nquire,1024,2048,[]\n"


def test_done_is_a_sentence_for_people_and_the_result_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    Output().done("removed 2 messages", {"removed": 2})
    assert printed(capsys) == "removed 2 messages\n"
    Output("ndjson").done("removed 2 messages", {"removed": 2})
    assert printed(capsys) == '{"removed": 2}\n'


@pytest.mark.parametrize("format", FORMATS)
def test_error_goes_to_standard_error(capsys: pytest.CaptureFixture[str], format: str) -> None:
    Output(format).error(UnknownDestination("the queue orders does not exist", name="orders"))
    captured = capsys.readouterr()
    advice = ERRORS["unknown-destination"].advice
    assert captured.out == ""
    if format in ("json", "ndjson"):
        assert json.loads(captured.err) == {
            "error": {
                "code": "unknown-destination",
                "text": "the queue orders does not exist",
                "advice": advice,
                "data": {"name": "orders"},
            }
        }
    else:
        assert captured.err == f"error: the queue orders does not exist\nwhat to do: {advice} (unknown-destination)\n"


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("paused", True, "yes"),
        ("paused", False, "no"),
        ("depth", 10_000_000, "10000000"),
        ("store.limit", 2**30, "1.0 GiB"),
        ("resident_bytes", 10, "10 B"),
        ("uptime_seconds", 1.25, "1.2 s"),
        ("uptime_seconds", 90_061.0, "1 day, 1:01:01"),
        ("timestamp", 1_700_000_000_000, "2023-11-14 22:13:20+00:00"),
        ("expiration", 0, "-"),
        ("producers_held", [{"connection": 3, "cause": "memory"}], "connection: 3, cause: memory"),
        ("name", "a\x1b[2Jb\n", r"a\x1b[2Jb\n"),
    ],
)
def test_people_read_values_with_units(key: str, value: object, text: str) -> None:
    assert readable(key, value) == text


def test_control_characters_do_not_reach_the_terminal() -> None:
    assert printable("é\x07\u202e") == "é\\x07\\u202e"
    assert printable_lines("a\n\tb\x1b\r") == "a\n\tb\\x1b\\r"
