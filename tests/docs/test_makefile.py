"""The pages, the Makefile and the hooks of pre-commit have the same commands."""

import re

from tests.docs.pages import ROOT, pages

MAKEFILE = (ROOT / "Makefile").read_text("utf-8")

_TARGET = re.compile(r"^([\w-]+):.*", re.MULTILINE)
_COMMAND = re.compile(r"^make ([a-z-]+)|`make ([a-z-]+)", re.MULTILINE)


def test_every_command_of_a_page_is_a_target_and_every_described_target_is_on_a_page() -> None:
    targets = set(_TARGET.findall(MAKEFILE))
    described = {found[1] for found in _TARGET.finditer(MAKEFILE) if " ## " in found[0]}
    texts = [(ROOT / name).read_text("utf-8") for name in pages()]
    named = {first or second for text in texts for first, second in _COMMAND.findall(text)}
    assert sorted(named - targets) == []
    assert sorted(described - named) == []


def test_the_hooks_before_a_commit_are_the_commands_of_make_check() -> None:
    hooks = re.findall(r"entry: \.venv/bin/(.*)", (ROOT / ".pre-commit-config.yaml").read_text("utf-8"))
    rule = re.search(r"^check:.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
    assert rule
    assert hooks == re.findall(r"\$\(BIN\)/(.*)", rule[1])
