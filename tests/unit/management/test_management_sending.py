"""Sending from the command line and over HTTP: in steps, with a client's limits."""

import pytest

from quire.errors import BrokerStopping, InvalidHeader, LimitExceeded, ProducerHeld
from quire.management.messages import STEP, Draft
from quire.management.queues import Management
from quire.testing.stepped import SteppedBroker
from tests.unit.broker.harness import consumer, filled, settings
from tests.unit.management.managed import browse


def test_sent_message_reaches_a_consumer_as_a_client_s_own_would() -> None:
    stepped = SteppedBroker()
    client = consumer(stepped)
    list(Management(stepped.broker).send("q", Draft(b"a\0b", {"colour": "re:d"}, 7, persistent=False)))
    stepped.run()
    (frame,) = client.take("MESSAGE")
    assert frame.body == b"a\0b"
    assert (frame.headers["colour"], frame.headers["priority"], frame.headers["persistent"]) == ("re:d", "7", "false")


def test_many_are_sent_in_steps_with_an_id_each() -> None:
    stepped = SteppedBroker()
    ids = []
    for step in Management(stepped.broker).send("q", Draft(b"x", {}), 2500):
        assert len(step) <= STEP
        stepped.run()
        ids += step
    assert len(set(ids)) == 2500
    assert stepped.queue("q").depth == 2500


def test_send_that_finds_no_room_is_refused() -> None:
    stepped = filled(1, store={"limit": 1})
    with pytest.raises(ProducerHeld):
        list(Management(stepped.broker).send("q", Draft(b"x", {})))
    list(Management(stepped.broker).send("q", Draft(b"x", {}, persistent=False)))


def test_send_is_refused_while_the_store_takes_no_writes() -> None:
    stepped = filled(1)
    stepped.broker.core.store_error = BrokerStopping("any error")
    with pytest.raises(BrokerStopping):
        list(Management(stepped.broker).send("q", Draft(b"x", {})))


@pytest.mark.parametrize("header", ["", "a\0", "destination", "message-id", "transaction", "producer-id"])
def test_headers_that_only_a_session_may_have_are_refused(header: str) -> None:
    with pytest.raises(InvalidHeader):
        list(Management(SteppedBroker().broker).send("q", Draft(b"x", {header: "1"})))


def test_send_has_the_limits_of_stomp() -> None:
    limits = {"max_headers": 1, "max_line": 10, "max_body": 5}
    management = Management(SteppedBroker(settings(stomp=limits)).broker)
    list(management.send("q", Draft(b"12345", {"a": "b"})))
    for draft in (Draft(b"123456", {}), Draft(b"", {"a": "b" * 9}), Draft(b"", {"a": "b", "c": "d"})):
        with pytest.raises(LimitExceeded):
            list(management.send("q", draft))
    with pytest.raises(LimitExceeded, match="the header 'a' is longer than 10 bytes"):
        list(management.send("q", Draft(b"", {"a": "b" * 9})))


@pytest.mark.slow
def test_two_hundred_thousand_messages_never_make_one_long_step() -> None:
    count = 200_000
    stepped = SteppedBroker()
    management = Management(stepped.broker)
    for _ in management.send("q", Draft(b"x", {}), count):
        stepped.run()
    seen, pages, after = 0, 0, None
    while True:
        page = browse(management.broker, "q", after, 1000)
        assert len(page.messages) <= 1000
        sequences = [message.sequence for message in page.messages]
        assert sequences == list(range(seen + 1, seen + len(sequences) + 1))
        seen, pages, after = seen + len(sequences), pages + 1, page.next
        if after is None:
            break
    assert (seen, pages) == (count, count // 1000)
    steps = 0
    for removed in management.purge("q"):
        assert removed <= STEP
        commits = stepped.broker.core.commits_done
        list(management.send("other", Draft(b"in between", {})))
        stepped.run()
        assert stepped.broker.core.commits_done <= commits + 2  # a sender waits for one step, not for the purge
        assert stepped.queue("other").depth == steps + 1
        steps += 1
    assert steps == count // STEP
    assert stepped.queue("q").depth == 0
