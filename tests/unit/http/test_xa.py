"""The API's prepared transactions."""

import pytest

from quire.broker.transactions.decisions import Xid
from tests.unit.broker.harness import consumer, core_session
from tests.unit.http.conftest import Api
from tests.unit.management.managed import browsed

XID = Xid(7, b"global", b"branch")


@pytest.fixture
def prepared(api: Api) -> Api:
    """A transaction that has acknowledged one of two messages, and is prepared."""
    api.call("POST", "/queues/q/messages", json={"body": "b", "count": 2})
    client = consumer(api.stepped, prefetchSize="1")
    (subscription,) = api.stepped.queue("q").subscriptions
    branch = api.stepped.broker.xa.start(XID, core_session(client))
    branch.transaction.acknowledge(subscription, [1])
    branch.end()
    branch.prepare()
    api.stepped.run()
    client.vanish()
    api.stepped.run()
    return api


def test_prepared_transactions_are_listed(prepared: Api) -> None:
    prepared.stepped.advance(30)
    assert prepared.call("GET", "/xa").json() == {
        "transactions": [
            {
                "xid": str(XID), "state": "prepared", "outcome": "", "age_seconds": 30.0, "messages": 0,
                "acknowledgements": 1, "bytes": 0,
            }
        ],
        "next": None, "total": 1,
    }  # fmt: skip


@pytest.mark.parametrize(("verb", "left"), [("commit", [b"b"]), ("rollback", [b"b", b"b"])])
def test_operator_decides_and_that_is_remembered_until_it_is_forgotten(
    prepared: Api, caplog: pytest.LogCaptureFixture, verb: str, left: list[bytes]
) -> None:
    with caplog.at_level("INFO", "quire"):
        assert prepared.call("POST", f"/xa/{XID}/{verb}").json() == {"xid": str(XID), "outcome": verb}
    prepared.stepped.run()
    assert browsed(prepared.stepped) == left
    resolved = [record.data for record in caplog.records if record.event == "xa.resolved"]  # type: ignore[attr-defined]
    assert resolved == [{"xid": str(XID), "outcome": verb, "by": "127.0.0.1:123"}]
    (entry,) = prepared.call("GET", "/xa").json()["transactions"]
    assert (entry["state"], entry["outcome"]) == ("decided", verb)
    assert prepared.error("POST", f"/xa/{XID}/{verb}")[1] == "wrong-transaction-state"
    assert prepared.call("DELETE", f"/xa/{XID}").json() == {"xid": str(XID), "outcome": "forget"}
    assert prepared.call("GET", "/xa").json() == {"transactions": [], "next": None, "total": 0}


def test_what_is_not_decided_is_not_forgotten(prepared: Api) -> None:
    assert prepared.error("DELETE", f"/xa/{XID}")[1] == "wrong-transaction-state"
    assert len(prepared.call("GET", "/xa").json()["transactions"]) == 1


def test_unknown_transaction_is_an_error(api: Api) -> None:
    assert api.error("POST", f"/xa/{XID}/commit")[1] == "unknown-xid"
    assert api.error("POST", "/xa/nothing/commit") == (400, "invalid-argument")
