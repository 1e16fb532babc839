"""The tables of a cluster."""

from typing import Any

from sqlalchemy import BigInteger, Boolean, Column, Double, Integer, LargeBinary, MetaData, Table, Text

from quire.cluster.view import BrokerRow, ShardRow

SCHEMA = "quire_cluster"
"""The schema of the tables, in the database of the cluster."""

metadata = MetaData(schema=SCHEMA)

cluster = Table(
    "cluster",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("shards", Integer, nullable=False),
    Column("secret", LargeBinary, nullable=False),  # by which links know each other; random, made once
    Column("stores", Text, nullable=False),  # the databases of the shards, separated by spaces
    Column("formed", Double, nullable=False),
)
brokers = Table(
    "brokers",
    metadata,
    Column("name", Text, primary_key=True),
    Column("run", Text, nullable=False),  # random, by the run of the broker's process
    Column("stomp", Text, nullable=False),
    Column("openwire", Text, nullable=False),
    Column("http", Text, nullable=False),
    Column("version", Text, nullable=False),
    Column("placement", Text, nullable=False),  # a digest of the settings that placement depends on
    Column("standing_by", Text, nullable=False),  # shards that it waits for, separated by spaces
    Column("leaving", Boolean, nullable=False),
    Column("expires", Double, nullable=False),  # by the clock of the server
)
shards = Table(
    "shards",
    metadata,
    Column("shard", Integer, primary_key=True, autoincrement=False),
    Column("broker", Text, nullable=False),  # the last owner
    Column("epoch", BigInteger, nullable=False),
    Column("address", Text, nullable=False),  # where it takes links; empty once it has stopped
    Column("http", Text, nullable=False),
    Column("pid", BigInteger, nullable=False),
    Column("since", Double, nullable=False),
    Column("preferred", Text, nullable=False),  # the broker where an operator wants it
)
pins = Table(
    "pins",
    metadata,
    Column("key", Text, primary_key=True),
    Column("destination", Text, nullable=False),
    Column("shard", Integer, nullable=False),
    Column("version", BigInteger, nullable=False),  # how often the key was given from one shard to another
)


def broker_row(row: Any) -> BrokerRow:
    return BrokerRow(
        row.name, row.run, row.stomp, row.openwire, row.http, row.version, row.placement,
        frozenset(map(int, row.standing_by.split())), row.leaving,
    )  # fmt: skip


def shard_row(row: Any) -> ShardRow:
    return ShardRow(row.shard, row.broker, row.epoch, row.address, row.http, row.pid, row.since, row.preferred)
