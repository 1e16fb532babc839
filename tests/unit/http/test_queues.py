"""The API's queues."""

import asyncio

import pytest

from quire.errors import StoreFull
from tests.unit.broker.harness import consumer
from tests.unit.http.conftest import Api


def fill(api: Api, count: int, name: str = "q") -> None:
    assert api.call("POST", f"/queues/{name}/messages", json={"body": "b", "count": count}).status_code == 201


def test_queue_has_all_that_the_command_line_shows(api: Api) -> None:
    fill(api, 3)
    consumer(api.stepped, prefetchSize="2")
    (queue,) = api.call("GET", "/queues").json()["queues"]
    assert queue == api.call("GET", "/queues/q").json()
    assert (queue["name"], queue["depth"], queue["in_flight"], queue["consumers"]) == ("q", 3, 2, 1)
    assert {
        "bytes", "resident_bytes", "enqueued", "dequeued", "dispatched", "redelivered", "expired", "dead_lettered",
        "oldest_message_age_seconds", "paused", "producers_held", "blocked",
    } <= set(queue)  # fmt: skip
    assert queue["subscriptions"][0]["connection"] == "client-1"


def test_created_queue_is_durable_before_the_answer(api: Api) -> None:
    answer = api.call("PUT", "/queues/new")
    assert (answer.status_code, answer.json()["depth"]) == (201, 0)
    assert [stored.name for stored in api.stepped.store.destinations()] == ["new"]
    assert api.error("PUT", "/queues/new") == (409, "destination-exists")


@pytest.mark.parametrize(
    ("path", "name"),
    [("a%2Fb", "a/b"), ("a%20b", "a b"), ("gr%C3%B6%C3%9Fe", "größe"), ("a%252Fb", "a%2Fb"), ("q%23x", "q#x")],
)
def test_names_are_percent_encoded_in_the_path(api: Api, path: str, name: str) -> None:
    assert api.call("PUT", f"/queues/{path}").json()["name"] == name
    assert api.call("POST", f"/queues/{path}/purge").json() == {"removed": 0, "next": None}
    assert list(api.stepped.broker.queues) == [name]


def test_name_that_is_no_name_is_refused(api: Api) -> None:
    assert api.error("PUT", "/queues/%FF") == (400, "invalid-destination")
    assert api.error("PUT", "/queues/%00") == (400, "invalid-destination")
    assert api.error("PUT", f"/queues/{'x' * 501}") == (400, "invalid-destination")


def test_unknown_queue_is_not_found(api: Api) -> None:
    assert api.error("GET", "/queues/none") == (404, "unknown-destination")
    assert api.error("POST", "/queues/none/purge") == (404, "unknown-destination")


def test_delete_needs_force_while_there_are_consumers(api: Api) -> None:
    fill(api, 2)
    client = consumer(api.stepped)
    assert api.error("DELETE", "/queues/q") == (409, "destination-in-use")
    assert api.error("DELETE", "/queues/q?force=perhaps") == (400, "invalid-argument")
    assert api.call("DELETE", "/queues/q?force=true").json() == {"removed": 2}
    assert client.connection.closed
    assert api.stepped.store.destinations() == []


def test_purge_says_how_many_it_removed_when_they_are_gone(api: Api) -> None:
    fill(api, 2500)
    assert api.call("POST", "/queues/q/purge").json() == {"removed": 2500, "next": None}
    assert api.stepped.store.lane_state(api.stepped.queue("q").lanes[0].id).count == 0


def test_pause_and_resume_answer_with_the_queue(api: Api) -> None:
    fill(api, 1)
    paused = api.call("POST", "/queues/q/pause").json()
    assert paused["paused"]
    assert paused["blocked"]["cause"] == "paused"
    assert api.stepped.store.destinations()[0].settings["paused"] is True
    assert not api.call("POST", "/queues/q/resume").json()["paused"]


def test_change_that_the_store_refuses_is_an_error(api: Api) -> None:
    fill(api, 1)
    run, api.stepped.run = api.stepped.run, lambda: None  # type: ignore[method-assign]

    async def purge_on_a_full_disk() -> int:
        call = asyncio.ensure_future(api._call("POST", "/api/v1/queues/q/purge", {}))
        while api.stepped.writer.batch is None:
            await asyncio.sleep(0)
            api.stepped.turn()
        api.stepped.commit(StoreFull("full"))
        return (await call).status_code

    assert asyncio.run(purge_on_a_full_disk()) == 507
    api.stepped.run = run  # type: ignore[method-assign]
    api.stepped.advance(2)
    api.stepped.run()
    assert api.stepped.store.lane_state(api.stepped.queue("q").lanes[0].id).count == 0


def test_long_change_ends_early_when_the_broker_stops(api: Api) -> None:
    fill(api, 2500)
    api.service.ask_stop()
    assert api.error("POST", "/queues/q/purge") == (503, "broker-stopping")
    assert api.stepped.queue("q").depth == 1500


# Message groups.


def test_groups_are_listed_with_their_consumers_and_closed_one_by_one(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    client, other = consumer(api.stepped, prefetchSize="1"), consumer(api.stepped)
    for group in ("a/b", "c", "a/b"):
        api.call("POST", "/queues/q/messages", json={"body": group, "headers": {"JMSXGroupID": group}})
    page = api.call("GET", "/queues/q/groups").json()
    assert page == {
        "groups": [
            {
                "name": "a/b", "connection": "client-1", "subscription": "0", "in_flight": 1, "parked": 1,
                "moving": False,
            },
            {
                "name": "c", "connection": "client-2", "subscription": "0", "in_flight": 1, "parked": 0,
                "moving": False,
            },
        ],
        "next": None,
    }  # fmt: skip
    with caplog.at_level("INFO", "quire"):
        assert api.call("DELETE", "/queues/q/groups/a%2Fb").json() == {"closed": "a/b"}
    (record,) = caplog.records
    assert (record.event, record.data["group"], record.data["queue"]) == ("group.closed", "a/b", "q")  # type: ignore[attr-defined]
    assert client.messages() == [b"a/b"]
    api.stepped.run()
    assert other.messages() == [b"c", b"a/b"]
    assert api.error("DELETE", "/queues/q/groups/none") == (404, "unknown-group")


def test_groups_come_in_pages(api: Api) -> None:
    consumer(api.stepped)
    for group in ("c", "a", "b"):
        api.call("POST", "/queues/q/messages", json={"body": "", "headers": {"JMSXGroupID": group}})
    first = api.call("GET", "/queues/q/groups?limit=2").json()
    assert ([group["name"] for group in first["groups"]], first["next"]) == (["a", "b"], "b")
    rest = api.call("GET", "/queues/q/groups?limit=2&after=b").json()
    assert ([group["name"] for group in rest["groups"]], rest["next"]) == (["c"], None)
    assert api.error("GET", "/queues/q/groups?limit=0") == (400, "invalid-argument")
    assert api.error("GET", "/queues/none/groups") == (404, "unknown-destination")


def test_what_an_operator_changes_is_logged_with_who_did_it(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "quire"):
        api.call("PUT", "/queues/q")
        fill(api, 3)
        api.call("POST", "/queues/q/pause")
        api.call("POST", "/queues/q/resume")
        api.call("DELETE", "/queues/q")
    audit = [(record.event, record.data) for record in caplog.records]  # type: ignore[attr-defined]
    by = {"by": "127.0.0.1:123"}
    assert audit == [
        ("queue.created", {"queue": "q", **by}), ("queue.paused", {"queue": "q", **by}),
        ("queue.resumed", {"queue": "q", **by}), ("queue.deleted", {"queue": "q", "messages": 3, "whole": True, **by}),
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["queues", "topics", "streams"])
def test_lists_come_in_pages_by_name(api: Api, kind: str) -> None:
    for number in range(7):
        assert api.call("PUT", f"/{kind}/n{number}").status_code == 201
    names: list[str] = []
    after: str | None = ""
    while after is not None:
        page = api.call("GET", f"/{kind}", params={"limit": 3, "after": after}).json()
        names += [entry["name"] for entry in page[kind]]
        after = page["next"]
        if after == "n2":  # it goes, and another one comes
            api.call("DELETE", f"/{kind}/n2")
            api.call("PUT", f"/{kind}/n3a")
    assert names == ["n0", "n1", "n2", "n3", "n3a", "n4", "n5", "n6"]
    assert api.error("GET", f"/{kind}", params={"limit": 1001})[1] == "invalid-argument"


def test_a_long_list_is_made_in_pieces(api: Api) -> None:
    for number in range(300):
        api.stepped.queue(f"q{number:03d}")
    before = sum(api.stepped.broker.core.meter.counts)
    page = api.call("GET", "/queues", params={"limit": 300}).json()
    assert (len(page["queues"]), page["next"]) == (300, None)
    assert sum(api.stepped.broker.core.meter.counts) - before >= 300 / 20
