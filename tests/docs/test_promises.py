"""The page of promises names tests that exist."""

from tests.docs.pages import ROOT
from tests.docs.test_differences import faults_of_tests, rows_of

EVENTS = 12
"""What may happen to a broker, its clients and its stores."""


def test_every_promise_has_tests_that_exist() -> None:
    rows = rows_of((ROOT / "docs" / "testing.md").read_text("utf-8"))
    assert {tuple(row.heading) for row in rows} == {("Event", "Promise", "Tests")}
    assert len({row.cells[0] for row in rows}) == EVENTS
    for _, promise, tests in [row.cells for row in rows]:
        assert (promise, faults_of_tests(tests)) == (promise, [])
