"""A new protocol is a codec and a door: all else it has of its session."""

from quire.errors import BrokerStopping, StoreFull
from quire.testing.stepped import RecordingConnection, SteppedBroker
from tests.conformance.doors.toy_door import ToyDoor
from tests.unit.broker.harness import settings


class Toy:
    def __init__(self, stepped: SteppedBroker, name: str = "toy") -> None:
        self.stepped = stepped
        self.connection = RecordingConnection(name)
        self.door = ToyDoor(stepped.broker, stepped.gate, self.connection, stepped.session_of)
        stepped.sessions[self] = self.door
        self.told("hello " + name)

    def told(self, *lines: str) -> list[str]:
        """Say something; what is answered."""
        self.door.receive("".join([line + "\n" for line in lines]).encode())
        self.stepped.run()
        return self.heard()

    def heard(self) -> list[str]:
        """What has come since it was asked last."""
        output = bytes(self.connection.output)
        self.connection.output.clear()
        return output.decode().splitlines()


def test_messages_are_sent_delivered_and_acknowledged() -> None:
    stepped = SteppedBroker(settings())
    toy, other = Toy(stepped), Toy(stepped, "other")
    assert toy.told("subscribe c /queue/q") == ["ok 2"]
    assert other.told("send /queue/q one", "send /queue/q two") == ["ok 2", "ok 3"]
    assert toy.heard() == ["message c 1 1 one", "message c 2 1 two"]
    assert toy.told("ack c 1", "reject c 2") == ["message c 2 2 two", "ok 3", "ok 4"]
    assert toy.told("ack c 1", "ack d 1", "nonsense x") == [
        "error 5 unknown-message", "error 6 unknown-subscription", "error 7 protocol-violation"
    ]  # fmt: skip
    assert stepped.queue("q").depth == 1


def test_a_transaction_is_all_or_nothing() -> None:
    stepped = SteppedBroker(settings())
    toy = Toy(stepped)
    toy.told("subscribe c /queue/q", "send /queue/q one")
    assert toy.told("begin t", "send /queue/r two in t", "ack c 1 in t") == ["ok 4", "ok 5", "ok 6"]
    assert (stepped.queue("q").depth, stepped.queue("r").depth) == (1, 0)
    assert toy.told("commit t", "commit t") == ["error 8 unknown-transaction", "ok 7"]
    assert (stepped.queue("q").depth, stepped.queue("r").depth) == (0, 1)


def test_a_producer_waits_for_room_and_goes_on() -> None:
    stepped = SteppedBroker(settings(store={"limit": 2000}))
    toy, other = Toy(stepped), Toy(stepped, "other")
    toy.told("subscribe c /queue/q")
    assert other.told(f"send /queue/q {'x' * 2000}") == ["ok 2"]
    assert other.told("send /queue/q two", "send /queue/q three") == []
    assert other.connection.paused == {"held"}
    toy.told("ack c 1")
    assert (other.heard(), other.connection.paused) == (["ok 3", "ok 4"], set())


def test_a_client_whose_commit_fails_hears_why_and_its_messages_come_to_others() -> None:
    stepped = SteppedBroker(settings())
    toy, other = Toy(stepped), Toy(stepped, "other")
    toy.told("subscribe c /queue/q", "send /queue/q one")
    toy.door.receive(b"send /queue/q two\n")
    stepped.run_turns()
    stepped.commit(StoreFull("full"))
    stepped.run_turns()
    assert (toy.heard(), toy.connection.closed) == (
        ["error 0 store-full"],
        True,
    )
    stepped.advance(1.1)
    stepped.run()
    assert other.told("subscribe c /queue/q") == ["ok 2", "message c 1 2 one"]


def test_the_broker_stops() -> None:
    stepped = SteppedBroker(settings())
    toy = Toy(stepped)
    toy.told("subscribe c /queue/q")
    toy.door.stop(BrokerStopping("it stops"))
    assert (toy.heard(), stepped.queue("q").consumer_count) == (["error 0 broker-stopping"], 0)
