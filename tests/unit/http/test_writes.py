"""The API for bulk writers."""

from typing import Any

import msgspec
import pytest

from quire.broker.bulk.row_reader import MAX_BYTES
from quire.errors import StoreFull
from quire.management.queues import Management
from quire.testing.stepped import SteppedBroker
from tests.unit.broker.harness import settings
from tests.unit.http.conftest import Api
from tests.unit.management.managed import browsed


def rows(*values: bytes, **columns: Any) -> bytes:
    return msgspec.msgpack.encode({"destination": "q", "value": list(values), **columns})


def stage(api: Api, *values: bytes, producer: str = "p") -> str:
    answer = api.call("POST", "/write/stages", content=rows(*values), params={"producer": producer})
    assert (answer.status_code, answer.json()["rows"]) == (201, len(values))
    return str(answer.json()["stage"])


def commit(api: Api, sequence: int, *stages: str) -> Any:
    return api.call("POST", "/write/commit", json={"producer": "p", "sequence": sequence, "stages": stages}).json()


def test_many_messages_are_sent_in_one_commit(api: Api) -> None:
    api.stepped.queue("q")
    api.stepped.run()
    before = api.stepped.broker.core.commits_done
    answer = api.call("POST", "/write", content=rows(*[b"%d" % number for number in range(40)]))
    assert (answer.status_code, answer.json()) == (200, {"written": 40, "duplicate": False})
    assert (len(browsed(api.stepped)), api.stepped.broker.core.commits_done) == (40, before + 1)


def test_a_numbered_write_counts_once(api: Api) -> None:
    for duplicate in (False, True):
        numbered = {"producer": "spark/q/0", "sequence": "1"}
        answer = api.call("POST", "/write", content=rows(b"1"), params=numbered).json()
        assert answer == {"written": int(not duplicate), "duplicate": duplicate}
    assert browsed(api.stepped) == [b"1"]
    assert api.error("POST", "/write", content=rows(b"1"), params={"producer": "p"}) == (400, "invalid-argument")


def test_a_numbered_write_that_failed_may_be_made_again(api: Api) -> None:
    broker = api.stepped.broker
    broker.producers.take("p", 1)
    Management(broker).confirm(lambda error: None)
    api.stepped.turn()
    api.stepped.commit(StoreFull("no space"))
    numbered = {"producer": "p", "sequence": "1"}
    assert api.error("POST", "/write", content=rows(b"1"), params=numbered) == (507, "store-full")
    api.stepped.advance(1)
    api.stepped.run()
    assert api.call("POST", "/write", content=rows(b"1"), params=numbered).json()["written"] == 1


def test_what_is_staged_is_listed_and_committed(api: Api) -> None:
    first, second = stage(api, b"1", b"2"), stage(api, b"3")
    api.stepped.advance(5)
    listed = api.call("GET", "/write/stages").json()
    assert listed["bytes"] == sum([entry["bytes"] for entry in listed["stages"]])
    assert [(entry["stage"], entry["producer"], entry["rows"]) for entry in listed["stages"]] == [
        (first, "p", 2), (second, "p", 1),
    ]  # fmt: skip
    assert [(entry["age_seconds"], entry["decided"]) for entry in listed["stages"]] == [(5.0, False)] * 2
    assert commit(api, 1, first, second) == {"written": 3, "duplicate": False}
    assert browsed(api.stepped) == [b"1", b"2", b"3"]
    assert commit(api, 1, first, second) == {"written": 0, "duplicate": True}
    assert api.call("GET", "/write/stages").json() == {"bytes": 0, "stages": []}


def test_what_is_staged_is_thrown_away(api: Api) -> None:
    first, _, _ = stage(api, b"1"), stage(api, b"2", b"3"), stage(api, b"4", producer="other")
    assert api.call("POST", "/write/discard", json={"producer": "p", "stages": [first]}).json() == {"rows": 1}
    assert api.call("POST", "/write/discard", json={"producer": "p"}).json() == {"rows": 2}
    assert [entry["producer"] for entry in api.call("GET", "/write/stages").json()["stages"]] == ["other"]
    body = {"producer": "p", "sequence": 1, "stages": [first]}
    assert api.error("POST", "/write/commit", json=body) == (404, "unknown-stage")


@pytest.mark.parametrize(
    "content", [b"", b"{}", rows(b"1", key="k"), rows(b"1", other=[1]), rows(b"1", priority=[10]), b"\x81\xa5value\x90"]
)
def test_rows_that_cannot_be_read_are_refused(api: Api, content: bytes) -> None:
    assert api.error("POST", "/write", content=content) == (400, "invalid-argument")


@pytest.mark.parametrize("producer", ["", "x" * 201, "a\0b"])
def test_a_producer_has_a_name_that_can_be_stored(api: Api, producer: str) -> None:
    answer = api.error("POST", "/write/stages", content=rows(b"1"), params={"producer": producer})
    assert answer == (400, "invalid-argument")


def test_rows_at_once_have_a_limit() -> None:
    api = Api(SteppedBroker(settings()))
    assert api.error("POST", "/write", content=b"x" * (MAX_BYTES + 1)) == (413, "limit-exceeded")
    api = Api(SteppedBroker(settings(stomp={"max_body": 100})))
    assert api.error("POST", "/write", content=rows(b"x" * 100)) == (413, "limit-exceeded")


def test_there_has_to_be_room() -> None:
    api = Api(SteppedBroker(settings(store={"limit": 100})))
    stage(api, b"x" * 100)
    for path in ("/write", "/write/stages?producer=p"):
        assert api.error("POST", path, content=rows(b"y")) == (503, "producer-held")


def test_rows_wait_for_the_commit_of_others_that_have_sent_much(api: Api) -> None:
    api.stepped.broker.core.open_bytes = 100 << 20
    assert api.call("POST", "/write", content=rows(b"1")).json()["written"] == 1
    assert api.stepped.broker.core.open_bytes == 0
