"""The API's consumer groups."""

from typing import Any

import pytest

from quire.errors import StoreFull
from quire.testing.stepped import Frame, SteppedBroker
from tests.unit.broker.harness import settings
from tests.unit.broker.streams.member_rig import Member, StreamRig, by_offset, numbers
from tests.unit.http.conftest import Api
from tests.unit.http.test_metrics import scraped
from tests.unit.http.test_topics import audit


class Groups(Api):
    """The API of a broker with a stream ``s``, whose group ``g`` has done 1, 2, 3, 5 and 8 of ten messages.

    Attributes:
        rig: the stream.
        member: the only member; it has the other messages.
        messages: what it has, by offset.
    """

    def __init__(self, name: str | None = "a", **policy: Any) -> None:
        stepped = SteppedBroker(settings(policy={"partitions": 1, **policy}))
        self.rig = StreamRig(stepped=stepped)
        super().__init__(stepped)
        self.member: Member = self.rig.member(name)
        self.rig.send(*numbers(1, 10))
        self.messages: dict[int, Frame] = by_offset(self.member.take())
        self.member.ack(*[self.messages.pop(offset) for offset in (1, 2, 3, 5, 8)])

    def show(self, rest: str = "") -> Any:
        return self.call("GET", f"/groups/s/g{rest}").json()

    def post(self, verb: str, *, dry_run: bool = False, **body: Any) -> Any:
        answer = self.call("POST", f"/groups/s/g/{verb}{'?dry_run=true' if dry_run else ''}", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()


@pytest.fixture
def groups() -> Groups:
    return Groups()


# Looking.


def test_groups_are_listed_with_their_lag_and_readers_beside_them(groups: Groups) -> None:
    groups.rig.reader(start="offset=8")
    groups.stepped.advance(60)
    found = groups.call("GET", "/groups").json()
    (group,), (reader,) = found["groups"], found["readers"]
    assert (group["stream"], group["name"], group["order"], group["mode"]) == ("s", "g", "concurrent", "clustering")
    assert (group["lag"], group["in_flight"], group["retries"], group["epoch"]) == (5, 5, 0, 1)
    assert (group["members"], group["connected"], group["partitions"]) == (1, 1, 1)
    assert (group["oldest_message_age_seconds"], group["blocked"]) == (60.0, None)
    assert (reader["stream"], reader["lag"], reader["retries"], reader["members"]) == ("s", 3, None, 1)


def test_a_group_shows_all_that_is_known(groups: Groups) -> None:
    groups.member.nack(groups.messages[4])
    groups.stepped.advance(3)
    shown = groups.show()
    (partition,) = shown["partition_states"]
    assert (shown["start"], shown["selector"], shown["strategy"]) == ("earliest", None, "averagely")
    assert {name: partition[name] for name in ("base", "end", "lag", "in_flight", "holes", "owners", "lost")} == {
        "base": 5, "end": 11, "lag": 4, "in_flight": 4, "holes": 1, "owners": ["a"], "lost": 0,
    }  # fmt: skip
    assert (partition["waiting_retries"], partition["oldest_message_age_seconds"]) == (0, 3.0)
    assert 0 < partition["ack_set_bytes"] < 10
    retries = shown["retry_lane"]
    assert (retries["depth"], retries["in_flight"], retries["delayed"]) == (1, 0, 1)
    assert retries["next_due"] == groups.stepped.clock.now_ms() + 7000
    (member,) = shown["group_members"]
    assert (member["id"], member["static"], member["connected"], member["partitions"]) == ("a", True, True, [0])
    assert (member["in_flight"], member["prefetch"], member["lease_ends_seconds"]) == (4, 1000, 897.0)
    assert groups.show("/members") == {"members": [member]}
    assert shown["counters"] == {
        "delivered": 10, "acknowledged": 5, "redelivered": 1, "timed_out": 0, "late": 0, "stale": 0, "fenced": 0,
        "dead_lettered": 0, "lost": 0,
    }  # fmt: skip


def test_lag_is_told_by_partition() -> None:
    groups = Groups(partitions=1)
    groups.call("POST", "/streams/s/partitions", json={"count": 2})
    groups.rig.pass_time(1)
    groups.rig.send("11", partition="1")
    groups.member.vanish()
    assert groups.show("/lag") == {
        "lag": 6,
        "in_flight": 6,
        "retries": 0,
        "partitions": [
            {"partition": 0, "base": 3, "end": 11, "lag": 5, "in_flight": 5, "owners": ["a"]},
            {"partition": 1, "base": 0, "end": 2, "lag": 1, "in_flight": 1, "owners": ["a"]},
        ],
    }


def test_what_is_not_known_is_null() -> None:
    groups = Groups()
    groups.member.nack(groups.messages[4])
    shown = Api(groups.rig.crashed().stepped).call("GET", "/groups/s/g").json()
    (member,) = shown["group_members"]
    assert (member["id"], member["connected"], member["connection"]) == ("a", False, None)
    assert (member["in_flight"], member["prefetch"], member["lease_ends_seconds"]) == (None, None, None)
    assert (shown["retry_lane"]["depth"], shown["retry_lane"]["delayed"], shown["retry_lane"]["next_due"]) == (
        1, None, None,
    )  # fmt: skip


def test_a_group_whose_retries_wait_in_place_has_no_retry_lane() -> None:
    groups = Groups(retry="in-place")
    groups.member.nack(groups.messages[4])
    shown = groups.show()
    assert (shown["retries"], shown["retry_lane"], shown["lag"]) == (None, None, 5)
    assert shown["partition_states"][0]["waiting_retries"] == 1


def test_a_group_that_is_blocked_says_why_and_since_when() -> None:
    groups = Groups()
    rig = groups.rig
    member = rig.member(group="o", order="orderly")
    (message,) = member.take()
    member.nack(message, redelivery_delay="60000")
    rig.pass_time(5)
    (group,) = [found for found in groups.call("GET", "/groups").json()["groups"] if found["name"] == "o"]
    assert group["blocked"]["cause"] == "redelivery-delay"
    assert 4.9 < group["blocked"]["age_seconds"] < 5.1


def test_what_is_not_there_is_told(groups: Groups) -> None:
    assert groups.error("GET", "/groups/s/h") == (404, "unknown-consumer-group")
    assert groups.error("GET", "/groups/t/g") == (404, "unknown-destination")
    assert groups.error("POST", "/groups/s/h/skip", json={}) == (404, "unknown-consumer-group")
    assert groups.error("DELETE", "/groups/s/h") == (404, "unknown-consumer-group")


# Changing.


def test_a_dry_run_tells_what_a_reset_does_and_changes_nothing(
    groups: Groups, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", "quire"):
        foretold = groups.post("reset", to="offset=2", dry_run=True)
        assert (foretold["done"], groups.show()["lag"], audit(caplog)) == (False, 5, [])
        done = groups.post("reset", to="offset=2")
    assert done == {
        "done": True,
        "again": 4,
        "skipped": 0,
        "in_flight": 5,
        "retries_dropped": 0,
        "partitions": [
            {
                "partition": 0, "from_offset": 4, "to_offset": 2, "again": 4, "skipped": 0, "in_flight": 5,
                "retries_dropped": 0,
            }
        ],
    }  # fmt: skip
    assert foretold == {**done, "done": False}
    data = {"stream": "s", "group": "g", "again": 4, "skipped": 0, "retries": 0}
    assert audit(caplog) == [("group.moved", data)]
    assert groups.show()["lag"] == 9
    groups.member.ack(*groups.messages.values())
    assert groups.show()["counters"]["fenced"] == 5


def test_a_group_is_shifted_and_skips(groups: Groups) -> None:
    assert groups.post("shift", by=-2)["again"] == 4
    assert groups.show()["lag"] == 9
    groups.member.take()
    assert groups.post("shift", by=3, partition=0)["skipped"] == 3
    groups.rig.run()
    groups.member.nack(*groups.member.take()[:2])
    skipped = groups.post("skip", partition=0)
    assert (skipped["skipped"], skipped["retries_dropped"]) == (4, 2)
    assert (groups.show()["lag"], groups.show()["retries"]) == (0, 0)


@pytest.mark.parametrize(
    ("verb", "body"),
    [
        ("reset", {"to": "yesterday"}),
        ("reset", {"to": "earliest", "partition": 1}),
        ("reset", {}),
        ("shift", {"by": "much"}),
        ("skip", {"partition": -1}),
        ("skip", {"all": True}),
    ],
)
def test_a_change_that_makes_no_sense_is_refused(groups: Groups, verb: str, body: dict[str, Any]) -> None:
    assert groups.error("POST", f"/groups/s/g/{verb}", json=body) == (400, "invalid-argument")
    assert groups.show()["lag"] == 5


def test_a_group_is_cloned(groups: Groups, caplog: pytest.LogCaptureFixture) -> None:
    groups.member.nack(groups.messages[4])
    expected = {
        "lag": 4, "retries_left": 1,
        "partitions": [{"partition": 0, "offset": 6, "lag": 4, "holes": 1, "retries_left": 1}],
    }  # fmt: skip
    assert groups.post("clone", to="h", dry_run=True) == {**expected, "done": False}
    with caplog.at_level("INFO", "quire"):
        assert groups.post("clone", to="h") == {**expected, "done": True}
    assert audit(caplog) == [("group.cloned", {"stream": "s", "group": "g", "to": "h"})]
    assert groups.call("GET", "/groups/s/h").json()["lag"] == 4
    assert groups.error("POST", "/groups/s/g/clone", json={"to": "h"}) == (409, "destination-exists")
    assert groups.error("POST", "/groups/s/g/clone", json={"to": ""}) == (400, "invalid-header")


def test_a_group_with_members_is_deleted_by_force_only(groups: Groups, caplog: pytest.LogCaptureFixture) -> None:
    assert groups.error("DELETE", "/groups/s/g") == (409, "destination-in-use")
    with caplog.at_level("INFO", "quire"):
        assert groups.call("DELETE", "/groups/s/g?force=true").json() == {"lag": 5, "retries": 0}
    assert ("group.deleted", {"stream": "s", "group": "g", "lag": 5, "retries": 0}) in audit(caplog)
    assert groups.member.client.connection.closed
    assert groups.call("GET", "/groups").json()["groups"] == []
    groups.rig.pass_time(20)
    assert groups.stepped.store.marks("group/") == []
    assert groups.stepped.store.lane_state(groups.rig.stream.partitions[0].lane).count == 10


def test_a_name_with_a_slash_is_a_name(groups: Groups) -> None:
    groups.post("clone", to="g/2")
    assert groups.call("GET", "/groups/s/g%2F2").json()["name"] == "g/2"
    assert groups.call("DELETE", "/groups/s/g%2F2").json()["lag"] == 5


def test_a_change_whose_commit_fails_says_so(groups: Groups, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = groups.stepped.commit
    monkeypatch.setattr(groups.stepped, "commit", lambda: commit(StoreFull("full")))
    assert groups.error("POST", "/groups/s/g/skip", json={}) == (507, "store-full")
    monkeypatch.undo()
    groups.rig.pass_time(1.5)
    assert groups.rig.crashed().lag == 0  # it is done all the same


# Trying a strategy out.


def test_a_strategy_is_tried_out(groups: Groups) -> None:
    groups.call("POST", "/streams/s/partitions", json={"count": 4})
    groups.rig.pass_time(1)
    members = [{"id": "a"}, {"id": "b"}]
    tried = groups.post("assign", members=members)
    assert (tried["strategy"], tried["moved"]) == ("averagely", 2)
    assert [partition["members"] for partition in tried["partitions"]] == [["a"], ["a"], ["b"], ["b"]]
    assert [partition["owners"] for partition in tried["partitions"]] == [["a"]] * 4
    assert groups.post("assign", members=[*members, {"id": "c"}], strategy="sticky")["moved"] == 2
    assert groups.post("assign", members=members, strategy="shared")["moved"] == 0
    wanting = [{"id": "a"}, {"id": "b", "partitions": [0, 3]}]
    tried = groups.post("assign", members=wanting, strategy="by-configuration")
    assert [partition["members"] for partition in tried["partitions"]] == [["b"], [], [], ["b"]]
    assert len(groups.show()["group_members"]) == 1


def test_a_strategy_that_is_none_is_refused(groups: Groups) -> None:
    for body in ({"members": [{"id": "a"}], "strategy": "fair"}, {"members": [{"id": "a"}, {"id": "a"}]}):
        assert groups.error("POST", "/groups/s/g/assign", json=body) == (400, "invalid-argument")


# Metrics.


def test_metrics_of_a_group_are_those_of_the_core(groups: Groups) -> None:
    groups.member.nack(groups.messages[4])
    groups.post("skip")
    groups.member.ack(groups.messages[6])
    groups.rig.send("11", "12")
    groups.stepped.advance(4)
    samples = scraped(groups)
    for name, value in {
        "lag_messages": 2, "in_flight_messages": 2, "retry_messages": 0, "members": 1, "connected_members": 1,
        "epoch": 2, "oldest_message_age_seconds": 4, "delivered_messages_total": 12,
        "acknowledged_messages_total": 5, "redelivered_messages_total": 1, "timed_out_messages_total": 0,
        "late_acknowledgements_total": 0, "stale_acknowledgements_total": 0, "fenced_acknowledgements_total": 1,
        "dead_lettered_messages_total": 0, "lost_messages_total": 0,
    }.items():  # fmt: skip
        assert samples[f"quire_group_{name}", "g s"] == value, name
    assert samples["quire_groups_lag_messages", "s"] == 2
    assert samples["quire_groups_left_out", ""] == 0


def test_what_is_not_known_has_no_sample() -> None:
    groups = Groups(retry="in-place")
    groups.post("skip")
    samples = scraped(groups)
    assert ("quire_group_retry_messages", "g s") not in samples
    assert ("quire_group_oldest_message_age_seconds", "g s") not in samples
    assert samples["quire_group_lag_messages", "g s"] == 0


def test_metrics_are_of_so_many_groups(groups: Groups) -> None:
    groups.service.settings = settings(metrics={"max_destinations": 2})
    for name in ("a", "b"):
        groups.post("clone", to=name)
    samples = scraped(groups)
    assert {labels for name, labels in samples if name == "quire_group_lag_messages"} == {
        "a s",
        "b s",
        "_omitted _omitted",
    }
    assert (samples["quire_groups_lag_messages", "s"], samples["quire_groups_left_out", ""]) == (15, 1)


def test_why_a_group_stands_is_a_metric(groups: Groups) -> None:
    member = groups.rig.member(group="o", order="orderly")
    member.nack(*member.take(), redelivery_delay="60000")
    groups.stepped.advance(5)
    assert scraped(groups)["quire_group_blocked_seconds", "redelivery-delay o s"] == 5


# Members that poll.


def test_what_a_polling_member_has_is_fenced_too(groups: Groups) -> None:
    where = "/streams/s/groups/p"
    received = groups.call("POST", f"{where}/receive", json={"start": "earliest", "max": 2}).json()
    handles = [message["handle"] for message in received["messages"]]
    assert groups.call("POST", "/groups/s/p/reset", json={"to": "earliest"}).json()["in_flight"] == 2
    body = {"member": received["member"], "handles": handles}
    answer = groups.call("POST", f"{where}/acknowledge", json=body).json()
    assert list(answer["handles"].values()) == ["fenced", "fenced"]
    again = groups.call("POST", f"{where}/receive", json={"member": received["member"], "max": 2}).json()
    assert [message["offset"] for message in again["messages"]] == [1, 2]
    body = {"member": received["member"], "handles": [message["handle"] for message in again["messages"]]}
    answer = groups.call("POST", f"{where}/acknowledge", json=body).json()
    assert list(answer["handles"].values()) == ["done", "done"]
    assert groups.call("GET", "/groups/s/p/lag").json()["lag"] == 8
