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


@pytest.mark.parametrize(("java_client", "scenario"), CASES, indirect=["java_client"], scope="session")
def test_scenario(java_client: JavaClient, scenario: str) -> None:
    result = java_client.run(scenario)
    if result.result == "skipped":
        pytest.skip(result.text)
    assert result.result == "passed", result.text
