"""What must hold of a cluster, at any time or when it has come to rest."""

from collections.abc import Iterable

from quire.destination import queue as queue_destination
from tests.simulation.cluster.client import ClusterClient
from tests.simulation.cluster.setup import ALL_QUEUES, TOPIC
from tests.simulation.cluster.shard_database import ShardDatabase
from tests.simulation.cluster.shard_process import ShardProcess
from tests.simulation.rules import Broken, Rule


def check_commits(databases: Iterable[ShardDatabase]) -> None:
    """At any time: each commit was made by the owner of that time."""
    for shard, database in enumerate(databases):
        for commit in database.commits:
            if commit.epoch != commit.owner:
                raise Broken(Rule.FENCED, f"{commit.epoch} commits to shard {shard} in epoch {commit.owner}")
        database.commits.clear()


def check_answered(clients: Iterable[ClusterClient]) -> None:
    """Long after the last fault: every receipt has come."""
    for client in clients:
        if client.receipts:
            raise Broken(Rule.STALL, f"{client.name} waits for {list(client.receipts)}")


def check_consumed(owners: Iterable[ShardProcess], clients: Iterable[ClusterClient]) -> None:
    """Long after the last fault, when consumers have settled what they had: they have got all there was."""
    queues = {client.subscribed.queue for client in clients if client.subscribed}
    for owner in owners:
        for name, queue in owner.stepped.broker.queues.items():
            if queue.depth and queues & {name, ALL_QUEUES}:
                raise Broken(Rule.STALL, f"{queue.depth} messages wait in {name}, which has a consumer")
        for durable in owner.stepped.broker.durables:
            if durable.depth and TOPIC in queues:
                raise Broken(Rule.STALL, f"{durable.depth} messages wait for the durable subscription, which is in use")


def check_places(owners: Iterable[ShardProcess]) -> None:
    """Long after the last fault: clients look for each queue where it is."""
    for owner in owners:
        for name in owner.stepped.broker.queues:
            shard = owner.stepped.cluster_map.shard_of(queue_destination(name))
            if shard != owner.shard:
                raise Broken(Rule.PLACE, f"{name} is at shard {owner.shard}, clients look for it at shard {shard}")


def check_empty(owner: ShardProcess) -> None:
    """At the end, when everything is consumed: nothing is left anywhere."""
    core = owner.stepped.broker.core
    clients = [session for session in owner.stepped.sessions.values() if not session.is_closed]
    left = {
        "stored": owner.store.size(), "counted": core.stored_bytes, "resident": core.memory.used,
        "transacted": core.transaction_bytes, "held": len(core.flow.holds), "clients": len(clients),
        "branches": len(owner.stepped.broker.xa.spanning), "decisions": len(owner.stepped.shared.decisions.open),
    }  # fmt: skip
    if any(left.values()):
        raise Broken(Rule.LEFT, f"everything is consumed, and something is left at shard {owner.shard}: {left}")
