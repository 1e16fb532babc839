"""``WireFormatInfo``, in which both sides say what they can do, and what it means."""

from typing import Any

from quire.protocols.openwire.commands import WireFormatInfo
from quire.protocols.openwire.primitives import Tag, Typed, read_map, write_map
from quire.protocols.openwire.wire_format import UNLIMITED_CACHE, WireFormat

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
    """The info that says that a side can do a format.

    Args:
        format: the best that the side can do.
        provider_name: the name of the software, such as ``ActiveMQ``.
        host: what the client calls the broker.
    """
    properties = {
        "StackTraceEnabled": format.stack_traces,
        "CacheEnabled": format.cache_size > 0,
        "TcpNoDelayEnabled": format.tcp_no_delay,
        "SizePrefixDisabled": not format.size_prefix,
        "CacheSize": Typed(Tag.INT, format.cache_size),
        "TightEncodingEnabled": format.tight,
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
    """What the sender of an info can do. What is absent, or of another type, is off.

    Raises:
        ProtocolViolation: the properties are no map.
        LimitExceeded: there are too many properties, or one is too large.
    """
    properties = properties_of(info)

    def is_on(name: str) -> bool:
        return properties.get(name) is True

    def number(name: str) -> int:
        value = properties.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else 0

    size = number("CacheSize")
    return WireFormat(
        version=info.version,
        tight=is_on("TightEncodingEnabled"),
        cache_size=(size if 0 < size < UNLIMITED_CACHE else UNLIMITED_CACHE) if is_on("CacheEnabled") else 0,
        size_prefix=not is_on("SizePrefixDisabled"),
        stack_traces=is_on("StackTraceEnabled"),
        max_frame_size=number("MaxFrameSize"),
        tcp_no_delay=is_on("TcpNoDelayEnabled"),
        inactivity_ms=max(number("MaxInactivityDuration"), 0),
        initial_delay_ms=max(number("MaxInactivityDurationInitalDelay"), 0),
    )


def properties_of(info: WireFormatInfo) -> dict[str, Any]:
    """The properties of an info by their names on the wire, such as ``ProviderVersion``.

    Raises:
        ProtocolViolation: they are no map.
        LimitExceeded: there are too many, or one is too large.
    """
    if info.marshalled_properties is None:
        return {}
    return read_map(info.marshalled_properties, max_entries=_MAX_PROPERTIES, max_size=_MAX_PROPERTY, max_depth=0)
