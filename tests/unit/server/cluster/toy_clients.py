"""Clients without a protocol, of a stepped cluster: a door that keeps what it is told, on a session of a cluster."""

from typing import Any

from quire.broker.core.subscription import AckMode
from quire.broker.routing.addresses import read_destination
from quire.errors import QuireError
from quire.message import Message
from quire.security import Origin
from quire.server.cluster.cluster_session import ClusterSession
from quire.sessions.base import (
    PLAIN,
    USUAL,
    Consumer,
    ConsumerKind,
    Leaving,
    LeavingKind,
    Opening,
    Part,
    Route,
    Sending,
    SubscribeSpec,
    Token,
    Traits,
)
from quire.sessions.rights import Guard
from quire.testing.stepped_cluster import SteppedCluster, SteppedShard


class ToyDoor:
    has_ended: bool | None = False

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_closed = False
        self.said: list[tuple[Any, ...]] = []  # everything, in its order
        self.got: list[tuple[Part, Message]] = []  # the messages that it has been given, with their parts
        self.tokens: list[Token] = []  # those that have come back
        self.results: dict[Any, Any] = {}
        self.errors: list[tuple[Token | None, QuireError]] = []  # those that nobody waits for, and of tokens
        self.over: QuireError | None = None  # why its session has ended; None while it has not
        self.goes_on = 0  # how often it was told to go on
        self.session: ClusterSession

    # What it is told.

    def deliver(self, part: Part, messages: list[Message], first: bool) -> None:
        self.said.append(("deliver", part.number, [message.body for message in messages], first))
        self.got += [(part, message) for message in messages]

    def confirmed(self, tokens: list[Token]) -> None:
        self.said.append(("confirmed", *tokens))
        self.tokens += tokens

    def answered(self, token: Token, result: Any) -> None:
        self.said.append(("answered", token))
        self.results[token] = result

    def failed(self, token: Token | None, error: QuireError) -> None:
        self.said.append(("failed", token, error.code))
        self.errors.append((token, error))

    def part_added(self, part: Part) -> None:
        self.said.append(("part", part.number))

    def part_gone(self, part: Part) -> None:
        self.said.append(("gone", part.number))

    def pull_ended(self, consumer: Consumer, left: int) -> None:
        self.said.append(("pull", left))

    def browse_ended(self, consumer: Consumer, damaged: int) -> None:
        self.said.append(("browsed", damaged))

    def event(self, consumer: Consumer, name: str, headers: dict[str, str]) -> None:
        self.said.append(("event", name))

    def consumer_ended(self, consumer: Consumer, error: QuireError) -> None:
        self.said.append(("ended", consumer.spec.id, error.code))

    def ended(self, error: QuireError) -> None:
        self.said.append(("over", error.code))
        self.over = error

    def go_on(self) -> None:
        self.goes_on += 1

    def flush(self) -> None:
        pass

    def discard(self) -> None:
        self.said.append(("discarded",))

    # What it says.

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for _, message in self.got]

    def route(self, destination: str, traits: Traits = PLAIN) -> Route:
        return self.session.route(destination, traits)

    def send(
        self, destination: str, *bodies: bytes, token: Token = None, tx: bytes | None = None, how: Sending = USUAL
    ) -> bool:  # fmt: skip
        """Send messages, as a chunk of input; the token is of the last one. Whether they were all taken."""
        route = self.route(destination)
        self.session.takes_input()
        taken = True
        for place, body in enumerate(bodies, 1):
            its = token if place == len(bodies) else None
            taken = taken and self.session.accept(route, content(body), how, tx=tx, token=its)
        self.session.took_input(False)
        return taken

    def subscribe(self, destination: str, token: Token = None, **wants: Any) -> Consumer:
        addresses = tuple(read_destination(destination)[0])
        spec = SubscribeSpec(wants.pop("id", destination), addresses, wants.pop("kind", ConsumerKind.PLAIN), **wants)
        return self.session.subscribe(spec, token)

    def vanish(self) -> None:
        self.is_closed = True
        self.session.leave(Leaving(LeavingKind.LOST, "the connection was lost"))

    def recheck(self) -> Any:
        yield from self.session.recheck()


def content(body: bytes) -> bytes:
    return b"message-id:1\ntimestamp:1\n\n" + body


def connect(cluster: SteppedCluster, member: SteppedShard, client_id: str | None = None, **how: Any) -> ToyDoor:
    """A client that has connected to a process of a cluster, and been let in."""
    door = ToyDoor(f"toy-{len(member.sessions) + 1}@{member.cluster_map.own}")
    access = member.security.vouched("", [], Origin("toy", door.name))
    session = member.session_of(Guard(member.gate, access), door)
    assert isinstance(session, ClusterSession)
    door.session = session
    member.sessions[door] = door  # type: ignore[assignment]
    opening = Opening("toy", client_id, **how)
    while not door.session.open(opening, b"open"):
        cluster.advance(0.5)
    cluster.run()
    return door


INDIVIDUAL, CLIENT, AUTO = AckMode.INDIVIDUAL, AckMode.CLIENT, AckMode.AUTO
