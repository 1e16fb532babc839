"""The pages of the documentation."""

from pathlib import Path

ROOT = Path(__file__).parents[2]


def pages() -> list[str]:
    """Every page, by its path from the root of the repository."""
    found = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    return sorted(str(page.relative_to(ROOT)) for page in found)
