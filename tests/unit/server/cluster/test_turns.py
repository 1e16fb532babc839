"""However much waits for one shard, or for one client of another process, a turn takes only so much of it."""

import asyncio
from typing import Any, cast

import pytest

from quire.cluster.link_frames import Opening
from quire.cluster.virtual_connection import WINDOW, VirtualConnection
from quire.server.cluster.verb_door import JOINED, VirtualTransport
from quire.testing.stepped_cluster import SteppedCluster


class Inside:
    """A protocol that keeps what it is handed, and reads no more behind a piece."""

    def __init__(self) -> None:
        self.handed: list[bytes] = []
        self.transport: VirtualTransport | None = None
        self.reads_one = False

    def data_received(self, data: bytes) -> None:
        self.handed.append(data)
        if self.reads_one and self.transport is not None:
            self.transport.pause_reading()


@pytest.mark.parametrize("size", [10, 5000, JOINED, 2 * JOINED - 1])
def test_what_waits_is_handed_on_in_few_pieces_and_in_order(size: int) -> None:
    inside = Inside()
    transport = VirtualTransport(
        VirtualConnection(Opening("stomp", "", [], "", "")), cast(asyncio.Protocol, inside)
    )  # fmt: skip
    transport.pause_reading()
    sent = [bytes([number % 256]) * size for number in range(WINDOW // size)]
    for data in sent:
        transport.data_came(data)
    assert inside.handed == []
    assert transport.unread == sum(map(len, sent))
    transport.resume_reading()
    assert b"".join(inside.handed) == b"".join(sent)
    assert len(inside.handed) <= 3
    assert transport.unread == 0


def test_what_is_paused_again_keeps_the_rest() -> None:
    inside = Inside()
    transport = VirtualTransport(
        VirtualConnection(Opening("stomp", "", [], "", "")), cast(asyncio.Protocol, inside)
    )  # fmt: skip
    inside.transport = transport
    inside.reads_one = True
    transport.pause_reading()
    for _ in range(4):
        transport.data_came(b"x" * (JOINED // 2))
    transport.resume_reading()
    assert list(map(len, inside.handed)) == [JOINED]
    assert transport.unread == JOINED


def test_clients_that_wait_for_a_shard_go_on_in_steps() -> None:
    cluster = SteppedCluster(2)
    name, clients = cluster.name_at(1), [cluster.connect(0) for _ in range(5)]
    doors: list[Any] = [client.session for client in clients]
    for client in clients:
        client.send(name, b"m")
    cluster.run()
    cluster.cut(1)
    for client in clients:
        for _ in range(12):
            client.send(name, b"x" * 100_000)
    cluster.run()
    assert [door.held for door in doors] == [True] * 5
    for door in doors:
        door.session.go_on()
    assert [door.held for door in doors] == [True] * 5
    assert len(cluster.members[0].broker.core.steps.unstored) == 5
