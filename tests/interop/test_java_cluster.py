"""Programs with ActiveMQ's own client libraries pass against a cluster as they do against one broker."""

import pytest

from tests.interop.java_client import JavaClient, scenario_names

pytestmark = pytest.mark.slow

# A restart of a cluster takes seconds, and both lines connect again in the same way: one of them is enough for that.
RESTARTS = [name for name in scenario_names() if name.startswith("Restarts.")]
OTHERS = [name for name in scenario_names() if name not in RESTARTS]


@pytest.mark.parametrize("scenario", OTHERS)
@pytest.mark.parametrize(
    "java_client", [("client5", "cluster"), ("client6", "cluster")], indirect=True, ids="-".join, scope="session"
)
def test_scenario(java_client: JavaClient, scenario: str) -> None:
    passes(java_client, scenario)


@pytest.mark.parametrize("scenario", RESTARTS)
@pytest.mark.parametrize("java_client", [("client6", "cluster")], indirect=True, ids="-".join, scope="session")
def test_restart(java_client: JavaClient, scenario: str) -> None:
    passes(java_client, scenario)


def passes(java_client: JavaClient, scenario: str) -> None:
    result = java_client.run(scenario)
    if result.result == "skipped":
        pytest.skip(result.text)
    assert result.result == "passed", result.text
