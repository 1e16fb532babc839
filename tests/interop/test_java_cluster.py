"""Programs with ActiveMQ's own client libraries pass against a cluster as they do against one broker."""

import pytest

from tests.interop.java_client import JavaClient, scenario_names

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

# A restart of a cluster takes seconds, and both lines connect again in the same way: one of them is enough for that.
CASES = [
    pytest.param((client, "cluster"), name, id=f"{client}-{name}")
    for client in ("client5", "client6")
    for name in scenario_names()
    if client == "client6" or not name.startswith("Restarts.")
]


SPANNING = {
    "Destinations.aCompositeIsSentToInATransaction",
    "Restarts.anOpenTransactionIsReplayedOrRolledBack",
    "Restarts.committedIsCommitted",
    "Transactions.aMessageIsForwardedOnceOrNotAtAll",
    "Transactions.oneCommitIsForAllConsumersOfTheSession",
}
"""Scenarios with a local transaction about two destinations, which are at two shards here most of the time."""


@pytest.mark.parametrize(("java_client", "scenario"), CASES, indirect=["java_client"], scope="session")
def test_scenario(java_client: JavaClient, scenario: str) -> None:
    if scenario in SPANNING:
        pytest.skip("a local transaction over several shards is refused")
    result = java_client.run(scenario)
    if result.result == "skipped":
        pytest.skip(result.text)
    assert result.result == "passed", result.text
