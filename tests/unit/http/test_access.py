"""Every endpoint for every kind of user: who may, who may not, and that the audit log has what was refused."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from quire.errors import QuireError
from quire.http.app import ENDPOINTS
from quire.http.endpoint import Endpoint
from quire.security.accounts import SavedState, Token, make_token
from quire.settings.users import read_rules, read_users
from quire.testing.stepped import SteppedBroker
from tests.unit.broker.harness import settings
from tests.unit.http.conftest import Api
from tests.unit.http.sample_requests import Running, fill, sample_request

ALL = ["read", "write", "create", "manage"]
RULES: list[dict[str, Any]] = [
    {"subject": "user:allowed", "allow": ALL, "destination": ">"},
    {"subject": "role:denied", "allow": ALL, "destination": ">"},
    {"subject": "user:denied", "deny": ALL, "destination": "q"},
    *[{"subject": f"user:{action}", "allow": [action], "destination": "q"} for action in ALL],
]
USERS = [
    {"name": name, "roles": [name]}
    for name in ("none", "monitor", "operator", "administrator", "allowed", "denied", "expired", "revoked", *ALL)
]

EVERYBODY = {"none", "monitor", "operator", "administrator", "allowed", "denied", *ALL}
LOGIN = EVERYBODY
MONITOR = {"monitor", "operator", "administrator"}
OPERATE = {"operator", "administrator"}
ADMINISTER = {"administrator"}
SEE = MONITOR | {"allowed", "read", "write", "manage"}
READ = {"administrator", "allowed", "read"}
WRITE = {"administrator", "allowed", "write"}
MANAGE = OPERATE | {"allowed", "manage"}
MAKE = MANAGE | {"create"}
READ_OR_MANAGE = MANAGE | {"read"}

TABLE: dict[str, set[str]] = {
    "GET /broker": MONITOR, "POST /broker/stop": ADMINISTER, "GET /connections": MONITOR,
    "GET /producers": MONITOR, "DELETE /producers/{producer}": OPERATE,
    "GET /queues": LOGIN, "GET /queues/{name}": SEE, "PUT /queues/{name}": MAKE, "DELETE /queues/{name}": MANAGE,
    "POST /queues/{name}/pause": MANAGE, "POST /queues/{name}/resume": MANAGE,
    "GET /queues/{name}/groups": SEE, "DELETE /queues/{name}/groups/{group}": MANAGE,
    "GET /queues/{name}/messages": READ, "POST /queues/{name}/messages": WRITE,
    # The target is another queue: one must be allowed to create it and to write to it.
    "POST /queues/{name}/purge": MANAGE, "POST /queues/{name}/move": OPERATE | {"allowed"},
    "POST /queues/{name}/copy": OPERATE | {"allowed"}, "POST /queues/{name}/redrive": MANAGE,
    "GET /topics": LOGIN, "GET /topics/{name}": SEE, "PUT /topics/{name}": MAKE, "DELETE /topics/{name}": MANAGE,
    "POST /topics/{name}/messages": WRITE,
    "GET /durables": LOGIN, "GET /durables/{client}/{name}": MONITOR | READ_OR_MANAGE,
    "PUT /durables/{client}/{name}": READ_OR_MANAGE, "DELETE /durables/{client}/{name}": MANAGE,
    "POST /durables/{client}/{name}/purge": MANAGE, "GET /durables/{client}/{name}/messages": READ,
    "GET /streams": LOGIN, "GET /streams/{name}": SEE, "PUT /streams/{name}": MAKE, "DELETE /streams/{name}": MANAGE,
    "POST /streams/{name}/messages": WRITE, "POST /streams/{name}/partitions": MANAGE,
    "GET /streams/{name}/offsets": SEE, "GET /streams/{name}/partitions/{partition}/messages": READ,
    "GET /streams/{name}/find": READ, "GET /streams/{name}/pins": SEE,
    "PUT /streams/{name}/pins/{pin}": READ_OR_MANAGE, "DELETE /streams/{name}/pins/{pin}": READ_OR_MANAGE,
    **{f"POST /streams/{{name}}/groups/{{group}}/{verb}": READ
       for verb in ("receive", "acknowledge", "reject", "extend", "leave")},
    "PUT /streams/{name}/groups/{group}/progress": READ,
    "GET /groups": LOGIN, "GET /groups/{stream}/{group}": SEE, "GET /groups/{stream}/{group}/members": SEE,
    "GET /groups/{stream}/{group}/lag": SEE, "POST /groups/{stream}/{group}/assign": SEE,
    **{f"POST /groups/{{stream}}/{{group}}/{verb}": MANAGE for verb in ("reset", "shift", "skip", "clone")},
    "DELETE /groups/{stream}/{group}": MANAGE,
    "GET /schedule": MONITOR, "DELETE /schedule": OPERATE, "DELETE /schedule/{id}": OPERATE,
    "GET /xa": MONITOR, "POST /xa/{xid}/commit": OPERATE, "POST /xa/{xid}/rollback": OPERATE,
    "DELETE /xa/{xid}": OPERATE,
    "POST /bulk": LOGIN, "POST /write": WRITE, "POST /write/stages": WRITE, "GET /write/stages": MONITOR,
    "POST /write/commit": LOGIN, "POST /write/discard": LOGIN,
    "GET /users": ADMINISTER, "POST /users": ADMINISTER, "PUT /users/{user}": ADMINISTER,
    "PUT /users/{user}/password": ADMINISTER, "DELETE /users/{user}": ADMINISTER,
    "GET /rules": ADMINISTER, "POST /rules": ADMINISTER, "GET /rules/check": ADMINISTER,
    "PUT /rules/{rule}": ADMINISTER, "DELETE /rules/{rule}": ADMINISTER,
    "GET /overview": MONITOR, "GET /topology": MONITOR, "GET /consumers": MONITOR, "GET /history": SEE,
    "GET /policies": MONITOR, "GET /policies/{kind}/{name}": MONITOR, "GET /settings": OPERATE, "GET /log": OPERATE,
    "GET /store": MONITOR, "POST /store/verify": OPERATE,
    # Of others' operations; one's own one may see and cancel.
    "GET /operations": LOGIN, "GET /operations/{operation}": MONITOR, "DELETE /operations/{operation}": OPERATE,
    "DELETE /queues/{name}/messages/{sequence}": MANAGE,
    **{f"GET {place}{part}": READ for part in ("", "/body") for place in (
        "/queues/{name}/messages/{sequence}", "/durables/{client}/{name}/messages/{sequence}",
        "/streams/{name}/partitions/{partition}/messages/{offset}",
    )},
    "GET /cluster": MONITOR, "GET /cluster/places/{kind}/{name}": MONITOR,
    "PUT /cluster/places/{kind}/{name}": ADMINISTER, "DELETE /cluster/places/{kind}/{name}": ADMINISTER,
    "POST /cluster/shards/{shard}/move": ADMINISTER, "POST /cluster/leave": ADMINISTER,
    "GET /whoami": LOGIN, "GET /tokens": LOGIN, "POST /tokens": ADMINISTER, "DELETE /tokens/{token}": LOGIN,
}  # fmt: skip
"""Who may call each endpoint; ``GET /health`` needs no login."""


def secured(api: Api) -> dict[str, str]:
    """Give a broker the users and rules; a token for each user."""
    now, tokens, secrets = api.stepped.clock.now_ms(), dict[str, Token](), dict[str, str]()
    for user in USERS:
        name = str(user["name"])
        token, secrets[name] = make_token(name, now, now - 1 if name == "expired" else now + 60_000)
        if name != "revoked":
            tokens[token.id] = token
    accounts = api.service.security.accounts
    users, rules = read_users(USERS, "test"), read_rules(RULES, "test")
    accounts.take(replace(accounts.settings, users=users, rules=rules), SavedState(tokens=tokens))
    return secrets


@pytest.fixture
def audited(api: Api, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    """What the audit log is told: who, and whether it was allowed."""
    lines: list[tuple[str, bool]] = []

    def record(user: str, origin: object, action: str, target: str, *, allowed: bool, data: object = None) -> None:
        lines.append((user, allowed))

    monkeypatch.setattr(api.service.security.audit, "record", record)
    return lines


def test_the_table_has_every_endpoint() -> None:
    assert {f"{row.method} {row.path}" for row in ENDPOINTS} == {*TABLE, "GET /health"}


def test_an_endpoint_without_a_right_cannot_be_made() -> None:
    with pytest.raises(TypeError, match="right"):
        Endpoint(method="GET", path="/x", summary="x", handle=print, answer=None)  # type: ignore[call-arg]


@pytest.mark.slow
@pytest.mark.parametrize(
    "row", [row for row in ENDPOINTS if row.path != "/health"], ids=lambda r: f"{r.method} {r.path}"
)
def test_each_user_may_do_what_the_table_says(api: Api, audited: list[tuple[str, bool]], row: Endpoint) -> None:
    fill(api)
    secrets = secured(api)
    api.application.services.bulk = Running("memory:", api.stepped.settings)
    path, sent = sample_request(row)
    statuses = {"anonymous": api.call(row.method, path, **sent)}
    refused_first = sorted(secrets, key=lambda name: name in TABLE[f"{row.method} {row.path}"])
    for name in refused_first:
        header = {"authorization": f"Bearer {secrets['administrator']}"}  # the one before may have deleted it
        api.call("PUT", "/durables/c/q", headers=header, json={"topic": "q"})
        header = {"authorization": f"Bearer {secrets[name]}"}
        statuses[name] = api.call(row.method, path, headers=header, **sent)
        api.stepped.advance(5)  # for the failed logins
    codes = {name: answer.status_code for name, answer in statuses.items()}
    assert {name for name, code in codes.items() if code == 401} == {"anonymous", "expired", "revoked"}
    assert {name for name, code in codes.items() if code != 403} - {"anonymous", "expired", "revoked"} == TABLE[
        f"{row.method} {row.path}"
    ]
    assert not [name for name, code in codes.items() if code == 500]
    refused = [answer for answer in statuses.values() if answer.status_code in (401, 403)]
    assert {answer.json()["error"]["code"] for answer in refused} <= {"access-refused", "not-authenticated"}
    assert all("Basic" in answer.headers["www-authenticate"] for answer in refused if answer.status_code == 401)
    assert {name for name, code in codes.items() if code == 403} <= {name for name, allowed in audited if not allowed}


@pytest.mark.slow
@pytest.mark.parametrize(
    "row", [row for row in ENDPOINTS if row.dry_run is not None], ids=lambda r: f"{r.method} {r.path}"
)
@pytest.mark.parametrize("how", ["dry_run", "background"])
def test_what_one_may_not_do_one_may_not_try_out_or_have_done(api: Api, row: Endpoint, how: str) -> None:
    fill(api)
    secrets = secured(api)
    path, sent = sample_request(row)
    sent["params"] = {**sent["params"], how: True}
    for name in EVERYBODY - TABLE[f"{row.method} {row.path}"]:
        header = {"authorization": f"Bearer {secrets[name]}"}
        assert api.error(row.method, path, headers=header, **sent) == (403, "access-refused")


def test_a_token_of_a_dry_run_is_for_its_own_user(api: Api) -> None:
    fill(api)
    secrets = secured(api)
    headers = {name: {"authorization": f"Bearer {secrets[name]}"} for name in ("operator", "administrator")}
    dry = api.call("POST", "/queues/q/purge", headers=headers["operator"], json={}, params={"dry_run": True})
    token = {"token": dry.json()["token"]}
    refused = api.error("POST", "/queues/q/purge", headers=headers["administrator"], json={}, params=token)
    assert refused == (409, "confirmation-mismatch")
    done = api.call("POST", "/queues/q/purge", headers=headers["operator"], json={}, params=token)
    assert done.json()["removed"] == 1


def test_lists_have_and_count_what_one_may_see_only(api: Api) -> None:
    fill(api)
    api.call("PUT", "/queues/other")
    secrets = secured(api)
    for name, total, group_total in (("read", 1, 1), ("none", 0, 0), ("monitor", 2, 1), ("denied", 1, 0)):
        header = {"authorization": f"Bearer {secrets[name]}"}
        for sort in ("", "-depth"):
            page = api.call("GET", "/queues", headers=header, params={"sort": sort}).json()
            assert (len(page["queues"]), page["total"]) == (total, total)
        groups = api.call("GET", "/groups", headers=header).json()
        assert (len(groups["groups"]), groups["total"]) == (group_total, group_total)


def test_one_sees_and_cancels_ones_own_operations(api: Api) -> None:
    secrets = secured(api)
    operation = api.application.services.operations.begin("messages.purged", "queue q", "manage", "manage")
    header = {"authorization": f"Bearer {secrets['manage']}"}
    (found,) = api.call("GET", "/operations", headers=header).json()["operations"]
    assert found["id"] == operation.status.id
    assert api.call("DELETE", f"/operations/{found['id']}", headers=header).status_code == 200
    assert operation.is_cancelled
    other = {"authorization": f"Bearer {secrets['read']}"}
    assert api.call("GET", "/operations", headers=other).json()["operations"] == []
    assert api.error("GET", f"/operations/{found['id']}", headers=other) == (403, "access-refused")


def test_health_needs_no_login(api: Api) -> None:
    secured(api)
    assert api.call("GET", "/health").json() == {"state": "running"}


def test_metrics_are_for_monitors_and_the_document_for_users(api: Api) -> None:
    secrets = secured(api)
    detailed = "/metrics/detailed?family=queue"
    for base, path, who in (("", "/metrics", MONITOR), ("", detailed, MONITOR), ("/api/v1", "/openapi.json", LOGIN)):
        assert api.call("GET", path, base=base).status_code == 401
        for name in EVERYBODY:
            answer = api.call("GET", path, base=base, headers={"authorization": f"Bearer {secrets[name]}"})
            assert answer.status_code == (200 if name in who else 403)


def test_probes_need_no_login_and_tell_nothing_but_the_state(api: Api) -> None:
    secured(api)
    for path in ("/health", "/ready"):
        answer = api.call("GET", path, base="")
        assert (answer.status_code, answer.json()) == (200, {"state": "running"})


def test_what_is_not_there_and_what_is_forbidden_answer_alike(api: Api) -> None:
    api.call("PUT", "/queues/hidden")
    api.call("PUT", "/durables/c/hidden", json={"topic": "t"})
    secrets = secured(api)
    header = {"authorization": f"Bearer {secrets['none']}"}
    for path in ("/queues/{}", "/queues/{}/messages", "/durables/c/{}", "/durables/c/{}/messages", "/streams/{}"):
        there, absent = [
            api.call("GET", path.format(name), headers=header).text.replace(name, "X") for name in ("hidden", "absent")
        ]
        assert there == absent


def test_lists_have_what_the_caller_may_see(api: Api) -> None:
    for name in ("a", "q", "z"):
        api.call("PUT", f"/queues/{name}")
        api.call("PUT", f"/topics/{name}")
        api.call("PUT", f"/streams/{name}", json={})
        api.call("PUT", f"/durables/c/{name}", json={"topic": name})
        api.call("PUT", f"/streams/{name}/groups/g/progress", json={"offsets": {}})
    secrets = secured(api)
    for who, seen in (("monitor", ["a", "q", "z"]), ("read", ["q"]), ("none", []), ("create", [])):
        for kind, key in (("queues", "name"), ("topics", "name"), ("streams", "name"), ("durables", "topic")):
            answer = api.call("GET", f"/{kind}", headers={"authorization": f"Bearer {secrets[who]}"}).json()
            assert [entry[key] for entry in answer[kind]] == seen, (who, kind)
        groups = api.call("GET", "/groups", headers={"authorization": f"Bearer {secrets[who]}"}).json()["groups"]
        assert [group["stream"] for group in groups] == seen


def test_a_page_of_a_list_goes_on_behind_what_the_caller_may_see(api: Api) -> None:
    for number in range(10):
        api.call("PUT", f"/queues/q.{number}")
    rules = [{"subject": "user:read", "allow": ["read"], "destination": f"q.{number}"} for number in (1, 4, 8)]
    secrets = secured(api)
    accounts = api.service.security.accounts
    accounts.take(replace(accounts.settings, rules=read_rules(rules, "test")), accounts.state)
    header = {"authorization": f"Bearer {secrets['read']}"}
    first = api.call("GET", "/queues?limit=2", headers=header).json()
    assert ([queue["name"] for queue in first["queues"]], first["next"]) == (["q.1", "q.4"], "q.4")
    second = api.call("GET", "/queues?limit=2&after=q.4", headers=header).json()
    assert ([queue["name"] for queue in second["queues"]], second["next"]) == (["q.8"], None)


def test_an_operator_does_not_move_messages_to_where_it_could_read_them() -> None:
    api = Api(SteppedBroker(settings()))
    api.call("POST", "/queues/secret/messages", json={"body": "b"})
    api.call("PUT", "/queues/mine")
    secrets = secured(api)
    accounts = api.service.security.accounts
    rules = [{"subject": "user:operator", "allow": ["read", "write"], "destination": "mine"}]
    accounts.take(replace(accounts.settings, rules=read_rules(rules, "test")), accounts.state)
    header = {"authorization": f"Bearer {secrets['operator']}"}
    for verb in ("move", "copy", "redrive"):
        for to, status in (("mine", 403), ("archive", 200)):
            answer = api.call("POST", f"/queues/secret/{verb}", headers=header, json={"to": to, "limit": 1})
            assert answer.status_code == status, (verb, to, answer.text)


def test_what_a_member_waited_for_is_not_given_to_it_after_its_right_has_gone(api: Api) -> None:
    api.call("PUT", "/streams/q", json={"partitions": 1})
    secrets = secured(api)
    header = {"authorization": f"Bearer {secrets['read']}"}
    ask = {"member": "m", "start": "earliest"}
    assert api.call("POST", "/streams/q/groups/g/receive", headers=header, json=ask).status_code == 200
    api.stepped.advance(5)  # the partition is assigned

    async def wait_and_lose_the_right() -> int:
        request = {"headers": header, "json": {**ask, "wait": 30}}
        waiting = asyncio.ensure_future(api._call("POST", "/api/v1/streams/q/groups/g/receive", request, idle=True))
        for _ in range(20):
            api.stepped.run()
            await asyncio.sleep(0)
        assert not waiting.done()
        accounts = api.service.security.accounts
        accounts.take(replace(accounts.settings, rules=()), accounts.state)
        producer = api.stepped.connect()
        producer.frame("SEND", {"destination": "/stream/q"}, b"secret")
        for _ in range(200):
            api.stepped.run()
            await asyncio.sleep(0)
        assert waiting.done()
        return waiting.result().status_code

    assert asyncio.run(wait_and_lose_the_right()) == 403
    accounts = api.service.security.accounts
    accounts.take(replace(accounts.settings, rules=read_rules(RULES, "test")), accounts.state)
    found = api.call("POST", "/streams/q/groups/g/receive", headers=header, json={**ask, "wait": 1}).json()
    assert [message["body"] for message in found["messages"]] == ["secret"]


def test_a_header_that_is_no_login_is_refused(api: Api) -> None:
    secured(api)
    for header in ("Basic !", "Basic bm9jb2xvbg==", "Digest x", "x" * 20_000, "Bearer nothing", "Basic Og=="):
        assert api.error("GET", "/whoami", headers={"authorization": header}) == (401, "not-authenticated")
        api.stepped.advance(5)


def test_one_is_told_what_one_may_do(api: Api) -> None:
    everything, all_permissions = ["create", "manage", "read", "write"], ["administer", "monitor", "operate"]
    who = api.call("GET", "/whoami").json()
    assert (who["secured"], who["permissions"], who["may"]) == (False, all_permissions, everything)
    secrets = secured(api)

    def asked(user: str, query: str = "") -> tuple[list[str], list[str]]:
        header = {"authorization": f"Bearer {secrets[user]}"}
        who = api.call("GET", f"/whoami{query}", headers=header).json()
        return who["permissions"], who["may"]

    assert asked("administrator") == (all_permissions, everything)
    assert asked("operator") == (["monitor", "operate"], ["manage"])
    assert asked("monitor") == (["monitor"], [])
    assert asked("none") == ([], [])
    assert asked("read") == ([], ["read"])
    assert asked("operator", "?destination=topic://any") == (["monitor", "operate"], ["manage"])
    assert asked("read", "?destination=queue://q") == ([], ["read"])
    assert asked("read", "?destination=queue://elsewhere") == ([], [])


def test_an_error_of_too_many_logins_says_when_to_come_again(api: Api) -> None:
    secured(api)
    for _ in range(8):
        api.service.security.guesses.failed("bob", "127.0.0.1")
    answer = api.call("GET", "/whoami", auth=("bob", "x"))
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "32")
    assert QuireError.code not in answer.text


def test_a_broker_with_users_is_served_under_any_name(api: Api) -> None:
    api.service.http_address = "0.0.0.0:8161"
    authorization = {"authorization": f"Bearer {secured(api)['administrator']}"}
    there = {"host": "broker.example:8161", **authorization}
    assert api.call("GET", "/broker", headers=there).status_code == 200
    api.service.http_address = "127.0.0.1:8161"
    assert api.call("GET", "/broker", headers=there).status_code == 400
