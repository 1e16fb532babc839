"""A producer that numbers its sends is de-duplicated exactly, across connections, failures and restarts."""

import pytest

from quire.errors import StoreFull
from quire.testing.stepped import SteppedBroker, SteppedClient
from tests.unit.broker.harness import consumer, filled, numbers


def send_numbered(client: SteppedClient, number: int, **headers: str) -> None:
    identity = {"producer-id": "p", "producer-sequence": str(number), "receipt": f"r{number}"}
    client.send("q", b"%d" % number, {**identity, **headers})


def test_a_repeated_send_is_confirmed_and_stored_once() -> None:
    stepped = filled(0)
    client = stepped.connect()
    for number in (1, 2, 2, 1, 3):
        send_numbered(client, number)
    stepped.run()
    assert client.receipts() == ["r1", "r2", "r2", "r1", "r3"]
    assert consumer(stepped).messages() == numbers(1, 2, 3)


def test_numbers_are_known_in_every_connection_and_after_a_restart() -> None:
    stepped = filled(0)
    send_numbered(stepped.connect(), 1)
    stepped.run()
    send_numbered(stepped.connect(), 1)
    stepped.run()
    again = stepped.reopen()
    client = again.connect()
    send_numbered(client, 1)
    send_numbered(client, 2)
    again.run()
    assert consumer(again).messages() == numbers(1, 2)


def test_producers_are_told_apart() -> None:
    stepped = filled(0)
    client = stepped.connect()
    for producer in ("p", "q"):
        client.send("q", producer.encode(), {"producer-id": producer, "producer-sequence": "1"})
    stepped.run()
    assert consumer(stepped).messages() == [b"p", b"q"]


def test_a_duplicate_is_not_confirmed_when_the_commit_of_the_original_fails() -> None:
    stepped = filled(0)
    send_numbered(stepped.connect(), 1)
    stepped.turn()
    repeating = stepped.connect()
    send_numbered(repeating, 1)
    stepped.turn()
    stepped.commit(StoreFull("no space"))
    stepped.advance(1)
    stepped.run()
    assert repeating.receipts() == []
    assert repeating.errors() == ["store-full"]


def test_a_failed_send_can_be_repeated_although_a_later_one_was_under_way() -> None:
    stepped = filled(0)
    client = stepped.connect()
    send_numbered(client, 1)
    stepped.turn()
    send_numbered(client, 2)
    stepped.turn()
    stepped.commit(StoreFull("no space"))
    stepped.advance(1)
    stepped.run()
    client = stepped.connect()
    send_numbered(client, 1)
    send_numbered(client, 2)
    stepped.run()
    assert client.receipts() == ["r1", "r2"]
    assert consumer(stepped).messages() == numbers(1, 2)


@pytest.mark.parametrize("ending", ["ABORT", "vanish"])
def test_a_number_of_a_transaction_counts_with_its_commit(ending: str) -> None:
    stepped = filled(0)
    client = stepped.connect()
    client.frame("BEGIN", {"transaction": "t"})
    send_numbered(client, 1, transaction="t")
    stepped.run()
    if ending == "vanish":
        client.vanish()
    else:
        client.frame(ending, {"transaction": "t"})
    stepped.run()
    client = stepped.connect()
    client.frame("BEGIN", {"transaction": "t"})
    send_numbered(client, 1, transaction="t")
    client.frame("COMMIT", {"transaction": "t"})
    stepped.run()
    assert consumer(stepped).messages() == numbers(1)


@pytest.mark.parametrize(
    "headers",
    [
        {"producer-id": "p"},
        {"producer-id": "p", "producer-sequence": "0"},
        {"producer-id": "p", "producer-sequence": "x"},
        {"producer-id": "p" * 201, "producer-sequence": "1"},
    ],
)
def test_a_producer_that_cannot_be_numbered_is_refused(headers: dict[str, str]) -> None:
    stepped = SteppedBroker()
    client = stepped.connect()
    client.send("q", b"", headers)
    assert client.errors() == ["invalid-header"]
