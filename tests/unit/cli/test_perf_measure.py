"""The figures of ``quire perf``."""

import math

from hypothesis import given
from hypothesis import strategies as st

from quire.cli.perf.measure import Figures, percentiles


def test_percentiles_of_a_hundred() -> None:
    seconds = [number / 1000 for number in range(100, 0, -1)]
    assert percentiles(seconds) == {"p50": 50.0, "p95": 95.0, "p99": 99.0, "max": 100.0}


def test_percentiles_of_one_and_of_none() -> None:
    assert percentiles([0.002]) == {"p50": 2.0, "p95": 2.0, "p99": 2.0, "max": 2.0}
    assert percentiles([]) == {}


@given(st.lists(st.floats(0, 100), min_size=1, max_size=20))
def test_a_percentile_has_its_share_at_or_below_it(seconds: list[float]) -> None:
    found = percentiles(seconds)
    for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("max", 1.0)):
        below = sum(round(each * 1000, 3) <= found[name] for each in seconds)
        assert below >= math.ceil(share * len(seconds))
        assert found[name] in [round(each * 1000, 3) for each in seconds]


def test_a_record_has_whole_rates_and_latencies_if_there_are_any() -> None:
    figures = Figures(10, 9, 1.23456, 8.1, 8.6, 8.4, {"p50": 1.0})
    assert figures.record() == {
        "messages": 10,
        "receipts": 9,
        "elapsed_seconds": 1.235,
        "messages_per_s": 8,
        "sent_per_s": 9,
        "received_per_s": 8,
        "latency_ms": {"p50": 1.0},
    }
    assert "latency_ms" not in Figures(10, 9, 1.0, 1.0, 1.0, 1.0).record()
