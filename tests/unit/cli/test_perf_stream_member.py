"""What a member of a group reads from what it gets."""

import pytest

from quire.cli.perf.stream_member import StreamMessage


@pytest.mark.parametrize(("ack", "epoch"), [("2101.0.7-1", 7), ("17.r.12-a-b", 12)])
def test_the_epoch_is_read_from_the_id_of_the_acknowledgement(ack: str, epoch: int) -> None:
    assert StreamMessage({"ack": ack}, b"").epoch == epoch


def test_a_message_tells_its_place_and_its_number() -> None:
    message = StreamMessage({"partition": "3", "offset": "2101", "redelivered": "true"}, b"000000000042xxx")
    assert (message.place, message.number, message.is_redelivered) == ((3, 2101), 42, True)
    assert not StreamMessage({}, b"").is_redelivered


def test_a_marker_is_no_message() -> None:
    assert StreamMessage({"event": "lease-lost"}, b"").event == "lease-lost"
    assert StreamMessage({}, b"").event == ""
