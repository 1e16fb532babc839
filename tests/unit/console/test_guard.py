"""The guard: what has no session, no page or a foreign origin gets no client."""

import asyncio
import contextlib
from typing import Any

import httpx
import pytest
from nicegui import Client
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from quire.clock import ManualClock
from quire.console.guard import Guard
from quire.console.session import Access, BrokerApi, Sessions
from quire.security.accounts import OF_THE_CONSOLE
from quire.settings import is_loopback
from tests.unit.console.fake_broker import FakeBroker, error
from tests.unit.console.rig import Rig, with_rig

USERS = {"admin": "secret", "ops": "other"}


def secured() -> FakeBroker:
    return FakeBroker(users=USERS)


def test_an_open_broker_is_entered_without_a_login_by_a_browser_that_keeps_cookies() -> None:
    async def scenario(rig: Rig) -> None:
        first = await rig.http.get("/queues?search=a")
        assert first.status_code == 303
        assert not Client.instances
        answer = await rig.http.get("/queues?search=a", follow_redirects=True)
        assert (answer.status_code, str(answer.url)) == (200, "http://localhost/queues?search=a")

    with_rig(scenario)


def test_without_cookies_no_client_is_made() -> None:
    async def scenario(rig: Rig) -> None:
        for _ in range(5):
            answer = await rig.http.get("/")
            rig.http.cookies.clear()
            assert (await rig.http.get(answer.headers["location"])).status_code == 400
        assert not Client.instances

    with_rig(scenario)


@pytest.mark.parametrize("path", ["/nothing", "/_nicegui/x", "/_nicegui/3.0/secret", "/_nicegui_ws/socket.io/"])
def test_an_unknown_path_makes_no_client(path: str) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.user.open("/")
        before = len(Client.instances)
        assert (await rig.http.get(path)).status_code == 404
        assert len(Client.instances) == before

    with_rig(scenario)


@pytest.mark.parametrize("path", ["/", "/queues", "/message?name=a&at=1", "/download?name=a&at=1", "/users"])
def test_a_broker_with_users_wants_a_login_for_every_page(path: str) -> None:
    async def scenario(rig: Rig) -> None:
        answer = await rig.http.get(path)
        assert answer.status_code == 303
        assert answer.headers["location"].startswith("/login?")
        form = await rig.http.get(answer.headers["location"])
        assert 'name="password"' in form.text
        assert not Client.instances

    with_rig(scenario, secured())


def test_the_password_goes_to_the_broker_once_and_the_browser_gets_no_token() -> None:
    async def scenario(rig: Rig) -> None:
        answer = await rig.log_in("admin", "secret")
        assert answer.status_code == 303
        assert "qt_" not in str(answer.headers)
        assert "httponly" in answer.headers["set-cookie"].lower()
        page = await rig.http.get("/", follow_redirects=True)
        assert page.status_code == 200
        assert "qt_" not in page.text
        kinds = [authorization.split(" ")[0] for authorization in rig.broker.authorizations if authorization]
        assert kinds.count("Basic") == 1
        assert set(kinds[1:]) == {"Bearer"}
        (made,) = [body for method, path, _, body in rig.broker.requests if (method, path) == ("POST", "/tokens")]
        assert made["text"] == OF_THE_CONSOLE  # a change of the password ends it

    with_rig(scenario, secured())


def test_a_wrong_password_shows_the_form_again_and_why() -> None:
    async def scenario(rig: Rig) -> None:
        answer = await rig.log_in("admin", "<b>wrong</b>")
        assert answer.status_code == 401
        assert "the broker does not know" in answer.text
        assert "<b>wrong</b>" not in answer.text
        assert (await rig.http.get("/")).status_code == 303

    with_rig(scenario, secured())


@pytest.mark.parametrize(
    "target", ["//evil.example/", "https://evil.example/", "/\\evil.example", "javascript" + ":alert(1)"]
)
def test_a_login_leads_to_pages_of_this_console_only(target: str) -> None:
    async def scenario(rig: Rig) -> None:
        form = {"user": "admin", "password": "secret", "broker": "broker:8161", "next": target}
        answer = await rig.http.post("/login", data=form, headers={"origin": "http://localhost"})
        assert answer.headers["location"] == "/"

    with_rig(scenario, secured())


def test_a_login_makes_a_new_session() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.log_in("admin", "secret")
        first = rig.http.cookies["quire_console"]
        await rig.log_in("ops", "other")
        assert rig.http.cookies["quire_console"] != first
        rig.http.cookies.clear()
        rig.http.cookies["quire_console"] = first
        assert (await rig.http.get("/")).status_code == 303

    with_rig(scenario, secured())


def test_logging_out_deletes_the_pages_and_revokes_the_token() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.log_in("admin", "secret")
        await rig.user.open("/queues")
        assert len(Client.instances) == 1
        await rig.http.post("/logout", headers={"origin": "http://localhost"})
        assert not Client.instances
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert rig.broker.asked("DELETE", "/tokens/") == ["/tokens/k7Q2"]
        assert (await rig.http.get("/queues")).headers["location"].startswith("/login")

    with_rig(scenario, secured())


@pytest.mark.parametrize("origin", [None, "http://evil.example", "null", "http://localhost.evil.example"])
def test_a_form_of_a_page_elsewhere_is_refused(origin: str | None) -> None:
    async def scenario(rig: Rig) -> None:
        headers = {} if origin is None else {"origin": origin}
        for path in ("/login", "/logout"):
            assert (await rig.http.post(path, data={"user": "a"}, headers=headers)).status_code == 403
        assert rig.broker.requests == []

    with_rig(scenario, secured())


def test_a_name_that_points_to_loopback_is_refused() -> None:
    async def scenario(rig: Rig) -> None:
        assert (await rig.http.get("/", headers={"host": "evil.example"})).status_code == 421
        assert rig.broker.requests == []
        assert (await rig.http.get("/", headers={"host": "console.example"})).status_code == 303  # the console's own

    with_rig(scenario)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("evil.example", 421), ("10.0.0.1.evil.example:8162", 421), ("10.0.0.1:8162", 303), ("localhost", 303),
        ("console.example", 303),
    ],
)  # fmt: skip
def test_a_broker_without_users_is_shown_under_the_console_s_own_names_only(host: str, status: int) -> None:
    async def scenario() -> int:
        api = BrokerApi("http://broker:8161", FakeBroker())
        guard = Guard(
            app=Response(), brokers={api.key: api}, sessions=Sessions(ManualClock(), lambda _: None), access=Access(),
            pages=["/"], static=(), clients=lambda: 0, host="0.0.0.0", allow_open=True, names="console.example",
        )  # fmt: skip
        async with httpx.AsyncClient(transport=httpx.ASGITransport(guard), base_url=f"http://{host}") as browser:
            return (await browser.get("/")).status_code

    assert asyncio.run(scenario()) == status


def test_every_answer_forbids_frames_and_other_sources() -> None:
    async def scenario(rig: Rig) -> None:
        for path in ("/", "/login", "/nothing"):
            answer = await rig.http.get(path, follow_redirects=True)
            assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
            assert answer.headers["x-frame-options"] == "DENY"

    with_rig(scenario)


def test_the_number_of_open_pages_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(rig: Rig) -> None:
        statuses = [(await rig.http.get("/queues", follow_redirects=True)).status_code for _ in range(4)]
        assert statuses == [200, 200, 200, 503]

    monkeypatch.setattr(Guard, "MAX_CLIENTS", 3)
    with_rig(scenario)


def test_an_answer_of_no_broker_is_a_page_that_tries_again() -> None:
    async def scenario(rig: Rig) -> None:
        rig.broker.failure = httpx.ConnectError("refused")
        answer = await rig.http.get("/")
        assert answer.status_code == 503
        assert 'http-equiv="refresh"' in answer.text
        rig.broker.failure = error(500, "store-failed", "<img src=x>")
        assert "<img src=x>" not in (await rig.http.get("/")).text
        assert not Client.instances

    with_rig(scenario)


def websocket(rig: Rig, path: str, headers: dict[str, str]) -> list[dict[str, Any]]:
    """What the guard sends to one who wants a websocket."""
    sent: list[dict[str, Any]] = []

    async def connect() -> None:
        async def send(message: Any) -> None:
            sent.append(message)

        async def receive() -> dict[str, Any]:
            return {"type": "websocket.connect"}

        lines = [(name.encode(), value.encode()) for name, value in headers.items()]
        await rig.app({"type": "websocket", "path": path, "headers": lines, "query_string": b""}, receive, send)

    with contextlib.suppress(StopIteration):
        connect().send(None)  # nothing in it waits
    return sent


def test_a_websocket_needs_a_session_and_the_consoles_own_origin() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.user.open("/")
        cookie = f"quire_console={rig.http.cookies['quire_console']}"
        path, own = "/_nicegui_ws/socket.io/", {"host": "localhost", "origin": "http://localhost"}
        refused = [{"type": "websocket.close", "code": 1008}]
        assert websocket(rig, path, own) == refused
        assert websocket(rig, path, {"host": "localhost", "origin": "http://evil.example", "cookie": cookie}) == refused
        assert websocket(rig, path, {"host": "localhost", "cookie": cookie}) == refused
        assert websocket(rig, path, {"host": "evil", "origin": "http://evil", "cookie": cookie}) == refused
        assert websocket(rig, "/other", own | {"cookie": cookie}) == refused

    with_rig(scenario)


def test_without_users_a_console_that_others_reach_shows_nothing() -> None:
    async def scenario(rig: Rig) -> None:
        async def page(scope: Scope, receive: Receive, send: Send) -> None:
            await Response("a page")(scope, receive, send)

        for allow_open, expected in ((False, 403), (True, 200)):
            guard = Guard(
                app=page, brokers=rig.console.brokers, sessions=rig.console.sessions, access=rig.console.access,
                pages=["/"], static=(), clients=lambda: 0, host="0.0.0.0", allow_open=allow_open,
                names="console.example",
            )  # fmt: skip
            transport = httpx.ASGITransport(guard)
            async with httpx.AsyncClient(transport=transport, base_url="http://console.example") as others:
                assert (await others.get("/", follow_redirects=True)).status_code == expected

    with_rig(scenario)


@pytest.mark.parametrize(
    ("host", "expected"), [("localhost", True), ("127.0.0.2", True), ("::1", True), ("10.0.0.1", False), ("", False)]
)
def test_which_hosts_are_this_machine(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected
