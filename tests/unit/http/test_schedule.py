"""The API's schedule."""

import pytest

from tests.unit.http.conftest import Api


def schedule(api: Api, **headers: str) -> str:
    """Send a message later; its id in the schedule."""
    api.call("POST", "/queues/q/messages", json={"body": "b", "headers": headers})
    id: str = api.call("GET", "/schedule?limit=1000").json()["messages"][-1]["id"]
    return id


def test_scheduled_messages_are_listed(api: Api) -> None:
    id = schedule(api, AMQ_SCHEDULED_DELAY="60000", AMQ_SCHEDULED_PERIOD="1000", AMQ_SCHEDULED_REPEAT="3")
    page = api.call("GET", "/schedule").json()
    (message,) = page["messages"]
    assert page["next"] is None
    assert (message["id"], message["destination"]) == (id, "/queue/q")
    assert message["due"] == api.stepped.clock.now_ms() + 60_000
    assert (message["delay"], message["period"], message["repeat"], message["left"]) == (60_000, 1000, 3, 3)


def test_schedule_comes_in_pages(api: Api) -> None:
    ids = [schedule(api, AMQ_SCHEDULED_DELAY="60000") for _ in range(3)]
    first = api.call("GET", "/schedule?limit=2").json()
    rest = api.call("GET", f"/schedule?limit=2&after={first['next']}").json()
    assert [message["id"] for page in (first, rest) for message in page["messages"]] == ids
    assert rest["next"] is None
    assert api.error("GET", "/schedule?after=x") == (400, "invalid-argument")


def test_cancelled_message_is_never_sent(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    cancelled, kept = (schedule(api, AMQ_SCHEDULED_DELAY="1000") for _ in range(2))
    with caplog.at_level("INFO", "quire"):
        assert api.call("DELETE", f"/schedule/{cancelled}").json() == {"cancelled": cancelled}
    (record,) = caplog.records
    assert (record.event, record.data["id"]) == ("schedule.cancelled", cancelled)  # type: ignore[attr-defined]
    assert [message["id"] for message in api.call("GET", "/schedule").json()["messages"]] == [kept]
    assert api.error("DELETE", f"/schedule/{cancelled}") == (404, "unknown-message")
    api.stepped.advance(2)
    api.stepped.run()
    assert api.stepped.queue("q").depth == 1


def test_messages_are_cancelled_by_time(api: Api) -> None:
    now = api.stepped.clock.now_ms()
    for delay in ("1000", "5000", "9000"):
        schedule(api, AMQ_SCHEDULED_DELAY=delay)
    assert api.call("DELETE", f"/schedule?earliest={now + 2000}&latest={now + 6000}").json() == {"removed": 1}
    assert api.call("DELETE", "/schedule").json() == {"removed": 2}
    assert api.call("GET", "/schedule").json() == {"messages": [], "next": None, "total": 0}
