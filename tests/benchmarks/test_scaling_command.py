"""The command of the model, its file, and the page that it writes."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.scaling import costs as costs_module
from benchmarks.scaling.__main__ import main
from benchmarks.scaling.page import NOT_MEASURED, PAGE, filled, tables
from tests.benchmarks.scaling_costs import COSTS

_COMMAND = re.compile(r"^python -m benchmarks\.scaling (plan .*)$", re.MULTILINE)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where what was measured is; it is not there yet."""
    file = tmp_path / "measured.json"
    monkeypatch.setattr(costs_module, "FILE", file)
    return file


@pytest.fixture
def known(file: Path) -> None:
    """Something was measured."""
    costs_module.write(COSTS)


def run(*arguments: str, exit_code: int = 0) -> str:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == exit_code, result.output
    return result.output


@pytest.mark.usefixtures("known")
def test_what_was_measured_is_read_as_it_was_written() -> None:
    assert costs_module.read() == COSTS


@pytest.mark.usefixtures("known")
def test_a_plan_says_what_is_needed_what_comes_first_and_what_is_assumed() -> None:
    lines = run("plan", "--rate", "50000", "--queues", "200").splitlines()
    assert lines[0].startswith("50,000 messages/s of 1,024 bytes over 200 destinations, each to 1;")
    assert [line.split()[0] for line in lines[2:5]] == ["shards", "brokers", "databases"]
    assert any([line.startswith("The first limit is ") for line in lines])
    assert lines[-1].startswith("- ")


@pytest.mark.usefixtures("known")
def test_a_load_without_a_plan_is_an_error_that_names_the_limit() -> None:
    text = run("plan", "--rate", "10000000", "--queues", "1", exit_code=1)
    assert "no number of shards is enough: the core of the busiest shard" in text


def test_without_a_measurement_the_error_says_what_to_do(file: Path) -> None:
    assert not file.exists()
    assert "run python -m benchmarks.scaling measure --write" in run("plan", "--rate", "1", exit_code=1)


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize("command", _COMMAND.findall(PAGE.read_text("utf-8")))
def test_the_plans_of_the_page_are_made(command: str) -> None:
    assert "The first limit is" in run(*command.split())


def test_the_page_has_a_place_for_every_table() -> None:
    page = filled(PAGE.read_text("utf-8"), tables(COSTS))
    assert all([table in page for table in tables(COSTS).values()])


def test_the_page_shows_what_was_measured_last_and_what_the_model_assumes() -> None:
    page = PAGE.read_text("utf-8")
    if costs_module.FILE.exists():
        assert filled(page, tables(costs_module.read())) == page
    else:
        found = dict.fromkeys(tables(COSTS), NOT_MEASURED)
        assert filled(page, found | {"assumptions": tables(COSTS)["assumptions"]}) == page
