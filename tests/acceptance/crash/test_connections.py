"""A broker on PostgreSQL goes on when its connections are cut and its server dies: nothing is lost or forgotten."""

import asyncio
from pathlib import Path

import pytest

from tests.acceptance.crash.connections import Cuts, cut_connections
from tests.postgresql_server import PostgresqlServer

pytestmark = pytest.mark.slow


def test_connections_may_be_cut_at_any_time(postgresql_server: PostgresqlServer, tmp_path: Path) -> None:
    load, cutter = asyncio.run(cut_connections(postgresql_server, Cuts(12, seed=1), tmp_path))
    assert cutter.cut > 10
    assert load.confirmed > 100  # it goes on as if nothing were; or there was no load worth the name


def test_server_may_be_killed(postgresql_server: PostgresqlServer, tmp_path: Path) -> None:
    cuts = Cuts(8, seed=2, every=(0.3, 1.0), kill_every=3)
    load, cutter = asyncio.run(cut_connections(postgresql_server, cuts, tmp_path))
    assert cutter.killed >= 1
    assert load.confirmed > 20
