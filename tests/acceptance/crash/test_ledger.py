"""What the crash tests rest on: the ledger finds each kind of broken promise."""

import asyncio
from random import Random

import pytest

from tests.acceptance.crash import load
from tests.acceptance.crash.load import Key, Ledger, Order


def key(number: int, attempt: int = 1, unit: int = 0) -> Key:
    return Key("p", attempt, unit or number, number)


def test_what_keeps_all_promises_is_no_violation() -> None:
    ledger = Ledger()
    ledger.confirm([("p", 1)])
    order = Order(ledger)
    for redelivered in (False, True):
        ledger.deliver("id-1", key(1), redelivered)
    order.follow(key(1))
    ledger.acknowledge(["id-1"])
    ledger.settled.add("id-1")
    ledger.check_once("p")
    ledger.check_whole("p", 1)
    assert (ledger.violations, ledger.missing, ledger.held, ledger.redelivered) == ([], [], set(), 1)


def test_message_that_never_came_is_missing() -> None:
    ledger = Ledger()
    ledger.others.append(Ledger())
    ledger.confirm([("p", 1), ("p", 2)])
    ledger.deliver("id-1", key(1), False)
    assert ledger.missing == [("p", 2)]
    assert ledger.others[0].missing == [("p", 1), ("p", 2)]
    ledger.deliver("id-2", key(2), False)
    assert not ledger.missing


def test_message_may_come_before_its_confirmation() -> None:
    ledger = Ledger()
    ledger.deliver("id-1", key(1), False)
    ledger.confirm([("p", 1)])
    assert not ledger.missing


def test_message_that_did_not_come_again_is_held() -> None:
    """Its consumer got it and was lost before it acknowledged."""
    ledger = Ledger()
    for number in (1, 2):
        ledger.deliver(f"id-{number}", key(number), False)
    ledger.acknowledge(["id-1"])
    assert ledger.held == {"id-2"}
    ledger.deliver("id-2", key(2), True)
    ledger.acknowledge(["id-2"])
    assert not ledger.held


def test_acknowledged_message_that_comes_back_is_found() -> None:
    ledger = Ledger()
    ledger.deliver("id-1", key(1), False)
    ledger.settled.add("id-1")
    ledger.deliver("id-1", key(1), True)
    assert "after its acknowledgement was confirmed" in ledger.violations[0]


def test_message_that_comes_again_without_the_flag_is_found() -> None:
    ledger = Ledger()
    for _ in range(2):
        ledger.deliver("id-1", key(1), False)
    assert "without the flag" in ledger.violations[0]


def test_numbered_message_that_was_stored_twice_is_found() -> None:
    ledger = Ledger()
    ledger.deliver("id-1", key(1), False)
    ledger.deliver("id-2", key(1, attempt=2), False)
    ledger.check_once("p")
    assert ledger.violations == ["p 1 was stored 2 times"]


def test_torn_transaction_is_found() -> None:
    ledger = Ledger()
    ledger.deliver("id-1", key(1, unit=1), False)
    ledger.check_whole("p", 2)
    assert ledger.violations == ["of p 1 1 only [1] were stored"]


def test_what_another_consumer_had_may_come_late() -> None:
    ledger = Ledger()
    order = Order(ledger, shares=True)
    order.follow(key(2))
    order.follow(key(1), redelivered=True)
    order.follow(key(3))
    assert not ledger.violations
    order.follow(key(1))
    assert len(ledger.violations) == 1


def test_wrong_order_is_found() -> None:
    ledger = Ledger()
    order = Order(ledger)
    for found in (key(1), key(2), key(1, attempt=2), key(3)):
        order.follow(found)
    assert len(ledger.violations) == 1


def test_what_was_confirmed_and_never_came_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was sent on has to come out again, and what goes to two subscriptions has to come to both."""
    monkeypatch.setattr(load, "DRAIN_SECONDS", 0.2)
    taken, second, forwarded = Ledger(), Ledger(), Ledger()
    taken.others.append(second)
    taken.confirm([("p", 1), ("p", 2)])
    for ledger, numbers in ((taken, (1, 2)), (second, (1,)), (forwarded, (2,))):
        for number in numbers:
            ledger.deliver(f"id-{number}", key(number), False)
            ledger.acknowledge([f"id-{number}"])
    clients = load.Clients(load.Place(), Random(1))
    clients.flows = [load.Flow([], [], [taken, second], forwarded)]

    async def drain() -> list[str]:
        async with clients:
            return await clients.drain()

    assert asyncio.run(drain()) == ["p 2", "p 1"]
    assert clients.missing == 2
