"""The fuzz target is run for a moment, and is shown to find something."""

import subprocess
import sys
from pathlib import Path

import pytest

from quire.protocols.openwire.codec import Decoder
from quire.protocols.openwire.commands import Command, KeepAliveInfo
from quire.protocols.openwire.negotiation import WireFormat
from tests.fuzz.openwire_decoder import check, encoded

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_two_seconds_find_nothing() -> None:
    command = [sys.executable, "-m", "tests.fuzz.openwire_decoder", "--seconds", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_decoder_that_loses_a_command_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Decoder.next_commands

    def loses_the_second(decoder: Decoder) -> list[Command]:
        return right(decoder)[:1]

    stream = encoded(WireFormat(), [KeepAliveInfo(number) for number in range(8)])
    check(stream, [25], WireFormat())
    monkeypatch.setattr(Decoder, "next_commands", loses_the_second)
    with pytest.raises(AssertionError, match="the commands depend on how the stream is cut"):
        check(stream, [25], WireFormat())
