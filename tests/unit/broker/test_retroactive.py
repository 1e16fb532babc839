"""What a topic keeps for retroactive consumers, and that they get it: in order, before the rest, none twice."""

from typing import Any

import pytest

from quire.broker.core.subscription import AckMode
from quire.errors import StoreFull
from quire.testing.stepped import SteppedBroker
from tests.unit.broker.harness import settings
from tests.unit.broker.recipients import DamagedPages, Recipient, accept, leave, publish, put, records, settle


def keeping(policy: str, **options: Any) -> SteppedBroker:
    """A broker whose topics keep messages."""
    sections = {name: options.pop(name) for name in ("memory",) if name in options}
    return SteppedBroker(settings(policy={"subscription_recovery_policy": policy, **options}, **sections))


def recovered(stepped: SteppedBroker, **options: Any) -> list[bytes]:
    """What a retroactive consumer gets that comes now, and leaves again."""
    receiver = Recipient(stepped)
    subscription = receiver.subscribe(retroactive=True, **options)
    stepped.run()
    leave(subscription)
    return receiver.bodies()


def test_without_a_policy_nothing_is_kept() -> None:
    stepped = SteppedBroker()
    publish(stepped, "1")
    assert (recovered(stepped), records(stepped)) == ([], 0)


@pytest.mark.parametrize(
    ("policy", "options", "expected"),
    [
        ("last-image", {}, [b"5"]),
        ("fixed-count", {"recovery_count": 3}, [b"3", b"4", b"5"]),
        ("fixed-size", {"recovery_size": 110}, [b"4", b"5"]),
        ("timed", {"recovery_duration": 2.5}, [b"4", b"5"]),
    ],
)
def test_the_newest_are_kept_over_a_restart(policy: str, options: dict[str, Any], expected: list[bytes]) -> None:
    stepped = keeping(policy, **options)
    for body in "12345":
        publish(stepped, body, persistent=False)
        stepped.advance(1)
        stepped.run()
    for _ in range(2):
        assert recovered(stepped) == expected
        assert records(stepped) == len(expected) == stepped.broker.topic("t").kept.count
        stepped = stepped.reopen()


def test_timed_messages_go_when_their_time_is_up_without_any_other_coming() -> None:
    stepped = keeping("timed", recovery_duration=60.0)
    publish(stepped, "1")
    stepped.advance(59)
    stepped.run()
    assert recovered(stepped) == [b"1"]
    stepped.advance(1)
    stepped.run()
    assert (recovered(stepped), records(stepped)) == ([], 0)


@pytest.mark.slow
def test_how_long_timed_messages_are_kept_is_remembered_in_a_bounded_number_of_steps() -> None:
    stepped = keeping("timed", recovery_duration=60.0)
    sent = []
    for _ in range(1000):
        sent.append(stepped.clock.now_ms())
        publish(stepped, "1")
        stepped.advance(0.1)
        stepped.run()
    kept = stepped.broker.topic("t").kept
    assert 595 <= kept.count <= 620
    assert len(kept._times) <= 102
    for _ in range(10):  # given out exactly all the same
        oldest = stepped.clock.now_ms() - 60_000
        assert len(recovered(stepped)) == len([time for time in sent if time > oldest])
        stepped.advance(0.1)
        stepped.run()


def test_only_retroactive_consumers_get_them_unless_the_policy_says_all() -> None:
    for always, expected in ((False, []), (True, [b"1"])):
        stepped = keeping("last-image", always_retroactive=always)
        publish(stepped, "1")
        receiver = Recipient(stepped)
        receiver.subscribe()
        stepped.run()
        assert receiver.bodies() == expected


def test_live_messages_come_after_the_kept_ones_and_none_comes_twice() -> None:
    stepped = keeping("fixed-count")
    publish(stepped, "1", "2", "3")
    put(stepped, "under way")
    stepped.turn()
    put(stepped, "open")
    receiver = Recipient(stepped)
    subscription = receiver.subscribe(ack=AckMode.INDIVIDUAL, prefetch=2, retroactive=True)
    stepped.run()
    publish(stepped, "live")
    got = []
    while messages := receiver.take():
        got += [message.body for message in messages]
        assert not any([message.redelivered for message in messages])
        accept(subscription, *messages)
        stepped.run()
    assert got == [b"1", b"2", b"3", b"under way", b"open", b"live"]
    assert stepped.broker.core.memory.used == 0


def test_a_slow_retroactive_consumer_gets_all_that_was_kept_when_it_came() -> None:
    stepped = keeping("fixed-count", recovery_count=3)
    publish(stepped, "1", "2", "3")
    receiver = Recipient(stepped)
    subscription = receiver.subscribe(ack=AckMode.INDIVIDUAL, prefetch=1, retroactive=True)
    stepped.run()
    publish(stepped, "4", "5", "6")
    assert records(stepped) == 5  # the first one is in memory, and done with
    got = []
    while messages := receiver.take():
        got += [message.body for message in messages]
        accept(subscription, *messages)
        stepped.run()
    assert got == [b"1", b"2", b"3", b"4", b"5", b"6"]
    assert records(stepped) == 3


@pytest.mark.parametrize("crash", [False, True])
def test_what_a_consumer_that_goes_early_held_goes_too(crash: bool) -> None:
    stepped = keeping("fixed-count", recovery_count=3)
    publish(stepped, "1", "2", "3")
    receiver = Recipient(stepped)
    subscription = receiver.subscribe(ack=AckMode.INDIVIDUAL, prefetch=1, retroactive=True)
    stepped.run()
    publish(stepped, "4", "5", "6")
    if crash:
        stepped = stepped.reopen()
    else:
        leave(subscription)
    settle(stepped)
    assert records(stepped) == 3
    assert recovered(stepped) == [b"4", b"5", b"6"]


def test_kept_messages_wait_for_memory_and_are_not_lost() -> None:
    stepped = keeping("fixed-count", memory={"limit": 6000})
    for number in range(20):
        publish(stepped, b"%d" % number + b"." * 1000)
    receiver = Recipient(stepped)
    subscription = receiver.subscribe(ack=AckMode.INDIVIDUAL, retroactive=True)
    stepped.run()
    assert stepped.broker.core.memory.peak <= 6000
    got = 0
    while messages := receiver.take():
        got += len(messages)
        accept(subscription, *messages)
        stepped.run()
    assert got == 20


def test_a_selector_chooses_among_the_kept() -> None:
    stepped = keeping("fixed-count")
    for number in range(4):
        publish(stepped, str(number), kind=str(number % 2))
    assert recovered(stepped, wanted="kind = '1'") == [b"1", b"3"]


def test_expired_messages_are_not_kept() -> None:
    stepped = keeping("fixed-count", recovery_count=2)
    publish(stepped, "expires", expiration=stepped.clock.now_ms() + 500)
    publish(stepped, "stays")
    stepped.advance(0.6)
    assert recovered(stepped) == [b"stays"]
    settle(stepped, 1)
    topic = stepped.broker.topic("t")
    assert (records(stepped), topic.kept.count, topic.kept.bytes) == (1, 1, topic.bytes)
    publish(stepped, "new")
    assert recovered(stepped) == [b"stays", b"new"]


def test_an_expired_message_counts_once_however_long_its_removal_takes() -> None:
    stepped = keeping("fixed-count")
    publish(stepped, "expires", expiration=stepped.clock.now_ms() + 500)
    publish(stepped, "stays")
    for _ in range(3):
        stepped.advance(1)
        stepped.run_turns()
    stepped.run()
    topic = stepped.broker.topic("t")
    assert (records(stepped), topic.kept.count, topic.kept.bytes) == (1, 1, topic.bytes)


def test_a_damaged_record_is_passed_over_and_the_log_says_so(caplog: pytest.LogCaptureFixture) -> None:
    store = DamagedPages()
    stepped = SteppedBroker(settings(policy={"subscription_recovery_policy": "fixed-count"}), store=store)
    publish(stepped, *"1234")
    store.damaged = 3
    assert recovered(stepped) == [b"1", b"2", b"4"]
    assert "the record is damaged A retroactive consumer does not get this message" in caplog.text


def test_a_durable_subscription_needs_records_longer_than_they_are_kept() -> None:
    stepped = keeping("last-image")
    receiver = Recipient(stepped)
    subscription = receiver.subscribe_durably()
    publish(stepped, "1", "2", "3")
    assert (records(stepped), stepped.broker.topic("t").kept.count) == (3, 1)
    accept(subscription, *receiver.take())
    stepped.run()
    assert (records(stepped), recovered(stepped)) == (1, [b"3"])


def test_a_new_durable_subscription_can_begin_with_the_first_that_is_about_to_be_kept() -> None:
    stepped = keeping("fixed-count", recovery_count=3)
    put(stepped, "1")
    stepped.run_turns()
    put(stepped, "2")
    receiver = Recipient(stepped)
    receiver.subscribe_durably(retroactive=True)
    durable = stepped.broker.durables.existing("c", "d")
    assert (receiver.bodies(), durable.depth) == ([b"1", b"2"], 2)
    assert stepped.reopen().broker.durables.existing("c", "d").depth == 2


def test_a_new_durable_subscription_can_begin_with_what_is_kept() -> None:
    stepped = keeping("fixed-count", recovery_count=2)
    publish(stepped, "1", "2", "3")
    receiver = Recipient(stepped)
    subscription = receiver.subscribe_durably(retroactive=True)
    publish(stepped, "4")
    durable = stepped.broker.durables.existing("c", "d")
    assert (durable.depth, receiver.bodies()) == (3, [b"2", b"3", b"4"])
    leave(subscription)
    stepped.run()
    again = stepped.reopen()
    receiver = Recipient(again)
    receiver.subscribe_durably(retroactive=True)
    assert receiver.bodies() == [b"2", b"3", b"4"]
    assert again.broker.durables.existing("c", "d").depth == 3


def test_what_a_failed_commit_had_is_not_kept() -> None:
    stepped = keeping("fixed-count", recovery_count=2)
    publish(stepped, "1")
    put(stepped, "refused")
    stepped.turn()
    stepped.commit(StoreFull("full"))
    stepped.advance(1)
    stepped.run()
    again = stepped.reopen()
    assert (again.broker.topic("t").kept.count, recovered(again)) == (1, [b"1"])
    publish(again, "2", "3")
    assert (recovered(again), records(again)) == ([b"2", b"3"], 2)


@pytest.mark.parametrize("restarts", [False, True])
def test_when_the_policy_ends_what_was_kept_goes_step_by_step(restarts: bool, monkeypatch: Any) -> None:
    monkeypatch.setattr("quire.broker.topics.topic.LET_GO_AT_ONCE", 3)
    stepped = keeping("fixed-count")
    publish(stepped, *"123456789")
    if restarts:
        stepped = stepped.reopen(settings())
    else:
        stepped.broker.reload(settings())
    settle(stepped)
    assert (records(stepped), recovered(stepped), stepped.broker.core.stored_bytes) == (0, [], 0)


def test_when_a_policy_begins_what_comes_from_then_on_is_kept() -> None:
    stepped = SteppedBroker(settings())
    publish(stepped, "1")
    stepped.broker.reload(settings(policy={"subscription_recovery_policy": "fixed-count"}))
    publish(stepped, "2")
    assert (recovered(stepped), records(stepped)) == ([b"2"], 1)
