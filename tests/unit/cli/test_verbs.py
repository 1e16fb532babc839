"""Verbs that are one request: what each asks of the broker, what it prints, and whether it asks first."""

import json
import shlex
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl

import pytest
from click.testing import Result

from quire.cli import output
from tests.unit.cli.conftest import FakeBroker

Run = Callable[..., Result]

CHANGED = {"done": True, "again": 4, "skipped": 0, "in_flight": 5, "retries_dropped": 1, "partitions": []}

VERBS: list[tuple[str, str, Any, dict[str, Any], str]] = [
    ("queue create a/b", "PUT /queues/a%2Fb", None, {}, "created a/b"),
    ("queue delete q", "DELETE /queues/q", None, {}, "deleted q"),
    ("queue delete q --force", "DELETE /queues/q?force=true", None, {}, "deleted q"),
    ("queue pause q", "POST /queues/q/pause", None, {}, "paused q"),
    ("queue pause {it}", "POST /queues/%7Bit%7D/pause", None, {}, "paused {it}"),
    ("queue resume q", "POST /queues/q/resume", None, {}, "resumed q"),
    ("queue group-close q a/b", "DELETE /queues/q/groups/a%2Fb", None, {"closed": "a/b"}, "closed the group a/b of q"),
    ("queue purge q", "POST /queues/q/purge", {}, {"removed": 7}, "removed 7 messages from q"),
    ("queue purge q --selector a=1 --limit 3", "POST /queues/q/purge", {"selector": "a=1", "limit": 3},
     {"removed": 1}, "removed 1 message from q"),
    ("queue copy q topic://t --id ID:1", "POST /queues/q/copy", {"to": "topic://t", "ids": ["ID:1"]},
     {"copied": 1}, "copied 1 message from q to topic://t"),
    ("queue move q r", "POST /queues/q/move", {"to": "r"}, {"moved": 2}, "moved 2 messages from q to r"),
    ("queue move q r --id ID:1 --id ID:2 --limit 5", "POST /queues/q/move",
     {"to": "r", "ids": ["ID:1", "ID:2"], "limit": 5}, {"moved": 2}, "moved 2 messages from q to r"),
    ("queue redrive q", "POST /queues/q/redrive", {}, {"moved": 4}, "sent 4 messages of q back"),
    ("queue redrive q --limit 4", "POST /queues/q/redrive", {"limit": 4}, {"moved": 4}, "sent 4 messages of q back"),
    ("queue redrive q --selector 'a = 1' --to r", "POST /queues/q/redrive", {"selector": "a = 1", "to": "r"},
     {"moved": 4}, "sent 4 messages of q to r"),
    ("topic create t", "PUT /topics/t", None, {}, "created t"),
    ("topic delete t", "DELETE /topics/t", None, {}, "deleted t"),
    ("topic delete t --force", "DELETE /topics/t?force=true", None, {}, "deleted t"),
    ("durable create c d topic://t --selector 'a = 1' --retroactive", "PUT /durables/c/d",
     {"topic": "t", "selector": "a = 1", "no_local": False, "retroactive": True}, {}, "created d of c"),
    ("durable delete c d", "DELETE /durables/c/d", None, {"removed": 5}, "removed d of c"),
    ("durable delete c d --force", "DELETE /durables/c/d?force=true", None, {"removed": 5}, "removed d of c"),
    ("durable purge c d --selector a=1", "POST /durables/c/d/purge", {"selector": "a=1"}, {"removed": 3},
     "removed 3 messages from d of c"),
    ("stream create s", "PUT /streams/s", {"partitions": None}, {}, "created s"),
    ("stream create s --partitions 8", "PUT /streams/s", {"partitions": 8}, {}, "created s"),
    ("stream delete a/b", "DELETE /streams/a%2Fb", None, {"removed": 5}, "deleted a/b"),
    ("stream delete s --force", "DELETE /streams/s?force=true", None, {"removed": 5}, "deleted s"),
    ("stream partitions s 6", "POST /streams/s/partitions", {"count": 6}, {}, "s now has 6 partitions"),
    ("stream pins set s job --from ago=1h --for 2h", "PUT /streams/s/pins/job",
     {"start": "ago=1h", "time_to_live": 7200.0}, {"until": 1_767_225_600_000},
     "job keeps messages of s until 2026-01-01 00:00:00+00:00"),
    ("stream pins release s job", "DELETE /streams/s/pins/job", None, {"released": "job"}, "released job of s"),
    ("group delete s g --force", "DELETE /groups/s/g?force=true", None, {"lag": 1, "retries": 0},
     "deleted g of s, which had a lag of 1 message"),
    ("producer forget p", "DELETE /producers/p", None, {"forgotten": "p"}, "forgot p"),
    ("schedule cancel 5", "DELETE /schedule/5", None, {"cancelled": "5"}, "cancelled 5"),
    ("schedule cancel --all", "DELETE /schedule", None, {"removed": 7}, "cancelled 7 messages"),
    ("xa commit x-1", "POST /xa/x-1/commit", None, {"xid": "x-1"}, "committed x-1"),
    ("xa rollback x-1", "POST /xa/x-1/rollback", None, {"xid": "x-1"}, "rolled back x-1"),
    ("xa forget x-1", "DELETE /xa/x-1", None, {"xid": "x-1"}, "forgot x-1"),
    ("user add alice --no-password", "POST /users",
     {"name": "alice", "password": None, "roles": [], "certificates": []}, {}, "added alice"),
    ("user role alice", "PUT /users/alice", {"roles": []}, {"roles": []}, "alice has the roles: none"),
    ("user role alice y x", "PUT /users/alice", {"roles": ["y", "x"]}, {"roles": ["x", "y"]},
     "alice has the roles: x, y"),
    ("user rm alice", "DELETE /users/alice", None, {}, "removed alice"),
    ("rule add user:alice deny read,write a.>", "POST /rules",
     {"subject": "user:alice", "deny": ["read", "write"], "destination": "a.>"}, {"id": "r7"}, "added the rule r7"),
    ("rule set r7 * allow read b", "PUT /rules/r7", {"subject": "*", "allow": ["read"], "destination": "b"}, {},
     "changed the rule r7"),
    ("rule rm r7", "DELETE /rules/r7", None, {}, "removed the rule r7"),
    ("rule check alice write orders", "GET /rules/check?user=alice&action=write&destination=orders", None,
     {"text": "because"}, "because"),
    ("rule check alice write q --role x --role y", "GET /rules/check?user=alice&action=write&destination=q&roles=x,y",
     None, {"text": "because"}, "because"),
    ("token create --expires 1h --role monitor --text x", "POST /tokens",
     {"expires_in": 3600.0, "owner": None, "roles": ["monitor"], "text": "x"}, {"secret": "qt_a_b"}, "qt_a_b"),
    ("token revoke a", "DELETE /tokens/a", None, {}, "revoked the token a"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "call", "body", "answer", "sentence"), VERBS)
def test_verb_makes_one_call_and_says_what_it_did(
    broker: FakeBroker, run: Run, line: str, call: str, body: object, answer: dict[str, Any], sentence: str
) -> None:
    method, _, where = call.partition(" ")
    path, _, query = where.partition("?")
    broker.answer(method, path, answer)
    result = run(*shlex.split(line))
    assert (result.exit_code, result.output) == (0, f"{sentence}\n")
    assert broker.calls == [(method, path, dict(parse_qsl(query)), body)]
    assert json.loads(run(*shlex.split(line), "--output", "json").output) == answer


@pytest.mark.parametrize(
    "line",
    [
        "queue delete q", "queue purge q", "topic delete t", "durable delete c d", "durable purge c d",
        "stream delete s", "group reset s g latest", "group clone s g h", "group delete s g", "schedule cancel --all",
        "xa commit x-1", "xa rollback x-1", "user rm alice", "rule rm r7",
    ],
)  # fmt: skip
def test_what_destroys_is_asked_about_on_a_terminal(
    broker: FakeBroker, run: Run, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.setattr(output, "on_terminal", lambda stream: True)
    for method, path in [call.partition("?")[0].split(" ") for _, call, _, _, _ in VERBS]:
        broker.answer(method, path, {"removed": 0, "lag": 3})
    for path in ("/groups/s/g/reset", "/groups/s/g/clone"):
        broker.answer("POST", path, {**CHANGED, "lag": 3})
    broker.answer("DELETE", "/streams/s", {})
    broker.answer("POST", "/durables/c/d/purge", {"removed": 0})
    assert run(*shlex.split(line), stdin=b"n\n").exit_code == 1
    assert [call for call in broker.calls if call[2] != {"dry_run": "true"}] == []
    assert run(*shlex.split(line), stdin=b"y\n").exit_code == 0
    assert run(*shlex.split(line), "--yes").exit_code == 0
    assert len([call for call in broker.calls if call[2] != {"dry_run": "true"}]) == 2


@pytest.mark.parametrize(
    "line",
    [
        "queue show topic://orders", "queue redrive q --rate fast", "queue redrive q --rate 0/s",
        "queue redrive q --rate 5/d", "queue redrive q --rate -1", "topic show /queue/prices",
        "stream show /topic/events", "stream pins set s job --for long", "stream read s --until 5",
        "stream find s --since yesterday", f"stream find s --since {'9' * 5000}", "group show /queue/q g",
        "group assign s g a --room c=north", "group assign s g a --wants a=first", "group assign s g a --wants c=1",
        "schedule cancel", "schedule cancel 5 --all", "rule add * allow 'read, write' b", "token create --expires soon",
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_a_usage_error(broker: FakeBroker, run: Run, line: str) -> None:
    assert run(*shlex.split(line)).exit_code == 2
    assert broker.calls == []
