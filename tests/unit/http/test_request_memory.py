"""Requests and unfinished STOMP frames count against one limit, whichever door they came through."""

import pytest

from quire.http import endpoint
from quire.http.operations import RequestMemory
from quire.protocols.stomp.frames import encode_frame
from tests.unit.http.conftest import Api

MESSAGE = {"body": "b" * 700}
HELD = 600


def test_a_body_that_finds_no_memory_is_refused_and_may_be_tried_again(api: Api) -> None:
    broker = api.stepped.broker
    broker.core.partial_limit, broker.core.partial_bytes = 1000, HELD
    answer = api.call("POST", "/queues/q/messages", json=MESSAGE)
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "broker-busy")
    assert answer.headers["retry-after"] == "1"
    assert broker.core.partial_bytes == HELD
    broker.core.partial_bytes = 0
    assert api.call("POST", "/queues/q/messages", json=MESSAGE).status_code == 201
    assert broker.core.partial_bytes == 0


def test_a_body_that_is_alone_goes_whatever_its_size(api: Api) -> None:
    api.stepped.broker.core.partial_limit = 100
    assert api.call("POST", "/queues/q/messages", json=MESSAGE).status_code == 201
    assert api.stepped.broker.core.partial_bytes == 0


def test_an_answer_that_finds_no_memory_is_refused(api: Api) -> None:
    api.call("POST", "/queues/q/messages", json=MESSAGE)
    broker = api.stepped.broker
    broker.core.partial_limit, broker.core.partial_bytes = 1000, HELD
    assert api.error("GET", "/queues/q/messages") == (503, "broker-busy")
    assert api.error("GET", "/metrics", base="") == (503, "broker-busy")
    broker.core.partial_limit = 1 << 20
    assert api.call("GET", "/queues/q/messages").status_code == 200
    assert broker.core.partial_bytes == HELD


def test_a_request_counts_until_it_is_done(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    counts, take = [], RequestMemory.take

    def counted(memory: RequestMemory, size: int) -> None:
        take(memory, size)
        if size:
            counts.append(api.stepped.broker.core.partial_bytes)

    monkeypatch.setattr(RequestMemory, "take", counted)
    sent = api.call("POST", "/queues/q/messages", json=MESSAGE)
    body = len(sent.request.content)
    assert counts == [body, body + len(sent.content)]


def test_bodies_and_stomp_frames_are_one_account(api: Api) -> None:
    stepped = api.stepped
    stepped.broker.core.partial_limit = 1000
    sender = stepped.connect()
    frame = encode_frame(b"SEND", {"destination": "/queue/q", "content-length": "900"}, b"x" * 900)
    sender.feed(frame[:HELD])
    assert api.error("POST", "/queues/q/messages", json=MESSAGE) == (503, "broker-busy")
    sender.feed(frame[HELD:])
    assert api.call("POST", "/queues/q/messages", json=MESSAGE).status_code == 201
    assert (stepped.broker.core.partial_bytes, sender.errors()) == (0, [])


def test_only_messages_may_be_large(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "MAX_BYTES", 500)
    assert api.call("POST", "/queues/q/messages", json=MESSAGE).status_code == 201
    assert api.error("POST", "/queues/q/purge", json={"ids": ["i" * 100] * 6}) == (413, "limit-exceeded")
