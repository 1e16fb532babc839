"""Short ways to subscribe to any destination, and to publish."""

from quire.testing.stepped import SteppedBroker, SteppedClient
from tests.unit.broker.harness import filled


def subscribe(client: SteppedClient, destination: str, id: str = "0", ack: str = "auto", **headers: str) -> None:
    """Send a SUBSCRIBE frame; in names of headers ``_`` is ``-`` and ``__`` is ``.``."""
    named = {name.replace("__", ".").replace("_", "-"): value for name, value in headers.items()}
    client.subscribe("", ack, id, {"destination": destination, **named})


def subscribed(stepped: SteppedBroker, destination: str, ack: str = "auto", **headers: str) -> SteppedClient:
    client = stepped.connect()
    subscribe(client, destination, ack=ack, **headers)
    stepped.run()
    return client


def publish(stepped: SteppedBroker, *bodies: bytes, topic: str = "t", **headers: str) -> None:
    client = stepped.connect()
    for body in bodies:
        client.send("", body, {"destination": f"/topic/{topic}", **headers})
    stepped.run()


def error_of(headers: dict[str, str], destination: str = "/queue/q", version: str = "1.2") -> str:
    """The code of the error that a SUBSCRIBE frame gets; the queue must have no consumer then."""
    stepped = filled(1)
    client = stepped.connect(version)
    client.subscribe("", "auto", headers={"destination": destination, **headers})
    stepped.run()
    assert stepped.queue("q").subscriptions == []
    assert client.connection.closed
    (code,) = client.errors()
    return code
