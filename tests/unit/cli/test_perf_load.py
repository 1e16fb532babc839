"""The load of ``quire perf``: its frames, its shares, its pace."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.cli.perf.load import SCENARIOS, Load, Pace, stamps
from quire.clock import ManualClock
from quire.protocols.stomp.decoder import Decoder, Limits
from tests.fuzz.stomp_decoder import decode, fault_of


def decoded(load: Load, first: int, count: int, last: int) -> list[tuple[dict[str, str], bytes | None, bytes]]:
    decoder = Decoder(Limits())
    frames = []
    for head, receipt, body in decode(decoder, b"".join(load.frames(first, count, last, 1.5))):
        assert head.command == b"SEND"
        frames.append((head.headers, receipt, bytes(body)))
    assert fault_of(decoder) is None
    return frames


def test_every_frame_asks_for_its_receipt() -> None:
    frames = decoded(Load(10, size=3, queue="q"), first=4, count=2, last=9)
    assert [receipt for _, receipt, _ in frames] == [b"4", b"5"]
    assert frames[0][0] == {"destination": "/queue/q", "content-length": "3", "persistent": "true"}
    assert [body for _, _, body in frames] == [b"xxx", b"xxx"]


def test_without_receipts_the_last_frame_asks_all_the_same() -> None:
    frames = decoded(Load(3, receipts=False, persistent=False), first=0, count=3, last=2)
    assert [receipt for _, receipt, _ in frames] == [None, None, b"2"]
    assert {headers["persistent"] for headers, _, _ in frames} == {"false"}


def test_every_hundredth_body_carries_the_time() -> None:
    load = Load(300)
    bodies = [body for _, _, body in decoded(load, first=99, count=102, last=299)]
    assert {len(body) for body in bodies} == {1024}
    assert [number for number, body in enumerate(bodies, 99) if body.startswith(b"sent:")] == [100, 200]
    assert list(stamps(b"".join(load.frames(0, 300, 299, 1.5)))) == [1.5, 1.5, 1.5]


@pytest.mark.parametrize("load", [Load(1, size=24), Load(1, backlog=True)])
def test_bodies_without_room_or_use_for_the_time_carry_none(load: Load) -> None:
    assert list(stamps(b"".join(load.frames(0, 1, 0, 1.5)))) == []


@given(st.integers(1, 1000), st.integers(1, 20))
def test_shares_are_even_and_together_all(messages: int, producers: int) -> None:
    shares = Load(messages, producers=producers).shares()
    assert len(shares) == producers
    assert sum(shares) == messages
    assert max(shares) - min(shares) <= 1


def test_every_scenario_is_a_load() -> None:
    for scenario in SCENARIOS.values():
        assert Load(10, **scenario.changes).messages == 10
    assert Load(1).queue != Load(1).queue


def test_a_pace_lets_pass_what_is_due() -> None:
    clock = ManualClock()
    pace = Pace(10.0, clock)
    assert pace.room(0, 5) == 1
    assert pace.wait(1) == pytest.approx(0.1)
    clock.advance(0.35)
    assert (pace.room(1, 5), pace.room(1, 2), pace.room(6, 5)) == (3, 2, 0)
    assert pace.wait(1) == 0


def test_no_rate_is_no_limit() -> None:
    pace = Pace(0.0, ManualClock())
    assert (pace.room(100, 7), pace.wait(100)) == (7, 0)


@given(st.floats(0.5, 1000), st.lists(st.floats(0.001, 2), max_size=10))
def test_a_pace_is_kept_whenever_it_is_asked(rate: float, pauses: list[float]) -> None:
    clock = ManualClock()
    pace, sent = Pace(rate, clock), 0
    for pause in pauses:
        sent += pace.room(sent, 1000)
        assert sent <= clock.monotonic() * rate + 1
        clock.advance(pause)
