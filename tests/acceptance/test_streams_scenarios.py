"""The scenarios of the benchmarks for streams, with real brokers and few messages."""

import pytest

from tests.acceptance.test_scenarios import broken, found_by, values

pytestmark = pytest.mark.slow


def test_a_stream_is_taken_once_and_leaves_no_lag() -> None:
    found = found_by("stream", "--messages", "5000")
    assert broken(found) == []
    assert values(found)["appended_per_s"] > 0
    assert values(found)["consumed_per_s"] > 0


def test_nobody_notices_a_stuck_message_and_the_lag_is_exact() -> None:
    found = found_by("stuck", "--messages", "4000")
    assert broken(found) == []
    assert values(found)["lags_looked_at"] > 10


def test_every_lease_ends_and_none_early_while_messages_flow() -> None:
    found = found_by("leases", "--count", "2000")
    assert broken(found) == []
    assert values(found)["leases"] == 2000


def test_members_come_and_go_and_no_partition_has_two_owners() -> None:
    found = found_by("rebalance", "--seconds", "20")
    assert broken(found) == []
    assert values(found)["connections"] == 20
    assert values(found)["moves"] > 6
