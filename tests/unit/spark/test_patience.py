"""How long something is tried again, and with which pauses."""

import pytest

from quire.clock import ManualClock
from quire.errors import BrokerUnreachable, InvalidArgument
from quire.spark.online import LONGEST_BACK_OFF, Patience


class Broker:
    """A broker that is away for a time, on a clock that goes on while somebody waits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, away: float) -> None:
        self.clock = ManualClock()
        self.pauses: list[float] = []
        self._away = away
        monkeypatch.setattr("quire.spark.online.time.sleep", self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.clock.advance(seconds)

    def ask(self) -> str:
        if self.clock.monotonic() < self._away:
            raise BrokerUnreachable("nobody answers")
        return "here"


@pytest.mark.parametrize("away", [0.0, 0.05, 3.0, 45.0, 57.0])
def test_a_broker_is_waited_for_as_long_as_the_patience_lasts(monkeypatch: pytest.MonkeyPatch, away: float) -> None:
    broker = Broker(monkeypatch, away)
    assert Patience(60, "readTimeout", broker.clock).tried(broker.ask) == "here"
    assert broker.clock.monotonic() <= away + LONGEST_BACK_OFF
    assert broker.pauses == sorted(broker.pauses)


def test_a_broker_that_stays_away_is_told_of_with_the_option_that_says_how_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = Broker(monkeypatch, 1000)
    with pytest.raises(BrokerUnreachable, match=r"nobody answers, after 34 tries in 60 s \(readTimeout\)"):
        Patience(60, "readTimeout", broker.clock).tried(broker.ask)
    assert 57 < broker.clock.monotonic() <= 60


def test_what_does_not_pass_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(monkeypatch, 0)

    def ask() -> None:
        raise InvalidArgument("no")

    with pytest.raises(InvalidArgument, match=r"^no$"):
        Patience(60, "readTimeout", broker.clock).tried(ask)
    assert broker.pauses == []


def test_each_part_that_succeeds_gives_new_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(monkeypatch, 0)
    tried = Patience(1, "readTimeout", broker.clock)
    for _ in range(10):
        for _ in range(2):
            tried.pause_after(BrokerUnreachable("away"))
        broker.clock.advance(50)
        tried.succeeded()
    assert broker.pauses == [0.1, 0.2] * 10
