"""The API's settings, policies, log and store."""

import asyncio
import logging
from dataclasses import replace

import pytest

from quire import logs
from quire.errors import StoreFull
from quire.http import services as services_module
from quire.http.services import RecentEvents
from quire.logs import event
from quire.testing.stepped import SteppedBroker
from tests.unit.broker.harness import settings
from tests.unit.http.conftest import Api

ENTRIES = [
    {"destination": "orders.>", "maximum_redeliveries": 3, "redelivery_delay": 2},
    {"destination": "queue://orders.late", "maximum_redeliveries": 9},
    {"destination": "topic://orders.late", "maximum_redeliveries": 1},
]


@pytest.fixture
def ruled() -> Api:
    return Api(SteppedBroker(settings(policies=ENTRIES)))


def test_policies_are_listed_with_what_holds_everywhere(ruled: Api) -> None:
    found = ruled.call("GET", "/policies").json()
    base = {row["key"]: row for row in found["base"]}
    assert (base["maximum_redeliveries"]["value"], base["maximum_redeliveries"]["origin"]) == (6, "default")
    assert base["maximum_redeliveries"]["text"]
    assert {row["destination"]: row["values"].get("maximum_redeliveries") for row in found["entries"]} == {
        "orders.>": 3, "queue://orders.late": 9, "topic://orders.late": 1,
    }  # fmt: skip


def test_the_policy_of_a_name_says_which_entry_decides(ruled: Api) -> None:
    found = ruled.call("GET", "/policies/queue/orders.late").json()
    assert [(row["destination"], row["applies"], row["overridden"]) for row in found["entries"]] == [
        ("queue://orders.late", ["maximum_redeliveries"], []),
        ("orders.>", ["redelivery_delay"], ["maximum_redeliveries"]),
    ]
    values = {row["key"]: (row["value"], row["origin"]) for row in found["values"]}
    assert values["maximum_redeliveries"] == (9, "policy queue://orders.late (test, entry 2)")
    assert values["redelivery_delay"] == (2, "policy orders.> (test, entry 1)")
    assert values["back_off_multiplier"] == (5, "default")
    assert ruled.call("GET", "/policies/queue/other").json()["entries"] == []
    assert ruled.error("GET", "/policies/planet/x") == (400, "invalid-argument")
    assert ruled.error("GET", "/policies/queue/%00") == (400, "invalid-destination")


def test_settings_are_told_without_the_password_of_the_store(api: Api) -> None:
    service = api.service
    store = replace(service.settings.store, url="postgresql+psycopg://me:hush@host/db")
    service.settings = replace(service.settings, store=store)
    answer = api.call("GET", "/settings")
    assert "hush" not in answer.text
    found = {row["key"]: row for row in answer.json()["settings"]}
    assert found["store.url"]["value"].endswith("@host/db")
    assert (found["stomp.max_body"]["value"], found["stomp.max_body"]["is_default"]) == (1000, False)
    assert found["broker.name"]["is_default"]
    assert not [key for key in found if key.startswith("policy.")]


def test_the_log_is_told_page_by_page(api: Api) -> None:
    events = api.application.services.events
    logs.watch(events)
    try:
        for number in range(5):
            event("test.happened", f"event {number}", logging.WARNING, number=number, long="x" * 5000)
        first = api.call("GET", "/log", params={"limit": 3}).json()
        rest = api.call("GET", "/log", params={"after": first["next"]}).json()
        assert [row["text"] for row in first["events"] + rest["events"]] == [f"event {number}" for number in range(5)]
        row = first["events"][1]
        assert (row["event"], row["level"], row["data"]["number"]) == ("test.happened", "warning", "1")
        assert len(row["data"]["long"]) == services_module.MOST_TEXT
        assert not rest["lost"]
        assert api.call("GET", "/log", params={"after": 99}).json() == {"events": [], "next": 99, "lost": False}
    finally:
        logs.unwatch(events)


def test_the_log_keeps_the_last_events_and_says_that_others_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services_module, "MOST", 3)
    events = RecentEvents()
    for number in range(5):
        events.emit(logging.makeLogRecord({"msg": f"event {number}"}))
    found, lost = events.behind(0, 10)
    assert ([row.number for row in found], lost) == ([3, 4, 5], True)
    assert events.behind(2, 10)[1] is False


def test_the_store_tells_its_space_and_limits(api: Api) -> None:
    api.call("POST", "/queues/q/messages", json={"body": "b", "count": 3})
    found = api.call("GET", "/store").json()
    assert (found["url"], found["writable"], found["error"], found["last_verify"]) == ("memory:", True, None, None)
    assert found["messages"]["used"] == api.stepped.broker.core.stored_bytes
    assert (found["lanes"], found["destinations"]) == (1, 1)
    api.stepped.broker.core.refuse(StoreFull("full"))
    assert api.call("GET", "/store").json()["error"] == "full"


def test_a_store_in_memory_is_not_checked(api: Api) -> None:
    assert api.error("POST", "/store/verify") == (400, "invalid-argument")


def test_a_store_is_checked_once_at_a_time(api: Api) -> None:
    verification = api.application.services.verification
    verification._url, verification._runs = "lmdb:///nowhere", True
    assert api.error("POST", "/store/verify") == (409, "illegal-state")


@pytest.mark.slow
def test_a_store_that_is_not_there_fails_its_check(api: Api) -> None:
    """With a process, as it is in life."""
    verification = api.application.services.verification
    verification._url = "lmdb:///nowhere-at-all"

    async def run() -> str:
        started = (await api._call("POST", "/api/v1/store/verify", {})).json()["operation"]
        while True:
            found = (await api._call("GET", f"/api/v1/operations/{started['id']}", {})).json()
            if found["state"] != "running":
                return f"{found['state']}: {found['error']}"
            await asyncio.sleep(0.01)

    assert asyncio.run(run()).startswith("failed: the store could not be checked: there is no store")
