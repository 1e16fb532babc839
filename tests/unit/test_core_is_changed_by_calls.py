"""Only the core changes what the core holds: all other parts of the broker call its methods and its services."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from quire.broker.core.core import Core
from quire.testing.stepped import SteppedBroker

BROKER = Path(__file__).parents[2] / "quire" / "broker"

MUTATING = {
    "add", "append", "appendleft", "clear", "discard", "extend", "insert", "move_to_end", "pop", "popitem", "popleft",
    "remove", "setdefault", "update",
}  # fmt: skip
"""The methods that change a collection."""


def changes_of(source: str, core: Core) -> Iterator[str]:
    """What some code changes of what a core holds: by assignment, deletion, or a call that changes a collection."""
    for node in ast.walk(ast.parse(source)):
        targets: list[ast.expr] = []
        match node:
            case ast.Assign(targets=found) | ast.Delete(targets=found):
                targets = found
            case ast.AugAssign() | ast.AnnAssign():
                targets = [node.target]
            case ast.Call(func=ast.Attribute(value=held, attr=method)) if method in MUTATING:
                path = _path(held)
                if path and not _is_service(core, path):
                    yield f"{ast.unparse(node.func)}()"
        for target in targets:
            for part in ast.walk(target):
                if (
                    isinstance(part, ast.Attribute | ast.Subscript)
                    and not isinstance(part.ctx, ast.Load)
                    and _path(part)
                ):
                    yield ast.unparse(part)


def _path(node: ast.expr) -> list[str]:
    """The attributes after ``core`` in an expression such as ``self._core.open.parts[owner]``; none if it has none."""
    names: list[str] = []
    while isinstance(node, ast.Attribute | ast.Subscript):
        if isinstance(node, ast.Attribute):
            if node.attr in ("core", "_core"):
                return names[::-1]
            names.append(node.attr)
        node = node.value
    return names[::-1] if isinstance(node, ast.Name) and node.id in ("core", "_core") else []


def _is_service(core: Core, path: list[str]) -> bool:
    """Whether what a core holds is an object of the broker, whose methods say what they do, and no collection."""
    held: object = core
    for name in path:
        held = getattr(held, name, None)
    return type(held).__module__.startswith("quire.")


@pytest.fixture(scope="module")
def core() -> Core:
    return SteppedBroker().broker.core


def test_no_other_part_changes_what_the_core_holds(core: Core) -> None:
    files = [file for file in BROKER.rglob("*.py") if BROKER / "core" not in file.parents]
    found = {
        str(file.relative_to(BROKER)): changes for file in files if (changes := [*changes_of(file.read_text(), core)])
    }
    assert found == {}


@pytest.mark.parametrize(
    ("source", "changes"),
    [
        ("core.ended += 1", ["core.ended"]),
        ("self._core.committing, known = None, 1", ["self._core.committing"]),
        ("self.core.dispatch.watched[self] = None", ["self.core.dispatch.watched[self]"]),
        ("del topic.core.leaving[self]", ["topic.core.leaving[self]"]),
        ("self._core.dispatch.ready.pop(self, None)", ["self._core.dispatch.ready.pop()"]),
        ("core.open.batch.marks.update(marks)", ["core.open.batch.marks.update()"]),
        ("self.core = core", []),
        ("self._core.steps.add(self._step)", []),
        ("self.core.dispatch.watch(self)", []),
        ("self._parts.pop(core)", []),
    ],
)
def test_changes_are_found_however_the_core_is_reached(core: Core, source: str, changes: list[str]) -> None:
    assert [*changes_of(source, core)] == changes
