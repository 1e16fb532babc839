"""Fixtures of the cursor's tests."""

from collections.abc import Callable

import pytest

from tests.unit.cursors.lane import Host, Lane
from tests.unit.cursors.watched_store import ONE, WatchedStore


@pytest.fixture
def store() -> WatchedStore:
    store = WatchedStore()
    store.open()
    return store


@pytest.fixture
def host(store: WatchedStore) -> Host:
    return Host(store=store)


@pytest.fixture
def make_lane(host: Host) -> Callable[[int], Lane]:
    """Make a lane, with consumer, that has room for so many ordinary messages."""

    def make(room: int) -> Lane:
        return Lane(host, room * ONE)

    return make
