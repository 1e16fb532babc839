"""Heart-beats, both ways, and the limit for CONNECT."""

from quire.testing.stepped import SteppedBroker, SteppedClient
from tests.unit.broker.harness import filled, settings


def pass_time(stepped: SteppedBroker, seconds: float) -> None:
    for _ in range(round(seconds * 4)):
        stepped.advance(0.25)
        stepped.run()


def test_the_broker_agrees_to_beats_but_not_to_too_short_ones() -> None:
    stepped = SteppedBroker()
    for asked, answered in (("0,0", "0,0"), ("5000,0", "0,5000"), ("1,20000", "20000,1000")):
        (connected,) = stepped.connect(headers={"heart-beat": asked}).take("CONNECTED")
        assert connected.headers["heart-beat"] == answered


def test_the_broker_beats_as_often_as_agreed() -> None:
    stepped = SteppedBroker()
    client = stepped.connect(headers={"heart-beat": "0,2000"})
    client.take("CONNECTED")
    for _ in range(10):
        pass_time(stepped, 1)
        client.take("MESSAGE")
    assert 5 <= client.beats <= 6


def test_a_silent_client_is_closed_after_its_grace() -> None:
    stepped = SteppedBroker(settings(stomp={"heart_beat_grace": 2.0}))
    client = stepped.connect(headers={"heart-beat": "2000,0"})
    pass_time(stepped, 3.5)
    assert client.errors() == []
    pass_time(stepped, 1)
    assert client.errors() == ["connection-timeout"]
    assert client.connection.closed


def test_anything_the_client_sends_counts_as_a_beat() -> None:
    stepped = SteppedBroker()
    client = stepped.connect(headers={"heart-beat": "1000,0"})
    for number in range(10):
        pass_time(stepped, 1)
        client.feed(b"\n" if number % 2 else b"SEND\ndestination:/queue/q\n\n\0")
    assert client.errors() == []


def test_beats_that_are_not_read_because_the_output_is_blocked_count_too() -> None:
    stepped = SteppedBroker(settings(stomp={"heart_beat_grace": 2.0}))
    client = stepped.connect(headers={"heart-beat": "1000,0"})
    client.connection.pause_reading("output")
    for _ in range(20):
        client.connection.unread += 1
        pass_time(stepped, 1)
    assert client.errors() == []
    pass_time(stepped, 5)
    assert client.errors() == ["connection-timeout"]


def test_a_client_whose_output_is_blocked_a_second_time_is_measured_anew() -> None:
    stepped = SteppedBroker(settings(stomp={"heart_beat_grace": 2.0}))
    client = stepped.connect(headers={"heart-beat": "1000,0"})
    client.connection.unread = 1000
    pass_time(stepped, 2)
    client.connection.unread = 0
    client.feed(b"\n")
    pass_time(stepped, 1.5)
    for _ in range(10):
        client.connection.unread += 1
        pass_time(stepped, 1)
    assert client.errors() == []


def test_a_held_producer_may_be_silent_as_long_as_it_is_held() -> None:
    stepped = filled(1, store={"limit": 1}, producer={"hold_limit": 30.0})
    client = stepped.connect(headers={"heart-beat": "1000,0"})
    client.send("q", b"held")
    pass_time(stepped, 20)
    assert client.session.held
    assert client.errors() == []
    pass_time(stepped, 15)
    assert client.errors() == ["producer-held"]


def test_without_beats_a_client_may_be_silent() -> None:
    stepped = SteppedBroker()
    client = stepped.connect()
    pass_time(stepped, 100)
    assert client.errors() == []
    assert client.beats == 0


def test_a_connection_without_connect_is_closed() -> None:
    stepped = SteppedBroker(settings(stomp={"connect_timeout": 10.0}))
    silent = SteppedClient(stepped, "silent")
    silent.feed(b"CONN")
    pass_time(stepped, 9)
    assert not silent.connection.closed
    pass_time(stepped, 2)
    assert silent.errors() == ["connection-timeout"]


def test_no_timer_is_left_of_a_closed_connection() -> None:
    stepped = SteppedBroker()
    before = timers(stepped)
    client = stepped.connect(headers={"heart-beat": "1000,1000"})
    assert timers(stepped) > before
    client.vanish()
    assert timers(stepped) == before


def timers(stepped: SteppedBroker) -> int:
    """How many calls are still to be made."""
    return len([timer for _, _, timer in stepped.scheduler._heap if timer.callback is not None])
