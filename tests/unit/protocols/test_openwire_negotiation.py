"""What both sides say they can do, and what they agree on."""

import pytest

from quire.errors import LimitExceeded, ProtocolViolation, UnsupportedVersion
from quire.protocols.openwire.commands import WireFormatInfo
from quire.protocols.openwire.negotiation import FIRST, WireFormat, format_of, info_of, properties_of
from quire.protocols.openwire.primitives import Tag, Typed, write_map

ALL = WireFormat(12, True, 5000, True, 20_000, 3_000)
NOTHING = WireFormat(1, False, 5000, False, 0, 0)


@pytest.mark.parametrize("format", [ALL, NOTHING, FIRST])
def test_an_info_says_a_format(format: WireFormat) -> None:
    assert format_of(info_of(format)) == format


def test_an_info_offers_neither_the_cache_nor_the_tight_encoding_nor_frames_without_sizes() -> None:
    properties = properties_of(info_of(FIRST))
    offered = ("CacheEnabled", "TightEncodingEnabled", "SizePrefixDisabled")
    assert [properties[name] for name in offered] == [False, False, False]


def test_an_info_names_the_software() -> None:
    info = info_of(FIRST, provider_name="Quire", provider_version="1.0", platform_details="Python", host="h")
    properties = properties_of(info)
    named = {name: properties[name] for name in ("ProviderName", "ProviderVersion", "PlatformDetails", "Host")}
    assert named == {"ProviderName": "Quire", "ProviderVersion": "1.0", "PlatformDetails": "Python", "Host": "h"}
    assert "Host" not in properties_of(info_of(FIRST))


def test_what_is_absent_or_of_another_type_is_off() -> None:
    for octets in (None, write_map({}), write_map({"StackTraceEnabled": 1, "MaxFrameSize": "x"})):
        format = format_of(WireFormatInfo(version=9, marshalled_properties=octets))
        assert format == WireFormat(9, False, 0, False, 0, 0)


def test_agreed_is_what_both_can_do() -> None:
    assert WireFormat.agreed(ALL, ALL) == ALL
    assert WireFormat.agreed(ALL, NOTHING) == WireFormat.agreed(NOTHING, ALL) == NOTHING
    peer = WireFormat(10, False, 4000, True, 30_000, 2_000)
    assert WireFormat.agreed(ALL, peer) == WireFormat(10, False, 4000, True, 20_000, 2_000)


@pytest.mark.parametrize(("peer", "agreed"), [(0, 5000), (-1, 5000), (4999, 4999), (2**63 - 1, 5000)])
def test_a_limit_of_frames_that_is_not_positive_is_none(peer: int, agreed: int) -> None:
    assert WireFormat.agreed(ALL, WireFormat(max_frame_size=peer)).max_frame_size == agreed


@pytest.mark.parametrize("version", [0, -1])
def test_a_version_that_there_is_not_is_refused(version: int) -> None:
    with pytest.raises(UnsupportedVersion):
        WireFormat.agreed(FIRST, WireFormat(version=version))


def test_a_later_version_is_not_agreed_on() -> None:
    assert WireFormat.agreed(FIRST, WireFormat(version=99)).version == 12


def test_properties_are_limited() -> None:
    def of(properties: dict[str, object]) -> WireFormatInfo:
        return WireFormatInfo(version=12, marshalled_properties=write_map(properties))

    assert len(properties_of(of({str(number): number for number in range(64)}))) == 64
    assert properties_of(of({"a": "x" * 512}))["a"] == "x" * 512
    too_much: list[dict[str, object]] = [
        {str(number): number for number in range(65)},
        {"a": "x" * 513},
        {"x" * 513: 1},
        {"a": Typed(Tag.BIG_STRING, "x" * 513)},
        {"a": bytes(513)},
        {"a": {}},
        {"a": []},
    ]
    for properties in too_much:
        with pytest.raises(LimitExceeded):
            properties_of(of(properties))
    with pytest.raises(ProtocolViolation):
        properties_of(WireFormatInfo(version=12, marshalled_properties=b"\0\0"))
