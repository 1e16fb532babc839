"""A member of a group belongs to the user who opened it: who may read the stream too may not act in its name."""

from typing import Any

import msgspec
import pytest

from quire.broker.streams.groups.rebalance import StoredMember, StoredMembership
from quire.testing.stepped import SteppedBroker
from tests.unit.broker.harness import settings
from tests.unit.http.conftest import Api
from tests.unit.http.test_access import secured

GROUP = "/streams/q/groups/g"


class Members:
    """A stream with a message that the member ``m`` of the user ``read`` has."""

    def __init__(self) -> None:
        self.api = Api(SteppedBroker(settings()))
        self.api.call("POST", "/streams/q/messages", json={"body": "b"})
        self.secrets = secured(self.api)
        status, answer = self.by("read", "receive", member="m", start="earliest")
        assert status == 200
        (self.handle,) = [message["handle"] for message in answer["messages"]]

    def by(self, user: str, verb: str, **body: Any) -> tuple[int, Any]:
        """The status and the body of an answer; of an error its code."""
        header = {"authorization": f"Bearer {self.secrets[user]}"}
        answer = self.api.call("POST", f"{GROUP}/{verb}", headers=header, json=body)
        found = answer.json()
        return answer.status_code, found["error"]["code"] if "error" in found else found

    def acknowledge(self) -> tuple[int, Any]:
        """The member acknowledges what it has."""
        return self.by("read", "acknowledge", member="m", handles=[self.handle])


ACTS: list[tuple[str, dict[str, Any]]] = [
    ("acknowledge", {"handles": ["?"]}), ("reject", {"handles": ["?"]}), ("extend", {"handles": ["?"], "seconds": 5}),
    ("leave", {}), ("receive", {}), ("receive", {"room": "other"}), ("receive", {"held": []}),
]  # fmt: skip


@pytest.mark.parametrize("user", ["allowed", "administrator"])
@pytest.mark.parametrize(("verb", "body"), ACTS, ids=lambda value: str(value)[:20])
def test_another_reader_of_the_stream_does_nothing_in_the_name_of_a_member(
    user: str, verb: str, body: dict[str, Any]
) -> None:
    members = Members()
    asked = {**body, "member": "m"} | ({"handles": [members.handle]} if "handles" in body else {})
    assert members.by(user, verb, **asked) == (403, "access-refused")
    assert members.acknowledge() == (200, {"handles": {members.handle: "done"}})


def test_nor_does_one_by_stomp() -> None:
    members = Members()
    api = members.api
    api.stepped.security.accounts.take(api.service.security.accounts.settings, api.service.security.accounts.state)
    login = {"login": "allowed", "passcode": members.secrets["allowed"]}
    client = api.stepped.connect(headers=login)
    api.stepped.run()
    client.frame("SUBSCRIBE", {"id": "1", "destination": "/stream/q", "group": "g", "member": "m"})
    api.stepped.run()
    assert client.errors() == ["access-refused"]
    assert members.acknowledge() == (200, {"handles": {members.handle: "done"}})


def test_one_by_http_does_nothing_in_the_name_of_a_member_by_stomp() -> None:
    members = Members()
    api = members.api
    api.stepped.security.accounts.take(api.service.security.accounts.settings, api.service.security.accounts.state)
    client = api.stepped.connect(headers={"login": "allowed", "passcode": members.secrets["allowed"]})
    client.frame("SUBSCRIBE", {"id": "1", "destination": "/stream/q", "group": "g", "member": "n"})
    api.stepped.run()
    assert members.by("read", "receive", member="n") == (403, "access-refused")
    assert client.errors() == []


def test_a_member_that_is_awaited_after_a_restart_is_its_user_s_still() -> None:
    members = Members()
    members.api.stepped.run()
    api = members.api = Api(members.api.stepped.reopen())
    members.secrets = secured(api)
    for verb, body in (("acknowledge", {"handles": [members.handle]}), ("receive", {})):
        assert members.by("allowed", verb, member="m", **body) == (403, "access-refused")
    assert members.acknowledge() == (200, {"handles": {members.handle: "done"}})


def test_a_member_that_came_when_there_were_no_users_is_for_everyone() -> None:
    api = Api(SteppedBroker(settings()))
    api.call("PUT", "/streams/q", json={})
    api.call("POST", f"{GROUP}/receive", json={"member": "m"})
    members = object.__new__(Members)
    members.api, members.secrets = api, secured(api)
    assert members.by("read", "receive", member="m")[0] == 200
    assert members.by("allowed", "receive", member="m", held=[])[0] == 200


def test_members_of_older_stores_belong_to_nobody() -> None:
    old = msgspec.msgpack.encode([3, 1, [["m", "", [], {0: 3}]]])
    (member,) = msgspec.msgpack.decode(old, type=StoredMembership).members
    assert member == StoredMember("m", "", (), {0: 3}, "")
