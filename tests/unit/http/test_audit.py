"""The log's events: an operator finds each of them in the documentation."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
_CALLS = r"\bevent|\blogs\.failure|\bDamageReport|\._tell|\.audit|\.changed|\.removed|\.transferred|\.total"
_LOGGED = re.compile(rf'(?:{_CALLS})\(\s*"([a-z]+\.[a-z-]+)"')


def test_page_names_every_event() -> None:
    sources = [file.read_text(encoding="utf-8") for file in (ROOT / "quire").rglob("*.py")]
    logged = {name for source in sources for name in _LOGGED.findall(source)}
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    log = page[page.index("## The log") : page.index("## Stop and restart")]
    named = set(re.findall(r"`([a-z]+\.[a-z-]+)`", log))
    assert logged == named
