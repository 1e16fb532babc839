"""What ``quire perf`` makes of a broker's refusals."""

import pytest

from quire.cli.perf.load import refusal
from quire.errors import LimitExceeded, ProtocolViolation


def test_an_error_of_quire_keeps_its_type() -> None:
    frame = b"RECEIPT\nreceipt-id:1\n\n\0ERROR\ncode:limit-exceeded\nmessage:the body: too large\n\ntext\0"
    error = refusal(frame)
    assert isinstance(error, LimitExceeded)
    assert str(error) == "the body: too large"


@pytest.mark.parametrize(
    ("frame", "text"),
    [
        (b"ERROR\nmessage:Bad CONNECT\ncontent-type:text/plain\n\nAccess refused\0", "Bad CONNECT"),
        (b"ERROR\n\n\0", "the broker sent an error without a message"),
    ],
)
def test_an_error_of_another_broker_is_told_as_it_is(frame: bytes, text: str) -> None:
    error = refusal(frame)
    assert isinstance(error, ProtocolViolation)
    assert str(error) == text
