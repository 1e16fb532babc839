"""Messages that wait for the application, and those that come again after a delay."""

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from quire.client.consumer import WaitingMessages
from quire.client.message import Delivery
from quire.protocols.openwire.commands import ActiveMQMessage, MessageDispatch


class Timer:
    def __init__(self, delay: float, call: Callable[[], None]) -> None:
        self.delay = delay
        self.call = call
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Harness:
    def __init__(self, blocks: bool) -> None:
        self.timers: list[Timer] = []
        self.woken = 0
        self.waiting = WaitingMessages(blocks, self.call_later, self.wake)
        self.deliveries = [Delivery(MessageDispatch(), ActiveMQMessage()) for _ in range(4)]

    def call_later(self, delay: float, call: Callable[[], None], /) -> asyncio.TimerHandle:
        self.timers.append(Timer(delay, call))
        return cast(asyncio.TimerHandle, self.timers[-1])

    def wake(self) -> None:
        self.woken += 1

    def taken(self) -> list[int]:
        """The numbers of what is there at present."""
        found = []
        while (delivery := self.waiting.take()) is not None:
            found.append(self.deliveries.index(delivery))
        return found


def filled(blocks: bool) -> Harness:
    harness = Harness(blocks)
    for delivery in harness.deliveries[2:]:
        harness.waiting.add(delivery)
    return harness


def test_what_was_rolled_back_holds_what_is_behind_it_and_comes_first() -> None:
    harness = filled(blocks=True)
    harness.waiting.come_again(harness.deliveries[:2], 1.5)
    assert not harness.waiting
    assert harness.taken() == []
    assert [timer.delay for timer in harness.timers] == [1.5]
    harness.timers[0].call()
    assert harness.woken == 1
    assert harness.taken() == [0, 1, 2, 3]


def test_without_blocking_others_pass() -> None:
    harness = filled(blocks=False)
    harness.waiting.come_again(harness.deliveries[:2], 1.5)
    assert harness.taken() == [2, 3]
    harness.timers[0].call()
    assert harness.taken() == [0, 1]


def test_what_has_a_delay_of_its_own_holds_nothing_and_comes_last() -> None:
    harness = filled(blocks=True)
    harness.waiting.come_again(harness.deliveries[:1], 60, blocks=False)
    assert harness.waiting.take() is harness.deliveries[2]
    harness.waiting.come_again(harness.deliveries[1:2], 1)
    assert harness.taken() == []
    harness.timers[1].call()
    assert harness.waiting.take() is harness.deliveries[1]
    harness.timers[0].call()
    assert harness.taken() == [3, 0]


@pytest.mark.parametrize("blocks", [True, False])
def test_without_a_delay_they_are_there_at_once(blocks: bool) -> None:
    harness = filled(blocks)
    harness.waiting.come_again(harness.deliveries[:2], 0)
    assert harness.timers == []
    assert harness.taken() == ([0, 1, 2, 3] if blocks else [2, 3, 0, 1])


def test_clearing_forgets_everything_and_cancels_delays() -> None:
    harness = filled(blocks=True)
    harness.waiting.come_again(harness.deliveries[:2], 1)
    harness.waiting.clear()
    assert harness.timers[0].is_cancelled
    assert not harness.waiting.is_paused
    assert harness.taken() == []
