"""What every door keeps, in tests: a door is what speaks a protocol to clients (``quire.sessions.base.Door``).

A door passes with a driver of its wire: a ``DoorClient`` that says frames and reads answers. The suite knows no frame,
and does not care whether a stepped broker answers at once or a cluster over sockets::

    class TestMyDoor(DoorSuite):
        def start(self, settings: Path) -> None: ...
        def connect(self, password: str = PASSWORD) -> DoorClient: ...

Failed assertions show their values only if pytest rewrites them: call ``pytest.register_assert_rewrite`` with
``"quire.testing"`` in a ``conftest.py``, before this module is imported.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from argon2 import PasswordHasher

USER, PASSWORD = "user", "secret"
"""Who the clients are: the only user that the broker lets in."""

SETTINGS = f"""
[policy]
initial_redelivery_delay = 0
redelivery_delay = 0
retry_delays = ""
rebalance_debounce = 0
rebalance_initial_delay = 0
consume_timeout = "1s"
member_grace = 0

[[policies]]
destination = "small.>"
max_message_size = 1000

[[users]]
name = "{USER}"
password_hash = "{PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash(PASSWORD)}"

[[rules]]
subject = "user:{USER}"
allow = ["read", "write", "create"]
destination = ">"

[[rules]]
subject = "user:{USER}"
deny = ["read", "write", "create"]
destination = "closed.>"
"""
"""Of the broker: whatever waits comes again at once, ``small.>`` takes small messages, no user may use ``closed.>``."""

_numbers = count(1)


class Refused(Exception):
    """The broker has answered with an error; its connection may have ended.

    Args:
        code: of the error.
    """

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class Delivery(NamedTuple):
    """What a client was given.

    Attributes:
        body: of the message, without blanks and line ends.
        attempt: which delivery of it this is, from 1, as the door says it.
        name: what the wire calls it by.
    """

    body: str
    attempt: int
    name: Any


class DoorClient(ABC):
    """One client. A call returns when the broker has answered, and raises ``Refused`` if that was an error."""

    @abstractmethod
    def send(self, destination: str, body: str, tx: str = "") -> None:
        """Send a message and wait until it is durable; in a transaction if one is named, as with all that follow."""

    @abstractmethod
    def consume(self, destination: str, credit: int = 100) -> None:
        """Consume from now on, one destination at the most, and have so many messages at the most."""

    @abstractmethod
    def take(self, count: int) -> list[Delivery]:
        """What has come, once it is so many messages; fewer if no more come."""

    @abstractmethod
    def ack(self, delivery: Delivery, tx: str = "") -> None:
        """A message is done."""

    @abstractmethod
    def reject(self, delivery: Delivery) -> None:
        """A message could not be processed."""

    @abstractmethod
    def lose(self) -> None:
        """The connection is lost, without a word; return when the broker knows it."""

    def begin(self, tx: str) -> None:
        """Begin a transaction."""
        raise NotImplementedError("override begin, or say has_transactions = False")

    def commit(self, tx: str) -> None:
        """Commit it."""
        raise NotImplementedError("override commit, or say has_transactions = False")

    def abort(self, tx: str) -> None:
        """Roll it back; what was acknowledged in it comes again."""
        raise NotImplementedError("override abort, or say has_transactions = False")


class DoorSuite(ABC):
    """The suite.

    Attributes:
        kind: what the destinations are: ``queue`` or ``stream``.
        has_transactions: whether the wire has transactions.
    """

    kind = "queue"
    has_transactions = True

    @abstractmethod
    def start(self, settings: Path) -> None:
        """Have a broker with the settings in a file (``SETTINGS``), or know that there is one."""

    @abstractmethod
    def connect(self, password: str = PASSWORD) -> DoorClient:
        """A client that has logged in as ``USER``.

        Raises:
            Refused: it was not let in.
        """

    @pytest.fixture(autouse=True)
    def _started(self, tmp_path: Path) -> Iterator[None]:
        settings = tmp_path / "quire.toml"
        settings.write_text(SETTINGS)
        self.start(settings)
        yield
        self.stop()

    def stop(self) -> None:  # noqa: B027 - most have nothing to do
        """The test is over."""

    def place(self, prefix: str = "") -> str:
        """A destination of the test's own, as a header has it."""
        return f"/{self.kind}/{prefix}d{next(_numbers)}"

    def consumer(self, place: str, credit: int = 100) -> DoorClient:
        """A client that consumes."""
        client = self.connect()
        client.consume(place, credit)
        return client

    def test_what_is_sent_is_delivered_in_its_order(self) -> None:
        """Before and after the consumer has come."""
        place = self.place()
        client, producer = self.connect(), self.connect()
        producer.send(place, "1")
        client.consume(place)
        for body in ("2", "3"):
            producer.send(place, body)
        assert [(each.body, each.attempt) for each in client.take(3)] == [("1", 1), ("2", 1), ("3", 1)]

    def test_what_is_acknowledged_does_not_come_again(self) -> None:
        """Whatever becomes of the client."""
        place = self.place()
        client = self.consumer(place)
        for body in ("1", "2"):
            client.send(place, body)
        first, _ = client.take(2)
        client.ack(first)
        client.lose()
        assert bodies(self.consumer(place), 1) == ["2"]

    def test_what_is_rejected_comes_again_and_says_so(self) -> None:
        """The count of attempts rises."""
        place = self.place()
        client = self.consumer(place)
        client.send(place, "1")
        for attempt in (1, 2, 3):
            (delivery,) = client.take(1)
            assert (delivery.body, delivery.attempt) == ("1", attempt)
            client.reject(delivery)
        (last,) = client.take(1)
        client.ack(last)

    def test_what_a_lost_client_had_comes_to_another_one(self) -> None:
        """All that was not acknowledged."""
        place = self.place()
        client = self.consumer(place)
        for body in ("1", "2", "3"):
            client.send(place, body)
        client.ack(client.take(3)[1])
        client.lose()
        other = self.consumer(place)
        assert sorted(bodies(other, 2)) == ["1", "3"]

    def test_a_client_is_given_as_many_messages_as_it_has_credit_for(self) -> None:
        """An acknowledgement brings the next one."""
        place = self.place()
        client = self.consumer(place, credit=2)
        for body in ("1", "2", "3", "4"):
            client.send(place, body)
        first, second = client.take(2)
        assert (first.body, second.body, client.take(0)) == ("1", "2", [])
        client.ack(first)
        assert (bodies(client, 1), client.take(0)) == (["3"], [])

    def test_a_transaction_is_so_as_a_whole(self) -> None:
        """What it sends and acknowledges counts with its commit, and is not before."""
        self._needs_transactions()
        place, other = self.place(), self.place()
        client, observer = self.consumer(place), self.consumer(other)
        client.send(place, "1")
        (delivery,) = client.take(1)
        client.begin("t")
        client.ack(delivery, tx="t")
        for body in ("2", "3"):
            client.send(other, body, tx="t")
        assert observer.take(0) == []
        client.commit("t")
        assert bodies(observer, 2) == ["2", "3"]
        client.lose()
        observer.send(place, "end")
        assert bodies(self.consumer(place), 1) == ["end"]

    @pytest.mark.parametrize("ends", ["aborted", "lost"])
    def test_a_transaction_is_not_at_all(self, ends: str) -> None:
        """If it is rolled back, or its client is lost."""
        self._needs_transactions()
        place, other = self.place(), self.place()
        client, observer = self.consumer(place), self.consumer(other)
        client.send(place, "1")
        (delivery,) = client.take(1)
        client.begin("t")
        client.send(other, "2", tx="t")
        client.ack(delivery, tx="t")
        if ends == "aborted":
            client.abort("t")
        client.lose()
        observer.send(other, "end")
        assert (bodies(observer, 1), bodies(self.consumer(place), 1)) == (["end"], ["1"])

    def test_who_does_not_show_who_it_is_is_not_let_in(self) -> None:
        """By a wrong password."""
        assert code_of(lambda: self.connect("wrong")) == "not-authenticated"

    def test_what_the_rules_deny_is_refused(self) -> None:
        """Sends and consumers."""
        closed = self.place("closed.")
        assert code_of(lambda: self.connect().send(closed, "1")) == "access-refused"
        assert code_of(lambda: self.connect().consume(closed)) == "access-refused"

    def test_a_message_over_a_limit_is_refused_and_others_are_not(self) -> None:
        """At the send, in a transaction too."""
        small = self.place("small.")
        client = self.connect()
        client.send(small, "x" * 1000)
        assert code_of(lambda: client.send(small, "x" * 1001)) == "message-too-large"
        other = self.connect()
        if self.has_transactions:
            other.begin("t")
            assert code_of(lambda: other.send(small, "x" * 1001, tx="t")) == "message-too-large"
        self.connect().send(small, "end")
        assert bodies(self.consumer(small), 2) == ["x" * 1000, "end"]

    def _needs_transactions(self) -> None:
        if not self.has_transactions:
            pytest.skip("the wire has no transactions")


def bodies(client: DoorClient, count: int) -> list[str]:
    """The bodies of what has come."""
    return [each.body for each in client.take(count)]


def code_of(call: Callable[[], object]) -> str:
    """The error that a call is answered with."""
    with pytest.raises(Refused) as refused:
        call()
    return refused.value.code
