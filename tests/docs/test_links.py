"""Every link from a page to another page or file of the repository leads somewhere."""

import re

import pytest

from tests.docs.pages import ROOT, pages

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as code hosts and site builders derive them."""
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in _HEADING.findall(text)}


def test_anchors_are_derived_from_headings() -> None:
    assert anchors("# In flight\n\n## What `ack` does, and why\n") == {"in-flight", "what-ack-does-and-why"}


def test_the_index_links_every_page() -> None:
    index = "docs/README.md"
    linked = {f"docs/{link}" for link in _LINK.findall((ROOT / index).read_text("utf-8"))}
    assert {name for name in pages() if name.startswith("docs/")} - {index} - linked == set()


@pytest.mark.parametrize("name", pages())
def test_the_links_of_a_page_lead_somewhere(name: str) -> None:
    page = ROOT / name
    for link in _LINK.findall(page.read_text("utf-8")):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path) if path else page
        assert target.exists(), f"{name} links to {path}, which is not there"
        if anchor:
            assert anchor in anchors(target.read_text("utf-8")), f"{name} links to {link}, which has no such heading"
