"""Completion in shells, as Click makes it: all commands and their options are known to it."""

import pytest
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

from quire.cli.main import main


def completed(*words: str) -> list[str]:
    """What may stand for the last word."""
    complete = ShellComplete(main, {}, "quire", "_QUIRE_COMPLETE")
    return [item.value for item in complete.get_completions(list(words[:-1]), words[-1])]


def test_nouns_verbs_options_and_choices_are_completed() -> None:
    assert completed("sch") == ["schedule"]
    assert completed("check", "") == ["age", "depth", "lag", "live", "ready"]
    assert completed("check", "depth", "--w") == ["--warning"]
    assert completed("queue", "ls", "--output", "j") == ["json"]


@pytest.mark.parametrize("shell", [BashComplete, ZshComplete, FishComplete])
def test_the_script_of_each_shell_names_the_program(shell: type[ShellComplete]) -> None:
    template = shell(main, {}, "quire", "_QUIRE_COMPLETE").source_template
    assert "%(prog_name)s" in template
