"""Transactions: local ones and XA branches, their steps, and what becomes of them when something fails."""

from typing import Any

import pytest

from quire.broker.transactions.decisions import FORMAT, Xid
from quire.errors import InvalidArgument
from quire.sessions.base import PREPARED, READ_ONLY, LeavingKind, Step, These
from quire.sessions.transactions import branch_tx, xid_of
from tests.conformance.sessions.rig import Client, Delivery, Suite, World
from tests.unit.server.rights import deny_writes

TX = b"lt"
XA = branch_tx(Xid(1, b"global", b"branch"))
OTHER = branch_tx(Xid(1, b"global", b"other"))


class Transacting(Suite):
    def given(self, tx: bytes = TX, **changes: Any) -> tuple[World, Client, list[Delivery]]:
        """A client that has sent one message and acknowledged another one in a transaction."""
        world = self.world(**changes)
        client = world.connect()
        client.send("/queue/q", "1", "2")
        client.consume(prefetch=1)
        world.run()
        deliveries = client.take()
        client.begin(tx)
        client.send("/queue/r", "sent", tx=tx)
        client.these(*deliveries, tx=tx)
        world.run()
        return world, client, deliveries

    # Local ones.

    @pytest.mark.parametrize("tx", [TX, XA])
    def test_all_of_a_transaction_takes_effect_with_its_commit(self, tx: bytes) -> None:
        world, client, _ = self.given(tx)
        assert (world.depth("r"), world.depth("q")) == (0, 2)
        client.end(tx, token="committed")
        assert client.tokens == []
        world.run()
        assert (client.tokens, world.depth("r"), world.depth("q")) == (["committed"], 1, 1)
        client.end(tx)
        assert client.codes == ["unknown-transaction" if tx is TX else "unknown-xid"]

    @pytest.mark.parametrize("tx", [TX, XA])
    def test_what_was_acknowledged_comes_again_after_a_rollback_and_has_failed(self, tx: bytes) -> None:
        world, client, _ = self.given(tx)
        assert client.bodies() == ["2"]  # in a transaction it takes no credit
        client.end(tx, Step.ROLLBACK, token="rolled back")
        world.run()
        client.session.credit(next(iter(client.session.parts.values())).consumer, 10)
        world.run()
        assert [(each.message.body, each.message.failures) for each in client.take()] == [(b"1", 1)]
        assert (client.tokens, world.depth("r")) == (["rolled back"], 0)

    @pytest.mark.parametrize("tx", [TX, XA])
    def test_what_was_acknowledged_may_stay_in_flight_after_a_rollback(self, tx: bytes) -> None:
        world, client, (first,) = self.given(tx)
        client.take()
        client.end(tx, Step.ROLLBACK_KEEP, token="rolled back")
        world.run()
        assert (client.bodies(), world.depth("r"), list(first.part.in_flight)) == ([], 0, [1, 2])
        client.these(first)
        world.run()
        assert (client.bodies(), world.depth()) == ([], 1)  # its credit was taken again

    def test_beginning_a_transaction_again_changes_nothing(self) -> None:
        world, client, _ = self.given()
        client.begin(TX, token="again")
        client.end(TX)
        world.run()
        assert (client.tokens, world.depth("r")) == (["again", "end"], 1)

    def test_a_local_transaction_has_no_two_phases(self) -> None:
        world, client, _ = self.given()
        for step in (Step.PREPARE, Step.COMMIT_PREPARED, Step.FORGET):
            client.end(TX, step, token=step.name)
        client.end(TX, Step.END, token="ended")
        client.end(TX)
        world.run()
        assert client.codes == ["unknown-transaction"] * 3
        assert (client.tokens, world.depth("r")) == (["ended", "end"], 1)

    def test_how_many_transactions_a_session_may_have_open(self) -> None:
        client = self.world().connect()
        for number in range(1001):
            client.begin(b"l%d" % number)
        assert client.codes == ["limit-exceeded"]
        for number in range(1001):
            client.begin(branch_tx(Xid(1, b"%d" % number, b"")))
        assert client.codes == ["limit-exceeded"] * 2

    @pytest.mark.parametrize("tx", [TX, XA])
    def test_a_transaction_that_is_open_for_too_long_is_rolled_back(self, tx: bytes) -> None:
        world, client, (first,) = self.given(tx, transaction={"max_age": 10.0})
        world.advance(11)
        client.send("/queue/r", "late", tx=tx, token="late")
        client.end(tx, token="commit")
        world.run()
        assert client.errors == [("late", "transaction-timed-out"), ("commit", "transaction-timed-out")]
        assert (world.depth("r"), list(first.part.in_flight)) == (0, [2])
        client.begin(tx, token="begun anew")
        world.run()
        assert client.tokens == ["begun anew"]

    def test_a_commit_that_is_not_possible_is_over_and_what_was_acknowledged_stays(self) -> None:
        world = self.world(broker={"max_destinations": 2})
        client = world.connect()
        client.send("/queue/q", "1")
        client.consume()
        world.run()
        (first,) = client.take()
        client.begin(TX)
        client.send("/queue/r", "sent", tx=TX)
        client.these(first, tx=TX)
        world.run()
        client.call("delete", [first.part.consumer.spec.addresses[0]._replace(name="r")])
        client.send("/queue/s", "in its place")
        world.run()
        client.end(TX, token="commit")
        client.end(TX, token="again")
        world.run()
        assert client.errors == [("commit", "too-many-destinations"), ("again", "unknown-transaction")]
        assert list(first.part.in_flight) == [first.message.sequence]
        part: Any = first.part
        assert (part.extended, world.broker.broker.core.transaction_bytes) == (set(), 0)

    def test_a_message_counts_that_its_consumer_had_acknowledged_when_it_went(self) -> None:
        world, client, (first,) = self.given()
        client.unsubscribe(first.part.consumer)
        world.run()
        client.end(TX)
        world.run()
        assert (world.depth(), client.errors) == (1, [])

    def test_repeated_sends_of_a_transaction_are_dropped(self) -> None:
        world = self.world()
        client = world.connect()
        client.send("/queue/q", "1", producer="p", producer_sequence=1)
        client.begin(TX)
        client.send("/queue/q", "1", tx=TX, producer="p", producer_sequence=1)
        client.send("/queue/q", "2", tx=TX, producer="p", producer_sequence=2)
        client.end(TX)
        world.run()
        assert world.depth() == 2

    def test_a_failed_commit_ends_the_session_and_nothing_of_the_transaction_is_so(self) -> None:
        world, client, _ = self.given()
        client.end(TX, token="commit")
        world.fail()
        assert (client.ended_by, client.tokens) == ("store-full", [])
        world.recover()
        other = world.connect("other")
        other.consume()
        world.run()
        assert (sorted(other.bodies()), world.depth("r"), client.tokens) == (["1", "2"], 0, [])

    @pytest.mark.parametrize("kind", [LeavingKind.CLEAN, LeavingKind.LOST])
    @pytest.mark.parametrize("tx", [TX, XA])
    def test_what_is_open_when_a_session_goes_is_rolled_back(self, tx: bytes, kind: LeavingKind) -> None:
        world, client, _ = self.given(tx)
        client.leave(kind)
        other = world.connect("other")
        other.consume()
        other.end(tx)
        world.run()
        assert (sorted(other.bodies()), world.depth("r")) == (["1", "2"], 0)
        assert other.codes == ["unknown-transaction" if tx is TX else "unknown-xid"]

    # XA branches.

    def test_a_prepared_branch_waits_for_its_outcome_whoever_says_it(self) -> None:
        world, client, _ = self.given(XA)
        client.end(XA, Step.END)
        client.end(XA, Step.PREPARE, token="prepared")
        assert client.results == {}
        world.run()
        assert client.results == {"prepared": PREPARED}
        client.leave(LeavingKind.LOST)
        world.run()
        manager = world.connect("manager")
        manager.call("recover", token="recovered")
        world.run()
        assert manager.results == {"recovered": [XA]}
        manager.end(XA, Step.COMMIT_PREPARED, token="committed")
        world.run()
        manager.call("recover", token="recovered")
        world.run()
        assert (manager.tokens, manager.results) == (["committed"], {"recovered": []})
        assert (world.depth("r"), world.depth()) == (1, 1)

    def test_a_prepared_branch_is_rolled_back(self) -> None:
        world, client, _ = self.given(XA)
        client.end(XA, Step.PREPARE)
        world.run()
        client.end(XA, Step.ROLLBACK_KEEP, token="rolled back")
        world.run()
        client.session.drained()
        other = world.connect("other")
        other.consume()
        world.run()
        assert ("1" in client.bodies() + other.bodies(), world.depth("r"), world.depth()) == (True, 0, 2)

    def test_a_branch_without_work_needs_no_outcome(self) -> None:
        client = (world := self.world()).connect()
        client.begin(XA)
        client.end(XA, Step.PREPARE, token="prepared")
        world.run()
        client.end(XA, Step.COMMIT_PREPARED)
        assert (client.results, client.codes) == ({"prepared": READ_ONLY}, ["unknown-xid"])

    def test_a_branch_goes_on_after_its_end_and_is_one_sessions(self) -> None:
        world, client, _ = self.given(XA)
        other = world.connect("other")
        other.begin(XA)
        client.end(XA, Step.END)
        client.send("/queue/r", "late", tx=XA, token="late")
        other.begin(XA)
        other.send("/queue/r", "more", tx=XA)
        other.end(XA, Step.COMMIT_PREPARED, token="not prepared")
        other.end(XA)
        world.run()
        assert other.codes == ["wrong-transaction-state"] * 2
        assert (client.errors, world.depth("r")) == ([("late", "wrong-transaction-state")], 2)

    def test_a_prepare_whose_commit_fails_is_a_rollback(self) -> None:
        world, client, _ = self.given(XA)
        client.end(XA, Step.PREPARE, token="prepared")
        world.fail()
        world.recover()
        assert (client.ended_by, client.results) == ("store-full", {})
        manager = world.connect("manager")
        manager.call("recover", token="recovered")
        manager.consume()
        world.run()
        assert (manager.results["recovered"], sorted(manager.bodies())) == ([], ["1", "2"])

    def test_a_branch_in_which_something_failed_is_not_prepared(self) -> None:
        world, client, (first,) = self.given(XA)
        other = world.connect("other")
        client.begin(OTHER)
        client.send("/queue/r", "2", tx=OTHER)
        client.these(first._replace(message=client.take()[0].message), first, tx=XA)
        client.settle(unknown(first), tx=XA)
        client.end(XA, Step.PREPARE, token="prepare")
        client.end(XA, Step.COMMIT, token="commit")
        client.end(OTHER, token="other")
        world.run()
        assert client.errors == [
            (None, "unknown-message"), ("prepare", "transaction-rolled-back"), ("commit", "unknown-xid")
        ]  # fmt: skip
        assert (client.tokens, world.depth("r"), other.errors) == (["other"], 1, [])

    def test_what_fails_after_the_prepare_changes_nothing(self) -> None:
        world, client, (first,) = self.given(XA)
        client.end(XA, Step.PREPARE, token="prepared")
        client.settle(unknown(first), tx=XA)
        client.session.spoil(XA, InvalidArgument("it cannot be read", argument="x"))
        client.end(XA, Step.COMMIT_PREPARED, token="committed")
        world.run()
        assert (client.codes, client.tokens, world.depth("r")) == (["wrong-transaction-state"], ["committed"], 1)

    def test_a_rolled_back_branch_has_not_failed_any_more(self) -> None:
        world, client, (first,) = self.given(XA)
        client.settle(unknown(first), tx=XA)
        client.end(XA, Step.ROLLBACK_KEEP)
        client.begin(XA)
        client.send("/queue/r", "1", tx=XA)
        client.end(XA, token="committed")
        world.run()
        assert (client.codes, client.tokens) == (["unknown-message"], ["end", "committed"])

    def test_a_branch_that_may_not_be_sent_any_more_is_not_prepared(self) -> None:
        world = self.world()
        world.secure()
        client = world.connect(user="allowed")
        client.begin(XA)
        client.send("/queue/q", "1", tx=XA)
        deny_writes(world.broker)
        world.run()
        client.end(XA, Step.PREPARE)
        assert (client.codes, client.failures[0].data["cause"]) == (["transaction-rolled-back"], "access-refused")

    def test_the_branch_of_another_user_is_not_there(self) -> None:
        world = self.world()
        world.secure()
        owner, thief = world.connect("owner", "other"), world.connect("thief", "allowed")
        owner.begin(XA)
        owner.send("/queue/q", "1", tx=XA)
        owner.end(XA, Step.PREPARE, token="prepared")
        world.run()
        thief.begin(XA)
        thief.send("/queue/q", "2", tx=XA, token="sent")
        thief.end(XA, Step.COMMIT_PREPARED)
        thief.call("recover", token="recovered")
        operator = world.connect("operator", "operator")
        operator.call("recover", token="recovered")
        world.run()
        assert (thief.codes, thief.results) == (["unknown-xid"] * 3, {"recovered": []})
        assert operator.results == {"recovered": [XA]}

    def test_a_decision_of_an_operator_is_forgotten(self) -> None:
        world, client, _ = self.given(XA)
        client.end(XA, Step.PREPARE)
        world.run()
        client.end(XA, Step.FORGET, token="too early")
        world.broker.broker.xa.commit(xid_of(XA))
        world.run()
        client.end(XA, Step.COMMIT_PREPARED, token="decided")
        client.end(XA, Step.FORGET, token="forgotten")
        world.run()
        assert client.errors == [("too early", "wrong-transaction-state"), ("decided", "heuristic-outcome")]
        assert client.tokens == ["forgotten"]

    def test_clients_do_not_use_the_names_of_the_cluster(self) -> None:
        client = self.world().connect()
        client.begin(branch_tx(Xid(FORMAT, b"g", b"")))
        client.begin(b"xnonsense")
        assert client.codes == ["invalid-argument"] * 2

    def test_the_names_of_branches_are_read_back(self) -> None:
        for xid in (Xid(-5, b"\x00\xff", b""), Xid(1, b"global", b"branch")):
            assert xid_of(branch_tx(xid)) == xid


def unknown(delivery: Delivery) -> These:
    """A message that was never given."""
    return These(delivery.part, [999])
