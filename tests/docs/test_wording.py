"""Texts name their subject: a broker, a consumer, an operator, and not an indefinite person."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

_WORDS = ("nobody", "whoever", "somebody", "everybody")
_INDEFINITE = re.compile(rf"\b({'|'.join(_WORDS)})\b", re.IGNORECASE)


def _indefinite_words(name: str, text: str) -> Iterator[str]:
    """Where a text has such a word: file, line and word."""
    lowered = text.lower()
    if not any([word in lowered for word in _WORDS]):  # the expression takes ten times as long
        return
    for number, line in enumerate(text.splitlines(), 1):
        for word in _INDEFINITE.findall(line):
            yield f"{name}:{number}: {word}"


def _texts() -> Iterator[Path]:
    yield from sorted((ROOT / "quire").glob("**/*.py"))
    yield from sorted((ROOT / "docs").glob("**/*.md"))


@pytest.mark.parametrize("word", ["nobody", "Whoever", "somebody", "EVERYBODY"])
def test_an_indefinite_word_is_found_with_its_place(word: str) -> None:
    text = f"A consumer takes it.\n{word} takes it.\nThe constant ANYBODY_ELSE is a name.\n"
    assert list(_indefinite_words("page.md", text)) == [f"page.md:2: {word}"]


def test_modules_and_pages_name_their_subject() -> None:
    texts = list(_texts())
    assert {path.suffix for path in texts} == {".py", ".md"}
    found = [
        place for path in texts for place in _indefinite_words(str(path.relative_to(ROOT)), path.read_text("utf-8"))
    ]
    assert not found, "name the subject (the broker, a consumer, an operator):\n" + "\n".join(found)
