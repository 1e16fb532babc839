"""Stores with messages for reads."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from quire.message import Message
from quire.store.base import Store, StoredDestination, WriteBatch
from quire.store.urls import store_for_url

START = 1_700_000_000_000
"""When the first message was sent: 2023-11-14 22:13:20 UTC. The one with sequence n is n seconds younger."""


def message(sequence: int, text: str = "body", *, priority: int = 4) -> Message:
    """A message with the headers ``key`` and ``n``, and the body ``body N``."""
    at = START + 1000 * sequence
    head = b"message-id:ID\\c%d\ntimestamp:%d\nkey:k%d\nn:%d\n\n" % (sequence, at, sequence % 3, sequence)
    return Message(sequence, head + f"{text} {sequence}".encode(), priority=priority)


@contextmanager
def opened(url: str) -> Iterator[Store]:
    store = store_for_url(url)
    store.open()
    try:
        yield store
    finally:
        store.close()


def fill(store: Store, lanes: Mapping[str, Iterable[Iterable[Message]]], *, first: int = 1) -> None:
    number = first
    for address, contents in lanes.items():
        kind, _, name = address.partition("://")
        filled = [list(messages) for messages in contents]
        batch = WriteBatch()
        ids = tuple(range(number, number + len(filled)))
        batch.destinations[number] = StoredDestination(number, kind, name, {}, ids)
        for lane, messages in zip(ids, filled, strict=True):
            batch.lane(lane).appends = messages
        store.apply(batch)
        number += len(filled)


def append(store: Store, lane: int, messages: list[Message]) -> None:
    batch = WriteBatch()
    batch.lane(lane).appends = messages
    store.apply(batch)


def remove(store: Store, lane: int, sequences: Iterable[int]) -> None:
    batch = WriteBatch()
    batch.lane(lane).removals = list(sequences)
    store.apply(batch)
