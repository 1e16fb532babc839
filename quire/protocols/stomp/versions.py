"""The versions of STOMP, and what CONNECT and CONNECTED agree on: version and heart-beats."""

from enum import StrEnum

from quire.errors import InvalidHeader, ProtocolViolation, UnsupportedVersion
from quire.protocols.stomp.frames import Head


class Version(StrEnum):
    """A version of the protocol; later ones compare greater."""

    V1_0 = "1.0"
    V1_1 = "1.1"
    V1_2 = "1.2"


def negotiate(head: Head) -> Version:
    """Choose the version of a connection (STOMP 1.2, "Protocol Negotiation").

    Args:
        head: of the CONNECT or STOMP frame. Without ``accept-version`` the client speaks 1.0 only.

    Raises:
        UnsupportedVersion: there is none; ``data`` has ``offered`` and ``supported``.
    """
    accepted = head.headers.get("accept-version", Version.V1_0)
    offered = {version.strip() for version in accepted.split(",")}
    common = [version for version in Version if version in offered]
    if not common:
        raise UnsupportedVersion(
            f"accept-version is {accepted[:60]!r}; the broker speaks {', '.join(Version)}",
            offered=accepted[:60],
            supported=list(Version),
        )
    return max(common)


def agreed(head: Head) -> Version:
    """Read the version that the server chose.

    Raises:
        ProtocolViolation: the server chose a version that does not exist.
    """
    version = head.headers.get("version", Version.V1_0)
    try:
        return Version(version)
    except ValueError:
        raise ProtocolViolation(f"the server chose version {version[:60]!r}", version=version[:60]) from None


def heart_beat(head: Head) -> tuple[int, int]:
    """Read the ``heart-beat`` header of CONNECT or CONNECTED (STOMP 1.2, "Heart-beating").

    Returns:
        How often the sender of the frame can send, and how often it wants to receive, in milliseconds; 0 for never.
        Without the header both are 0.

    Raises:
        InvalidHeader: the header is not two whole numbers, neither negative, with a comma between them.
    """
    text = head.headers.get("heart-beat", "0,0")
    numbers = [number.strip() for number in text.split(",")]
    if len(numbers) != 2 or not all(number.isascii() and number.isdecimal() and len(number) < 12 for number in numbers):
        raise InvalidHeader(
            f"heart-beat is {text[:60]!r}: write two numbers of milliseconds, as 10000,10000",
            header="heart-beat",
            value=text[:60],
        )
    return int(numbers[0]), int(numbers[1])
