"""Short ways to ask a service for an answer, and to answer, over temporary destinations."""

import pytest

from quire.testing.stepped import Frame, SteppedBroker, SteppedClient

KINDS = pytest.mark.parametrize("kind", ["queue", "topic"])
"""Both kinds of temporary destinations."""


def subscribed(stepped: SteppedBroker, kind: str = "queue", version: str = "1.2", **headers: str) -> SteppedClient:
    """A client that consumes its own temporary destination ``replies``."""
    client = stepped.connect(version)
    subscribe(client, f"/temp-{kind}/replies", **headers)
    stepped.run()
    return client


def subscribe(client: SteppedClient, destination: str, id: str = "0", ack: str = "auto", **headers: str) -> None:
    named = {f"activemq.{name}": value for name, value in headers.items()}
    client.subscribe("", ack, id, {"destination": destination, **named})


def request(stepped: SteppedBroker, client: SteppedClient, body: bytes = b"?", kind: str = "queue") -> None:
    client.send("work", body, {"reply-to": f"/temp-{kind}/replies"})
    stepped.run()


def answer(stepped: SteppedBroker, service: SteppedClient, body: bytes, **headers: str) -> Frame:
    (message,) = service.take("MESSAGE")
    send_to(service, message.headers["reply-to"], body, **headers)
    stepped.run()
    return message


def send_to(client: SteppedClient, destination: str, body: bytes, **headers: str) -> None:
    client.send("", body, {"destination": destination, **headers})


def temporaries(stepped: SteppedBroker) -> int:
    registry = stepped.broker.routing.temporaries
    return len(registry.queues) + len(registry.topics)
