"""What ``quire.client`` offers, and that it costs nothing until it is used."""

import subprocess
import sys

import pytest

import quire.client


@pytest.mark.parametrize("name", quire.client.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(quire.client, name) is not None


def test_another_name_is_not() -> None:
    with pytest.raises(AttributeError, match="nothing"):
        _ = quire.client.nothing


@pytest.mark.slow
def test_the_command_line_does_not_load_the_protocol() -> None:
    said = subprocess.run(
        [sys.executable, "-c", "import sys, quire.client.remote; print('quire.protocols' in sys.modules)"],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert said.stdout == "False\n"
