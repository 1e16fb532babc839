"""A broker's HTTP API without a broker: lists of any length, names of any kind, and a record of what was asked."""

import json
from base64 import b64decode
from typing import Any
from urllib.parse import unquote

import httpx

from tests.unit.console import shapes
from tests.unit.console.shapes import NOW


def _list(key: str, *entries: dict[str, Any]) -> dict[str, Any]:
    return {key: list(entries), "next": None, "total": len(entries)}


DETAILS: dict[tuple[str, int], dict[str, Any]] = {
    ("overview", 1): shapes.overview(), ("topics", 1): _list("topics", shapes.TOPIC), ("topics", 2): shapes.TOPIC,
    ("durables", 1): _list("durables", shapes.DURABLE), ("durables", 3): shapes.DURABLE,
    ("streams", 1): _list("streams", shapes.STREAM_ROW), ("streams", 2): shapes.STREAM,
    ("groups", 1): _list("groups", shapes.GROUP_ROW) | {"readers": []}, ("groups", 3): shapes.GROUP,
    ("connections", 1): _list("connections", shapes.CONNECTION), ("xa", 1): _list("transactions", shapes.PREPARED),
    ("consumers", 1): _list("consumers", shapes.CONSUMER), ("schedule", 1): _list("messages", shapes.SCHEDULED),
    ("policies", 3): shapes.POLICY,
    ("rules", 2): {"allowed": False, "text": "alice may not read queue://orders", "reason": "no rule", "rule": None,
                   "overruled": [], "hint": ""},
}  # fmt: skip
"""Answers by how a path begins and how many parts it has."""

OPERATION = {
    "id": "7", "action": "purge", "target": "queue orders", "by": "admin", "state": "running", "done": 1204,
    "of": 1204, "started_at": NOW, "ended_at": None, "error": None,
}  # fmt: skip


def _messages(parts: list[str], query: dict[str, str]) -> dict[str, Any]:
    """A page of messages, which has no end, or one of them."""
    last = parts[-1]
    if last != "messages":
        return shapes.message(int(last))
    start = int(query.get("after") or query.get("from") or 0)
    limit = int(query.get("limit", 100))
    return {"messages": [shapes.message(start + at) for at in range(1, limit + 1)], "next": str(start + limit)}


class FakeBroker(httpx.AsyncBaseTransport):
    """Answers what the API would, and remembers the requests."""

    def __init__(self, queues: int = 60, users: dict[str, str] | None = None) -> None:
        self.users = users or {}  # their passwords; without any, everybody may do everything
        self.requests: list[tuple[str, str, dict[str, str], Any]] = []
        self.authorizations: list[str | None] = []
        self.who: dict[str, Any] = {
            "name": "", "roles": [], "proof": "none", "until": None, "secured": bool(self.users),
            "permissions": ["monitor", "operate", "administer"], "may": ["create", "manage", "read", "write"],
        }  # fmt: skip
        self.failure: httpx.Response | Exception | None = None
        self.queues = [shapes.queue(name, place) for place, name in enumerate(shapes.names(queues))]

    def fail(self, status: int, code: str, text: str) -> None:
        self.failure = error(status, code, text)

    def _is_known(self, authorization: str | None) -> bool:
        if not self.users or authorization == "Bearer qt_k7Q2_secret":
            return True
        kind, _, value = (authorization or "").partition(" ")
        user, _, password = b64decode(value).decode().partition(":") if kind == "Basic" else ("", "", "")
        return bool(password) and self.users.get(user) == password

    def asked(self, method: str, prefix: str) -> list[str]:
        """The paths that were asked for, as they were written."""
        return [path for asked, path, _, _ in self.requests if asked == method and path.startswith(prefix)]

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        path = request.url.raw_path.decode().partition("?")[0].removeprefix("/api/v1")
        body = json.loads(request.content) if request.content else None
        query = dict(request.url.params)
        self.requests.append((request.method, path, query, body))
        self.authorizations.append(request.headers.get("authorization"))
        if isinstance(self.failure, Exception):
            raise self.failure
        if self.failure is not None:
            return self.failure
        if not self._is_known(self.authorizations[-1]):
            return error(401, "access-refused", "the broker does not know the user, or the password is another one")
        return self._answer(request.method, [unquote(part) for part in path.split("/")[1:]], query)

    def _answer(self, method: str, parts: list[str], query: dict[str, str]) -> httpx.Response:
        head, count = parts[0], len(parts)
        if query.get("dry_run") == "true":
            return answer({"dry_run": True, "count": 1204, "at_least": False, "consumers": 1, "token": "t-1",
                           "again": 1, "skipped": 2, "in_flight": 3, "retries_dropped": 4})  # fmt: skip
        if query.get("background") == "true":
            return answer({"operation": OPERATION | {"state": "done"}}, 202)
        if method != "GET":
            return answer(
                {"name": parts[1] if count > 1 else "", "secret": "qt_k7Q2_secret", "token": {"id": "k7Q2"}, "sent": 1}
            )
        if head == "queues" and count == 1:
            return answer(self.listed("queues", self.queues, query))
        if head == "queues" and count == 2:
            return answer(shapes.queue(parts[1], 7))
        if head == "history":
            return answer(shapes.history(query))
        if head == "whoami":
            return answer(self.who)
        if "messages" in parts:
            return answer(_messages(parts, query))
        if found := DETAILS.get((head, count)) or shapes.FIXED.get(head):
            return answer(found)
        return error(404, "invalid-argument", f"there is no {method} {'/'.join(parts)}")

    def listed(self, key: str, entries: list[dict[str, Any]], query: dict[str, str]) -> dict[str, Any]:
        found = [entry for entry in entries if query.get("search", "").lower() in str(entry["name"]).lower()]
        sort = query.get("sort", "name")
        found.sort(key=lambda entry: entry.get(sort.removeprefix("-")) or 0, reverse=sort.startswith("-"))
        offset, limit = int(query.get("offset", 0)), int(query.get("limit", 100))
        return {key: found[offset : offset + limit], "next": None, "total": len(found)}


def answer(content: object, status: int = 200) -> httpx.Response:
    return httpx.Response(status, json=content)


def error(status: int, code: str, text: str) -> httpx.Response:
    return answer({"error": {"code": code, "text": text, "advice": "", "data": {}}}, status)
