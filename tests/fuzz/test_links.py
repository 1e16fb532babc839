"""The fuzz target is run for a moment, and is shown to find something."""

import subprocess
import sys
from pathlib import Path

import pytest

from quire.cluster.link_frames import Kind, LinkDecoder, LinkFrame, encode, encode_struct
from quire.cluster.virtual_connection import VirtualConnection
from tests.fuzz.links import OPENING, check_decoder, check_link

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_two_seconds_find_nothing() -> None:
    command = [sys.executable, "-m", "tests.fuzz.links", "--seconds", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_decoder_that_loses_a_frame_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = LinkDecoder.frames

    def loses_the_second(decoder: LinkDecoder) -> list[LinkFrame]:
        return right(decoder)[:1]

    stream = encode(Kind.BEAT) * 8
    check_decoder(stream, [10])
    monkeypatch.setattr(LinkDecoder, "frames", loses_the_second)
    with pytest.raises(AssertionError, match="depend on how the stream is cut"):
        check_decoder(stream, [10])


def test_a_window_that_is_not_kept_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = encode_struct(Kind.OPEN, 1, OPENING) + encode(Kind.DATA, 1, b"x" * 60_000) * 5
    check_link(stream, [10_000], [0], is_owner=True, is_known=True)

    def takes_all(connection: VirtualConnection, data: bytes) -> None:
        connection.unread += len(data)

    monkeypatch.setattr(VirtualConnection, "data_came", takes_all)
    with pytest.raises(AssertionError, match="more has come than the window"):
        check_link(stream, [10_000], [0], is_owner=True, is_known=True)
