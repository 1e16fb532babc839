"""The pages of the documentation."""

from pathlib import Path

ROOT = Path(__file__).parents[2]


def pages() -> list[str]:
    found = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    return sorted(str(page.relative_to(ROOT)) for page in found)
