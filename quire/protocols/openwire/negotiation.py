"""``WireFormatInfo``, in which both sides say what they can do, and how frames look once they agree.

Frames are in the loose encoding, each with its size, without a cache of objects, whatever the peer could do besides.
"""

from dataclasses import dataclass, replace
from typing import Any

from quire.errors import UnsupportedVersion
from quire.protocols.openwire.commands import VERSIONS, WireFormatInfo
from quire.protocols.openwire.primitives import Tag, Typed, read_map, write_map

DEFAULT_MAX_FRAME_SIZE = 100 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class WireFormat:
    """How frames look in one direction, and what else the two sides agree on."""

    version: int = VERSIONS[-1]  # of OpenWire, 1 to 12
    stack_traces: bool = False  # whether exceptions carry their stack and their cause
    max_frame_size: int = DEFAULT_MAX_FRAME_SIZE  # of a frame without its size prefix, in octets
    tcp_no_delay: bool = True
    inactivity_ms: int = 30_000  # after which silence a connection is dead, in ms; 0 = never
    initial_delay_ms: int = 10_000  # how long that is not looked at after the start, in ms

    @classmethod
    def agreed(cls, own: "WireFormat", peer: "WireFormat") -> "WireFormat":
        """What both sides can do; ``UnsupportedVersion`` if the peer has none of the versions that there are."""
        version = min(own.version, peer.version)
        if version not in VERSIONS:
            raise UnsupportedVersion(f"the peer offers version {peer.version} of OpenWire", version=peer.version)
        return replace(
            own,
            version=version,
            stack_traces=own.stack_traces and peer.stack_traces,
            max_frame_size=_smaller(own.max_frame_size, peer.max_frame_size),
            tcp_no_delay=own.tcp_no_delay and peer.tcp_no_delay,
            inactivity_ms=min(own.inactivity_ms, peer.inactivity_ms),
            initial_delay_ms=min(own.initial_delay_ms, peer.initial_delay_ms),
        )


FIRST = WireFormat()
"""How the first frame of both sides looks, whatever is agreed."""


def _smaller(own: int, peer: int) -> int:
    # A side that sets no limit says 0 or less.
    return min(own, peer) if own > 0 and peer > 0 else max(own, peer)


_MAX_PROPERTIES = 64
_MAX_PROPERTY = 512


def info_of(
    format: WireFormat,
    *,
    provider_name: str | None = None,
    provider_version: str | None = None,
    platform_details: str | None = None,
    host: str | None = None,
) -> WireFormatInfo:
    """The info that says that a side can do a format; ``host`` is what the client calls the broker."""
    properties = {
        "StackTraceEnabled": format.stack_traces,
        "CacheEnabled": False,
        "TcpNoDelayEnabled": format.tcp_no_delay,
        "SizePrefixDisabled": False,
        "CacheSize": Typed(Tag.INT, 0),
        "TightEncodingEnabled": False,
        "MaxFrameSize": Typed(Tag.LONG, format.max_frame_size),
        "MaxFrameSizeEnabled": True,
        "MaxInactivityDuration": Typed(Tag.LONG, format.inactivity_ms),
        "MaxInactivityDurationInitalDelay": Typed(Tag.LONG, format.initial_delay_ms),  # spelt so
    }
    texts = {
        "ProviderName": provider_name,
        "ProviderVersion": provider_version,
        "PlatformDetails": platform_details,
        "Host": host,
    }
    present = {name: text for name, text in texts.items() if text is not None}
    return WireFormatInfo(version=format.version, marshalled_properties=write_map(properties | present))


def format_of(info: WireFormatInfo) -> WireFormat:
    """What the sender of an info can do. What is absent, or of another type, is off."""
    properties = properties_of(info)

    def is_on(name: str) -> bool:
        return properties.get(name) is True

    def number(name: str) -> int:
        value = properties.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else 0

    return WireFormat(
        version=info.version,
        stack_traces=is_on("StackTraceEnabled"),
        max_frame_size=number("MaxFrameSize"),
        tcp_no_delay=is_on("TcpNoDelayEnabled"),
        inactivity_ms=max(number("MaxInactivityDuration"), 0),
        initial_delay_ms=max(number("MaxInactivityDurationInitalDelay"), 0),
    )


def properties_of(info: WireFormatInfo) -> dict[str, Any]:
    """The properties of an info by their names on the wire, such as ``ProviderVersion``; too many are an error."""
    if info.marshalled_properties is None:
        return {}
    return read_map(info.marshalled_properties, max_entries=_MAX_PROPERTIES, max_size=_MAX_PROPERTY, max_depth=0)
