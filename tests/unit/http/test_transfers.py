"""The API's transfers: purge, move, copy, redrive."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from starlette.requests import Request

from tests.unit.broker.harness import letter
from tests.unit.http.conftest import Api


def fill(api: Api, count: int, name: str = "q") -> None:
    for number in range(count):
        body = {"body": str(number), "headers": {"number": str(number)}}
        assert api.call("POST", f"/queues/{name}/messages", json=body).status_code == 201


def bodies(api: Api, name: str, query: str = "") -> list[str]:
    return [message["body"] for message in api.call("GET", f"/queues/{name}/messages{query}").json()["messages"]]


def test_move_takes_some_or_all(api: Api) -> None:
    fill(api, 5)
    assert api.call("POST", "/queues/q/move", json={"to": "r", "limit": 2}).json() == {"moved": 2, "next": "3-5"}
    assert api.call("POST", "/queues/q/move", json={"to": "r", "ids": ["4"]}).json()["moved"] == 1
    assert api.error("POST", "/queues/q/move", json={"to": "r", "ids": ["4"]}) == (404, "unknown-message")
    assert api.call("POST", "/queues/q/move", json={"to": "queue://r"}).json() == {"moved": 2, "next": None}
    assert bodies(api, "r") == ["0", "1", "3", "2", "4"]


def test_selector_chooses_for_every_transfer_and_for_browsing(api: Api) -> None:
    fill(api, 10)
    assert bodies(api, "q", "?selector=number+%3E%3D+8+OR+number+%3D+0") == ["0", "8", "9"]
    copied = api.call("POST", "/queues/q/copy", json={"to": "r", "selector": "number > 6"}).json()
    assert copied == {"copied": 3, "next": None}
    assert api.call("POST", "/queues/q/move", json={"to": "s", "selector": "number = 3"}).json()["moved"] == 1
    assert api.call("POST", "/queues/q/purge", json={"selector": "number < 5"}).json()["removed"] == 4
    assert (bodies(api, "q"), bodies(api, "r"), bodies(api, "s")) == (["5", "6", "7", "8", "9"], ["7", "8", "9"], ["3"])


def test_transfer_that_ended_at_its_limit_goes_on_where_it_was(api: Api) -> None:
    fill(api, 5)
    after, counts = None, []
    while True:
        answer = api.call("POST", "/queues/q/copy", json={"to": "r", "limit": 2, "after": after}).json()
        counts.append(answer["copied"])
        after = answer["next"]
        if after is None:
            break
    assert counts == [2, 2, 1]
    assert bodies(api, "r") == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({}, "invalid-argument"), ({"to": 5}, "invalid-argument"), ({"to": "r", "limit": 0}, "invalid-argument"),
        ({"to": "r", "selektor": "a"}, "invalid-argument"), ({"to": "r", "after": "5"}, "invalid-argument"),
        ({"to": "q"}, "invalid-argument"), ({"to": "queue://q"}, "invalid-argument"), (["r"], "invalid-argument"),
        ({"to": "r", "selector": "a ="}, "invalid-selector"), ({"to": "x://r"}, "invalid-destination"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("verb", ["move", "copy"])
def test_move_refuses_what_it_does_not_understand(api: Api, verb: str, body: object, code: str) -> None:
    fill(api, 1)
    assert api.error("POST", f"/queues/q/{verb}", json=body) == (400, code)
    assert list(api.stepped.broker.queues) == ["q"]
    assert api.stepped.queue("q").depth == 1


def test_redrive_sends_dead_letters_back_or_somewhere_else(api: Api) -> None:
    letters(api, 4)
    fill(api, 1, "ActiveMQ.DLQ")
    assert api.call("POST", "/queues/ActiveMQ.DLQ/redrive", json={"limit": 1}).json() == {"moved": 1, "next": "2-5"}
    assert api.call("POST", "/queues/ActiveMQ.DLQ/redrive", json={"limit": 1, "to": "r"}).json()["moved"] == 1
    assert api.call("POST", "/queues/ActiveMQ.DLQ/redrive").json() == {"moved": 2, "next": None}
    assert api.error("POST", "/queues/ActiveMQ.DLQ/redrive", json={"to": "ActiveMQ.DLQ"})[0] == 400
    assert [api.stepped.queue(name).depth for name in ("orders", "r", "ActiveMQ.DLQ")] == [3, 1, 1]


def letters(api: Api, count: int, queue: str = "ActiveMQ.DLQ") -> None:
    for _ in range(count):
        letter(api.stepped, "/queue/orders", queue)


def dead_letters(api: Api, count: int) -> None:
    letters(api, count)
    api.call("PUT", "/queues/orders")


async def over_time(api: Api, answer: "asyncio.Future[httpx.Response]", seconds: int) -> list[int]:
    """How many messages are back after each tenth of a second."""
    depths = []
    for _ in range(seconds * 10):
        for _ in range(100):
            await asyncio.sleep(0)
            api.stepped.run()
        depths.append(api.stepped.queue("orders").depth)
        if answer.done():
            break
        api.stepped.advance(0.1)
    return depths


def test_redrive_at_a_rate_spares_what_failed_before(api: Api) -> None:
    dead_letters(api, 100)

    async def redrive() -> tuple[list[int], Any]:
        request = {"json": {"rate": 50}}
        answer = asyncio.ensure_future(api._call("POST", "/api/v1/queues/ActiveMQ.DLQ/redrive", request, idle=True))
        return await over_time(api, answer, 4), (await answer).json()

    depths, result = asyncio.run(redrive())
    assert all(5 * tenths - 5 <= depth <= 5 * tenths + 5 for tenths, depth in enumerate(depths))
    assert result == {"moved": 100, "next": None}


def test_redrive_at_a_rate_ends_when_its_caller_goes_away(
    api: Api, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead_letters(api, 10)

    async def is_disconnected(request: Request) -> bool:
        return api.stepped.queue("orders").depth == 3

    monkeypatch.setattr(Request, "is_disconnected", is_disconnected)

    async def redrive() -> None:
        request = {"json": {"rate": 10}}
        answer = asyncio.ensure_future(api._call("POST", "/api/v1/queues/ActiveMQ.DLQ/redrive", request, idle=True))
        await over_time(api, answer, 4)
        await answer

    with caplog.at_level("INFO", "quire"):
        asyncio.run(redrive())
    assert api.stepped.queue("ActiveMQ.DLQ").depth == 7
    data = caplog.records[-1].data  # type: ignore[attr-defined]
    assert (data["messages"], data["whole"]) == (3, False)


def test_body_that_comes_in_pieces_is_read_whole(api: Api) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for piece in (b'{"to"', b': "r"}'):
            yield piece

    fill(api, 1)
    assert api.call("POST", "/queues/q/move", content=pieces()).json()["moved"] == 1


@pytest.mark.parametrize(
    ("verb", "body", "name", "data"),
    [
        ("purge", {}, "messages.purged", {"queue": "q"}),
        ("move", {"to": "r"}, "messages.moved", {"queue": "q", "to": "r"}),
        ("copy", {"to": "r"}, "messages.copied", {"queue": "q", "to": "r"}),
        ("redrive", {"to": "r"}, "messages.redriven", {"queue": "q", "to": "r"}),
    ],
)
def test_transfer_is_logged(
    api: Api, caplog: pytest.LogCaptureFixture, verb: str, body: object, name: str, data: dict[str, str]
) -> None:
    letters(api, 3, "q")
    with caplog.at_level("INFO", "quire"):
        api.call("POST", f"/queues/q/{verb}", json=body)
    (record,) = caplog.records
    assert record.event == name  # type: ignore[attr-defined]
    assert record.data == {**data, "messages": 3, "whole": True, "by": "127.0.0.1:123"}  # type: ignore[attr-defined]


def test_transfer_that_fails_half_way_is_logged_with_what_was_done(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    api.call("POST", "/queues/q/messages", json={"body": "b", "count": 1500})
    api.service.ask_stop()
    with caplog.at_level("INFO", "quire"):
        assert api.error("POST", "/queues/q/purge") == (503, "broker-stopping")
    data = caplog.records[-1].data  # type: ignore[attr-defined]
    assert (data["messages"], data["whole"]) == (1000, False)


def test_transfer_that_is_refused_is_not_logged(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    fill(api, 1)
    with caplog.at_level("INFO", "quire"):
        assert api.error("POST", "/queues/q/move", json={"to": "r", "ids": ["none"]}) == (404, "unknown-message")
        assert api.error("POST", "/queues/q/move", json={"to": "q"})[0] == 400
    assert caplog.records == []


def test_braces_in_names_stand_in_the_log_as_they_are(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    fill(api, 1, "{x}")
    with caplog.at_level("INFO", "quire"):
        assert api.call("POST", "/queues/%7Bx%7D/move", json={"to": "{y}"}).json()["moved"] == 1
    assert caplog.records[-1].getMessage().startswith("messages of queue {x} were moved to {y}: 1 messages, by ")
