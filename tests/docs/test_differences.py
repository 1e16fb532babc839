"""The pages about other brokers: each row names tests that exist, and the defaults are those of the settings."""

import ast
import re
from functools import cache
from typing import NamedTuple

import pytest

from quire.settings import KEYS
from tests.docs.pages import ROOT

KINDS = {"same", "better", "different", "not yet"}

_CELL = re.compile(r" (?<!\\)\| ")
_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


class Comparison(NamedTuple):
    """A page about another broker.

    Attributes:
        broker: its name, as it stands in the headings.
        file: the page's.
        features: how many rows about features it has at least.
        defaults: how many rows about defaults.
    """

    broker: str
    file: str
    features: int
    defaults: int

    @property
    def page(self) -> str:
        """The page's text."""
        return (ROOT / "docs" / self.file).read_text("utf-8")


PAGES = [
    Comparison("ActiveMQ", "differences.md", features=200, defaults=10),
    Comparison("RocketMQ", "differences-rocketmq.md", features=90, defaults=10),
]

on_each_page = pytest.mark.parametrize("comparison", PAGES, ids=lambda comparison: comparison.broker)


class Row(NamedTuple):
    """A row of a table.

    Attributes:
        heading: the headings of its columns.
        cells: what is in them.
    """

    heading: list[str]
    cells: list[str]


def rows_of(page: str) -> list[Row]:
    """The rows of all tables of a page, in order."""
    found: list[Row] = []
    heading: list[str] = []
    for line in page.split("\n"):
        if not line.startswith("| "):
            heading = [] if not line.startswith("|-") else heading
            continue
        cells = _CELL.split(line.removeprefix("| ").removesuffix(" |"))
        if heading:
            found.append(Row(heading, cells))
        heading = heading or cells
    return found


@cache
def names_in(path: str) -> frozenset[str]:
    """The names of the tests in a file, state machines and those of suites among them; none without such a file."""
    file = ROOT / path
    if not file.is_file():
        return frozenset()
    body = ast.parse(file.read_text("utf-8")).body
    suites = [part for suite in body if isinstance(suite, ast.ClassDef) for part in suite.body]
    functions = {part.name for part in [*body, *suites] if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)}
    machines = {ast.unparse(part.targets[0]) for part in body if isinstance(part, ast.Assign)}
    return frozenset(name for name in functions | machines if re.match(r"test_\w+$|Test\w+$", name))


def faults_of(row: Row) -> list[str]:
    """What is wrong with a row about a feature."""
    if len(row.cells) != len(row.heading) or not all(row.cells):
        return ["a cell is missing or empty"]
    kind, tests = row.cells[3:]
    if kind not in KINDS:
        return [f"{kind!r} is none of {sorted(KINDS)}"]
    if kind == "not yet":
        return [] if tests == "none" else ["what is not yet there has no test: write none"]
    return faults_of_tests(tests)


def faults_of_tests(tests: str) -> list[str]:
    """What is wrong with a cell that names tests."""
    named = _TEST.findall(tests)
    if "<br>".join([f"`{path}::{name}`" for path, name in named]) != tests or not named:
        return ["name its tests as `tests/FILE.py::test_name`, with <br> between them"]
    return [f"there is no test {path}::{name}" for path, name in named if name not in names_in(path)]


def heading_of(broker: str) -> list[str]:
    """The headings of a table about features."""
    return ["Feature", broker, "Quire", "Kind", "Test"]


@on_each_page
def test_every_row_about_a_feature_has_a_kind_and_tests_that_exist(comparison: Comparison) -> None:
    rows = [row for row in rows_of(comparison.page) if row.heading == heading_of(comparison.broker)]
    assert len(rows) > comparison.features
    assert [f"{row.cells[0]}: {fault}" for row in rows for fault in faults_of(row)] == []


@on_each_page
def test_no_feature_stands_in_two_rows_of_a_section(comparison: Comparison) -> None:
    for section in comparison.page.split("\n## "):
        named = [row.cells[0] for row in rows_of(section) if row.heading == heading_of(comparison.broker)]
        assert len(named) == len(set(named)), f"a feature stands twice in {section.partition(chr(10))[0]}"


@on_each_page
def test_the_defaults_that_a_page_names_are_those_of_the_settings(comparison: Comparison) -> None:
    heading = ["Setting", comparison.broker, "Quire", "Why"]
    rows = [row for row in rows_of(comparison.page) if row.heading == heading]
    assert len(rows) > comparison.defaults
    for setting, _, value, _ in [row.cells for row in rows]:
        key = KEYS[setting.strip("`")]
        assert value == f"`{key.kind.write(key.default)}`", setting


HERE = "tests/docs/test_differences.py"
THIS = f"`{HERE}::test_a_row_that_is_wrong_is_found`"


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        (f"| a | b | c | same | {THIS} |", ""),
        (f"| a | b | c | better | {THIS}<br>{THIS} |", ""),
        ("| a | b | c | not yet | none |", ""),
        ("| a | b | c | same | `tests/property/test_cursor_machine.py::TestCursorMachine` |", ""),
        (f"| a | b | c | equal | {THIS} |", "'equal' is none of"),
        ("| a | b | c | same |  |", "missing or empty"),
        ("| a | b | c | same |", "missing or empty"),
        ("| a | b | c | same | none |", "name its tests"),
        (f"| a | b | c | same | {THIS} and others |", "name its tests"),
        (f"| a | b | c | not yet | {THIS} |", "write none"),
        (f"| a | b | c | same | `{HERE}::test_nothing` |", "there is no test"),
        (f"| a | b | c | same | `{HERE}::rows_of` |", "there is no test"),
        ("| a | b | c | same | `tests/docs/none.py::test_a_row_that_is_wrong_is_found` |", "there is no test"),
    ],
)
def test_a_row_that_is_wrong_is_found(row: str, fault: str) -> None:
    heading = heading_of("ActiveMQ")
    page = "\n".join(["text", "", "| " + " | ".join(heading) + " |", "|---|---|---|---|---|", row, "", "| no row |"])
    (found,) = rows_of(page)
    assert found.heading == heading
    (fault_found,) = faults_of(found) or [""]
    assert (fault in fault_found) if fault else not fault_found
