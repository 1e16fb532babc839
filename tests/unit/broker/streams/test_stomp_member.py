"""Members of groups over STOMP: what their frames say, the ids of acknowledgements, and what is refused."""

import pytest

from tests.unit.broker.streams.member_rig import Member, StreamRig, numbers, places

ODD_IDS = [
    "0", "a-b-c", "a:b", "1.0.1", "5.r.1-x", "7-3", "100%d", "%s%%", "a b", " ", "\\c", "a\nb", "é", "-", ".",
]  # fmt: skip


def member_of(rig: StreamRig, version: str = "1.2", **headers: str) -> Member:
    return Member(rig, {"group": "g", "start": "earliest", **headers}, version)


def acknowledge_raw(member: Member, *ids: str, command: str = "ACK") -> None:
    member.client.feed(b"".join(f"{command}\nid:{id}\n\n\0".encode() for id in ids))


# Frames.


def test_a_message_says_where_it_is_and_how_it_is_acknowledged() -> None:
    rig = StreamRig()
    member = member_of(rig)
    rig.send("one", key="k")
    (message,) = member.take()
    assert list(message.headers) == [
        "subscription", "destination", "partition", "offset", "ack", "expires", "priority", "message-id", "timestamp",
        "key", "content-length",
    ]  # fmt: skip
    assert (message.headers["ack"], message.body) == ("1.0.1-0", b"one")


def test_a_retry_says_where_its_origin_is() -> None:
    rig = StreamRig(partitions=2)
    member = member_of(rig)
    rig.send("a", "b", partition="1")
    member.nack(member.take()[1], redelivery_delay="1000")
    rig.pass_time(1)
    (retry,) = member.take()
    names = ("destination", "partition", "offset", "redelivered", "JMSXDeliveryCount")
    assert [retry.headers[name] for name in names] == ["/stream/s", "1", "2", "true", "2"]
    assert retry.headers["ack"].startswith("1.r.")
    member.ack(retry)
    assert rig.retries.depth == 0


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_older_versions_acknowledge_by_message_id(version: str) -> None:
    rig = StreamRig(partitions=2)
    member = member_of(rig, version)
    rig.send("a", partition="0")
    rig.send("b", "c", partition="1")
    messages = member.take()
    assert all("ack" not in message.headers for message in messages)
    assert places(messages) == ["1.0", "1.1", "2.1"]
    member.ack(messages[1])
    member.ack(messages[2])
    assert [part.lag for part in rig.group().partitions] == [1, 0]


def test_1_1_rejects_by_message_id_and_acknowledges_the_retry_by_it() -> None:
    rig = StreamRig()
    member = member_of(rig, "1.1")
    rig.send("1")
    member.nack(*member.take(), redelivery_delay="1000")
    rig.pass_time(1)
    (retry,) = member.take()
    assert (places([retry]), rig.retries.depth) == (["1.0!"], 1)
    member.ack(retry)
    assert rig.retries.depth == 0


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_older_versions_acknowledge_cumulatively(version: str) -> None:
    rig = StreamRig(partitions=2)
    member = member_of(rig, version, ack="client")
    for partition in ("0", "1", "0"):
        rig.send("x", partition=partition)
    member.ack(member.take()[1])
    assert [part.lag for part in rig.group().partitions] == [1, 0]


def test_without_an_id_frames_do_not_name_the_subscription() -> None:
    rig = StreamRig()
    client = rig.stepped.connect("1.0")
    client.frame("SUBSCRIBE", {"destination": "/stream/s", "group": "g", "ack": "client-individual"})
    rig.run()
    rig.send("1")
    (message,) = client.take("MESSAGE")
    assert "subscription" not in message.headers
    client.ack(message)
    rig.run()
    assert rig.lag == 0


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_an_event_is_a_frame_that_stands_for_no_message(version: str) -> None:
    rig = StreamRig()
    member = member_of(rig, version, events="true")
    member.take()
    (told,) = member.told
    assert (told.headers["message-id"], told.headers.get("ack"), told.body) == (
        "0", "0" if version == "1.2" else None, b"",
    )  # fmt: skip
    member.ack(told)
    assert member.errors() == []


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_a_colon_in_a_header_is_escaped_as_the_version_wants_it(version: str) -> None:
    rig = StreamRig()
    member = member_of(rig, version, id="a:b")
    rig.send("1", colour="red:green")
    (message,) = member.take()
    assert (message.headers["subscription"], message.headers["colour"]) == ("a:b", "red:green")


def test_a_message_with_headers_like_ours_cannot_say_where_it_is() -> None:
    rig = StreamRig()
    member = member_of(rig)
    rig.send("1", partition="0", offset="77")
    (message,) = member.take()
    assert places([message]) == ["1.0"]


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_the_temporary_queue_of_the_same_connection_has_its_own_name(version: str) -> None:
    rig = StreamRig()
    member = member_of(rig, version)
    member.client.frame("SUBSCRIBE", {"destination": "/temp-queue/answers", "id": "t"})
    member.client.frame("SEND", {"destination": "/stream/s", "reply-to": "/temp-queue/answers"}, b"x")
    rig.run()
    assert [message.headers["reply-to"] for message in member.take()] == ["/temp-queue/answers"]


# Ids.


@pytest.mark.parametrize("id", ODD_IDS)
def test_any_subscription_id_will_do(id: str) -> None:
    rig = StreamRig()
    member = member_of(rig, id=id)
    other = {"destination": "/stream/s", "id": "other", "group": "h", "ack": "client-individual"}
    member.client.frame("SUBSCRIBE", other)
    rig.send("1", "2", "3")
    messages = [message for message in member.take() if message.headers["subscription"] == id]
    member.ack(messages[0])
    member.nack(messages[1], redelivery_delay="1000")
    assert (member.errors(), rig.lag, rig.group("h").lag) == ([], 1, 3)
    rig.pass_time(1)
    member.ack(*member.take(), messages[2])
    assert (member.errors(), rig.lag, rig.retries.depth) == ([], 0, 0)


def test_a_run_of_acknowledgements_may_be_about_several_partitions_and_queues() -> None:
    rig = StreamRig(partitions=2)
    member = member_of(rig)
    member.client.subscribe("q", id="1")
    member.client.subscribe("r", id="2")
    for destination in ("/queue/q", "/stream/s", "/queue/r", "/stream/s", "/stream/s"):
        rig.post("x", destination)
    rig.run()
    ids = [message.headers["ack"] for message in member.take()]
    assert len(ids) == 5
    acknowledge_raw(member, *ids)
    rig.run()
    assert (member.errors(), rig.lag, rig.broker.queue("q").depth, rig.broker.queue("r").depth) == ([], 0, 0, 0)


@pytest.mark.parametrize("first", ["queue", "stream"])
def test_it_does_not_matter_what_a_run_begins_with(first: str) -> None:
    rig = StreamRig()
    member = member_of(rig)
    member.client.subscribe("q", id="1")
    rig.post("x", "/queue/q")
    rig.send("y")
    ids = {message.headers["destination"][1:6]: message.headers["ack"] for message in member.take()}
    order = [ids["queue"], ids["strea"]]
    acknowledge_raw(member, *(order if first == "queue" else order[::-1]))
    rig.run()
    assert (member.errors(), rig.lag, rig.broker.queue("q").depth) == ([], 0, 0)


@pytest.mark.parametrize(
    "id",
    [
        "1", "1-0", "0-0", "1-1", "1.0", "1.0.1", "x.0.1-0", "1.x.1-0", "1.0.x-0", "-1.0.1-0", "1.0.1.1-0", "1..1-0",
        ".0.1-0", "9" * 40 + ".0.1-0", "1.0." + "9" * 50 + "-0", "~", "1.R.1-0", "\u0663.0.1-0",
    ],
)  # fmt: skip
@pytest.mark.parametrize("command", ["ACK", "NACK"])
def test_what_is_no_id_is_an_error_and_changes_nothing(id: str, command: str) -> None:
    rig = StreamRig()
    member = member_of(rig)
    rig.send("1")
    acknowledge_raw(member, id, command=command)
    rig.run()
    assert "is not in flight on this connection" in member.errors()[0]
    assert (rig.lag, places(rig.member().take())) == (1, ["1.0!"])


@pytest.mark.parametrize("command", ["ACK", "NACK"])
def test_an_id_may_begin_with_a_shard_as_clusters_have_given_it_out_before(command: str) -> None:
    rig = StreamRig()
    member = member_of(rig, member="a")
    rig.send("1", "2")
    ids = [message.headers["ack"] for message in member.take()]
    acknowledge_raw(member, *[f"s3~{id}" for id in ids], command=command)
    rig.run()
    assert (member.errors(), rig.lag, rig.retries.depth) == ([], 0, 0 if command == "ACK" else 2)


@pytest.mark.parametrize("id", ["2.0.1-0", "999999999999999999.0.1-0", "0.0.1-0", "1.0.1-0"])
def test_an_offset_that_the_member_does_not_have_is_stale(id: str) -> None:
    rig = StreamRig()
    member = member_of(rig)
    rig.send("1")
    member.ack(*member.take())
    acknowledge_raw(member, id)
    rig.run()
    assert (member.errors(), rig.group().stale, rig.group().fenced, rig.lag) == ([], 1, 0, 0)


@pytest.mark.parametrize("id", ["1.0.2-0", "1.0.0-0", "1.1.1-0", "1.77.1-0", "1.999999999.1-0"])
def test_another_assignment_is_fenced(id: str) -> None:
    rig = StreamRig()
    member = member_of(rig)
    rig.send("1")
    acknowledge_raw(member, id)
    acknowledge_raw(member, id, command="NACK")
    rig.run()
    assert (member.errors(), rig.group().stale, rig.group().fenced, rig.lag) == ([], 0, 2, 1)


def test_an_acknowledgement_after_goodbye_is_nothing() -> None:
    rig = StreamRig()
    member = member_of(rig)
    rig.send("1")
    (message,) = member.take()
    member.unsubscribe()
    member.ack(message)
    assert (member.errors(), rig.lag) == ([], 1)


def test_what_the_same_chunk_acknowledges_twice_counts_once() -> None:
    rig = StreamRig()
    member = member_of(rig)
    rig.send("1", "2")
    ids = [message.headers["ack"] for message in member.take()]
    acknowledge_raw(member, ids[0], ids[0], ids[1], ids[0])
    rig.run()
    assert (member.errors(), rig.lag, rig.group().stale) == ([], 0, 2)


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_a_late_acknowledgement_of_an_older_version_is_no_error(version: str) -> None:
    rig = StreamRig()
    member = member_of(rig, version, consume_timeout="1s")
    member.client.frame("SUBSCRIBE", {"destination": "/queue/q", "id": "1"})
    rig.send("1", "2")
    member.unsubscribe()
    again = Member(rig, {"group": "g", "consume-timeout": "1s", "id": "5"}, version)
    first, second = again.take()
    rig.pass_time(2)
    again.ack(first, first, second)
    assert (again.errors(), rig.group().late, rig.group().stale) == ([], 2, 1)
    assert rig.retries.depth == 0


@pytest.mark.parametrize(("subscription", "is_error"), [("0", False), ("1", True), ("2", True)])
def test_a_message_id_that_nobody_knows_is_stale_for_a_member_and_an_error_for_others(
    subscription: str, is_error: bool
) -> None:
    rig = StreamRig()
    member = member_of(rig, "1.1")
    member.client.frame("SUBSCRIBE", {"destination": "/queue/q", "id": "1", "ack": "client"})
    member.client.frame("ACK", {"message-id": "of long ago", "subscription": subscription})
    rig.run()
    assert (bool(member.errors()), rig.group().stale) == (is_error, not is_error)


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_an_acknowledgement_of_an_older_version_after_a_reassignment_is_fenced(version: str) -> None:
    rig = StreamRig(revoke_timeout=1.0)
    old = member_of(rig, version, member="b")
    rig.send("1")
    (message,) = old.take()
    rig.member("a")
    rig.pass_time(2)
    old.ack(message)
    assert (old.errors(), rig.lag, rig.group().fenced) == ([], 1, 1)


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_what_an_older_version_holds_can_be_acknowledged_on_the_next_connection(version: str) -> None:
    rig = StreamRig()
    member = member_of(rig, version, member="a")
    rig.send("1", "2")
    messages = member.take()
    member.vanish()
    again = member_of(rig, version, member="a", held="1-2.0")
    again.ack(*messages)
    assert (again.errors(), again.take(), rig.lag) == ([], [], 0)


def test_the_ids_of_an_older_version_take_no_memory_once_their_leases_have_ended() -> None:
    rig = StreamRig(retry_delays="100s")
    member = member_of(rig, "1.1", **{"consume-timeout": "1s"})
    for _ in range(8):
        for body in numbers(1, 200):
            rig.post(body)
        rig.run()
        rig.stepped.advance(1.2)
        rig.run()
    rig.send("x")
    assert len(member.take()) == 1601
    assert len(member.client.session.message_ids) <= 1003


# NACK.


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, 10), ({"delay-level": "0"}, 10), ({"delay-level": "1"}, 1), ({"delay-level": "2"}, 5),
        ({"delay-level": "5"}, 60), ({"redelivery-delay": "2500"}, 2.5), ({"redelivery-delay": "0"}, 0.1),
        ({"delay-level": "1", "redelivery-delay": "9000"}, 1),
    ],
)  # fmt: skip
def test_a_rejection_says_how_long_the_message_waits(headers: dict[str, str], seconds: float) -> None:
    rig = StreamRig()
    member = member_of(rig)
    rig.send("1")
    member.nack(*member.take(), **headers)
    rig.pass_time(seconds - 0.1)
    early = member.take()
    rig.pass_time(0.2)
    assert (len(early), len(member.take())) == ((1, 0) if seconds < 0.2 else (0, 1))


def test_a_rejection_may_make_a_dead_letter_at_once() -> None:
    rig = StreamRig(partitions=2)
    member = member_of(rig)
    rig.send("1", partition="1", key="k")
    member.nack(*member.take(), delay_level="-1")
    assert rig.lag == 0
    client = rig.stepped.connect()
    client.subscribe("%DLQ%g")
    rig.run()
    (letter,) = client.take("MESSAGE")
    facts = ("group", "partition", "offset", "original-destination", "dlqDeliveryFailureCause", "key")
    assert [letter.headers[name] for name in facts] == [
        "g", "1", "1", "/stream/s", "rejected by the consumer", "k",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        ({"delay-level": "19"}, "delay-level is '19': a whole number from -1 to 18"),
        ({"delay-level": "-2"}, "delay-level is '-2'"),
        ({"delay-level": "x"}, "delay-level is 'x'"),
        ({"redelivery-delay": "-1"}, "redelivery-delay is '-1'"),
        ({"redelivery-delay": "1e3"}, "redelivery-delay is '1e3'"),
        ({"extend": "999"}, "extend is '999': a whole number from 1000 to 604800000"),
        ({"extend": "604800001"}, "extend is '604800001'"),
        ({"extend": ""}, "extend is ''"),
    ],
)
def test_a_rejection_that_cannot_be_read_is_an_error(headers: dict[str, str], text: str) -> None:
    rig = StreamRig()
    member = member_of(rig)
    rig.send("1")
    member.nack(*member.take(), **headers)
    assert text in member.errors()[0]
    assert rig.lag == 1
