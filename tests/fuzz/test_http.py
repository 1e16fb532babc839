"""The search in the HTTP API is run for a moment, and is shown to find something."""

import pytest

from quire.broker.producer_ids import ProducerIds
from quire.http.app import ENDPOINTS
from quire.management.bulk import BulkManagement
from tests.fuzz.http import BadAnswer, Sent, check_all, search

LIST = Sent(next(row for row in ENDPOINTS if row.path == "/producers"), "/producers", [], b"", {})


@pytest.mark.slow
def test_some_hundred_requests_find_nothing() -> None:
    search(60, is_random=False)


def test_an_answer_that_is_an_error_of_the_brokers_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    check_all([LIST])

    def fails(bulk: BulkManagement) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(BulkManagement, "producers", fails)
    with pytest.raises(BadAnswer, match="500"):
        check_all([LIST])


def test_an_answer_of_another_type_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProducerIds, "ids", lambda producers: ["a"])
    monkeypatch.setattr(ProducerIds, "status", lambda producers, id: {"id": 1})
    with pytest.raises(BadAnswer, match="str"):
        check_all([LIST])
