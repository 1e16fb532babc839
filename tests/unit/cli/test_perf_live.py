"""What people see while a measurement runs."""

import pytest

from quire.cli.output import Output
from quire.cli.perf import measure as measure_module
from quire.cli.perf.measure import LiveFigures
from quire.clock import ManualClock


def show_four_times(output: Output) -> None:
    clock = ManualClock()
    with LiveFigures(output, clock) as figures:
        for number in range(4):
            figures.show(f"received {number}", number / 4)
            clock.advance(0.5)


def test_a_line_a_second_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    show_four_times(Output())
    captured = capsys.readouterr()
    assert captured.err.splitlines() == ["  0%  received 0", " 50%  received 2"]
    assert captured.out == ""


def test_nothing_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    show_four_times(Output("json"))
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "")


def test_a_bar_on_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure_module, "on_terminal", lambda stream: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    show_four_times(Output("json"))
    captured = capsys.readouterr()
    assert "received 3" in captured.err
    assert "75%" in captured.err
    assert captured.out == ""
