"""Actions that are tried out first, and operations in the background."""

import asyncio
from typing import Any

import pytest

from quire.http import operations
from quire.http import operations as operations_module
from quire.http.operations import Operations
from tests.unit.broker.harness import consumer, letter
from tests.unit.http.conftest import Api
from tests.unit.http.test_schedule import schedule


def fill(api: Api, count: int, name: str = "q", **message: Any) -> None:
    api.call("POST", f"/queues/{name}/messages", json={"body": "b", "count": count, **message})


def depth(api: Api, name: str = "q") -> int:
    found: int = api.call("GET", f"/queues/{name}").json()["depth"]
    return found


def tried(api: Api, method: str, path: str, **request: Any) -> dict[str, Any]:
    answer = api.call(method, path, params={"dry_run": True}, **request)
    assert answer.status_code == 200
    found: dict[str, Any] = answer.json()
    return found


ACTIONS = [
    ("POST", "/queues/q/purge", {"json": {}}, 5), ("POST", "/queues/q/purge", {"json": {"limit": 2}}, 2),
    ("POST", "/queues/q/purge", {"json": {"selector": "a = '1'"}}, 3),
    ("POST", "/queues/q/move", {"json": {"to": "new"}}, 5), ("POST", "/queues/q/copy", {"json": {"to": "new"}}, 5),
    ("POST", "/queues/q/redrive", {"json": {}}, 3), ("DELETE", "/queues/q", {}, 5), ("DELETE", "/topics/t", {}, 1),
    ("DELETE", "/durables/c/d", {}, 1), ("POST", "/durables/c/d/purge", {"json": {}}, 1),
    ("DELETE", "/streams/s", {}, 2), ("DELETE", "/groups/s/g", {}, 2), ("DELETE", "/schedule", {}, 1),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path", "request_", "count"), ACTIONS, ids=lambda value: str(value)[:40])
def test_a_dry_run_counts_and_changes_nothing_and_its_token_does_it(
    api: Api, method: str, path: str, request_: dict[str, Any], count: int
) -> None:
    for _ in range(3):
        letter(api.stepped, "/queue/origin", "q", a="1")
    fill(api, 2)
    api.call("PUT", "/durables/c/d", json={"topic": "t"})
    api.call("POST", "/topics/t/messages", json={"body": "b"})
    api.call("POST", "/streams/s/messages", json={"body": "b", "count": 2})
    api.call("PUT", "/streams/s/groups/g/progress", json={"offsets": {}})
    schedule(api, AMQ_SCHEDULED_DELAY="60000")
    before, names = api.stepped.broker.core.commits_done, set(api.stepped.broker.queues)
    found = tried(api, method, path, **request_)
    assert (found["count"], found["at_least"]) == (count, False)
    assert api.stepped.broker.core.commits_done == before
    assert set(api.stepped.broker.queues) == names
    query = {"token": found["token"], **({"force": True} if path == "/topics/t" else {})}
    if path == "/topics/t":  # with force it is another action
        assert api.error(method, path, params=query, **request_) == (409, "confirmation-mismatch")
        found = api.call(method, path, params={"dry_run": True, "force": True}).json()
        query["token"] = found["token"]
    assert api.call(method, path, params=query, **request_).status_code == 200
    assert api.stepped.broker.core.commits_done > before


def test_a_token_is_for_its_own_request_and_time_only(api: Api) -> None:
    fill(api, 3)
    fill(api, 1, "other")
    token = tried(api, "POST", "/queues/q/purge", json={"limit": 1})["token"]
    refused = (409, "confirmation-mismatch")
    with_token = {"params": {"token": token}}
    assert api.error("POST", "/queues/q/purge", json={"limit": 2}, **with_token) == refused
    assert api.error("POST", "/queues/q/purge", json={}, **with_token) == refused
    assert api.error("POST", "/queues/other/purge", json={"limit": 1}, **with_token) == refused
    assert api.error("DELETE", "/queues/q", **with_token) == refused
    for wrong in ("", "x", token[:-1], "9" * 30 + ".ü", token + "0", "99999999999999." + token.partition(".")[2]):
        assert api.error("POST", "/queues/q/purge", json={"limit": 1}, params={"token": wrong}) == refused
    assert depth(api) == 3
    api.stepped.clock.advance(operations_module.LIFETIME_MS / 1000 + 1)
    assert api.error("POST", "/queues/q/purge", json={"limit": 1}, **with_token) == refused
    token = tried(api, "POST", "/queues/q/purge", json={"limit": 1})["token"]
    assert api.call("POST", "/queues/q/purge", json={"limit": 1}, params={"token": token}).json()["removed"] == 1


@pytest.mark.parametrize("jump", [-86_400.0, 86_400.0])
def test_a_token_lasts_for_its_time_whatever_the_clock_does(api: Api, jump: float) -> None:
    fill(api, 3)
    request: dict[str, Any] = {"json": {"limit": 1}}
    first, second = [tried(api, "POST", "/queues/q/purge", **request)["token"] for _ in range(2)]
    api.stepped.clock.jump(jump)
    assert api.call("POST", "/queues/q/purge", params={"token": first}, **request).json()["removed"] == 1
    api.stepped.clock.advance(operations_module.LIFETIME_MS / 1000 + 1)
    assert api.error("POST", "/queues/q/purge", params={"token": second}, **request) == (409, "confirmation-mismatch")


def test_another_broker_does_not_take_a_token(api: Api) -> None:
    fill(api, 1)
    token = tried(api, "DELETE", "/queues/q")["token"]
    api.application.services.confirmations = operations_module.Confirmations(api.service.clock)
    assert api.error("DELETE", "/queues/q", params={"token": token}) == (409, "confirmation-mismatch")


def test_a_count_that_takes_too_long_is_the_least(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(api, 2500)
    monkeypatch.setattr(operations_module, "COUNT_LIMIT", 0.0)
    found = tried(api, "POST", "/queues/q/purge", json={"selector": "JMSPriority = 4"})
    assert 0 < found["count"] < 2500
    assert found["at_least"]


def test_a_dry_run_tells_the_consumers(api: Api) -> None:
    fill(api, 1)
    consumer(api.stepped)
    assert tried(api, "DELETE", "/queues/q")["consumers"] == 1
    assert tried(api, "POST", "/queues/q/purge", json={})["count"] == 0  # it is in flight


# Operations.


class Background:
    """Calls that share one event loop, as those of a broker do: what one has begun goes on behind the next."""

    def __init__(self, api: Api) -> None:
        self.api = api

    async def call(self, method: str, path: str, **request: Any) -> Any:
        return (await self.api._call(method, f"/api/v1{path}", request)).json()

    async def until_ended(self, id: str) -> dict[str, Any]:
        for _ in range(10_000):
            found: dict[str, Any] = await self.call("GET", f"/operations/{id}")
            if found["state"] != "running":
                return found
            self.api.stepped.run()
            await asyncio.sleep(0)
        raise AssertionError(f"operation {id} does not end")


def test_an_operation_in_the_background_tells_its_progress(api: Api) -> None:
    fill(api, 2500)
    background = Background(api)

    async def run() -> dict[str, Any]:
        started = await background.call("POST", "/queues/q/purge", json={}, params={"background": True})
        assert (started["operation"]["state"], started["operation"]["background"]) == ("running", True)
        return await background.until_ended(started["operation"]["id"])

    ended = asyncio.run(run())
    assert (ended["state"], ended["done"], ended["of"], ended["error"]) == ("done", 2500, 2500, None)
    assert (ended["action"], ended["target"], ended["by"]) == ("POST /queues/{name}/purge", "queue q", "127.0.0.1:123")
    assert depth(api) == 0
    assert api.call("GET", "/operations").json()["operations"] == [ended]


def test_an_operation_is_cancelled_between_two_steps(api: Api) -> None:
    fill(api, 3500)
    background = Background(api)

    async def run() -> dict[str, Any]:
        started = await background.call("DELETE", "/queues/q", params={"background": True})
        id = started["operation"]["id"]
        assert (await background.call("DELETE", f"/operations/{id}"))["state"] == "running"
        return await background.until_ended(id)

    ended = asyncio.run(run())
    assert ended["state"] == "cancelled"
    assert 0 < depth(api) == 3500 - ended["done"]


def test_an_operation_that_fails_says_why(api: Api) -> None:
    fill(api, 1)
    background = Background(api)

    async def run() -> dict[str, Any]:
        ids = {"ids": ["99"]}
        started = await background.call("POST", "/queues/q/purge", json=ids, params={"background": True})
        return await background.until_ended(started["operation"]["id"])

    ended = asyncio.run(run())
    assert ended["state"] == "failed"
    assert "not in the queue" in ended["error"]
    assert api.stepped.broker.core.partial_bytes == 0


def test_a_redrive_with_a_rate_is_cancelled_while_it_waits(api: Api) -> None:
    for _ in range(3):
        letter(api.stepped, "/queue/origin", "q")
    background = Background(api)

    async def run() -> dict[str, Any]:
        started = await background.call("POST", "/queues/q/redrive", json={"rate": 0.001}, params={"background": True})
        id = started["operation"]["id"]
        while not (await background.call("GET", f"/operations/{id}"))["done"]:
            api.stepped.run()
        await background.call("DELETE", f"/operations/{id}")
        api.stepped.advance(1.5)
        api.stepped.run()
        return await background.until_ended(id)

    assert asyncio.run(run())["state"] == "cancelled"
    assert depth(api) == 2


def test_the_number_of_operations_is_bounded(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "MOST_RUNNING", 0)
    fill(api, 1)
    assert api.error("POST", "/queues/q/purge", json={}, params={"background": True}) == (503, "broker-busy")
    assert depth(api) == 1
    known = Operations(api.stepped.broker)
    for number in range(operations.MOST_ENDED + 10):
        known.end(known.begin("a", "b", "c", background=True))
        assert len(known.all()) == min(number + 1, operations.MOST_ENDED)


def test_an_operation_that_somebody_waits_for_is_listed_while_it_runs(api: Api) -> None:
    known = api.application.services.operations
    operation = known.begin("messages.purged", "queue q", "me")
    assert [each.status.id for each in known.all()] == [operation.status.id]
    known.end(operation)
    assert known.all() == []
    assert api.error("GET", "/operations/77") == (404, "unknown-operation")
    assert api.error("DELETE", "/operations/77") == (404, "unknown-operation")


def test_a_stop_ends_operations_in_the_background(api: Api) -> None:
    fill(api, 3500)
    background = Background(api)

    async def run() -> None:
        await background.call("POST", "/queues/q/purge", json={}, params={"background": True})
        stop = asyncio.ensure_future(api.application.services.operations.stop())
        while not stop.done():
            api.stepped.run()
            await asyncio.sleep(0)

    asyncio.run(run())
    (ended,) = api.call("GET", "/operations").json()["operations"]
    assert ended["state"] == "cancelled"
    assert depth(api) > 0
