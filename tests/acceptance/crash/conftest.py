"""Brokers for the crash tests, ended with their test."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.acceptance.crash.broker_process import BrokerProcess


@pytest.fixture(params=["lmdb", "sqlite"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return embedded(request.param, tmp_path)


def embedded(kind: str, directory: Path) -> str:
    return f"lmdb://{directory}/store" if kind == "lmdb" else f"sqlite://{directory}/store.db"


@pytest.fixture
def make_broker(tmp_path: Path) -> Iterator[Callable[..., BrokerProcess]]:
    """Makes brokers, not started, each with a directory of its own; whatever runs at the end is killed."""
    made: list[BrokerProcess] = []

    def make(url: str = "", **settings: str) -> BrokerProcess:
        directory = tmp_path / f"broker-{len(made) + 1}"
        directory.mkdir()
        made.append(BrokerProcess(directory, url, settings))
        return made[-1]

    yield make
    for broker in made:
        broker.kill()
