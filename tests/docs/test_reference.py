"""The reference pages are what the code says."""

import click
import pytest

from quire.cli.main import main
from quire.errors import ERRORS
from quire.settings import KEYS
from tests.docs.reference import PAGES, current, written


@pytest.mark.parametrize("name", PAGES)
def test_page_is_current(name: str) -> None:
    assert current(name) == written(name), "run `python -m tests.docs.reference`"


def test_every_setting_has_its_line() -> None:
    page = current("settings.md")
    for key in KEYS.values():
        assert f"| {key.kind.allowed} | {key.text} |" in page


def test_every_error_has_its_section() -> None:
    page = current("errors.md")
    for code, entry in ERRORS.items():
        assert f"\n## {code}\n" in page
        assert entry.advice in page


def test_every_verb_has_its_section_and_a_help_text() -> None:
    page = current("cli.md")
    context = click.Context(main)
    for name in main.list_commands(context):
        command = main.get_command(context, name)
        assert command is not None
        assert f"\n## quire {name}\n" in page
        for verb, inner in getattr(command, "commands", {}).items():
            assert f"\n## quire {name} {verb}\n" in page
            assert inner.help
