"""The map of the modules: it names every module of the broker once, and its walk is the one that a message takes."""

import ast
import re
from collections import Counter

import pytest

from tests.docs.message_walk import Walk, message_walks
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")

FLOORS = ("broker", "management", "server")
"""The packages whose modules it lists."""

KNOWN_HEAD = "## The walk of one persistent message"
NEW_HEAD = "### A head that the connection has not seen"

_NAME = re.compile(r"`(\w+)`")
_STEP = re.compile(r"`([\w/]+\.py)`(?:,\s`(\w+)`)?")


def test_the_tables_name_every_module_of_the_broker_once() -> None:
    tables = PAGE[PAGE.index("### The core, `quire.broker`") : PAGE.index("### Below and above it")]
    firsts = [line.split(" | ")[0] for line in tables.split("\n") if line.startswith("| `")]
    named = Counter([name for first in firsts for name in _NAME.findall(first)])
    there = Counter(
        [path.stem for floor in FLOORS for path in ROOT.glob(f"quire/{floor}/**/*.py") if path.stem != "__init__"]
    )
    assert sorted((named - there).elements()) == []
    assert sorted((there - named).elements()) == []


def test_the_packages_are_those_that_are_there() -> None:
    table = PAGE[PAGE.index("| Package | What is in it |") : PAGE.index("### The core, `quire.broker`")]
    named = re.findall(r"^\| `([\w.]+)`", table, re.MULTILINE)
    files = [path for floor in FLOORS for path in ROOT.glob(f"quire/{floor}/**/__init__.py")]
    there = [path.parent.relative_to(ROOT / "quire") for path in files]
    assert sorted(named) == sorted([".".join(package.parts) for package in there])


def test_the_walks_lead_through_functions_that_are_there() -> None:
    steps = _STEP.findall(PAGE)
    assert len(steps) > 20
    for path, function in steps:
        found = [*ROOT.glob(f"quire/{path}"), *ROOT.glob(f"quire/broker/streams/groups/{path}")]
        assert len(found) == 1, path
        nodes = ast.walk(ast.parse(found[0].read_text("utf-8")))
        functions = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        assert not function or function in functions, f"{path} has no {function}"


# The walk of a message is traced in a running broker.


def _section(title: str) -> str:
    start = PAGE.index(title) + len(title)
    return re.split(r"^##", PAGE[start:], maxsplit=1, flags=re.MULTILINE)[0]


def _files(title: str) -> list[str]:
    """The files that a section names, in the order in which it names them first."""
    return list(dict.fromkeys([path for path, _ in _STEP.findall(_section(title))]))


@pytest.fixture(scope="module")
def walks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Walk, Walk]:
    return message_walks(tmp_path_factory.mktemp("walk"))


@pytest.mark.alone
def test_the_walk_names_the_files_that_a_message_enters_in_their_order(walks: tuple[Walk, Walk]) -> None:
    assert _files(KNOWN_HEAD) == list(walks[0])


@pytest.mark.alone
def test_a_new_head_enters_the_files_that_are_named_for_it_and_those_of_a_known_one(walks: tuple[Walk, Walk]) -> None:
    known, new = walks
    assert _files(NEW_HEAD) == [path for path in new if path not in known]
    assert set(known) - set(new) == set()


@pytest.mark.alone
def test_the_functions_that_the_walk_names_are_entered(walks: tuple[Walk, Walk]) -> None:
    known, new = walks
    steps = [*_STEP.findall(_section(KNOWN_HEAD)), *_STEP.findall(_section(NEW_HEAD))]
    named = {(path, function) for path, function in steps if function}
    entered = {(path, function) for walk in (known, new) for path, functions in walk.items() for function in functions}
    assert named - entered == set()
    assert len(named) > 8
