"""What CONNECT and CONNECTED agree on."""

import pytest

from quire.errors import InvalidHeader, ProtocolViolation, UnsupportedVersion
from quire.protocols.stomp.frames import Head, Version, agreed, heart_beat, negotiate


def connect(name: str = "", value: str = "") -> Head:
    return Head(b"CONNECT", ((name, value),) if name else ())


@pytest.mark.parametrize(
    ("accepted", "version"),
    [
        ("1.0", "1.0"),
        ("1.1", "1.1"),
        ("1.0,1.1,1.2", "1.2"),
        ("1.2,1.1", "1.2"),
        ("1.1, 2.0", "1.1"),
        ("1.0,1.2", "1.2"),
    ],
)
def test_the_highest_common_version_is_chosen(accepted: str, version: str) -> None:
    assert negotiate(connect("accept-version", accepted)) is Version(version)


def test_without_accept_version_it_is_1_0() -> None:
    assert negotiate(connect()) is Version.V1_0


@pytest.mark.parametrize("accepted", ["", "2.0", "1", "1.3,1.4", "1.1.0"])
def test_no_common_version(accepted: str) -> None:
    with pytest.raises(UnsupportedVersion) as raised:
        negotiate(connect("accept-version", accepted))
    assert raised.value.data == {"offered": accepted, "supported": ["1.0", "1.1", "1.2"]}


def test_the_version_of_connected() -> None:
    assert agreed(Head(b"CONNECTED", (("version", "1.1"),))) is Version.V1_1
    assert agreed(Head(b"CONNECTED")) is Version.V1_0
    with pytest.raises(ProtocolViolation):
        agreed(Head(b"CONNECTED", (("version", "1.3"),)))


@pytest.mark.parametrize(("text", "both"), [("0,0", (0, 0)), ("10000,5000", (10000, 5000)), (" 1 , 2 ", (1, 2))])
def test_heart_beat(text: str, both: tuple[int, int]) -> None:
    assert heart_beat(connect("heart-beat", text)) == both


def test_without_heart_beat_there_is_none() -> None:
    assert heart_beat(connect()) == (0, 0)


@pytest.mark.parametrize("text", ["", "1", "1,", "1,2,3", "-1,0", "a,b", "1.5,1", "1_0,1", "٣,1", "9" * 5000 + ",1"])
def test_bad_heart_beat(text: str) -> None:
    with pytest.raises(InvalidHeader) as raised:
        heart_beat(connect("heart-beat", text))
    assert raised.value.data["header"] == "heart-beat"
