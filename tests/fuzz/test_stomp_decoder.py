"""The fuzz target is run for a moment, and is shown to find something."""

import subprocess
import sys
from pathlib import Path

import pytest

from quire.protocols.stomp.decoder import Decoder, Event
from tests.fuzz.stomp_decoder import check_bytes

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_two_seconds_find_nothing() -> None:
    command = [sys.executable, "-m", "tests.fuzz.stomp_decoder", "--seconds", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_decoder_that_loses_a_frame_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Decoder.next_events

    def loses_the_second(decoder: Decoder) -> list[Event]:
        return right(decoder)[:1]

    stream = b"\0\x3f\x3f\x3f" + b"BEGIN\na:b\n\n\0" * 8
    check_bytes(stream)
    monkeypatch.setattr(Decoder, "next_events", loses_the_second)
    with pytest.raises(AssertionError, match="the frames depend on how the stream is cut"):
        check_bytes(stream)
