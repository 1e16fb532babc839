"""Beyond a limit the API says which one."""

import pytest

from quire.testing.stepped import SteppedBroker
from tests.unit.broker.harness import settings
from tests.unit.http.conftest import Api


@pytest.fixture
def full() -> Api:
    """An API that may make a stream and a group of it, and no more; the stream is there."""
    api = Api(SteppedBroker(settings(broker={"max_destinations": 4, "max_durable_subscriptions": 4})))
    assert api.call("PUT", "/streams/s", json={}).status_code == 201
    return api


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "/queues/new", None),
        ("PUT", "/topics/new", None),
        ("PUT", "/streams/new", {}),
        ("PUT", "/durables/c/d", {"topic": "new"}),
        ("POST", "/queues/new/messages", {"body": ""}),
        ("POST", "/topics/new/messages", {"body": ""}),
        ("POST", "/streams/new/messages", {"body": ""}),
        ("POST", "/streams/s/partitions", {"count": 5}),
        ("POST", "/streams/new/groups/g/receive", {}),
    ],
)
def test_no_more_destinations_than_the_limit(full: Api, method: str, path: str, body: dict[str, object] | None) -> None:
    assert full.error(method, path, json=body) == (409, "too-many-destinations")


def test_no_more_groups_than_the_limit(full: Api) -> None:
    assert full.call("POST", "/streams/s/groups/g/receive", json={}).status_code == 200
    assert full.error("POST", "/streams/s/groups/h/receive", json={}) == (409, "too-many-subscriptions")
    assert full.error("POST", "/groups/s/g/clone", json={"to": "h"}) == (409, "too-many-subscriptions")


def test_metrics_tell_how_many_there_are(full: Api) -> None:
    text = full.call("GET", "/metrics", base="").text
    for line in ("quire_destinations 4.0", "quire_destinations_limit 4.0", "quire_durable_subscriptions_limit 4.0"):
        assert f"\n{line}\n" in text
