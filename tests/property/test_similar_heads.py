"""A connection takes heads that are like an earlier one as it takes any other: what is stored is the same."""

from typing import NamedTuple
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.message import Message, escape
from quire.testing.stepped import SteppedBroker

QUEUES = ("q", "r")
DESTINATIONS = st.sampled_from(["/queue/q", "/queue/r", "/queue/q,/queue/r", "/temp-queue/t", "/topic/t"])
NAMES = st.sampled_from([
    "a", "correlation-id", "expires", "priority", "persistent", "reply-to", "JMSXGroupID", "AMQ_SCHEDULED_DELAY", "b",
])  # fmt: skip
PLAIN = st.text(st.sampled_from("x%s1.-"), min_size=1, max_size=4)
VALUES = {
    "expires": st.sampled_from(["0", "99999999999999", "88888888888888"]),
    "priority": st.sampled_from(["4", "7"]),
    "persistent": st.sampled_from(["true", "false"]),
    "AMQ_SCHEDULED_DELAY": st.sampled_from(["", "60000"]),
    "reply-to": st.sampled_from(["/queue/r", "/temp-queue/t"]),
}
ANY = st.one_of(PLAIN, st.text(st.sampled_from("x:\\é\n"), max_size=4))


class Sent(NamedTuple):
    """What became of a SEND frame."""

    headers: dict[str, str]
    body: bytes
    expiration: int
    priority: int
    persistent: bool


@st.composite
def frames(draw: st.DrawFn) -> list[bytes]:
    """SEND frames of a few shapes, with values that change or do not."""
    shapes = draw(st.lists(st.lists(NAMES, max_size=4, unique=True), min_size=1, max_size=2))
    made = []
    for _ in range(draw(st.integers(2, 6))):
        names = draw(st.sampled_from(shapes))
        body = draw(st.binary(max_size=12))
        values = [escape(draw(VALUES.get(name, ANY)).encode()) for name in names]
        lines = [b"destination:" + draw(DESTINATIONS).encode()]
        lines += [name.encode() + b":" + value for name, value in zip(names, values, strict=True)]
        if draw(st.booleans()):
            lines.append(b"receipt:r")
        lines.append(b"content-length:%d" % len(body))
        made.append(b"SEND\n" + b"\n".join(lines) + b"\n\n" + body + b"\0")
    return made


def stored(stepped: SteppedBroker) -> dict[str, list[Sent]]:
    stepped.run()
    return {name: _in_queue(stepped, name) for name in QUEUES}


def _in_queue(stepped: SteppedBroker, name: str) -> list[Sent]:
    queue = stepped.queue(name)
    messages = [*stepped.store.page(queue.lanes[0].id, 0, 1 << 20, 100).messages, *queue.unstored()]
    return [_sent(message) for message in sorted(messages, key=lambda message: message.sequence)]


def _sent(message: Message) -> Sent:
    headers = {name: value for name, value in message.headers().items() if name not in ("message-id", "timestamp")}
    if headers.get("reply-to", "").startswith("/remote-temp"):
        headers["reply-to"] = "/remote-temp"
    return Sent(headers, message.body, message.expiration, message.priority, message.persistent)


@pytest.mark.slow
@given(frames(), st.sampled_from([1, 2, 64]))
def test_one_connection_and_a_connection_for_each_frame_store_the_same(sent: list[bytes], kept: int) -> None:
    together, apart = SteppedBroker(), SteppedBroker()
    client = together.connect()
    with patch("quire.protocols.stomp.heads._MAX_KEPT", kept):
        for frame in sent:
            client.feed(frame)
            apart.connect().feed(frame)
    assert [queue.grouped for queue in together.broker.queues.values()] == [
        queue.grouped for queue in apart.broker.queues.values()
    ]
    assert stored(together) == stored(apart)
