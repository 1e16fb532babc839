"""The API's broker and connections, and what every request has in common."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from quire.broker.turns import STALLED
from quire.errors import StoreFull
from quire.http import broker as broker_module
from quire.http.app import ENDPOINTS
from quire.http.bulk.readers import Rights
from quire.http.endpoint import Endpoint
from quire.store.base import WriteBatch
from quire.store.urls import shown
from tests.unit.broker.harness import settings
from tests.unit.http.conftest import Api, prepare, watch_disk
from tests.unit.http.sample_requests import XID, Running, fill, sample_request


def test_status_has_what_an_operator_looks_for(api: Api) -> None:
    api.call("POST", "/queues/q/messages", json={"body": "b", "count": 3})
    api.call("PUT", "/durables/c/d", json={"topic": "t"})
    api.call("POST", "/topics/t/messages", json={"body": "b", "headers": {"AMQ_SCHEDULED_DELAY": "90000"}})
    prepare(api, XID)
    api.stepped.clients[-1].frame("SUBSCRIBE", {"destination": "/temp-queue/replies", "id": "0"})
    api.stepped.advance(60)
    status = api.call("GET", "/broker").json()
    assert (status["name"], status["state"], status["stomp"]) == ("quire", "running", "127.0.0.1:61613")
    assert (status["uptime_seconds"], status["queues"], status["messages"]) == (60.0, 1, 3)
    assert status["temporaries"] == 1
    assert (status["topics"], status["durables"], status["scheduled"], status["prepared"]) == (1, 1, 1, 1)
    assert status["store"] == {
        "url": "memory:", "bytes": api.stepped.broker.core.stored_bytes, "limit": 100 * 10**9, "sync": "always",
        "disk": None,
    }  # fmt: skip
    assert status["memory"]["limit"] == api.stepped.settings.memory.limit
    assert (status["connections"], status["producers_held"], status["store_error"]) == (0, [], None)


def test_status_shows_the_disk(api: Api, tmp_path: Path) -> None:
    watch_disk(api, tmp_path)
    status = api.call("GET", "/broker").json()
    assert status["store"]["disk"] == {"free": 500, "limit": 1000, "reserved": 62}
    assert status["spool"]["disk"] is None


def test_status_tells_that_the_clock_was_set(api: Api) -> None:
    assert api.call("GET", "/broker").json()["clock_set"] is None
    api.stepped.clock.jump(-3600)
    assert (
        api.call("GET", "/broker").json()["clock_set"].startswith("the clock was set back by 3,600 s: nothing expires")
    )
    (entry,) = [one for one in api.call("GET", "/overview").json()["attention"] if one["code"] == "clock-set"]
    assert (entry["severity"], entry["kind"]) == ("warning", "broker")
    api.stepped.advance(3601)
    assert "clock-set" not in [one["code"] for one in api.call("GET", "/overview").json()["attention"]]


def test_a_broker_runs_for_as_long_as_it_does_whatever_the_clock_says(api: Api) -> None:
    api.stepped.clock.jump(-3600)
    api.stepped.advance(60)
    assert api.call("GET", "/broker").json()["uptime_seconds"] == 60.0


def test_status_shows_no_password() -> None:
    assert "secret" not in shown("postgresql+psycopg://quire:secret@host/quire")


def test_health_is_an_error_while_the_store_takes_no_writes(api: Api) -> None:
    assert api.call("GET", "/health").json() == {"state": "running"}
    api.stepped.broker.core.store_error = StoreFull("the disk is full")
    assert api.error("GET", "/health") == (507, "store-full")
    status = api.call("GET", "/broker").json()
    assert (status["state"], status["store_error"]) == ("store-failed", "the disk is full")


class HungWriter:
    """A writer that ends no commit."""

    batch: WriteBatch

    def submit(self, batch: WriteBatch) -> None:
        """Take a batch."""
        self.batch = batch


def test_a_store_that_does_not_end_a_commit_is_not_well(api: Api) -> None:
    """It is locked by another process say: nothing fails, and nothing is confirmed."""
    stepped = api.stepped
    stepped.clock.advance(100)
    writer = stepped.broker.turns.writer = HungWriter()
    producer = stepped.connect()
    producer.send("q", b"m", {"receipt": "r"})
    stepped.run_turns()
    stepped.clock.advance(STALLED - 1)
    assert api.call("GET", "/broker").json()["state"] == "running"
    stepped.clock.advance(3)
    assert api.error("GET", "/health") == (503, "store-failed")
    assert api.call("GET", "/ready", base="").status_code == 503
    status = api.call("GET", "/broker").json()
    assert status["state"] == "store-failed"
    assert status["store_error"].startswith("a commit has not ended for 12 s")
    assert status["store_error_age_seconds"] == 12
    assert not api.call("GET", "/store").json()["writable"]
    assert "quire_store_writable 0" in (metrics := api.call("GET", "/metrics", base="").text)
    assert "quire_store_error_seconds 12" in metrics
    assert [each["code"] for each in api.call("GET", "/overview").json()["attention"]] == ["store-failing"]
    stepped.broker.turns.committed(writer.batch, None)
    assert producer.receipts() == ["r"]
    assert api.call("GET", "/health").json() == {"state": "running"}


def test_probes_tell_a_live_broker_from_one_that_is_ready(api: Api) -> None:
    def probe(path: str) -> tuple[int, str]:
        answer = api.call("GET", path, base="", headers={"host": "10.1.2.3:8161"})  # as the kubelet asks
        return answer.status_code, answer.json()["state"]

    assert probe("/health") == probe("/ready") == (200, "running")
    api.stepped.broker.core.store_error = StoreFull("the disk is full")
    assert probe("/health") == (200, "store-failed")
    assert probe("/ready") == (503, "store-failed")
    api.stepped.broker.core.store_error = None
    api.service.ask_stop()
    assert probe("/health") == (200, "stopping")
    assert probe("/ready") == (503, "stopping")


def test_stop_asks_the_service_to_stop(api: Api) -> None:
    assert api.call("POST", "/broker/stop").json() == {"state": "stopping"}
    assert api.service.is_stopping


def test_connections_say_what_they_consume(api: Api) -> None:
    api.call("POST", "/queues/q/messages", json={"body": "b"})
    client = api.stepped.connect(headers={"client-id": "c"})
    client.subscribe("q")
    client.frame("SUBSCRIBE", {"destination": "/topic/t", "id": "1"})
    api.stepped.run()
    api.service.connections[object()] = client.session  # type: ignore[index]
    api.stepped.advance(5)
    assert api.call("GET", "/connections").json()["connections"] == [
        {
            "address": "client-1", "protocol": "stomp 1.2", "connected_seconds": 5.0, "client_id": "c",
            "consumers": 2,
            "destinations": ["queue://q", "topic://t"], "in_flight": 1, "held": False, "writable": True,
        }
    ]  # fmt: skip


# What all have in common.


@pytest.mark.parametrize(
    ("method", "path", "status"), [("GET", "/nothing", 404), ("DELETE", "/queues", 405), ("GET", "/queues/", 404)]
)
def test_request_that_nothing_answers_is_an_error_like_others(api: Api, method: str, path: str, status: int) -> None:
    assert api.error(method, path) == (status, "invalid-argument")


def test_body_where_none_is_taken_is_an_error(api: Api) -> None:
    api.call("PUT", "/queues/q")
    assert api.error("POST", "/queues/q/pause", json={"limit": 5}) == (400, "invalid-argument")
    assert api.call("POST", "/queues/q/pause", json={}).status_code == 200


def test_defect_is_an_error_without_its_inside(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise ZeroDivisionError("inside")

    monkeypatch.setattr(broker_module, "broker_status", fail)
    answer = api.call("GET", "/broker")
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "internal-error")
    assert "inside" not in answer.text


@pytest.mark.parametrize("origin", ["https://evil.example", "http://127.0.0.1:9999", "null"])
def test_pages_of_other_sites_are_refused(api: Api, origin: str) -> None:
    assert api.error("POST", "/broker/stop", headers={"origin": origin}) == (400, "protocol-violation")
    assert not api.service.is_stopping


def test_page_of_the_broker_itself_is_served(api: Api) -> None:
    assert api.call("GET", "/broker", headers={"origin": "http://127.0.0.1:8161"}).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8161", "10.0.0.1", "[", ":::"])
def test_foreign_name_on_loopback_is_refused(api: Api, host: str) -> None:
    assert api.error("GET", "/broker", headers={"host": host}) == (400, "protocol-violation")
    for path in ("/metrics", "/metrics/detailed?family=queue", "/"):
        assert api.error("GET", path, base="", headers={"host": host}) == (400, "protocol-violation"), path


@pytest.mark.parametrize("host", ["localhost", "localhost:8161", "127.0.0.1", "[::1]:8161", "127.1.2.3:80"])
def test_own_names_on_loopback_are_served(api: Api, host: str) -> None:
    assert api.call("GET", "/broker", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8161", "localhost.evil.example", "127.0.0.1.nip.io", "["]
)
def test_a_broker_without_users_is_asked_for_by_its_own_names_only(api: Api, host: str) -> None:
    """A page elsewhere may have its name point to the broker: then its requests come from the broker's own page."""
    api.service.http_address = "0.0.0.0:8161"
    api.service.settings = settings(http={"names": "Broker.example quire-1"})
    foreign = {"host": host, "origin": f"http://{host}"}
    assert api.error("POST", "/broker/stop", headers=foreign) == (400, "protocol-violation")
    assert api.call("GET", "/metrics", base="", headers={"host": host}).status_code == 400
    for own in ("192.0.2.7:8161", "[2001:db8::7]:8161", "localhost", "broker.example:8161", "Quire-1", "quire-1."):
        assert api.call("GET", "/broker", headers={"host": own}).status_code == 200, own


# The document.


def routes(api: Api) -> set[tuple[str, str]]:
    return {(method, route.path) for route in api.application.routes for method in (route.methods or set()) - {"HEAD"}}


UNDOCUMENTED = ("/", "/metrics", "/metrics/detailed", "/health", "/ready", "/api/v1/openapi.json")


def test_document_has_every_route(api: Api) -> None:
    document = api.call("GET", "/openapi.json").json()
    documented = {(method.upper(), path) for path, row in document["paths"].items() for method in row}
    assert routes(api) - {("GET", path) for path in UNDOCUMENTED} == documented
    assert len(documented) == len(ENDPOINTS)


def test_document_refers_to_nothing_that_is_missing(api: Api) -> None:
    document = api.call("GET", "/openapi.json").json()
    references: set[str] = set()

    def collect(part: Any) -> None:
        if isinstance(part, dict):
            references.update([part["$ref"]] if "$ref" in part else [])
            part = list(part.values())
        if isinstance(part, list):
            for inner in part:
                collect(inner)

    collect(document)
    assert references
    assert {reference.rpartition("/")[2] for reference in references} <= set(document["components"]["schemas"])


def test_document_says_what_each_field_of_a_queue_means(api: Api) -> None:
    fields = api.call("GET", "/openapi.json").json()["components"]["schemas"]["QueueStatus"]["properties"]
    assert fields["in_flight"] == {"type": "integer", "description": "Messages in flight."}
    assert all("description" in field for field in fields.values())


def test_document_has_parameters_and_bodies(api: Api) -> None:
    paths = api.call("GET", "/openapi.json").json()["paths"]
    browse = paths["/api/v1/queues/{name}/messages"]["get"]["parameters"]
    assert [(row["name"], row["in"], row["required"]) for row in browse] == [
        ("name", "path", True), ("limit", "query", False), ("after", "query", False),
        ("selector", "query", False), ("id", "query", False), ("preview", "query", False),
    ]  # fmt: skip
    move = paths["/api/v1/queues/{name}/move"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert move == {"$ref": "#/components/schemas/Move"}


# A broker by itself has no cluster to tell of: see tests.unit.http.cluster.
ALONE = [row for row in ENDPOINTS if row.method in ("GET", "POST") and not row.path.startswith("/cluster")]


@pytest.mark.parametrize("row", ALONE, ids=lambda row: f"{row.method} {row.path}")
def test_answer_is_what_the_document_says(api: Api, row: Endpoint) -> None:
    fill(api)
    path, sent = sample_request(row)
    api.application.services.bulk = Running("memory:", api.stepped.settings)
    if row.path == "/tokens" and row.method == "POST":
        api.call("POST", "/users", json={"name": "bob", "roles": ["administrator"], "password": "b"})
        sent |= {"auth": ("bob", "b")}
    answer = api.call(row.method, path, **sent)
    assert answer.status_code == row.status
    if row.answer is not bytes:
        msgspec.json.decode(answer.content, type=row.answer)


def test_page_names_every_endpoint() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "http.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `([A-Z]+ /\S+)` \|", page, re.MULTILINE)) == {
        f"{row.method} {row.path}" for row in ENDPOINTS
    }


def test_a_bulk_server_that_listens_everywhere_is_where_the_broker_was_reached(api: Api) -> None:
    api.application.services.bulk = running = Running("memory:", api.stepped.settings)
    (answer,) = api.call("POST", "/bulk").json()["servers"]
    assert answer["urls"] == ["http://127.0.0.1:8162", "http://127.0.0.1:8163"]
    assert Rights(running.readers.secret, print).reader_of(answer["token"])


def test_a_store_in_memory_is_not_read_in_bulk(api: Api) -> None:
    assert api.error("POST", "/bulk") == (400, "invalid-argument")
