"""Regular expressions are not possessive and not atomic: Python before 3.11.5 matches some of these wrongly.

Debian 12 has Python 3.11.2.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = [path for part in ("quire", "pyspark_quire", "tests", "benchmarks") for path in ROOT.glob(f"{part}/**/*.py")]

_IMPORTS = re.compile(r"^\s*(?:import re\b|from re import )", re.MULTILINE)
# Escapes and sets come first: nothing in them is a quantifier.
_PART = re.compile(
    r"""
        \\.
      | \[\^?\]?(?:\\.|[^\]\\])*\]
      | (?P<atomic>\(\?>)
      | (?P<possessive>(?:[*+?]|\{[0-9]*,?[0-9]*\})\+)
    """,
    re.VERBOSE | re.DOTALL,
)


def atomic_parts(pattern: str) -> list[str]:
    """The possessive quantifiers and the beginnings of atomic groups in a pattern, or in a part of one."""
    return [part[0] for part in _PART.finditer(pattern) if part.lastgroup]


def texts_of(source: str) -> Iterator[tuple[int, str]]:
    """The lines and values of all texts of a module that are no docstrings, those of an f-string one by one."""
    tree = ast.parse(source)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or id(node) in docstrings:
            continue
        if isinstance(node.value, str):
            yield node.lineno, node.value
        elif isinstance(node.value, bytes):
            yield node.lineno, node.value.decode("latin-1")


def test_no_pattern_is_possessive_or_atomic() -> None:
    # A pattern may be put together far from where it is compiled, so every text of a module that imports `re` counts.
    modules = {path: source for path in SOURCES if _IMPORTS.search(source := path.read_text("utf-8"))}
    assert ROOT / "quire/protocols/stomp/decoder.py" in modules
    del modules[Path(__file__)]  # its examples
    found = [
        f"{path.relative_to(ROOT)}:{line}: {parts}"
        for path, source in modules.items()
        for line, text in texts_of(source)
        if (parts := atomic_parts(text))
    ]
    assert found == []


@pytest.mark.parametrize(
    "source",
    ["r'a*+'", "rb'a++'", "'(?:ab)?+'", "f'{a}++'", "r'a{2,3}+'", "f'(?>{a})'", r"r'\\++'", "r'[]+]++'", "r'[^]]*+'"],
)
def test_what_is_possessive_or_atomic_is_found(source: str) -> None:
    assert len([part for _, text in texts_of(f"p = {source}") for part in atomic_parts(text)]) == 1


@pytest.mark.parametrize("source", ["'a*?'", r"r'\++'", "'[*+]+'", r"r'[\]++]+'", "'[]*+]'", "'(?:a+)+'", "'a}+'"])
def test_nothing_else_is_found(source: str) -> None:
    assert [part for _, text in texts_of(f"p = {source}") for part in atomic_parts(text)] == []
