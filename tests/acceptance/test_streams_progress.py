"""The message that is stuck while all others are done, and then somebody is killed: with real processes."""

import pytest

from tests.acceptance.test_scenarios import broken, found_by, values

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("store", ["lmdb", "sqlite"])
def test_only_what_was_stuck_comes_again(store: str) -> None:
    found = found_by("progress", "--store", store)
    assert broken(found) == []
    seen = values(found)
    assert seen["consumer_killed_again"] == 1
    assert seen["broker_killed_and_told_again"] == 0
    assert seen["broker_killed_again"] == 1
    assert seen["both_killed_again"] == 1
