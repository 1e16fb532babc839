"""``quire producer``: what each verb asks of the broker, and what it prints."""

from collections.abc import Callable

from click.testing import Result

from tests.unit.cli.conftest import FakeBroker

Run = Callable[..., Result]

PRODUCER = {"id": "p", "sequence": 7, "last_sent": 1_700_000_000_000}


def test_producers_are_listed_page_by_page(broker: FakeBroker, run: Run) -> None:
    pages = [{"producers": [PRODUCER], "next": "p"}, {"producers": [{**PRODUCER, "id": "q"}], "next": None}]
    broker.answer_in_turn("GET", "/producers", *pages)
    lines = run("producer", "ls").output.splitlines()
    assert [line.split()[:2] for line in lines] == [["Id", "Sequence"], ["p", "7"], ["q", "7"]]
    assert "2023-11-14 22:13:20+00:00" in lines[1]
    assert broker.calls[1][2] == {"limit": "1000", "after": "p"}


def test_a_producer_is_forgotten(broker: FakeBroker, run: Run) -> None:
    broker.answer("DELETE", "/producers/p", {"forgotten": "p"})
    assert run("producer", "forget", "p").output == "forgot p\n"
