"""Users of a cluster: a client logs in at its entry, and the owner of a destination decides what it may do there."""

from dataclasses import replace

import pytest

from quire.security.accounts import SavedState
from quire.settings.users import read_rules, read_users
from quire.testing.stepped import SteppedBroker, SteppedClient
from quire.testing.stepped_cluster import SteppedCluster
from tests.unit.server.rights import deny_writes, secure


class SecureCluster:
    """A cluster of two shards with users; ``q`` is at one, and clients connect to the other one."""

    def __init__(self) -> None:
        self.cluster = SteppedCluster(2)
        self.owner = self.cluster.owner("q")
        self.entry_number = 1 - self.owner.cluster_map.own
        self.entry = self.cluster.members[self.entry_number]
        self.tokens = secure(self.entry)
        secure(self.owner)  # tokens of its own: the clients have none of them

    def connect(self, user: str) -> SteppedClient:
        return self.cluster.connect(self.entry_number, headers={"login": user, "passcode": self.tokens[user]})


@pytest.mark.parametrize(
    ("user", "may"), [("write", True), ("administrator", True), ("read", False), ("denied", False), ("none", False)]
)
def test_the_owner_asks_its_rules_before_it_takes_a_message(user: str, may: bool) -> None:
    secured = SecureCluster()
    secured.owner.queue("q")
    client = secured.connect(user)
    client.send("q", b"m", {"receipt": "r"})
    secured.cluster.run()
    assert client.receipts() == (["r"] if may else [])
    assert client.errors() == ([] if may else ["access-refused"])
    assert secured.owner.queue("q").depth == int(may)


@pytest.mark.parametrize(("user", "may"), [("read", True), ("write", False), ("denied", False)])
def test_the_owner_asks_its_rules_before_it_gives_a_message(user: str, may: bool) -> None:
    secured = SecureCluster()
    secured.owner.queue("q").send(b"message-id:1\ntimestamp:1\n\nm")
    client = secured.connect(user)
    client.subscribe("q")
    secured.cluster.run()
    assert client.messages() == ([b"m"] if may else [])
    assert client.errors() == ([] if may else ["access-refused"])


def test_consumers_end_at_the_owner_when_its_rules_change() -> None:
    secured = SecureCluster()
    client = secured.connect("allowed")
    client.subscribe("q")
    secured.cluster.run()
    deny_all(secured.owner)
    secured.cluster.run()
    assert client.errors() == ["access-refused"]


@pytest.mark.parametrize("spans", [False, True])
def test_a_transaction_is_refused_whole_if_something_in_it_may_not_be_sent_any_more(*, spans: bool) -> None:
    secured = SecureCluster()
    client = secured.connect("allowed")
    names = ["q", secured.cluster.name_at(secured.entry_number)] if spans else ["q"]
    client.frame("BEGIN", {"transaction": "t"})
    for name in names:
        client.send(name, b"m", {"transaction": "t"})
    secured.cluster.run()
    deny_writes(secured.owner)
    client.frame("COMMIT", {"transaction": "t", "receipt": "r"})
    secured.cluster.run()
    assert (client.errors(), client.receipts()) == (["access-refused"], [])
    secured.cluster.advance(20)
    assert [secured.cluster.owner(name).queue(name).depth for name in names] == [0] * len(names)


def deny_all(stepped: SteppedBroker) -> None:
    """Take all rights away from all users."""
    accounts = stepped.security.accounts
    rules = read_rules([{"subject": "user:allowed", "deny": ["read"], "destination": ">"}], "test")
    accounts.take(replace(accounts.settings, rules=rules), accounts.state)


def test_a_user_that_is_disabled_at_the_owner_is_refused_there() -> None:
    secured = SecureCluster()
    client = secured.connect("allowed")
    accounts = secured.owner.security.accounts
    users = read_users([{"name": "allowed", "roles": ["allowed"], "disabled": True}], "test")
    accounts.take(replace(accounts.settings, users=users), SavedState())
    client.send("q", b"m", {"receipt": "r"})
    secured.cluster.run()
    assert client.errors() == ["not-authenticated"]


def test_an_entry_without_users_lets_no_one_in_at_an_owner_that_has_some() -> None:
    cluster = SteppedCluster(2)
    owner = cluster.owner("q")
    secure(owner)
    client = cluster.connect(1 - owner.cluster_map.own)
    client.send("q", b"m", {"receipt": "r"})
    cluster.run()
    assert client.errors() == ["not-authenticated"]
    assert owner.queue("q").depth == 0
