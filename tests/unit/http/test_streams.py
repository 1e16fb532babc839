"""The API's streams: what operators see and change, and members of groups that consume with requests."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from quire.http.pull_door import PullRequest
from quire.testing.stepped import SteppedClient
from tests.unit.http.conftest import Api

GROUP = "/streams/s/groups/g"


def publish(api: Api, count: int = 1, name: str = "s", **headers: str) -> list[str]:
    """Send messages to a stream; their ids."""
    body = {"body": "b", "headers": headers, "count": count}
    ids: list[str] = api.call("POST", f"/streams/{name}/messages", json=body).json()["ids"]
    return ids


def receive(api: Api, member: str = "m", **wish: Any) -> dict[str, Any]:
    """What a member gets."""
    answer = api.call("POST", f"{GROUP}/receive", json={"member": member, "start": "earliest", **wish})
    assert answer.status_code == 200, answer.text
    content: dict[str, Any] = answer.json()
    return content


def settle(api: Api, verb: str, handles: list[str], **how: Any) -> dict[str, str]:
    """What became of handles."""
    answer = api.call("POST", f"{GROUP}/{verb}", json={"member": "m", "handles": handles, **how})
    outcomes: dict[str, str] = answer.json()["handles"]
    return outcomes


def handles_of(received: dict[str, Any]) -> list[str]:
    return [message["handle"] for message in received["messages"]]


def subscriber(api: Api, **headers: str) -> SteppedClient:
    """A client that consumes the stream over STOMP."""
    client = api.stepped.connect()
    client.frame("SUBSCRIBE", {"destination": "/stream/s", "id": "0", "ack": "client-individual", **headers})
    api.stepped.run()
    return client


def audit(caplog: pytest.LogCaptureFixture) -> list[tuple[str, dict[str, Any]]]:
    found = [(record.event, dict(record.data)) for record in caplog.records]  # type: ignore[attr-defined]
    return [(event, {key: value for key, value in data.items() if key != "by"}) for event, data in found]


# Streams.


def test_stream_has_all_that_the_command_line_shows(api: Api) -> None:
    publish(api, 3, partition="1")
    api.stepped.advance(60)
    publish(api, 1, partition="1")
    subscriber(api, group="g", start="earliest", member="a")
    subscriber(api)
    (listed,) = api.call("GET", "/streams").json()["streams"]
    assert (listed["name"], listed["partitions"], listed["records"], listed["appended"]) == ("s", 4, 4, 4)
    assert (listed["groups"], listed["members"], listed["readers"], listed["pins"]) == (1, 1, 1, 0)
    stream = api.call("GET", "/streams/s").json()
    assert (stream["records"], stream["readers"], stream["policy"]["retention_time"]) == (4, 1, 259200.0)
    part = stream["partitions"][1]
    assert (part["earliest"], part["end"], part["records"], part["gaps"]) == (1, 5, 4, 0)
    assert part["newest_timestamp"] - part["oldest_timestamp"] == 60_000
    assert part["lane"] == api.stepped.broker.stream("s").partitions[1].lane
    assert stream["partitions"][0]["oldest_timestamp"] is None
    (group,) = stream["groups"]
    assert (group["name"], group["lag"], group["in_flight"], group["retries"]) == ("g", 4, 4, 0)


def test_stream_is_created_grows_and_is_deleted_and_that_is_logged(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "quire"):
        created = api.call("PUT", "/streams/a%2Fb", json={"partitions": 2})
        assert (created.status_code, len(created.json()["partitions"])) == (201, 2)
        assert api.error("PUT", "/streams/a%2Fb", json={}) == (409, "destination-exists")
        grown = api.call("POST", "/streams/a%2Fb/partitions", json={"count": 3}).json()
        assert [part["partition"] for part in grown["partitions"]] == [0, 1, 2]
        assert api.error("POST", "/streams/a%2Fb/partitions", json={"count": 1}) == (400, "invalid-argument")
        assert api.call("DELETE", "/streams/a%2Fb").json() == {"removed": 0}
    assert audit(caplog) == [
        ("stream.created", {"stream": "a/b"}),
        ("stream.partitions", {"stream": "a/b", "partitions": 3}),
        ("stream.deleted", {"stream": "a/b", "messages": 0, "whole": True}),
    ]
    for method in ("GET", "DELETE"):
        assert api.error(method, "/streams/a%2Fb") == (404, "unknown-destination")
    assert api.stepped.store.destinations() == []


def test_stream_that_is_used_is_deleted_by_force_only(api: Api) -> None:
    clients = [subscriber(api, group="g", member="a"), subscriber(api)]
    receive(api)
    publish(api, 3)
    assert api.error("DELETE", "/streams/s") == (409, "destination-in-use")
    assert api.call("DELETE", "/streams/s?force=true").json() == {"removed": 3}
    assert all(client.connection.closed for client in clients)
    api.stepped.advance(3600)
    api.stepped.run()
    assert api.stepped.store.destinations() == []
    assert api.stepped.store.marks("") == []


def test_message_goes_to_the_partition_it_names_or_its_key_has(api: Api) -> None:
    publish(api, 2, partition="3")
    assert [part["records"] for part in api.call("GET", "/streams/s").json()["partitions"]] == [0, 0, 0, 2]
    for _ in range(3):
        publish(api, 1, "keyed", **{"partition-key": "table-7"})
    counts = [part["records"] for part in api.call("GET", "/streams/keyed").json()["partitions"]]
    assert sorted(counts) == [0, 0, 0, 3]
    assert api.error("POST", "/streams/s/messages", json={"body": "", "headers": {"partition": "4"}})[0] == 400


def test_offsets_of_all_partitions_come_in_one_answer(api: Api) -> None:
    publish(api, 2, partition="0")
    api.stepped.advance(60)
    publish(api, 3, partition="1")
    rows = api.call("GET", "/streams/s/offsets").json()["partitions"]
    assert [(row["earliest"], row["end"], row["offset"]) for row in rows[:3]] == [
        (1, 3, None), (1, 4, None), (1, 1, None)
    ]  # fmt: skip
    time = api.stepped.clock.now_ms()
    rows = api.call("GET", f"/streams/s/offsets?start=timestamp={time}").json()["partitions"]
    assert [row["offset"] for row in rows] == [3, 1, 1, 1]
    assert api.error("GET", "/streams/s/offsets?start=whenever") == (400, "invalid-argument")


def test_range_is_read_again_and_again(api: Api) -> None:
    publish(api, 5, partition="0", n="1")
    path = "/streams/s/partitions/0/messages"
    page = api.call("GET", f"{path}?from=2&limit=2").json()
    assert [(message["partition"], message["offset"]) for message in page["messages"]] == [(0, 2), (0, 3)]
    assert (page["messages"][0]["body"], page["messages"][0]["headers"]["n"]) == ("b", "1")
    assert (page["first"], page["next"], page["until"], page["earliest"], page["end"]) == (2, 4, 6, 1, 6)
    assert (page["cut"], page["missing"]) == (False, 0)
    assert api.call("GET", f"{path}?from=2&limit=2").json() == page
    assert len(api.call("GET", f"{path}?until=4").json()["messages"]) == 3
    assert api.error("GET", f"{path}?from=7") == (400, "invalid-argument")
    for partition in ("4", "x", "-1", "99999999999"):
        assert api.error("GET", f"/streams/s/partitions/{partition}/messages") == (400, "invalid-argument")


def test_strict_range_whose_messages_are_gone_is_an_error(api: Api) -> None:
    publish(api, 5, partition="0")
    partition = api.stepped.broker.stream("s").partitions[0]
    partition.remove(api.stepped.store.links(partition.lane, 0, 2))
    api.stepped.run()
    path = "/streams/s/partitions/0/messages"
    page = api.call("GET", f"{path}?from=1").json()
    assert (page["cut"], page["missing"], page["earliest"], len(page["messages"])) == (True, 2, 3, 3)
    assert api.error("GET", f"{path}?from=2&strict=true") == (410, "data-lost")
    assert api.call("GET", f"{path}?from=3&strict=true").status_code == 200
    assert api.call("GET", f"{path}?strict=true").status_code == 200


def test_message_is_found_with_its_state_in_each_group(api: Api) -> None:
    ids = publish(api, 3, partition="0", key="order-7")
    receive(api, max=2)
    settle(api, "acknowledge", [f"1.0.{api.stepped.broker.groups.existing('s', 'g').coordinator.epoch}"])
    (found,) = api.call("GET", f"/streams/s/find?id={ids[0]}").json()["messages"]
    assert (found["message"]["offset"], found["groups"][0]["state"], found["dead_letters"]) == (1, "done", None)
    answer = api.call("GET", "/streams/s/find?key=order-7").json()
    assert (answer["whole"], answer["damaged"]) == (True, [])
    states = [entry["groups"][0] for entry in answer["messages"]]
    assert [state["state"] for state in states] == ["done", "leased", "new"]
    assert states[1]["member"] == "m"
    assert api.call("GET", "/streams/s/find?partition=0&offset=3").json()["messages"][0]["message"]["id"] == ids[2]
    assert not api.call("GET", "/streams/s/find?limit=2").json()["whole"]
    assert api.error("GET", "/streams/s/find?partition=0&offset=4") == (404, "unknown-message")
    for wrong in ("partition=0", "offset=1", f"id={ids[0]}&partition=0&offset=1", "id=x"):
        assert api.error("GET", f"/streams/s/find?{wrong}") == (400, "invalid-argument")


def test_dead_letters_of_a_message_are_found_if_somebody_asks(api: Api) -> None:
    ids = publish(api, 2, partition="0")
    settle(api, "reject", handles_of(receive(api))[:1], dead_letter=True)
    answer = api.call("GET", "/streams/s/find?dead_letters=true").json()
    assert [(entry["message"]["id"], entry["dead_letters"]) for entry in answer["messages"]] == [
        (ids[0], ["g"]), (ids[1], []),
    ]  # fmt: skip


def test_pins_are_set_and_released_and_that_is_logged(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    publish(api, 3, partition="0")
    now = api.stepped.clock.now_ms()
    with caplog.at_level("INFO", "quire"):
        pin = api.call("PUT", "/streams/s/pins/job%2F1", json={"time_to_live": 60, "offsets": {"0": 2}}).json()
        api.call("DELETE", "/streams/s/pins/job%2F1")
    assert pin == {"name": "job/1", "offsets": {"0": 2}, "until": now + 60_000}
    assert audit(caplog) == [
        ("stream.pinned", {"stream": "s", "pin": "job/1", "until": now + 60_000}),
        ("stream.released", {"stream": "s", "pin": "job/1"}),
    ]
    api.call("PUT", "/streams/s/pins/all", json={"time_to_live": 60})
    api.call("PUT", "/streams/s/pins/end", json={"time_to_live": 90, "start": "latest"})
    pins = api.call("GET", "/streams/s/pins").json()["pins"]
    assert [(pin["name"], pin["offsets"]["0"]) for pin in pins] == [("all", 1), ("end", 4)]
    api.stepped.advance(61)
    assert [pin["name"] for pin in api.call("GET", "/streams/s/pins").json()["pins"]] == ["end"]
    assert api.error("DELETE", "/streams/s/pins/job%2F1") == (400, "invalid-argument")
    for wrong in ({"time_to_live": 0}, {"time_to_live": 9, "offsets": {"9": 1}}, {"time_to_live": 9, "start": "x"}):
        assert api.error("PUT", "/streams/s/pins/p", json=wrong) == (400, "invalid-argument")


# Consuming with requests.


def while_waiting(api: Api, wish: dict[str, Any], happens: Callable[[], object]) -> httpx.Response:
    """Ask for messages, and have something happen while the request waits."""

    async def run() -> httpx.Response:
        answer = asyncio.ensure_future(api._call("POST", f"/api/v1{GROUP}/receive", {"json": wish}, idle=True))
        await steps(api)
        assert not answer.done()
        happens()
        await steps(api)
        assert answer.done()
        return await answer

    return asyncio.run(run())


async def steps(api: Api) -> None:
    """Let the broker and the application do what there is to do now."""
    for _ in range(20):
        api.stepped.run()
        await asyncio.sleep(0)


WISH = {"member": "m", "wait": 20, "start": "earliest"}


def test_messages_are_received_and_settled(api: Api) -> None:
    body = {"body": "/w==", "body_encoding": "base64", "headers": {"n": "1", "partition": "2"}}
    api.call("POST", "/streams/s/messages", json=body)
    received = receive(api)
    (message,) = received["messages"]
    assert (received["member"], received["partitions"]) == ("m", [0, 1, 2, 3])
    assert (message["partition"], message["offset"], message["attempts"]) == (2, 1, 1)
    assert (message["body"], message["body_encoding"], message["headers"]["n"]) == ("/w==", "base64", "1")
    assert message["timestamp"] == api.stepped.clock.now_ms()
    assert settle(api, "acknowledge", [message["handle"]]) == {message["handle"]: "done"}
    assert api.stepped.broker.groups.existing("s", "g").lag == 0
    assert receive(api)["messages"] == []


def test_request_waits_until_a_message_comes(api: Api) -> None:
    api.call("PUT", "/streams/s", json={})
    producer = api.stepped.connect()
    answer = while_waiting(api, WISH, lambda: producer.frame("SEND", {"destination": "/stream/s"}, b"now"))
    assert [message["body"] for message in answer.json()["messages"]] == ["now"]


def test_request_waits_no_longer_than_it_says(api: Api) -> None:
    answer = while_waiting(api, WISH, lambda: api.stepped.advance(20))
    assert (answer.status_code, answer.json()["messages"]) == (200, [])


def test_request_whose_caller_goes_away_takes_nothing(api: Api) -> None:
    async def run() -> None:
        gone = asyncio.Event()
        parts = [{"type": "http.request", "body": json.dumps(WISH).encode(), "more_body": False}]

        async def come() -> dict[str, Any]:
            if parts:
                return parts.pop()
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            """Nobody listens."""

        path = f"/api/v1{GROUP}/receive"
        scope = {
            "type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b"",
            "headers": [], "scheme": "http", "server": ("127.0.0.1", 8161), "client": ("127.0.0.1", 9),
        }  # fmt: skip
        task = asyncio.ensure_future(api.application(scope, come, send))
        await steps(api)
        waiting = api.stepped.broker.groups.existing("s", "g").members["m"]
        gone.set()
        await steps(api)
        assert task.done()
        assert api.stepped.broker.groups.existing("s", "g").members["m"] is waiting

    asyncio.run(run())
    publish(api)
    assert api.stepped.broker.groups.existing("s", "g").members["m"].in_flight == 0
    (message,) = receive(api)["messages"]
    assert message["attempts"] == 1


def test_request_that_another_one_replaces_is_told(api: Api) -> None:
    second = api._call("POST", f"/api/v1{GROUP}/receive", {"json": {**WISH, "wait": 0}}, idle=True)
    answer = while_waiting(api, WISH, lambda: asyncio.ensure_future(second))
    assert answer.json()["error"]["code"] == "invalid-argument"


def test_request_that_waits_ends_with_the_broker(api: Api) -> None:
    answer = while_waiting(api, WISH, api.application.stop)
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "broker-stopping")
    api.service.ask_stop()
    assert api.error("POST", f"{GROUP}/receive", json=WISH) == (503, "broker-stopping")


def test_error_on_the_way_leaves_no_request_behind(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    begin = PullRequest.begin

    def fail(poll: PullRequest, done: Callable[[], None]) -> None:
        begin(poll, done)
        raise ZeroDivisionError("inside")

    monkeypatch.setattr(PullRequest, "begin", fail)
    assert api.error("POST", f"{GROUP}/receive", json=WISH)[0] == 500
    monkeypatch.undo()
    publish(api)
    assert len(receive(api)["messages"]) == 1


def test_retry_is_received_with_its_origin_and_the_number_of_its_attempt(api: Api) -> None:
    publish(api, 1, partition="3")
    settle(api, "reject", handles_of(receive(api)), delay=5)
    assert receive(api)["messages"] == []
    api.stepped.advance(5)
    (message,) = receive(api)["messages"]
    assert (message["partition"], message["offset"], message["attempts"]) == (3, 1, 2)
    assert settle(api, "extend", [message["handle"]], seconds=30) == {message["handle"]: "done"}
    assert settle(api, "reject", [message["handle"]], level=1) == {message["handle"]: "done"}
    assert settle(api, "acknowledge", [message["handle"]]) == {message["handle"]: "late"}
    api.stepped.advance(2)
    assert receive(api)["messages"] == []


def test_lease_lasts_as_long_as_the_member_asked_for(api: Api) -> None:
    publish(api)
    handles = handles_of(receive(api, consume_timeout=5))
    api.stepped.advance(6)
    assert settle(api, "acknowledge", handles) == {handles[0]: "late"}


def test_messages_that_need_no_acknowledgement_have_no_handle(api: Api) -> None:
    publish(api)
    assert handles_of(receive(api, ack="auto")) == [None]
    assert api.stepped.broker.groups.existing("s", "g").lag == 0


def test_member_leaves(api: Api) -> None:
    publish(api)
    receive(api)
    assert api.call("POST", f"{GROUP}/leave", json={"member": "m"}).json() == {"left": True}
    assert api.call("POST", f"{GROUP}/leave", json={"member": "m"}).json() == {"left": False}
    assert receive(api, "n")["messages"][0]["attempts"] == 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"wait": 31}, {"max": 0}, {"max": 1001}, {"member": ""}, {"consume_timeout": 0.5}, {"start": "x"},
        {"order": "x"}, {"held": ["x"]}, {"ack": "client"}, {"group": "g"},
    ],
)  # fmt: skip
def test_what_cannot_be_asked_for_is_refused(api: Api, wrong: dict[str, Any]) -> None:
    assert api.error("POST", f"{GROUP}/receive", json=wrong) == (400, "invalid-argument")


def test_what_cannot_be_said_of_handles_is_refused(api: Api) -> None:
    receive(api)
    said = {"member": "m", "handles": ["1.0.1"]}
    for verb, wrong in [
        ("acknowledge", {**said, "handles": ["1"]}), ("reject", {**said, "delay": 5, "level": 2}),
        ("reject", {**said, "level": 19}), ("reject", {**said, "delay": -1}), ("extend", {**said, "seconds": 0}),
    ]:  # fmt: skip
        assert api.error("POST", f"{GROUP}/{verb}", json=wrong) == (400, "invalid-argument")
    assert api.error("POST", "/streams/s/groups/x/acknowledge", json=said) == (404, "unknown-consumer-group")
    assert api.error("POST", "/streams/x/groups/g/acknowledge", json=said) == (404, "unknown-destination")
