"""Calls to the broker's HTTP API: where to, what is sent, what errors become."""

import json
from pathlib import Path

import pytest

from quire.cli.api import DEFAULT_URL, Api, Login, destination_path, find_url, queue_path
from quire.errors import (
    BrokerUnreachable,
    InvalidArgument,
    InvalidDestination,
    NotAuthenticated,
    QuireError,
    UnknownDestination,
)
from tests.unit.cli.conftest import FakeBroker


def test_url_of_the_flag_stands_over_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUIRE_URL", "http://environment:1")
    (tmp_path / "broker.json").write_text(json.dumps({"pid": 1, "stomp": "127.0.0.1:2", "http": "127.0.0.1:3"}))
    assert find_url("http://flag:1", str(tmp_path)) == "http://flag:1"
    assert find_url(None, str(tmp_path)) == "http://127.0.0.1:3"
    assert find_url(None, None) == "http://environment:1"
    monkeypatch.delenv("QUIRE_URL")
    assert find_url(None, None) == DEFAULT_URL


@pytest.mark.parametrize("content", [None, "", "{}", "[]", "not json"])
def test_data_directory_without_a_broker_is_unreachable(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "broker.json").write_text(content)
    with pytest.raises(BrokerUnreachable, match="no broker runs on"):
        find_url(None, str(tmp_path))


@pytest.mark.parametrize("url", ["127.0.0.1:8161", "ftp://127.0.0.1", ""])
def test_url_of_another_kind_is_refused(url: str) -> None:
    with pytest.raises(InvalidArgument, match="is not the URL of a broker"):
        Api(url)


def test_names_are_percent_encoded() -> None:
    assert queue_path("a/b c#ü", "purge") == "/queues/a%2Fb%20c%23%C3%BC/purge"


@pytest.mark.parametrize("written", ["orders", "/queue/orders", "queue://orders"])
def test_a_queue_may_be_written_as_stomp_and_the_store_write_it(written: str) -> None:
    assert queue_path(written) == "/queues/orders"


@pytest.mark.parametrize("written", ["", "/queue/", "a\nb"])
def test_what_is_no_name_is_refused_before_anybody_is_asked(written: str) -> None:
    with pytest.raises(InvalidDestination, match="is not a name for a queue"):
        queue_path(written)


def test_topics_have_paths_of_their_own() -> None:
    assert destination_path("topic://a/b", "messages") == "/topics/a%2Fb/messages"
    assert destination_path("orders") == "/queues/orders"


def test_call_sends_json_and_leaves_absent_arguments_out(broker: FakeBroker) -> None:
    broker.answer("POST", "/x", {"done": 1})
    assert Api("http://127.0.0.1:1/").call("POST", "/x", {"a": 1}, limit=5, after=None) == {"done": 1}
    assert broker.calls == [("POST", "/x", {"limit": "5"}, {"a": 1})]
    assert broker.urls == ["http://127.0.0.1:1"]


def test_empty_answer_is_an_empty_result(broker: FakeBroker) -> None:
    broker.answer("DELETE", "/x", b"", status=204)
    assert Api(DEFAULT_URL).call("DELETE", "/x") == {}


def test_error_is_raised_as_the_type_it_had(broker: FakeBroker) -> None:
    error = {"code": "unknown-destination", "text": "there is no queue q", "advice": "...", "data": {"name": "q"}}
    broker.answer("GET", "/queues/q", {"error": error}, status=404)
    with pytest.raises(UnknownDestination, match="there is no queue q") as caught:
        Api(DEFAULT_URL).call("GET", "/queues/q")
    assert caught.value.data == {"name": "q"}


def test_a_broker_with_users_says_how_to_log_in_where_no_login_was_given(broker: FakeBroker) -> None:
    error = {"code": "not-authenticated", "text": "log in", "advice": "...", "data": {}}
    broker.answer("GET", "/queues", {"error": error}, status=401)
    with pytest.raises(NotAuthenticated, match="--data DIR"):
        Api(DEFAULT_URL).call("GET", "/queues")
    with pytest.raises(NotAuthenticated, match=r"^log in$"):
        Api(DEFAULT_URL, Login("alice", "wrong")).call("GET", "/queues")


def test_error_of_a_newer_broker_keeps_its_code_in_the_text(broker: FakeBroker) -> None:
    broker.answer("GET", "/x", {"error": {"code": "new-thing", "text": "it failed", "advice": ""}}, status=500)
    with pytest.raises(QuireError, match=r"it failed \(new-thing\)"):
        Api(DEFAULT_URL).call("GET", "/x")


@pytest.mark.parametrize(("status", "content"), [(200, b"<html>"), (404, b"not found"), (500, b"{}"), (502, b"[1]")])
def test_something_else_that_answers_is_no_broker(broker: FakeBroker, status: int, content: bytes) -> None:
    broker.answer("GET", "/x", content, status)
    with pytest.raises(BrokerUnreachable, match="is not a Quire broker"):
        Api(DEFAULT_URL).call("GET", "/x")
