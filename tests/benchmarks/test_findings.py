"""How a scenario's findings are printed and judged."""

import json

import pytest

from benchmarks.scenarios.scenario import Finding, at_least, at_most, exactly, report
from quire.cli.output import Output

KEPT = [Finding("messages", 5), at_most("peak_bytes", 2048, 2048), at_least("share", 0.95, 0.9)]
BROKEN = at_most("missing", 1, 0)


def test_people_see_units_and_promises(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(Output(), KEPT) == 0
    assert capsys.readouterr().out.splitlines() == [
        "Figure      Measured  Promised         Kept",
        "messages    5                          -",
        "peak_bytes  2.0 KiB   at most 2.0 KiB  yes",
        "share       0.95      at least 0.9     yes",
    ]


def test_programs_see_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(Output("json"), [*KEPT, BROKEN]) == 1
    rows = json.loads(capsys.readouterr().out)
    assert rows[1] == {"figure": "peak_bytes", "value": 2048, "promise": "at most 2.0 KiB", "kept": True}
    assert rows[3] == {"figure": "missing", "value": 1, "promise": "at most 0", "kept": False}


def test_a_limit_is_kept_at_the_limit_and_broken_beyond() -> None:
    assert [at_most("x", value, 2).kept for value in (1, 2, 3)] == [True, True, False]
    assert [at_least("x", value, 2).kept for value in (1, 2, 3)] == [False, True, True]
    assert [exactly("x", value, 2).kept for value in (1, 2, 3)] == [False, True, False]
