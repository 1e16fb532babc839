"""What the conformance suite of sessions needs: a world with a broker that moves a step at a time, and its clients.

Any implementation of ``quire.sessions.base.Session`` passes the suite in a ``World`` of its own. A client is a door
that writes down what it hears and hands in again what was not taken. An error that is raised and one that is told
later are the same to it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, NamedTuple

from quire.broker.core.subscription import AckMode
from quire.broker.routing.addresses import Address
from quire.destination import DestinationKind
from quire.errors import QuireError, StoreFull
from quire.message import Message, header_lines
from quire.security import Access, Credentials, Origin
from quire.sessions.base import (
    ACCEPTED,
    PLAIN,
    UNKNOWN,
    Consumer,
    ConsumerKind,
    Handle,
    Handles,
    Leaving,
    LeavingKind,
    Membership,
    Opening,
    Part,
    Seen,
    Sending,
    Session,
    Settlement,
    Step,
    SubscribeSpec,
    These,
    Token,
    Traits,
    UpTo,
    What,
)
from quire.sessions.rights import Guard
from quire.sessions.session import LocalSession
from quire.testing.stepped import SteppedBroker
from tests.unit.broker.harness import settings
from tests.unit.server.rights import secure

QUEUE = Address(DestinationKind.QUEUE, "q")
TOPIC = Address(DestinationKind.TOPIC, "t")
STREAM = Address(DestinationKind.STREAM, "s")

_ids = count(1)


def content(body: bytes | str, **headers: str) -> bytes:
    """A message as it is admitted: header lines that begin with its id and its time, the empty line, the body."""
    lines = {"message-id": f"m{next(_ids)}", "timestamp": "1", **headers}
    return header_lines(lines) + b"\n" + (body if isinstance(body, bytes) else body.encode())


class Delivery(NamedTuple):
    part: Part
    message: Message
    first: bool


class Client:
    """A door for tests."""

    session: Session

    def __init__(self, name: str) -> None:
        self.name = name
        self.has_ended: bool | None = False
        self.log: list[tuple[str, Any]] = []  # the names of what it has heard, with the token or the body, in order
        self.tokens: list[Token] = []  # those that came back
        self.results: dict[Token, Any] = {}  # the results of verbs, by their tokens
        self.errors: list[tuple[Token, str]] = []  # the codes of errors, with their tokens
        self.failures: list[QuireError] = []  # these errors
        self.deliveries: list[Delivery] = []  # what it was given
        self.gone: list[int] = []  # the numbers of the parts that went
        self.pulls: list[int] = []  # how many messages had not come when pulls ended
        self.shown: list[int] = []  # how many messages were damaged when browsers ended
        self.events: list[tuple[str, dict[str, str]]] = []  # of its members
        self.consumers_ended: list[tuple[str, str]] = []
        self.ended_by = ""
        self.lost = LeavingKind.LOST  # how its connection ends then
        self._waiting: list[tuple[Callable[[], bool], Token]] = []

    # What it says.

    def say(self, verb: Callable[[], bool], token: Token = None, *, passes: bool = False) -> None:
        if self._waiting and not passes:
            self._waiting.append((verb, token))
            return
        try:
            if not verb():
                self._waiting.append((verb, token))
        except QuireError as error:
            self.failed(token, error)

    @property
    def is_held(self) -> bool:
        return bool(self._waiting)

    def send(
        self, destination: str, *bodies: bytes | str, tx: bytes | None = None, token: Token = None,
        traits: Traits = PLAIN, headers: dict[str, str] | None = None, **how: Any,
    ) -> None:  # fmt: skip
        """Send messages, in one chunk of input; the last one with a token."""
        session = self.session
        session.takes_input()
        for number, body in enumerate(bodies, 1):
            last = token if number == len(bodies) else None
            self.say(self._sending(destination, content(body, **headers or {}), tx, last, traits, Sending(**how)), last)
        session.took_input(False)

    def _sending(
        self, destination: str, whole: bytes, tx: bytes | None, token: Token, traits: Traits, how: Sending
    ) -> Callable[[], bool]:  # fmt: skip
        return lambda: self.session.accept(self.session.route(destination, traits), whole, how, tx=tx, token=token)

    def consume(self, *addresses: Address, id: str = "c", token: Token = None, **spec: Any) -> Consumer:
        return self.session.subscribe(SubscribeSpec(id, addresses or (QUEUE,), **spec), token)

    def member(
        self, group: str | None = "g", member: str | None = None, id: str = "m", token: Token = None,
        address: Address = STREAM, spec: dict[str, Any] | None = None, **wish: Any,
    ) -> Consumer:  # fmt: skip
        kind = ConsumerKind.READER if group is None else ConsumerKind.MEMBER
        return self.consume(
            address, id=id, token=token, kind=kind, membership=Membership(group, member, **wish), **spec or {}
        )

    def settle(self, what: What, how: Settlement = ACCEPTED, *, tx: bytes | None = None, token: Token = None) -> None:
        self.say(lambda: self.session.settle(what, how, tx=tx, token=token), token, passes=tx is None)

    def these(self, *deliveries: Delivery, how: Settlement = ACCEPTED, **rest: Any) -> None:
        self.settle(These(deliveries[0].part, [each.message.sequence for each in deliveries]), how, **rest)

    def up_to(
        self, last: Delivery, first: Delivery | None = None, expected: int = 0, how: Settlement = ACCEPTED, **rest: Any
    ) -> None:  # fmt: skip
        begins = None if first is None else first.message.sequence
        part = None if first is None else first.part
        self.settle(UpTo(last.part, begins, last.message.sequence, expected, part), how, **rest)

    def handles(self, *deliveries: Delivery, how: Settlement = ACCEPTED, token: Token = "handles", **rest: Any) -> None:
        handles = [handle(each) for each in deliveries]
        self.settle(Handles(deliveries[0].part.consumer, handles), how, token=token, **rest)

    def begin(self, tx: bytes, token: Token = None) -> None:
        self.say(lambda: self.session.begin(tx, token), token)

    def end(self, tx: bytes, step: Step = Step.COMMIT, token: Token = "end") -> None:
        self.say(lambda: self.session.end(tx, step, token), token)

    def unsubscribe(self, consumer: Consumer, seen: Seen = UNKNOWN, token: Token = None) -> None:
        self.say(lambda: self.session.unsubscribe(consumer, seen, token), token)

    def call(self, name: str, *arguments: Any, token: Token = "call") -> None:
        self.say(lambda: self.session.call(name, arguments, token), token)

    def open(self, token: Token = None, **opening: Any) -> None:
        self.say(lambda: self.session.open(Opening("test 1", **opening), token), token)

    def leave(self, kind: LeavingKind = LeavingKind.CLEAN, token: Token = None) -> None:
        self.session.leave(Leaving(kind, "it went"), token)

    # What it was given.

    def take(self) -> list[Delivery]:
        deliveries, self.deliveries = self.deliveries, []
        return deliveries

    def bodies(self) -> list[str]:
        return [each.message.body.decode() for each in self.take()]

    @property
    def codes(self) -> list[str]:
        return [code for _, code in self.errors]

    # What it hears.

    @property
    def is_closed(self) -> bool:
        return bool(self.ended_by)

    def recheck(self) -> Iterator[None]:
        yield from self.session.recheck()

    def deliver(self, part: Part, messages: list[Message], first: bool) -> None:
        self.deliveries += [Delivery(part, message, first) for message in messages]
        self.log += [("deliver", message.body.decode()) for message in messages]

    def confirmed(self, tokens: list[Token]) -> None:
        self.tokens += tokens
        self.log += [("confirmed", token) for token in tokens]

    def answered(self, token: Token, result: Any) -> None:
        self.results[token] = result
        self.log.append(("answered", token))

    def failed(self, token: Token | None, error: QuireError) -> None:
        self.errors.append((token, error.code))
        self.failures.append(error)

    def part_added(self, part: Part) -> None:
        part.writer = f"writer of {part.number}"
        self.log.append(("part", part.number))

    def part_gone(self, part: Part) -> None:
        self.gone.append(part.number)

    def pull_ended(self, consumer: Consumer, left: int) -> None:
        self.pulls.append(left)
        self.log.append(("pull", left))

    def browse_ended(self, consumer: Consumer, damaged: int) -> None:
        self.shown.append(damaged)
        self.log.append(("shown", damaged))

    def event(self, consumer: Consumer, name: str, headers: dict[str, str]) -> None:
        self.events.append((name, headers))
        self.log.append(("event", name))

    def consumer_ended(self, consumer: Consumer, error: QuireError) -> None:
        self.consumers_ended.append((consumer.spec.id, error.code))

    def ended(self, error: QuireError) -> None:
        self.ended_by = error.code
        self.session.leave(Leaving(self.lost, "its connection ended"))

    def go_on(self) -> None:
        waiting, self._waiting = self._waiting, []
        self.session.takes_input()
        for verb, token in waiting:
            self.say(verb, token)
        self.session.took_input(False)

    def flush(self) -> None:
        """Nothing gathers."""

    def discard(self) -> None:
        self.ended_by = "discarded"
        self.session.leave(Leaving(self.lost, "its connection ended"))


def handle(delivery: Delivery) -> Handle:
    """The name of a member's message that outlives its connection."""
    sequence, part = delivery.message.sequence, delivery.part
    assert part.partition is not None
    return Handle(sequence, sequence, part.partition, part.epoch)


class World(ABC):
    broker: SteppedBroker  # the broker that has the destinations

    @abstractmethod
    def session(self, client: Client, user: str) -> Session:
        """The session of a new client, who has logged in."""

    @abstractmethod
    def run(self) -> None:
        """Until nothing is left to do at this time."""

    @abstractmethod
    def run_turns(self) -> None:
        """The same, but the commit under way stays so."""

    @abstractmethod
    def advance(self, seconds: float) -> None:
        """Let time go by, and run."""

    def connect(self, name: str = "client", user: str = "", **opening: Any) -> Client:
        client = self.newcomer(name, user)
        client.open(**opening)
        self.run()
        return client

    def newcomer(self, name: str = "client", user: str = "") -> Client:
        client = Client(name)
        client.session = self.session(client, user)
        return client

    def secure(self) -> None:
        """Users and rules, as ``tests.unit.server.rights``; whoever connects later is one of them."""
        self.secrets = secure(self.broker)

    def fail(self) -> None:
        """The next commit of the broker fails."""
        self.run_turns()
        self.broker.commit(StoreFull("the disk is full"))
        self.run_turns()

    def recover(self) -> None:
        self.advance(1.1)

    def depth(self, name: str = "q") -> int:
        return self.broker.queue(name).depth


def guard(stepped: SteppedBroker, secret: str = "") -> Guard:
    """What a user may do, by the token it shows; everything if there are no users."""
    outcomes: list[Any] = []
    stepped.gate.log_in(Credentials("", secret), Origin("test", "client"), outcomes.append)
    (access,) = outcomes
    assert isinstance(access, Access), access
    return Guard(stepped.gate, access)


class LocalWorld(World):
    secrets: dict[str, str]

    def __init__(self, **changes: Any) -> None:
        self.broker = SteppedBroker(settings(**changes))

    def session(self, client: Client, user: str) -> Session:
        session = LocalSession(self.broker.broker, guard(self.broker, self.secrets[user] if user else ""), client)
        self.broker.sessions[client] = client  # type: ignore[assignment]
        return session

    def run(self) -> None:
        self.broker.run()

    def run_turns(self) -> None:
        self.broker.run_turns()

    def advance(self, seconds: float) -> None:
        self.broker.advance(seconds)
        self.broker.run()


class Suite(ABC):
    @abstractmethod
    def world(self, **changes: Any) -> World:
        """A new world, with changed settings."""


AUTO, CLIENT, INDIVIDUAL = AckMode.AUTO, AckMode.CLIENT, AckMode.INDIVIDUAL
