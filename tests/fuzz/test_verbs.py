"""The fuzz target is run for a moment, and is shown to find something."""

import subprocess
import sys
from pathlib import Path

import pytest

from quire.cluster import verb_frames as verbs
from quire.cluster.verb_frames import Kind, Run, VerbDecoder, VerbFrame
from tests.fuzz.verbs import check_stream, examples

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_two_seconds_find_nothing() -> None:
    command = [sys.executable, "-m", "tests.fuzz.verbs", "--seconds", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_decoder_that_loses_a_frame_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = VerbDecoder.frames

    def loses_the_second(decoder: VerbDecoder) -> list[VerbFrame]:
        return right(decoder)[:1]

    stream = verbs.encode(Kind.PART_GONE, ref=1) * 8
    check_stream(stream, [10])
    monkeypatch.setattr(VerbDecoder, "frames", loses_the_second)
    with pytest.raises(AssertionError, match="depend on how the stream is cut"):
        check_stream(stream, [10])


def test_a_column_that_is_read_wrong_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    check_stream(examples()[0], [10])
    right = verbs.read_run

    def turns_priorities_round(frame: VerbFrame) -> Run:
        run = right(frame)
        run.priorities = run.priorities[::-1]
        return run

    monkeypatch.setattr(verbs, "read_run", turns_priorities_round)
    with pytest.raises(AssertionError, match="read as something else"):
        check_stream(examples()[0], [10])
