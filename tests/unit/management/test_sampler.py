"""The sampler: rates, histories and concerns."""

from itertools import pairwise

import pytest

from quire.management import overview as overview_module
from quire.management.overview import HISTORY_BYTES, INTERVAL, SHARE, SPANS, attention, history
from quire.management.queues import Management, delete_queue
from quire.management.streams import ConsumerGroupManagement
from quire.management.tables import Selection, Wanted
from quire.testing.stepped import SteppedBroker
from tests.unit.broker.harness import consumer, drain, filled, settings
from tests.unit.management.managed import send


def codes(management: Management) -> list[tuple[str, str, str]]:
    """What needs attention: severity, code and name."""
    found, left_out = attention(management.broker, management.sampler)
    assert left_out == 0
    return [(each.severity, each.code, each.name) for each in found]


def passes(stepped: SteppedBroker, management: Management, seconds: float) -> None:
    """Let time go by, and sample at its end."""
    stepped.advance(seconds)
    stepped.run()
    management.sampler.sample()


def test_rates_are_those_between_two_samples() -> None:
    stepped = filled(10)
    management = Management(stepped.broker)
    management.sampler.sample()
    assert management.queue("q").in_rate == 0  # nothing is known of the time before
    send(stepped, b"x")
    client = consumer(stepped)
    assert len(drain(stepped, client)) == 11
    passes(stepped, management, 4)
    queue = management.queue("q")
    assert (queue.in_rate, queue.out_rate) == (0.25, 2.75)
    assert (management.sampler.latest.in_rate, management.sampler.latest.out_rate) == (0.25, 2.75)
    passes(stepped, management, 4)
    assert management.sampler.rates(stepped.queue("q")) == (0, 0)


def test_what_comes_between_two_samples_counts_from_its_first_message() -> None:
    stepped = SteppedBroker(settings())
    management = Management(stepped.broker)
    management.sampler.sample()
    send(stepped, b"x", "new")
    passes(stepped, management, 2)
    assert management.queue("new").in_rate == 0.5


def test_what_is_deleted_is_forgotten() -> None:
    stepped = filled(1)
    management = Management(stepped.broker)
    management.sampler.sample()
    queue = stepped.queue("q")
    assert management.sampler.of(queue) is not None
    for _ in delete_queue(management.broker, "q"):
        stepped.run()
    management.sampler.sample()
    assert management.sampler.of(queue) is None


def test_the_history_of_an_object_begins_with_its_traffic() -> None:
    stepped = filled(1)
    management = Management(stepped.broker)
    for _ in range(3):
        passes(stepped, management, 2)
    assert history(management.broker, management.sampler, "queue", "q", "5m").at == []
    send(stepped, b"x")
    send(stepped, b"x")
    passes(stepped, management, 2)
    passes(stepped, management, 2)
    found = history(management.broker, management.sampler, "queue", "q", "5m")
    assert (found.entered, found.left, found.depth) == ([None] * 3 + [1, 0], [None] * 3 + [0, 0], [None] * 3 + [3, 3])
    assert found.oldest[-1] == 10
    assert found.at == sorted(found.at)
    broker = history(management.broker, management.sampler, "broker", "", "5m")
    assert (broker.at, broker.entered) == (found.at, [0, 0, 0, 1, 0])


def test_a_coarse_history_has_the_mean_rates_of_its_time() -> None:
    stepped = filled(0)
    management = Management(stepped.broker)
    management.sampler.sample()
    for _ in range(60):
        send(stepped, b"x")
        passes(stepped, management, 2)
    hour = history(management.broker, management.sampler, "broker", "", "1h")
    assert hour.entered[1:] == [0.5, 0.5]
    assert hour.depth == [0, 30, 60]


def test_a_history_has_the_points_of_its_span_and_no_older_ones() -> None:
    stepped = filled(0)
    management = Management(stepped.broker)
    for _ in range(400):
        passes(stepped, management, 2)
    minutes = history(management.broker, management.sampler, "broker", "", "5m")
    assert len(minutes.at) == SPANS[0].points
    assert minutes.at[-1] - minutes.at[0] < SPANS[0].seconds * 1000
    passes(stepped, management, 1000)  # nothing was sampled for long
    assert len(history(management.broker, management.sampler, "broker", "", "5m").at) == 1


@pytest.mark.parametrize("jump", [-3600.0, 3600.0])
def test_a_history_goes_on_when_the_clock_is_set(jump: float) -> None:
    stepped = filled(0)
    management = Management(stepped.broker)
    for _ in range(10):
        passes(stepped, management, 2)
    stepped.clock.jump(jump)
    for _ in range(10):
        passes(stepped, management, 2)
    points = history(management.broker, management.sampler, "broker", "", "5m").at
    assert len(points) == 20
    assert stepped.clock.now_ms() - points[-1] < 2000
    assert [after - before for before, after in pairwise(points)] == [2000] * 19


def test_the_number_of_histories_is_bounded_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview_module, "MOST_HISTORIES", 2)
    stepped = SteppedBroker(settings())
    management = Management(stepped.broker)
    management.sampler.sample()
    for name in "abc":
        send(stepped, b"x", name)
    passes(stepped, management, 2)
    assert management.sampler.latest.histories == 2
    send(stepped, b"x", "c")
    passes(stepped, management, 2)
    assert history(management.broker, management.sampler, "queue", "c", "5m").at == []
    passes(stepped, management, overview_module.QUIET)
    send(stepped, b"x", "c")
    passes(stepped, management, 2)  # the quiet ones give theirs up
    assert history(management.broker, management.sampler, "queue", "c", "5m").depth[-1] == 3
    assert management.sampler.latest.histories == 2
    assert HISTORY_BYTES < 6000


def test_the_sampler_works_in_steps_and_rests_longer_after_more_work(monkeypatch: pytest.MonkeyPatch) -> None:
    stepped = SteppedBroker(settings())
    for number in range(100):
        stepped.queue(f"q{number}")
    management = Management(stepped.broker)
    monkeypatch.setattr(overview_module, "BUDGET", -1.0)  # every step is over at once
    steps: list[bool] = []
    step = overview_module.SamplePass.step

    def slow(self: overview_module.SamplePass) -> bool:
        stepped.clock.advance(0.1)
        steps.append(True)
        return step(self)

    monkeypatch.setattr(overview_module.SamplePass, "step", slow)
    management.sampler.start()
    stepped.run()
    taken = len(steps)
    assert taken >= 100 // overview_module.BETWEEN
    assert management.sampler.latest.at_ms > 0
    stepped.advance(INTERVAL)
    stepped.run()
    assert len(steps) == taken
    stepped.advance(taken * 0.1 * SHARE)
    stepped.run()
    assert len(steps) > taken


# What needs attention.


def test_messages_without_a_consumer_need_attention_after_some_seconds() -> None:
    stepped = filled(3)
    management = Management(stepped.broker)
    management.sampler.sample()
    assert codes(management) == []
    passes(stepped, management, 11)
    assert codes(management) == [("warning", "no-consumer", "q")]
    found = Selection(management.table(), Wanted(only="attention"))
    assert [step for step in found] == [None]
    assert [queue.destination.name for queue in found.found] == ["q"]
    drain(stepped, consumer(stepped))
    passes(stepped, management, 2)
    assert codes(management) == []


def test_a_consumer_that_acknowledges_nothing_needs_attention() -> None:
    stepped = filled(3)
    consumer(stepped, prefetchSize="1")
    management = Management(stepped.broker)
    management.sampler.sample()
    passes(stepped, management, 31)
    (found,) = attention(management.broker, management.sampler)[0]
    assert (found.code, found.name, found.since_seconds) == ("consumers-idle", "q", 31)
    assert "has credit" in found.text or "messages" in found.text


def test_old_messages_are_worse_with_their_age() -> None:
    stepped = filled(100)
    client = consumer(stepped, prefetchSize="1")
    management = Management(stepped.broker)
    seen = []
    for seconds in (200, 200, 4000):
        passes(stepped, management, seconds)
        client.ack(client.take("MESSAGE")[0])
        stepped.run()
        management.sampler.sample()
        seen += [code[:2] for code in codes(management)]
    assert seen == [("warning", "old-message"), ("critical", "old-message")]


def test_dead_letters_and_paused_queues_need_attention() -> None:
    stepped = filled(1, "ActiveMQ.DLQ")
    management = Management(stepped.broker)
    management.create("p")
    management.pause("p")
    management.sampler.sample()
    assert codes(management) == [("warning", "dead-letters", "ActiveMQ.DLQ"), ("info", "paused", "p")]


def test_limits_that_are_near_need_attention() -> None:
    stepped = filled(10, store={"limit": 500})
    management = Management(stepped.broker)
    management.sampler.sample()
    assert ("critical", "store-near-limit", "") in codes(management)


def test_producers_that_are_held_need_attention_with_the_cause() -> None:
    stepped = filled(10, store={"limit": 500})
    stepped.connect().send("q", b"more")
    stepped.run()
    stepped.advance(12)
    management = Management(stepped.broker)
    management.sampler.sample()
    held = next(each for each in attention(management.broker, management.sampler)[0] if each.code == "producers-held")
    assert (held.severity, held.since_seconds) == ("critical", 12)
    assert "store-limit" in held.text


def test_only_the_worst_are_told_and_the_others_counted() -> None:
    stepped = SteppedBroker(settings())
    for number in range(600):
        send(stepped, b"x", f"q{number:03d}")
    send(stepped, b"x", "q111")
    management = Management(stepped.broker)
    management.sampler.sample()
    passes(stepped, management, 20)
    found, left_out = attention(management.broker, management.sampler)
    assert (len(found), left_out) == (50, 550)
    assert found[0].name == "q111"


def test_the_progress_of_a_reader_that_has_ended_is_no_concern() -> None:
    stepped = SteppedBroker(settings())
    stream = stepped.broker.stream("s")
    management = Management(stepped.broker)
    ConsumerGroupManagement(management).progress("s", "query", {0: 1})
    stream.pins.set("query", {0: 1}, 3_600_000)
    stepped.connect().frame("SEND", {"destination": "/stream/s"}, b"x")
    stepped.run()
    management.sampler.sample()
    passes(stepped, management, 400)
    assert codes(management) == [("warning", "group-lags", "s/query")], "it is there, and reads nothing"
    stream.pins.release("query")
    stepped.run()
    passes(stepped, management, 1)
    assert codes(management) == []


def test_a_group_without_members_and_a_durable_that_is_offline_are_told_of() -> None:
    stepped = SteppedBroker(settings())
    client = stepped.connect(headers={"client-id": "c"})
    client.frame("SUBSCRIBE", {"destination": "/topic/t", "id": "1", "durable-subscription-name": "d", "ack": "client"})
    stepped.run()
    client.vanish()
    stepped.connect().frame("SEND", {"destination": "/topic/t"}, b"x")
    stepped.broker.stream("s")
    stepped.run()
    management = Management(stepped.broker)
    management.sampler.sample()
    passes(stepped, management, 400)
    assert codes(management) == [("info", "durable-offline", "c/d")]
