"""No modules import from each other in a circle: not for types either, and not inside a function."""

import sys
from pathlib import Path

import grimp
import pytest

Imports = dict[str, set[str]]
"""From which modules each module imports."""


def imports_of(package: str) -> Imports:
    """All imports within a package, those under TYPE_CHECKING and inside functions too."""
    graph = grimp.build_graph(package, cache_dir=None)
    return {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}


def circles(imports: Imports) -> list[set[str]]:
    """The sets of modules that all import from each other, directly or not."""
    imports = _without_ends(_turned(_without_ends(_turned(imports))))
    reached = {module: _reached(imports, module) for module in imports}
    found: list[set[str]] = []
    for module, others in reached.items():
        circle = {other for other in others if module in reached[other]}
        if circle and circle not in found:
            found.append(circle)
    return found


def _without_ends(imports: Imports) -> Imports:
    """Without modules that import from none of those that are left."""
    while ends := {module for module, others in imports.items() if not others & imports.keys()}:
        imports = {module: others - ends for module, others in imports.items() if module not in ends}
    return imports


def _turned(imports: Imports) -> Imports:
    turned: Imports = {module: set() for module in imports}
    for module, others in imports.items():
        for other in others:
            turned[other].add(module)
    return turned


def _reached(imports: Imports, start: str) -> set[str]:
    reached: set[str] = set()
    new = {start}
    while new := {other for module in new for other in imports[module]} - reached:
        reached |= new
    return reached


@pytest.fixture(scope="module")
def found() -> list[set[str]]:
    return circles(imports_of("quire"))


def test_no_modules_import_in_a_circle(found: list[set[str]]) -> None:
    assert [sorted(circle) for circle in found] == []


def test_imports_for_types_and_inside_functions_make_circles_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules = {
        "__init__": "",
        "above": "from round_about import first\n",
        "below": "import sys\n",
        "first": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from round_about.second import name\n",
        "second": "import round_about.third\n",
        "third": "def call():\n    from round_about import below, first\n",
    }
    directory = tmp_path / "round_about"
    directory.mkdir()
    for name, text in modules.items():
        (directory / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    try:
        assert circles(imports_of("round_about")) == [{"round_about.first", "round_about.second", "round_about.third"}]
    finally:
        sys.modules.pop("round_about", None)
