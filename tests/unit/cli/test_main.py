"""The program: its commands are listed without being imported; ``--output`` may stand anywhere."""

import json
import subprocess
import sys
from collections.abc import Callable

import click
import pytest
from click.testing import Result

from quire import __version__
from quire.cli.main import NOUNS, main
from tests.unit.cli.conftest import FakeBroker

Run = Callable[..., Result]


def test_version(run: Run) -> None:
    assert run("--version").output == f"quire {__version__}\n"


def test_every_command_has_the_help_that_the_program_shows(run: Run) -> None:
    context = click.Context(main)
    listing = run("--help").output
    for name in main.list_commands(context):
        command = main.get_command(context, name)
        assert command is not None
        assert command.get_short_help_str(limit=100) == NOUNS[name].help
        assert f"{name} " in listing


def test_unknown_command_is_a_usage_error(run: Run) -> None:
    result = run("frobnicate")
    assert result.exit_code == 2
    assert "No such command 'frobnicate'" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["queues"], "quire queue ls"),
        (["users", "add", "alice"], "quire user ls"),
        (["status"], "quire broker status"),
        (["publish", "orders"], "quire send"),
        (["queue", "ls", "--json"], "--output json"),
        (["--csv", "queue", "ls"], "--output csv"),
        (["queue", "ls", "--format", "json"], "--output"),
    ],
)
def test_what_others_call_it_is_answered_with_the_right_word(run: Run, arguments: list[str], meant: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stderr.strip().endswith(f"Write: {meant}")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--output", "ndjson", "queue", "ls"],
        ["queue", "--output", "ndjson", "ls"],
        ["queue", "ls", "--output", "ndjson"],
        ["--output", "csv", "queue", "ls", "--output", "ndjson"],
    ],
)
def test_output_may_stand_anywhere(broker: FakeBroker, run: Run, arguments: list[str]) -> None:
    broker.answer("GET", "/queues", {"queues": [{"name": "q"}], "next": None})
    assert json.loads(run(*arguments).output) == {"name": "q"}


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["--help"], ["send", "--help"], ["receive", "--help"]])
def test_help_imports_nothing_that_takes_long(arguments: list[str]) -> None:
    code = (
        f"import sys\nfrom quire.cli.main import main\nmain({arguments}, standalone_mode=False)\n"
        "heavy = {'rich', 'http.client', 'sqlalchemy', 'lmdb', 'starlette', 'asyncio', 'quire.server.service'}\n"
        "sys.exit(f'imported {heavy & set(sys.modules)}' if heavy & set(sys.modules) else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_broker_on_lmdb_imports_nothing_large_that_it_does_not_use() -> None:
    """SQLAlchemy alone takes 15 MB of the broker's memory."""
    program = (
        "import sys, quire.http.http_api, quire.server.process\n"
        "heavy = {'sqlalchemy', 'psycopg', 'cryptography', 'jwt', 'pyarrow', 'nicegui', 'rich'}\n"
        "sys.exit(f'imported {heavy & set(sys.modules)}' if heavy & set(sys.modules) else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
