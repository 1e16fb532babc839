"""What once let text of a client run as a script is not used: the console's source has none of it."""

from pathlib import Path

import pytest

import quire.console

SOURCES = sorted(Path(quire.console.__file__).parent.rglob("*.*"))
BANNED = [
    "html_columns", ":formatter", "sanitize=False", "html=True", "javascript:", "innerHTML", "v-html", "ui.html(",
    "ui.markdown(", "eval(",
]  # fmt: skip


@pytest.mark.parametrize("banned", BANNED)
def test_no_source_of_the_console_has_it(banned: str) -> None:
    sources = {path.name: path.read_text("utf-8") for path in SOURCES if path.suffix in (".py", ".js", ".css")}
    assert "console.js" in sources
    assert [name for name, text in sources.items() if banned in text] == []


def test_text_never_goes_into_a_script() -> None:
    """Scripts get numbers, ids, words of ours, and JSON of the query, which is text of the browser's own address."""
    calls = [
        line.strip()
        for path in SOURCES if path.suffix == ".py"
        for line in path.read_text("utf-8").splitlines()
        if "run_javascript(" in line
    ]  # fmt: skip
    assert sorted({call.partition("run_javascript(")[2].partition("(")[0] for call in calls}) == [
        'f"quireAddress', 'f"quirePreference', 'f"quirePush',
    ]  # fmt: skip
