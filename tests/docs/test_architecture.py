"""The map of the modules: it names every module of the broker once, and its walks lead through code that is there."""

import ast
import re
from collections import Counter

from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")

FLOORS = ("broker", "management", "server")
"""The packages whose modules it lists."""

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
