"""However much waits for one shard, or for one client of another process, a turn takes only so much of it."""

from typing import Any

import pytest

from quire.cluster.link import WINDOW
from quire.server.cluster.verb_door import JOINED, VirtualClient
from quire.testing.stepped_cluster import SteppedCluster


def virtual_client() -> VirtualClient:
    """A client of shard 0, at shard 1."""
    cluster = SteppedCluster(2)
    cluster.connect(0).send(cluster.name_at(1), b"m")
    cluster.run()
    (client,) = [each for each in cluster.members[1].sessions if isinstance(each, VirtualClient)]
    return client


@pytest.mark.parametrize("size", [10, 5000, JOINED, 2 * JOINED - 1])
def test_what_waits_is_handed_on_in_few_pieces_and_in_order(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    client, handed = virtual_client(), list[bytes]()
    monkeypatch.setattr(client, "data_received", handed.append)
    client.pause_reading("a test")
    sent = [bytes([number % 256]) * size for number in range(WINDOW // size)]
    for data in sent:
        client.data_came(data)
    assert handed == []
    assert client.unread == sum(map(len, sent))
    client.resume_reading("a test")
    assert b"".join(handed) == b"".join(sent)
    assert len(handed) <= 3


def test_what_is_paused_again_keeps_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    client, handed = virtual_client(), list[bytes]()

    def take(data: bytes) -> None:
        handed.append(data)
        client.pause_reading("a test")

    monkeypatch.setattr(client, "data_received", take)
    client.pause_reading("a test")
    for _ in range(4):
        client.data_came(b"x" * (JOINED // 2))
    client.resume_reading("a test")
    assert list(map(len, handed)) == [JOINED]
    assert client.unread == JOINED


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
