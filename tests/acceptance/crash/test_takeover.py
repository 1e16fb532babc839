"""Two brokers on one PostgreSQL with a replica: whatever is killed, stopped or cut off, one alone is the owner.

``python -m benchmarks.takeover`` does the same for as long as one likes, and says how long takeovers take.
"""

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.takeover.pair import Network
from benchmarks.takeover.run import Plan, run
from tests.postgresql_server import NoServer, find_account, find_programs

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(600)]


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """A directory that servers may enter, which run as another user: pytest's own is closed to them."""
    try:
        find_programs()
        find_account()
    except NoServer as error:
        pytest.skip(str(error))
    directory = Path(tempfile.mkdtemp(prefix="quire-takeover-"))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


def test_one_owner_at_a_time_and_nothing_lost(open_directory: Path) -> None:
    kinds = ["kill", "suspend", "cut-commits", "partition", "stop"]
    result = asyncio.run(run(Plan(len(kinds), 1, kinds), open_directory))
    moved = {outage.kind for outage in result.outages if outage.moved}
    assert moved >= {"kill", "suspend", "partition", "stop"}
    assert result.commits.owners >= [outage.moved for outage in result.outages].count(True) >= len(moved)
    assert result.commits.commits > 100  # it goes on all the time; or there was no load worth the name
    assert result.confirmed > 500
    assert result.lost_commits
    assert result.commits.decided > 0


def test_servers_fail_over_and_nothing_lost(open_directory: Path) -> None:
    """The primary is killed and its replica promoted, there and back; and once the promotion comes first."""
    kinds = ["fail-over", "promote"]
    result = asyncio.run(run(Plan(3, 1, kinds), open_directory))
    assert {outage.kind for outage in result.outages} == set(kinds)
    assert result.commits.decided > 0  # commits whose server was lost
    assert result.confirmed > 500


def test_lost_machine_is_replaced(open_directory: Path) -> None:
    if not Network.is_possible():
        pytest.skip("no machine can be lost here: a network for it takes root and ip(8)")
    result = asyncio.run(run(Plan(1, 1, ["dead-host"]), open_directory))
    assert [outage.moved for outage in result.outages] == [True]
