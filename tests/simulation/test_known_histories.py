"""Histories that once broke a promise, shrunk."""

from pathlib import Path

import pytest

from tests.simulation.run import parse, run

HISTORIES = sorted(Path(__file__).with_name("histories").glob("*.jsonl"))


@pytest.mark.parametrize("file", HISTORIES, ids=lambda file: file.stem)
def test_a_history_that_broke_a_promise_keeps_it(file: Path) -> None:
    run(parse(file.read_text(encoding="utf-8")))
