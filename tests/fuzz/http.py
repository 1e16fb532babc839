"""Fuzz the HTTP API: ``python -m tests.fuzz.http --seconds 60``; exits 1 on a finding.

Requests are made from the API's own OpenAPI document, most of them nearly right, and sent one after the other to a
broker that moves a step at a time. No answer may be an error of the broker's, each has to be of its declared type, and
afterwards the broker serves as before.
"""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx
import msgspec
from hypothesis import given
from hypothesis import strategies as st

from quire.errors import ERRORS
from quire.http.actions import Started
from quire.http.app import ENDPOINTS
from quire.http.endpoint import BASE, Endpoint, document
from quire.http.operations import DryRun
from quire.http.pull import MAX_WAIT
from quire.store.base import Store, Sync
from quire.store.urls import store_for_url
from quire.testing.stepped import SteppedBroker
from tests.fuzz.fuzzing import main
from tests.fuzz.schema_values import WORDS, SchemaValues, anything
from tests.unit.broker.harness import settings as broker_settings
from tests.unit.http.conftest import Api

EXAMPLES_A_SECOND = 20

LEFT_OUT = {"/broker/stop", "/bulk", "/store/verify"}
"""What ends the broker, and what starts a process."""

PATIENCE = 2000
"""After how many steps of the broker a request that waits is given up, as a client would that goes away."""

SETUP: list[tuple[str, str, Any]] = [
    ("PUT", "/queues/q", None),
    ("POST", "/queues/q/messages", {"body": "b", "headers": {"a": "1", "JMSXGroupID": "g"}, "count": 3}),
    ("PUT", "/durables/c/d", {"topic": "t"}),
    ("POST", "/topics/t/messages", {"body": "b"}),
    ("PUT", "/streams/s", {"partitions": 2}),
    ("POST", "/streams/s/messages", {"body": "b", "count": 5}),
    ("POST", "/streams/s/groups/g/receive", {"member": "m", "start": "earliest", "max": 2}),
    ("POST", "/queues/q/messages", {"body": "b", "headers": {"AMQ_SCHEDULED_DELAY": "60000"}}),
    ("POST", "/users", {"name": "alice"}),
    ("POST", "/rules", {"subject": "user:alice", "allow": ["read"], "destination": "q"}),
]
"""What the broker has before: one of everything, as of queues, topics, streams, users."""

THERE = [
    ("sequence", "1"), ("offset", "1"), ("operation", "1"), ("kind", "queue"), ("/policies", "q"),
    ("client", "c"), ("group", "g"), ("partition", "0"), ("pin", "p"), ("producer", "p"), ("xid", "00000001-0a-0b"),
    ("/queues", "q"), ("/topics", "t"), ("/streams", "s"), ("/groups", "s"), ("/durables", "d"), ("id", "1"),
    ("user", "alice"), ("rule", "r1"), ("token", "t"),
    ("/cluster", "q"),
]  # fmt: skip
"""What the names in a path stand for, by the name or by where the path begins."""

NO_NAMES = ["%FF", "%", "%2", "..", "%2e%2e", "%00"]

LIMITS = broker_settings(
    stomp={"max_body": 10_000}, broker={"max_destinations": 40, "max_durable_subscriptions": 20},
    producer={"id_cache_size": 3},
)  # fmt: skip


class Sent(NamedTuple):
    row: Endpoint
    path: str
    query: list[tuple[str, str]]
    content: bytes
    headers: dict[str, str]


class BadAnswer(AssertionError):
    """The API answered what it may not."""


@cache
def _document() -> dict[str, Any]:
    return document(ENDPOINTS)


def _operation(row: Endpoint) -> dict[str, Any]:
    found: dict[str, Any] = _document()["paths"][BASE + row.path][row.method.lower()]
    return found


def _in_path(name: str, path: str) -> st.SearchStrategy[str]:
    """What stands for a name in a path: mostly what is there, sometimes another one, rarely what is no text."""
    right = next(found for place, found in THERE if place == name or path.startswith(place))
    others = st.sampled_from(WORDS).map(_quoted) | st.sampled_from(NO_NAMES)
    return st.integers(0, 9).flatmap(lambda choice: others if choice == 0 else st.just(right))


def _quoted(name: str) -> str:
    return quote(name, safe="") or "%20"


@st.composite
def requests(draw: st.DrawFn) -> Sent:
    row = draw(st.sampled_from([row for row in ENDPOINTS if row.path not in LEFT_OUT]))
    make = SchemaValues(_document(), is_right=draw(st.booleans()))
    operation, path = _operation(row), row.path
    query = []
    for parameter in operation["parameters"]:
        name = parameter["name"]
        if parameter["in"] == "path":
            path = path.replace("{" + name + "}", draw(_in_path(name, row.path)), 1)
        elif parameter["required"] or draw(st.booleans()):
            query.append((name, _written(draw(make.of(parameter["schema"])))))
    if draw(st.integers(0, 20)) == 0:
        query.append((_written(draw(anything)), "1"))
    return Sent(row, path, query, draw(_content(row, operation, make)), draw(_headers))


_headers = st.sampled_from([{}] * 30 + [{"content-length": "9" * 30}, {"origin": "http://other"}, {"host": "other:1"}])


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


@st.composite
def _content(draw: st.DrawFn, row: Endpoint, operation: dict[str, Any], make: SchemaValues) -> bytes:
    if row.body is None or draw(st.integers(0, 20)) == 0:
        return draw(st.sampled_from([b""] * 20 + [b"{}", b"[", b'{"a":' * 2000, b"\xff", b"x" * 20_000]))
    ((_, media),) = operation["requestBody"]["content"].items()
    body = draw(make.of(media["schema"]))
    if isinstance(body, dict) and isinstance(body.get("wait"), int | float):
        body["wait"] = min(body["wait"], MAX_WAIT)
    if not row.packed:
        return json.dumps(body).encode("utf-8", "surrogatepass")
    if isinstance(body, dict) and isinstance(body.get("value"), list):
        body["value"] = [
            value.encode("utf-8", "replace") if isinstance(value, str) else value for value in body["value"]
        ]
    try:
        return msgspec.msgpack.encode(body)
    except (OverflowError, UnicodeEncodeError):
        return b"\xc1"


def _check_content(row: Endpoint, content: bytes) -> None:
    """An answer is what its row says; of an action that can be tried out also what a dry run tells."""
    if row.answer is bytes:
        return
    try:
        msgspec.json.decode(content, type=row.answer)
    except msgspec.ValidationError:
        if row.dry_run is None:
            raise
        msgspec.json.decode(content, type=DryRun)


class Fuzzed:
    def __init__(self, store: Store | None) -> None:
        self.api = Api(SteppedBroker(LIMITS, store=store))
        self.login = {"authorization": f"Bearer {self.api.service.security.accounts.local_token}"}
        for method, path, body in SETUP:
            answer = self.api.call(method, path, json=body, headers=self.login)
            if answer.status_code >= 300:
                raise BadAnswer(f"{method} {path}: {answer.text}")

    def check(self, sent: Sent) -> None:
        answer = asyncio.run(self._answer(sent))
        self.api.stepped.run()
        if self.api.stepped.broker.core.partial_bytes:
            raise BadAnswer(f"{sent}: {self.api.stepped.broker.core.partial_bytes} bytes are held after the answer")
        if answer is None:
            return
        what = (
            f"{sent.row.method} {answer.request.url} {sent.content[:300]!r}: {answer.status_code} {answer.text[:300]}"
        )
        try:
            if answer.status_code == sent.row.status:
                _check_content(sent.row, answer.content)
                return
            if answer.status_code == 202 and sent.row.dry_run is not None:
                msgspec.json.decode(answer.content, type=Started)
                return
            code = answer.json()["error"]["code"]
        except (ValueError, KeyError) as error:
            raise BadAnswer(f"{what}: {error}") from error
        if answer.status_code >= 500 and answer.status_code != 503:
            raise BadAnswer(what)
        if code not in ERRORS:
            raise BadAnswer(what)

    async def _answer(self, sent: Sent) -> httpx.Response | None:
        """The answer; None if there was none for so long that the client has gone away."""
        transport = httpx.ASGITransport(app=self.api.application, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8161") as client:
            request = client.build_request(
                sent.row.method, httpx.URL("http://127.0.0.1:8161" + BASE + sent.path, params=sent.query or None),
                content=sent.content, headers=self.login | sent.headers,
            )  # fmt: skip
            request.url = request.url.copy_with(raw_path=_raw(sent, request.url))
            answer = asyncio.ensure_future(client.send(request))
            for step in range(PATIENCE):
                if answer.done():
                    return await answer
                self.api.stepped.run()
                if step > 50:
                    self.api.stepped.advance(1)
                await asyncio.sleep(0)
            answer.cancel()
            await asyncio.gather(answer, return_exceptions=True)
            return None

    def check_health(self) -> None:
        for path in ("/health", "/broker", "/queues", "/topics", "/durables", "/streams", "/groups", "/producers"):
            answer = self.api.call("GET", path, headers=self.login)
            if answer.status_code != 200:
                raise BadAnswer(f"afterwards GET {path}: {answer.status_code} {answer.text[:300]}")
        if self.api.call("GET", "/metrics", base="", headers=self.login).status_code != 200:
            raise BadAnswer("afterwards there are no metrics")
        self.api.stepped.queue("alive").send(b"message-id:1\ntimestamp:1\n\n", 0, 4, True)
        self.api.stepped.run()
        if self.api.stepped.queue("alive").depth != 1:
            raise BadAnswer("afterwards a queue takes no message")


def _raw(sent: Sent, url: httpx.URL) -> bytes:
    """The path as it was made: httpx would mend a percent sign that is none."""
    return (BASE + sent.path).encode() + (b"?" + url.query if url.query else b"")


def check_all(requests: list[Sent], store: Store | None = None) -> None:
    """Send requests one after the other to a new broker, and see that it serves as before."""
    fuzzed = Fuzzed(store)
    for sent in requests:
        fuzzed.check(sent)
    with fuzzed.api.stepped.broker.core.limits.own_work():
        fuzzed.check_health()


@contextmanager
def sqlite() -> Iterator[Store]:
    with TemporaryDirectory() as directory:
        store = store_for_url(f"sqlite:///{Path(directory, 'store.sqlite')}", Sync.NEVER)
        store.open()
        yield store
        store.close()


@given(st.lists(requests(), min_size=1, max_size=8), st.integers(0, 3))
def search(sequence: list[Sent], kind: int) -> None:
    if kind:
        check_all(sequence)
    else:
        with sqlite() as store:
            check_all(sequence, store)


if __name__ == "__main__":
    main(search, EXAMPLES_A_SECOND)
