"""While the lease of the store is not sure, nothing is given out; clients are sent away only if there is a standby."""

import math
from typing import cast

import pytest

from quire.server.connection import ClientTransport, ProtocolDoors
from quire.server.stomp.stomp_door import StompDoors
from quire.server.store_lock import DISCONNECT_AFTER, LeaseWatch, StoreLock
from quire.testing.stepped import SteppedBroker
from tests.unit.broker.harness import consumer, filled


class Client:
    sent_away = 0

    def disconnect_for_failover(self) -> None:
        self.sent_away += 1


class Rig:
    """A broker whose lease ends in a second."""

    def __init__(self, stepped: SteppedBroker, *, has_standby: bool = False) -> None:
        self.stepped = stepped
        self.lock = StoreLock(stepped.store, "me", "u")
        self.lock.until = stepped.clock.monotonic() + 1
        self.client = Client()
        self.doors: list[ProtocolDoors] = [StompDoors(stepped.broker, stepped.gate, stepped.session_of)]
        clients = cast(list[ClientTransport], [self.client])
        self.watch = LeaseWatch(self.lock, stepped.broker.core, self.doors, clients, has_standby)

    @property
    def is_suspended(self) -> bool:
        """Whether the broker is."""
        return self.watch.is_suspended

    def look(self, seconds: float = 0.0) -> None:
        """After some time, see how the lease is."""
        self.stepped.advance(seconds)
        self.watch.look(self.stepped.clock.monotonic())

    def renew(self, seconds: float = 1.0) -> None:
        self.lock.until = self.stepped.clock.monotonic() + seconds
        self.lock.checked()


def test_the_lock_is_told_that_the_event_loop_must_not_hang_from_now_on() -> None:
    assert Rig(filled(0)).lock.is_watched


def test_nothing_is_given_out_between_the_end_of_the_lease_and_its_renewal(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "quire")
    stepped = filled(2)
    rig = Rig(stepped)
    rig.look(1.5)
    assert rig.is_suspended
    client = stepped.connect()
    client.subscribe("q")
    stepped.run()
    assert client.messages() == []
    rig.renew()
    stepped.run()
    assert caplog.records[-1].event == "lease.renewed"  # type: ignore[attr-defined]
    assert client.messages() == [b"0", b"1"]


def test_what_waited_goes_out_after_a_renewal_that_came_before_anyone_looked() -> None:
    """A process that stood still: its turn comes first, then the renewal, and the look at the lease last."""
    stepped = filled(2)
    rig = Rig(stepped)
    client = stepped.connect()
    stepped.advance(1.5)
    client.subscribe("q")
    stepped.run()
    assert client.messages() == []
    rig.renew()
    rig.look()
    stepped.run()
    assert client.messages() == [b"0", b"1"]


def test_a_check_of_the_lease_asks_for_no_turn_if_nothing_waits() -> None:
    stepped = filled(0)
    rig = Rig(stepped)
    rig.renew()
    assert not stepped.is_turn_wanted


def test_pull_is_not_answered_while_the_lease_has_run_out() -> None:
    stepped = filled(1)
    rig = Rig(stepped)
    client = consumer(stepped, prefetchSize="0")
    rig.look(1.5)
    client.frame("SEND", {"destination": "/pull/0"})
    stepped.run()
    assert (client.messages(), client.errors()) == ([], [])
    rig.renew()
    stepped.run()
    assert client.messages() == [b"0"]


def test_what_was_given_out_in_time_and_not_written_in_time_is_not_written() -> None:
    """A process that is suspended in the middle of a turn: what it goes on with may be another broker's."""
    stepped = filled(2)
    rig = Rig(stepped)
    client, other = stepped.connect(), stepped.connect()
    client.subscribe("q")
    run = stepped.broker.core.dispatch.run

    def run_and_be_suspended() -> None:
        run()
        if stepped.broker.core.dispatch.has_given:
            stepped.clock.advance(5)

    stepped.broker.core.dispatch.run = run_and_be_suspended  # type: ignore[method-assign]
    stepped.run()
    stepped.broker.core.dispatch.run = run  # type: ignore[method-assign]
    assert client.messages() == []
    assert client.connection.closed
    assert not other.connection.closed
    client.session.closed()  # as the transport says then
    rig.renew()
    again = stepped.connect()
    again.subscribe("q")
    stepped.run()
    frames = again.take("MESSAGE")
    assert [(frame.body, frame.headers["redelivered"]) for frame in frames] == [(b"0", "true"), (b"1", "true")]
    (subscription,) = again.session.subscriptions.values()
    assert [message.failures for message in subscription.in_flight.values()] == [0, 0]  # the client has done nothing


def test_errors_are_told_while_the_lease_has_run_out() -> None:
    stepped = filled(0)
    rig = Rig(stepped)
    rig.look(1.5)
    client = stepped.connect()
    client.frame("ACK", {"id": "9"})
    stepped.run()
    assert client.errors()


def test_clients_stay_without_a_standby(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig(filled(0))
    for _ in range(10):
        rig.look(1.0)
    assert (rig.client.sent_away, rig.doors[0].away) == (0, None)
    assert [record.event for record in caplog.records] == ["lease.lapsed"]  # type: ignore[attr-defined]


def test_clients_are_sent_away_once_if_there_is_a_standby_and_may_come_again_after_the_renewal() -> None:
    rig = Rig(filled(0), has_standby=True)
    rig.look(1.0)
    assert rig.client.sent_away == 0
    rig.look(DISCONNECT_AFTER)
    rig.look(1.0)
    assert (rig.client.sent_away, rig.doors[0].away is None) == (1, False)
    rig.renew()
    assert rig.doors[0].away is None
    rig.look(1.0 + DISCONNECT_AFTER)
    assert rig.client.sent_away == 2


def test_late_answer_that_renews_nothing_changes_nothing() -> None:
    rig = Rig(filled(0))
    rig.look(2.0)
    rig.renew(-0.5)
    assert rig.is_suspended


def test_lost_lock_ends_all_dispatch() -> None:
    rig = Rig(filled(1))
    rig.lock.until = -math.inf
    client = consumer(rig.stepped)
    assert client.messages() == []
