"""Brokers, of clusters too, with a planted fault: ``python -m benchmarks.takeover.planted FAULT broker start ...``.

They are here to be found out. A run with one of them has to fail, each with another one of its checks.
"""

import os
import runpy
import sys
from collections.abc import Callable
from typing import Any

from quire.cli.main import main
from quire.message import Message
from quire.server.cluster import broker_process
from quire.store.base import LaneBatch, WriteBatch
from quire.store.postgresql import commit as commit_module
from quire.store.postgresql import ownership
from quire.store.postgresql.commit import Committer

EVERY = 20
"""Every so many commits a fault happens that would be found at once otherwise."""

_ANY_EPOCH = (
    "UPDATE {p}owner SET commit = commit + 1 + $1::int8 - $1::int8 WHERE id = $2::int8 - $2::int8 + 1 RETURNING 1"
)


def two_owners() -> None:
    """Commits of any epoch pass, and the owner before is not disconnected."""
    commit_module._FENCE = _ANY_EPOCH
    ownership._TERMINATE = "SELECT {pid} < 0"


def lost() -> None:
    """Some messages are confirmed and not stored."""

    def lose(part: LaneBatch) -> None:
        part.removals += [message.sequence for message in part.appends[-1:]]

    _spoil(lambda batch: _each(batch, lose), EVERY)


def back() -> None:
    """Some acknowledgements are confirmed and not stored."""
    _spoil(lambda batch: _each(batch, lambda part: part.removals.clear()), EVERY)


def unflagged() -> None:
    """It is not stored which messages may have been delivered."""

    def forget(part: LaneBatch) -> None:
        part.dispatch_mark = None
        part.deliveries.clear()

    _spoil(lambda batch: _each(batch, forget))


def twice() -> None:
    """It is not stored what producers have sent that number their messages."""
    _spoil(lambda batch: batch.producers.clear())


def disorder() -> None:
    """The contents of neighbours are stored in the wrong order."""

    def swap(part: LaneBatch) -> None:
        for place in range(0, len(part.appends) - 1, 2):
            first, second = part.appends[place : place + 2]
            part.appends[place] = Message(first.sequence, second.content, first.expiration, first.priority)
            part.appends[place + 1] = Message(second.sequence, first.content, second.expiration, second.priority)

    _spoil(lambda batch: _each(batch, swap))


FAULTS = {fault.__name__.replace("_", "-"): fault for fault in (two_owners, lost, back, unflagged, twice, disorder)}
"""By their names on the command line."""


def _each(batch: WriteBatch, spoil: Callable[[LaneBatch], None]) -> None:
    for part in batch.lanes.values():
        spoil(part)


def _spoil(spoil: Callable[[WriteBatch], None], every: int = 1) -> None:
    """Have something done to every so many batches before they are written."""
    write, number = Committer.write, 0

    def spoil_and_write(writer: Committer, batch: WriteBatch) -> None:
        nonlocal number
        number += 1
        if number % every == 0:
            spoil(batch)
        write(writer, batch)

    Committer.write = spoil_and_write  # type: ignore[method-assign, assignment]


PLANTED = [sys.executable, "-m", "benchmarks.takeover.planted"]
"""What runs the command line of such a broker; the fault is named next."""

FAULT = "PLANTED_FAULT"
"""The environment variable that names the fault to the processes of shards."""


def _run(settings: Any, file: Any, flags: Any, module: str, console: Any) -> int:
    """Run a broker of a cluster with this module for the processes of its shards."""
    assert module == "quire.http.shard"
    return run(settings, file, flags, "benchmarks.takeover.planted", console)


if __name__ == "__main__":
    if FAULT in os.environ:
        FAULTS[os.environ[FAULT]]()
        runpy.run_module("quire.http.shard", run_name="__main__")
    else:
        run, broker_process.run = broker_process.run, _run
        os.environ[FAULT] = sys.argv.pop(1)
        FAULTS[os.environ[FAULT]]()
        main()
