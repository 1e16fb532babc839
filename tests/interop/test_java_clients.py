"""Programs with ActiveMQ's own client libraries pass against Quire as they do against ActiveMQ."""

import pytest

from tests.interop.java_client import JavaClient, scenario_names

pytestmark = pytest.mark.slow

COMBINATIONS = [(client, broker) for broker in ("quire", "activemq") for client in ("client5", "client6")]


@pytest.mark.parametrize("scenario", scenario_names())
@pytest.mark.parametrize("java_client", COMBINATIONS, indirect=True, ids="-".join, scope="session")
def test_scenario(java_client: JavaClient, scenario: str) -> None:
    result = java_client.run(scenario)
    if result.result == "skipped":
        pytest.skip(result.text)
    assert result.result == "passed", result.text
