"""Programs with ActiveMQ's own client libraries pass against a cluster as they do against one broker."""

import pytest

from tests.interop.java_client import JavaClient, scenario_names

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.mark.parametrize("scenario", scenario_names())
@pytest.mark.parametrize(
    "java_client", [("client5", "cluster"), ("client6", "cluster")], indirect=True, ids="-".join, scope="session"
)
def test_scenario(java_client: JavaClient, scenario: str) -> None:
    result = java_client.run(scenario)
    if result.result == "skipped":
        pytest.skip(result.text)
    assert result.result == "passed", result.text
