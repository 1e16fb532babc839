"""The command of the model, its file, and the page that it writes."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.scaling import costs as measured
from benchmarks.scaling.__main__ import main
from benchmarks.scaling.page import PAGE, tables, write_page
from tests.benchmarks.scaling_costs import COSTS

_COMMAND = re.compile(r"^python -m benchmarks\.scaling (plan .*)$", re.MULTILINE)


def run(*arguments: str) -> str:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    return result.output


def test_what_was_measured_is_read_as_it_was_written(tmp_path: Path) -> None:
    measured.write(COSTS, tmp_path / "costs.json")
    assert measured.read(tmp_path / "costs.json") == COSTS


def test_a_plan_says_what_is_needed_what_comes_first_and_what_is_assumed() -> None:
    lines = run("plan", "--rate", "50000", "--queues", "200").splitlines()
    assert lines[0].startswith("50,000 messages/s of 1,024 bytes over 200 destinations, each to 1;")
    assert [line.split()[0] for line in lines[2:5]] == ["shards", "brokers", "databases"]
    assert any([line.startswith("The first limit is ") for line in lines])
    assert lines[-1].startswith("- ")


def test_a_load_without_a_plan_is_an_error_that_names_the_limit() -> None:
    result = CliRunner().invoke(main, ["plan", "--rate", "10000000", "--queues", "1"])
    assert result.exit_code == 1
    assert "no number of shards is enough" in result.output


def test_the_page_has_a_place_for_every_table(tmp_path: Path) -> None:
    page = tmp_path / "scaling.md"
    page.write_text(PAGE.read_text("utf-8"), "utf-8")
    write_page(COSTS, page)
    assert all([table in page.read_text("utf-8") for table in tables(COSTS).values()])


def test_the_page_shows_what_was_measured_last() -> None:
    assert all([table in PAGE.read_text("utf-8") for table in tables(measured.read()).values()])


@pytest.mark.parametrize("command", _COMMAND.findall(PAGE.read_text("utf-8")) or [""])
def test_the_plans_of_the_page_are_made(command: str) -> None:
    assert "The first limit is" in run(*command.split())
