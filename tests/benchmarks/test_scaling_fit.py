"""Costs derived from measurements of several kinds of work at once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.scaling.costs import Work, fit

AMOUNTS = [
    Work(sent=1000, sent_bytes=1e6, commits=10),
    Work(sent=1000, sent_bytes=8e6, commits=30),
    Work(sent=500, sent_bytes=5e5, commits=500),
    Work(taken=1000, commits=20),
    Work(sent=300, taken=300, sent_bytes=3e5, commits=40),
]
KINDS = ("sent", "taken", "sent_bytes", "commits")

prices = st.floats(1e-6, 1e-3)


@given(prices, prices, st.floats(1e-10, 1e-8), prices)
def test_costs_are_found_again(sent: float, taken: float, byte: float, commit: float) -> None:
    true = Work(sent=sent, taken=taken, sent_bytes=byte, commits=commit)
    found = fit(AMOUNTS, [true.cost(amount) for amount in AMOUNTS], KINDS)
    assert found.costs == pytest.approx(true, rel=1e-3)
    assert found.error < 1e-6


def test_what_is_known_is_no_cost_of_the_others() -> None:
    true = Work(sent=2.0, commits=5.0)
    totals = [true.cost(amount) + 70 for amount in AMOUNTS]
    found = fit(AMOUNTS, totals, ("sent", "commits"), [70.0] * len(totals))
    assert found.costs == pytest.approx(true)


def test_no_cost_is_negative() -> None:
    amounts = [Work(sent=10, commits=1), Work(sent=10, commits=5), Work(sent=20, commits=3)]
    found = fit(amounts, [10.0, 9.0, 20.0], ("sent", "commits"))  # more commits seem to save something
    assert found.costs.commits == 0
    assert found.costs.sent == pytest.approx(1, rel=0.1)


def test_the_error_is_that_of_the_worst_measurement() -> None:
    amounts = [Work(sent=1), Work(sent=1)]
    assert fit(amounts, [1.0, 1.0], ("sent",)).error == pytest.approx(0)
    found = fit(amounts, [1.0, 2.0], ("sent",))
    assert found.error == pytest.approx(max(abs(found.costs.sent - 1), abs(found.costs.sent / 2 - 1)))
